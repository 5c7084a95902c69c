"""Schedules of all algorithms, executed: what run.json and the traces state; choosing the fastest by measurement."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from hios import ALGORITHMS, Costs, Graph, HiosError, Problem, Schedule, schedule
from hios.core.schedule import Placement, Plan, StagedPlan, StreamPlan
from hios.errors import PlatformError
from hios.files import artifacts
from hios.files.base import Platform
from hios.formats.settings import Settings
from hios.platforms.competitor import Competitor
from hios.platforms.cpu import core_probe
from hios.platforms.cpu.executing import CpuWorkers
from hios.platforms.program import ArenaPlan
from hios.platforms.reference import Reference
from hios.platforms.reference import rounding as reference_rounding
from hios.runtime.competitors import BASELINE, ScheduleEntry, competitors
from hios.runtime.session import LEAST_RUNS, PoolRunner, choose
from hios.schedulers import find
from hios.workers.arena import Arena
from tests.frontends.small_networks import Files, Model, write_files
from tests.problems import briefly
from tests.runtime.conftest import DEVICES, PROBES, RUNS, Session
from tests.runtime.schedules import one_by_one, random_plan, random_streams, run_schedules, schedule_of, write_schedules
from tests.runtime.small import Amplifying

LABELS = [
    "sequential",
    "one-group",
    "alternating",
    "idle-device",
    "streams",
    "merged",
    "merged-alternating",
    *(f"random-{seed}" for seed in range(1, 6)),
    *(f"streams-{count}" for count in range(1, 6)),
    "one-device-streams",
    "stream-each",
]


def _result(session: Session, label: str) -> dict[str, Any]:
    (labelled,) = [result for result in session.run["results"] if result["label"] == label]
    assert isinstance(labelled, dict)
    return labelled


def _latencies(session: Session) -> list[dict[str, Any]]:
    run = session.run
    return [entry["latency_ms"] for entry in (*run["ceilings"], run["baseline"], *run["references"], *run["results"])]


def test_random_plans_are_varied(graph: Graph, plans: dict[str, Plan]) -> None:
    """The plans that run have several groups in a stage, and edges in both directions between devices."""
    assert list(plans) == LABELS
    staged = [plan for plan in plans.values() if isinstance(plan, StagedPlan)]
    stages = [stage for plan in staged for row in plan.devices for stage in row]
    assert max(map(len, stages)) >= 3
    assert any(len(stage) > 1 and max(map(len, stage)) > 1 for stage in stages)
    for label in ("random-1", "streams-1", "streams-3"):
        home = {row.operator: row.device for row in schedule_of(graph, plans[label]).placements}
        crossing = {(home[edge.source], home[edge.target]) for edge in graph.edges}
        assert len(crossing) == DEVICES**2
    plan = plans["streams-3"]
    assert isinstance(plan, StreamPlan)
    assert [len(row) for row in plan.devices] == [3] * DEVICES
    stream_of = {
        operator: (device, stream)
        for device, row in enumerate(plan.devices)
        for stream, operators in enumerate(row)
        for operator in operators
    }
    waits = {(stream_of[graph.index[edge.source]], stream_of[graph.index[edge.target]]) for edge in graph.edges}
    for device in range(DEVICES):
        assert any(made != waiting and made[0] == waiting[0] == device for made, waiting in waits)


@pytest.mark.slow
def test_merged_plans_merge(session: Session, plans: dict[str, Plan]) -> None:
    """Both convolutions that expand a fire module's value run as one: in the same time, on streams of their own."""
    merges = [plan.merges for plan in map(plans.get, ("merged", "merged-alternating")) if isinstance(plan, StagedPlan)]
    assert list(map(len, merges)) == [8, 8]
    rows = {row["operator"]: row for row in _result(session, "merged")["measured"]}
    for module in range(2, 10):
        pair = [rows[f"fire{module}.expand{kernel}"] for kernel in ("1x1", "3x3")]
        assert [row["stream"] for row in pair] == [0, 1]
        assert len({(row["stage"], row["start_ms"], row["finish_ms"]) for row in pair}) == 1


def test_every_schedule_has_a_result(session: Session) -> None:
    """Results stand in the order of the schedules, with their devices."""
    assert [result["label"] for result in session.run["results"]] == LABELS
    assert _result(session, "streams")["devices"] == 1
    assert _result(session, "alternating")["devices"] == DEVICES


@pytest.mark.parametrize("label", LABELS)
def test_outputs_equal_eager(session: Session, label: str) -> None:
    """Whatever the plan, every output of every run was that of eager PyTorch, which is not trivial."""
    assert session.run["checked_against"] == "eager"
    # Outputs are up to 460 in size, and other kernels, as of a merged convolution, add up in another order.
    assert 0 <= _result(session, label)["largest_difference"] < 1e-3


@pytest.mark.parametrize("label", LABELS)
def test_measured_rows_are_the_schedule(session: Session, graph: Graph, plans: dict[str, Plan], label: str) -> None:
    """Every operator ran once, where the schedule says, and after all that it reads."""
    rows = _result(session, label)["measured"]
    assert sorted(row["operator"] for row in rows) == sorted(graph.index)
    expected = {row.operator: row for row in schedule_of(graph, plans[label]).placements}
    for row in rows:
        planned = expected[row["operator"]]
        assert (row["device"], row["stage"], row["stream"]) == (planned.device, planned.stage, planned.stream)
        assert 0 <= row["start_ms"] < row["finish_ms"]
    at = {row["operator"]: row for row in rows}
    for edge in graph.edges:
        assert at[edge.source]["finish_ms"] <= at[edge.target]["start_ms"]
    latency = _result(session, label)["latency_ms"]
    assert max(row["finish_ms"] for row in rows) <= max(latency["runs"])


@pytest.mark.parametrize("label", LABELS)
def test_operators_of_a_stream_follow_one_another(
    session: Session, graph: Graph, plans: dict[str, Plan], label: str
) -> None:
    """On one stream operators run in the order of the schedule without overlap, and so do stages of a device."""
    at = {row["operator"]: row for row in _result(session, label)["measured"]}
    streams: dict[tuple[int, int | None, int], list[dict[str, Any]]] = defaultdict(list)
    stages: dict[int, list[list[dict[str, Any]]]] = defaultdict(list)
    for planned in schedule_of(graph, plans[label]).placements:
        row = at[planned.operator]
        streams[planned.device, planned.stage, planned.stream].append(row)
        own = stages[planned.device]
        if planned.stage is not None and own and own[-1][0]["stage"] == planned.stage:
            own[-1].append(row)
        elif planned.stage is not None:
            own.append([row])
    for rows in streams.values():
        for before, after in pairwise(rows):
            assert before["finish_ms"] <= after["start_ms"]
    for device in stages.values():
        for earlier, later in pairwise(device):
            assert max(row["finish_ms"] for row in earlier) <= min(row["start_ms"] for row in later)


def test_latencies_are_those_of_the_runs(session: Session) -> None:
    """As many latencies as runs, warm-up left out, with their median; speedup and error follow from them."""
    for latency in _latencies(session):
        assert len(latency["runs"]) == RUNS == session.run["runs"]
        assert all(0 < value < math.inf for value in latency["runs"])
        assert latency["median"] == statistics.median(latency["runs"])
        assert latency["p20"] <= latency["median"] <= latency["p80"]
    baseline = session.run["baseline"]["latency_ms"]["median"]
    for result in session.run["results"]:
        median = result["latency_ms"]["median"]
        assert result["speedup"] == pytest.approx(baseline / median)
        assert result["prediction_error"] == pytest.approx((result["predicted_ms"] - median) / median)


def test_drift_is_told_from_errors(session: Session) -> None:
    """Schedules that know the speed of the machine when costs were measured have the drift of their devices since."""
    samples = session.run["probe"]["samples"]
    assert session.run["probe"]["version"] == core_probe.VERSION
    assert {sample["device"] for sample in samples} == set(range(DEVICES))
    for result in session.run["results"]:
        then = PROBES.get(result["label"])
        if then is None or then.version != core_probe.VERSION:
            assert not {"drift", "error_beyond_drift"} & result.keys()
            continue
        drift = 0.0
        for part, share, before in (("compute_ms", 0.75, 2.0), ("copy_ms", 0.25, 1.0)):
            times = [[s[part] for s in samples if s["device"] == device] for device in range(result["devices"])]
            drift += share * statistics.fmean(map(statistics.median, times)) / before
        assert result["drift"]["low"] <= result["drift"]["value"] <= result["drift"]["high"]
        assert result["drift"]["value"] == pytest.approx(drift)
        median = result["latency_ms"]["median"]
        assert result["error_beyond_drift"] == pytest.approx((drift * result["predicted_ms"] - median) / median)


def test_sequential_schedule_is_the_baseline(session: Session) -> None:
    """The sequential schedule does not run against itself: its speedup is exactly 1."""
    assert _result(session, "sequential")["latency_ms"] == session.run["baseline"]["latency_ms"]
    assert _result(session, "sequential")["speedup"] == 1.0
    assert _result(session, "one-group")["latency_ms"] != session.run["baseline"]["latency_ms"]


def test_ceiling_and_references(session: Session) -> None:
    """The machine's ceiling comes from copies on all devices; eager PyTorch ran with one thread and with all."""
    run = session.run
    (ceiling_of_all,) = run["ceilings"]
    ratio = DEVICES * run["baseline"]["latency_ms"]["median"] / ceiling_of_all["latency_ms"]["median"]
    assert ceiling_of_all["devices"] == DEVICES
    assert ceiling_of_all["throughput_ratio"] == pytest.approx(ratio)
    eager = [reference for reference in run["references"] if reference["kind"] == "eager"]
    assert [reference["threads"] for reference in eager] == list(range(1, DEVICES + 1))
    for result in run["results"]:
        ceiling = ratio if result["devices"] == DEVICES else 1.0
        assert result["share_of_ceiling"] == pytest.approx(result["speedup"] / ceiling)


@pytest.mark.skipif(DEVICES < 2, reason="needs two cores")
def test_one_device_of_all_cores(session: Session) -> None:
    """The sequential schedule also ran with a thread on every core inside its operators, and was checked."""
    reference = session.run["references"][0]
    assert (reference["name"], reference["kind"], reference["threads"]) == (
        f"sequential, {DEVICES} cores",
        "engine",
        DEVICES,
    )
    assert len(reference["latency_ms"]["runs"]) == RUNS
    assert reference["latency_ms"] != session.run["baseline"]["latency_ms"]
    assert 0 <= reference["largest_difference"] < 1e-3


def test_platform_is_stated(session: Session) -> None:
    """run.json says where, with which software, seed and tolerance."""
    assert session.run["platform"]["devices"] == DEVICES
    assert {"hios", "torch", "python"} <= set(session.run["versions"])
    assert (session.run["seed"], session.run["warmup"], session.run["tolerance"]) == (3, 1, 1e-4)


@pytest.mark.parametrize("label", LABELS)
def test_traces_open_in_chrome(session: Session, graph: Graph, label: str) -> None:
    """A trace is JSON with one complete event an operator on its device and stream, all of them named."""
    document = json.loads((session.traces / f"{label}.json").read_text())
    events = document["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    rows = {row["operator"]: row for row in _result(session, label)["measured"]}
    assert sorted(event["name"] for event in slices) == sorted(graph.index)
    for event in slices:
        row = rows[event["name"]]
        assert (event["pid"], event["tid"]) == (row["device"], row["stream"])
        assert event["ts"] == pytest.approx(row["start_ms"] * 1000)
        assert event["dur"] == pytest.approx((row["finish_ms"] - row["start_ms"]) * 1000)
        assert event["cat"] == graph.operators[graph.index[event["name"]]].type
    names = {
        (event["name"], event["pid"], event["tid"]): event["args"]["name"] for event in events if event["ph"] == "M"
    }
    for event in slices:
        assert names["process_name", event["pid"], 0] == f"device {event['pid']}"
        assert names["thread_name", event["pid"], event["tid"]] == f"stream {event['tid']}"
    assert label in document["otherData"]["title"]


def _wide(_: Any, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """Two inputs and two outputs; values read twice, by neighbors and across devices."""
    a, b = torch.relu(x), torch.sigmoid(y)
    c, d = a + b, a * b
    e = c + c
    return {"sum": torch.cat([e, d, a], 1), "mean": F.adaptive_avg_pool2d(c, 1)}


@pytest.mark.slow
def test_several_inputs_and_outputs_without_a_program(tmp_path: Path) -> None:
    """Two inputs and a dictionary of outputs, spread over devices; the engine's sequential schedule is the reference.

    No traces are asked for, and none are written.
    """
    files = write_files(tmp_path, Model(_wide), (torch.randn(1, 3, 8, 8), torch.randn(1, 3, 8, 8)))
    graph = Graph.read(files.graph)
    plans: dict[str, Plan] = {
        "random": random_plan(graph, DEVICES, seed=1),
        "streams": random_streams(graph, DEVICES, 2, seed=1),
    }
    paths = write_schedules(tmp_path, graph, plans)
    before = sorted(tmp_path.iterdir())
    run_schedules(files, paths, devices=DEVICES)
    run = artifacts.read(tmp_path / "run.json", "run")
    assert run["checked_against"] == "sequential"
    assert [reference["kind"] for reference in run["references"]] == ["engine"] * (DEVICES > 1)
    for result in run["results"]:
        assert result["largest_difference"] == 0.0  # the same kernels on the same numbers
    assert sorted(tmp_path.iterdir()) == sorted([*before, tmp_path / "run.json"])


def _runner(graph: Graph, references: Sequence[Reference] = (), pool: Any = None) -> PoolRunner:
    """A session without workers that expects ones as outputs."""
    plan = ArenaPlan(graph, 1)
    workers, arena = CpuWorkers(graph, plan, {}, [[0]], 1.0), Arena(plan.flags, plan.size)
    session = PoolRunner(graph, pool, workers, arena, plan, {}, list(references), Settings(devices=1))
    session._expected = [torch.ones(buffer.shape) for buffer in plan.outputs]
    return session


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 1.1, 0.0])
def test_wrong_outputs_are_found(graph: Graph, wrong: float) -> None:
    """An output that is not a number, infinite, off or never written is not taken for right."""
    session = _runner(graph)
    (output,) = session.plan.outputs
    tensor = session._tensor(output)
    tensor.fill_(1.00005)
    assert session._difference("random") == pytest.approx(5e-5, rel=0.01)
    tensor[0, 7] = wrong
    differs = r"^random: output 0 differs from the reference by up to .*; allowed: 0\.0001 absolute plus relative; "
    with pytest.raises(PlatformError, match=differs + "the schedule is wrong, or the engine in running it$"):
        session._difference("random")


class _Rounding:
    """A pool whose eager worker knows the rounding error of every output, or does not."""

    def __init__(self, errors: list[float] | None) -> None:
        self.errors, self.calls = errors, 0

    def call(self, worker: int, function: Any) -> list[float] | None:
        assert (worker, function) == (1, reference_rounding)
        self.calls += 1
        return self.errors


@pytest.mark.parametrize(("errors", "right"), [([3e-4], True), ([1e-4], False), ([math.nan], False), (None, False)])
def test_differences_that_rounding_explains_are_allowed(graph: Graph, errors: list[float] | None, right: bool) -> None:
    """Up to 4 times the error of the program itself; asked for once, and only where an output is off."""
    pool = _Rounding(errors)
    session = _runner(graph, [Reference("eager PyTorch, 1 thread", 1, [0], 1)], pool)
    (output,) = session.plan.outputs
    session._tensor(output).fill_(1.0001)
    session._difference("random")
    assert (session.rounding, pool.calls) == (None, 0)
    session._tensor(output).fill_(1.001)
    for _ in range(2):
        if right:
            assert session._difference("random") == pytest.approx(1e-3, rel=0.01)
            assert session.rounding == pytest.approx(1.2e-3)
        else:
            with pytest.raises(PlatformError, match="output 0 differs from the reference"):
                session._difference("random")
    assert pool.calls == 1


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="the engine computes as eager PyTorch does")
def test_a_model_that_amplifies_rounding_runs(tmp_path: Path) -> None:
    """The engine adds up in another order than eager PyTorch; run.json states what rounding explains."""
    torch.manual_seed(0)  # whichever tests ran before: the weights decide how large the difference is
    files = write_files(tmp_path, Amplifying(), (torch.randn(64, 512),))
    graph = Graph.read(files.graph)
    paths = write_schedules(tmp_path, graph, {"one": random_plan(graph, 1, seed=1)})
    run_schedules(files, paths, program=True, devices=1)
    run = artifacts.read(tmp_path / "run.json", "run")
    (result,) = run["results"]
    assert 1e-4 < result["largest_difference"] <= run["rounding"] <= 1e-2
    with pytest.raises(PlatformError, match="differs from the reference by up to"):  # a stricter tolerance is meant
        run_schedules(files, paths, program=True, devices=1, tolerance=1e-5)


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("torch.compile, 1 thread", r"torch\.compile itself differs by so much: allow it with --tolerance"),
        ("eager PyTorch, 2 threads", "PyTorch itself differs by so much with another number of threads: allow it with"),
        (BASELINE, "graph, weights and program are not of one extraction: extract again from this program; else a"),
        ("2 independent copies", "the schedule is wrong, or the engine in running it"),
    ],
)
def test_differences_blame_who_shows_them(graph: Graph, name: str, cause: str) -> None:
    """No schedule is blamed for what eager PyTorch does with more threads, or for files that do not belong together."""
    eager = [Reference(f"eager PyTorch, {threads} threads", threads, [0, 1], threads) for threads in (1, 2)]
    eager.append(Reference("torch.compile, 1 thread", 3, [0], 1, "compile"))
    session = _runner(graph, eager, _Rounding([1e-6]))
    with pytest.raises(PlatformError, match=rf"^{name}: output 0 differs from the reference by up to 1; .*; {cause}"):
        session._difference(name)


#: Devices of one core, which a chosen schedule without a file is for.
CORES = Platform("cpu", cores_per_device=1, processor="Processor")


def _session(
    graph: Graph, runs: dict[str, list[float]], **more: Plan
) -> tuple[dict[str, Competitor], list[ScheduleEntry]]:
    """Competitors of a session on two devices with these runs, and schedules ``one``, ``wide`` and more."""
    plans = {"one": random_plan(graph, 1, seed=1), "wide": random_plan(graph, 2, seed=1), **more}
    entries = [ScheduleEntry(label, schedule_of(graph, plan), plan) for label, plan in plans.items()]
    by_label = competitors(graph, ArenaPlan(graph, 2), entries, 2)
    for name, competitor in by_label.items():
        competitor.latencies_ms = runs.get(name, [1000.0] * 12)
        row = Placement("conv1", 0, 0, 0, 1.0, 2.0)
        competitor.timelines = [[row]] * 12
    return by_label, entries


def test_other_runs_choose_than_are_reported(graph: Graph) -> None:
    """A schedule that is fast in the odd runs only is not chosen, and the runs that chose are not reported."""
    runs = {
        BASELINE: [12.0, 24.0] * 6,
        "one": [10.0, 1.0] * 6,
        "wide": [4.0, 8.0, 5.0, 9.0, 4.0, 8.0] * 2,
    }
    choice = choose(*_session(graph, runs))
    chosen = choice.result()
    assert (chosen.label, chosen.algorithm, chosen.devices, chosen.cores) == ("wide", "test", 2, 2)
    assert chosen.latency_ms.runs == (8.0, 9.0, 8.0) * 2
    assert chosen.speedup == 3.0
    assert chosen.candidates == 4
    written = choice.schedule(graph, CORES)
    assert written.notes["auto"].startswith("the fastest of 4 in every other run: wide; ")
    assert (written.cores_per_device, written.hardware) == (None, None)  # as its file has it


def test_the_steadiest_of_equals_is_chosen(graph: Graph) -> None:
    """Threads inside operators whose median is lowest, but which take twice as long at times, lose to a schedule."""
    pattern = [8.0, 16.0, 8.0, 16.0, 8.0, 8.0, 16.0, 8.0]
    runs = {
        BASELINE: [12.0] * 32,
        "sequential, 2 cores": [value for value in pattern * 2 for _ in range(2)],
        "wide": [8.2, 8.3] * 16,
        "one": [13.0] * 32,
        "2 independent copies": [12.0] * 32,
    }
    chosen = choose(*_session(graph, runs)).result()
    assert chosen.label == "wide"
    assert chosen.latency_ms.runs == (8.3,) * 16


@pytest.mark.parametrize(("winner", "cores"), [(BASELINE, 1), ("sequential, 2 cores", 2)])
def test_sequential_may_win(graph: Graph, winner: str, cores: int) -> None:
    """The sequential schedule gets a schedule file, with its cores, measured times and a note that says so."""
    choice = choose(*_session(graph, {winner: [5.0] * 12}))
    chosen, written = choice.result(), choice.schedule(graph, CORES)
    assert (chosen.label, chosen.algorithm, chosen.devices, chosen.cores) == (winner, "sequential", 1, cores)
    assert (written.algorithm, written.devices, written.latency_ms) == ("sequential", 1, 2.0)
    assert written.notes["times"].startswith("measured")
    assert ("2 cores, with a thread on each" in written.notes["auto"]) == (cores == 2)
    assert (written.cores_per_device, written.hardware) == (cores, "Processor")


def test_sequential_may_win_on_a_gpu(graph: Graph) -> None:
    """Its schedule states no cores."""
    choice = choose(*_session(graph, {BASELINE: [5.0] * 12}))
    written = choice.schedule(graph, Platform("cuda", gpus=("GPU",), processor="Processor"))
    assert (written.cores_per_device, written.hardware) == (None, "GPU")


@pytest.mark.parametrize("label", [BASELINE, "sequential-1"])
def test_what_is_not_faster_beyond_doubt_is_not_chosen(graph: Graph, label: str) -> None:
    """A disturbed sequential schedule is kept over a steady one that is not significantly faster; a note says so.

    So it is where the sequential schedule has a file.
    """
    disturbed = [20.0 if number % 6 in (0, 3) else 10.0 for number in range(36)]
    runs = {BASELINE: disturbed, "one": [14.0] * 36, "wide": [10.0, 10.0, 10.4] * 12}
    files: dict[str, Plan] = {} if label == BASELINE else {label: one_by_one(graph)}
    choice = choose(*_session(graph, runs, **files))
    assert choice.label == label
    note = choice.schedule(graph, CORES).notes["auto"]
    assert note.startswith("in every other run none of 4 was significantly faster than sequential")


def test_copies_are_no_candidate(graph: Graph) -> None:
    """Independent copies are the machine's ceiling, no way to run one inference."""
    assert choose(*_session(graph, {"2 independent copies": [0.1] * 12, "one": [5.0] * 12})).label == "one"


@pytest.mark.slow
def test_chosen_schedule_runs_again(files: Files, graph: Graph, tmp_path: Path) -> None:
    """The session writes what it chose; the file is a schedule of the graph and can be executed."""
    plans = {"one": random_plan(graph, 1, seed=1), "wide": random_plan(graph, DEVICES, seed=DEVICES)}
    paths = write_schedules(tmp_path, graph, plans)
    run_schedules(files, paths, chosen=tmp_path / "auto.json", devices=DEVICES, runs=LEAST_RUNS)
    run = artifacts.read(tmp_path / "run.json", "run")
    chosen, written = run["chosen"], Schedule.read(tmp_path / "auto.json")
    assert len(chosen["latency_ms"]["runs"]) == LEAST_RUNS // 2
    assert chosen["label"] in written.notes["auto"]
    if chosen["algorithm"] == "test":
        assert written.plan(graph) == Schedule.read(tmp_path / f"{chosen['label']}.json").plan(graph)
    else:
        assert written.plan(graph) == one_by_one(graph)
    run_schedules(files, [tmp_path / "auto.json"], output="again.json", devices=chosen["devices"])
    again = artifacts.read(tmp_path / "again.json", "run")
    if chosen["algorithm"] == "sequential":
        assert len(again["platform"]["cores"][0]) == chosen["cores"]


def test_auto_is_no_algorithm() -> None:
    """Where an algorithm is asked for, auto is refused with where to find it."""
    with pytest.raises(
        HiosError, match=r"^auto is chosen by measurement: hios execute --auto FILE, or auto: \{\} among"
    ):
        find("auto")


#: Algorithms among them that place operators on streams.
STREAMS = {"lios", "lios-rand1", "lios-rand2", "lios-rand", "nimble", "opara"}


@pytest.mark.slow
def test_every_algorithm_can_be_executed(files: Files, graph: Graph, tmp_path: Path) -> None:
    """On random costs, as wide as it may: outputs are those of eager PyTorch, and rows run where they are placed."""
    draw = random.Random(2)
    costs = Costs(
        {operator.id: draw.uniform(0.1, 4) for operator in graph.operators},
        {(edge.source, edge.target): 0.1 for edge in graph.edges},
        {operator.id: draw.uniform(0.2, 0.6) for operator in graph.operators},
    )
    paths = []
    for name, algorithm in ALGORITHMS.items():
        devices = DEVICES if algorithm.several_devices else 1
        paths.append(tmp_path / f"{name}.json")
        schedule(Problem(graph, costs), name, devices, briefly(name)).write(paths[-1])
    run_schedules(files, paths, program=True, devices=DEVICES, runs=2)
    run = artifacts.read(tmp_path / "run.json", "run")
    assert run["checked_against"] == "eager"
    assert [result["algorithm"] for result in run["results"]] == list(ALGORITHMS)
    on_streams = set()
    for result, path in zip(run["results"], paths, strict=True):
        assert result["largest_difference"] < 1e-3
        placed = {row.operator: (row.device, row.stream, row.stage) for row in Schedule.read(path).placements}
        positions = {row["operator"]: (row["device"], row["stream"], row["stage"]) for row in result["measured"]}
        assert positions == placed
        if all(stage is None for _, _, stage in positions.values()):
            on_streams.add(result["algorithm"])
            # hios-wide has one stream a device, whose order alone matters.
            several = len({stream for _, stream, _ in positions.values()}) > 1
            assert several == (result["algorithm"] != "hios-wide")
    assert on_streams >= STREAMS
