"""Load on real servers: conservation of tasks, checked outputs, memory, and the command."""

from __future__ import annotations

import csv
import functools
import itertools
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hios.core.graph import Graph
from hios.errors import HiosError, PlatformError
from hios.files import artifacts
from hios.formats.serving_result import ResultFile
from hios.frontends.program import export, save
from hios.machine.description import private_bytes
from hios.serving import lane_worker
from hios.serving import load as load_session
from hios.serving.admission import TaskFailedError
from hios.serving.load import LoadReport, load
from hios.serving.load_generator import Progress, ReferenceSample, Repeat
from hios.serving.metrics import MetricsFile
from hios.serving.scenario import Scenario, draw
from hios.serving.server import Server
from hios.serving.simulate import simulate
from hios.serving.tables import result_table
from tests.cli.commands import invoke
from tests.frontends.small_networks import write_files
from tests.openvino_marker import needs_openvino
from tests.runtime.small import Amplifying
from tests.scripts import python
from tests.serving import lane_faults
from tests.serving.scenarios import unaccounted
from tests.serving.served import inputs, networks, scenario, scenario_file, wait_for_answers, write_costs
from tests.serving.test_metrics_file import server as metrics_server
from tests.serving.test_metrics_file import values
from tests.workers.processes import children

#: Factors of inputs, in turn: half of the tasks fail in lanes with faults.
_FAULTS = (1.0, lane_faults.RAISES, 1.0, lane_faults.MAKES_NAN)


def _samples(server: Server, *scales: float) -> dict[str, list[ReferenceSample]]:
    """By model, inputs times these factors, to be compared with the outputs of the inputs themselves."""
    alone = {label: server.infer(label, inputs(label, 0)) for label in server.counts}
    return {
        label: [ReferenceSample(inputs(label, 0, scale), own, own) for scale in scales] for label, own in alone.items()
    }


def _require_requests(events: list[dict[str, Any]], requests: float, blocks: int) -> None:
    """Every request is a slice from its arrival on, in which it waits, and then runs block by block.

    There are so many for ``blocks``.
    """
    began: dict[tuple[int, str], float] = {}
    spans: dict[int, dict[str, tuple[float, float]]] = defaultdict(dict)
    for event in events:
        if event["ph"] == "b":
            began[event["id"], event["name"]] = event["ts"]
        elif event["ph"] == "e":
            spans[event["id"]][event["name"]] = began.pop((event["id"], event["name"])), event["ts"]
    assert began == {}
    whole = [own for number, own in spans.items() if f"blocks {number}" in own]
    assert len(whole) == requests
    for number, own in spans.items():
        begin, end = own.get(f"blocks {number}") or own[f"branches {number}"]
        waits, *parts = [own["waits"], *(span for name, span in own.items() if name.startswith("block "))]
        assert begin == waits[0] <= waits[1] == parts[0][0]
        assert end == parts[-1][1]
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(parts))
        if f"blocks {number}" in own:
            assert len(parts) == blocks


@pytest.mark.slow
def test_the_command_runs_a_scenario(tmp_path: Path) -> None:
    """The result has every task of the trace; a trace of the lanes is written; what control took is said."""
    path = scenario_file(tmp_path / "scenario.yaml", duration_s=2.0, arrivals="periodic")
    before = set(children())
    files = {"--output": "result.json", "--trace": "trace.json", "--metrics": "metrics.prom"}
    written = (word for option, name in files.items() for word in (option, tmp_path / name))
    done = python("-m", "hios", "load", path, "--policy", "top-open", "--virtual", *written)
    assert done.returncode == 0, done.stderr
    result = artifacts.load(tmp_path / "result.json", ResultFile)
    assert not any(map(unaccounted, (*result.models.values(), result.total)))
    assert {label: row.offered for label, row in result.models.items()} == {"branches": 40, "blocks": 40}
    assert result.total.failed == 0
    assert not result.simulated
    assert result.platform is not None
    assert result.platform.name == "cpu"
    assert (result.control_share or 0.0) > 0
    assert result.compared_with == dict.fromkeys(("branches", "blocks"), "single inference")
    assert "models.blocks.program: missing; outputs are only compared with those of a single inference" in done.stderr
    metrics, row = values(tmp_path / "metrics.prom"), result.models["blocks"]
    assert metrics['hios_tasks_offered_total{model="blocks"}'] == 40
    # Of what was not answered by the end, what waits is given up, and what is in flight goes on and is in the trace.
    answered = metrics['hios_tasks_total{model="blocks",outcome="completed"}']
    assert 0 < row.completed <= answered <= row.completed + row.waiting + row.in_flight
    assert "control (launcher, dispatch, results): " in done.stdout
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    blocks = len(Scenario.read(path).models[1].blocks)
    assert {event["name"] for event in events if event["ph"] == "X"} >= {f"blocks {block}" for block in range(blocks)}
    _require_requests(events, answered, blocks)
    assert set(children()) <= before


@pytest.mark.slow
def test_arrivals_of_a_file_and_wrong_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks come as the file says; one whose outputs are not those of the same input alone counts as failed."""
    rows = [(0.02 * number, "blocks") for number in range(8)]
    with (tmp_path / "arrivals.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("time_s", "model"), *rows])
    given = scenario(tmp_path, arrivals="arrivals.csv", duration_s=2.0)
    made = load_session._checked
    (second,) = inputs("blocks", 99)

    def spoiled(*arguments: Any) -> list[ReferenceSample]:
        samples = made(*arguments)
        return [ReferenceSample([second], samples[0].alone, samples[0].expected), *samples[1:]]

    monkeypatch.setattr(load_session, "_checked", spoiled)
    wait_for_answers(monkeypatch)
    loaded = load(given, "one-per-lane", virtual=True)
    row = loaded.result.models["blocks"]
    assert (row.offered, row.completed, row.failed) == (8, 6, 2)  # inputs go in turns of four
    assert loaded.wrong.startswith("model blocks: output 0 differs by ")
    assert loaded.result.models["branches"].offered == 0


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of both models whose operators fail for large inputs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_worker, "prepare", lane_faults.prepare)
        with Server(scenario(tmp_path_factory.mktemp("faulty")), "top", virtual=True) as server:
            yield server


@pytest.mark.slow
def test_metrics_agree_with_the_result(faulty: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short repeats, too, show all tasks: latencies of those that completed, and wrong outputs as failures."""
    models = {label: {"rate": 60.0} for label in ("branches", "blocks")}
    given = scenario(tmp_path, models, arrivals="periodic", duration_s=0.2)
    metrics, tallies, samples = MetricsFile(tmp_path / "metrics.prom"), [], _samples(faulty, *_FAULTS)
    for number in range(2):
        repeat = Repeat(faulty, draw(given, number), 0.2, samples, 1e-4, functools.partial(metrics.show, faulty))
        tallies.append(repeat.run().tallies)
        wait_for_answers(monkeypatch)  # so that tasks of all kinds end in the second one
    metrics.write()
    shown = values(tmp_path / "metrics.prom")
    for model, label in enumerate(models):
        ends = {end: shown[f'hios_tasks_total{{model="{label}",outcome="{end}"}}'] for end in ("completed", "failed")}
        assert shown[f'hios_latency_seconds_count{{model="{label}"}}'] == ends["completed"] > 0
        assert ends["failed"] > 0
        own = [row[model] for row in tallies]
        late = sum(tally.waiting + tally.in_flight for tally in own)
        assert shown[f'hios_tasks_offered_total{{model="{label}"}}'] == sum(tally.offered for tally in own)
        for end, count in ends.items():
            by_the_end = sum(getattr(tally, end) for tally in own)
            assert by_the_end <= count <= by_the_end + late


@pytest.mark.slow
@pytest.mark.parametrize("policy_name", ["pos-strict", "pos-strict-per-lane"])
def test_strict_rounds_end(policy_name: str, tmp_path: Path) -> None:
    """What waits for the rarer model is no work left: every repeat ends, and the next one begins with nothing."""
    models = {"branches": {"rate": 40.0}, "blocks": {"rate": 10.0}}
    given = scenario(tmp_path, models, arrivals="periodic", duration_s=1.0, repeats=2)
    result = load(given, policy_name, virtual=True).result
    assert not any(map(unaccounted, (*result.models.values(), result.total)))
    assert {label: row.offered for label, row in result.models.items()} == {"branches": 80, "blocks": 20}
    # Each repeat completes a task of each model in every round, and no round of it has a task of the other repeat; of a
    # round whose tasks are being answered when the time is over, some are still in flight.
    fewer, more = sorted(result.models.values(), key=lambda row: row.completed)
    assert 0 < result.models["blocks"].completed <= 20
    assert more.completed - fewer.completed <= fewer.in_flight
    assert result.total.failed == 0


def test_deadlines_begin_with_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inferences before the load wait for a slow launcher; tasks of the load expire, and the trace shows those."""
    models = {"blocks": {"rate": 40.0, "interval_s": 0.2, "deadline_ms": 50.0}}
    given = scenario(tmp_path, models, arrivals="periodic", duration_s=1.0, launcher="fixed")
    wait_for_answers(monkeypatch)
    trace = tmp_path / "trace.json"
    total = artifacts.plain(load(given, "top", virtual=True, trace=trace).result)["total"]
    assert (total["offered"], total["failed"]) == (40, 0)
    assert total["expired"] > total["completed"] == 40 - total["expired"] > 0
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event["name"] == "blocks expired"]
    spans = defaultdict(list)
    for event in events:
        spans[event["id"]].append((event["ph"], event["ts"]))
    assert len(spans) == total["expired"]
    assert all(begin == "b" and end == "e" and until >= since + 50e3 for (begin, since), (end, until) in spans.values())


@pytest.mark.slow
def test_strict_rounds_of_a_slow_launcher_end(tmp_path: Path) -> None:
    """What fills the last rounds does not expire, though tasks of the load do."""
    models = {"branches": {"rate": 40.0}, "blocks": {"rate": 10.0, "interval_s": 0.3, "deadline_ms": 50.0}}
    given = scenario(tmp_path, models, arrivals="periodic", duration_s=1.0, repeats=2, launcher="fixed")
    total = artifacts.plain(load(given, "pos-strict", virtual=True).result)["total"]
    assert (total["offered"], total["failed"]) == (100, 0)
    assert total["expired"] > 0


def test_what_cannot_be_shown_or_traced_ends_no_load(tmp_path: Path) -> None:
    """The result is there all the same, and the report says what failed."""

    def show(*_: object) -> None:
        raise ValueError("no terminal")

    given = scenario(tmp_path, {"blocks": {}}, lanes=1, arrivals="periodic", duration_s=0.2)
    loaded = load(given, "one-per-lane", virtual=True, show=show, trace=tmp_path)
    assert loaded.result.total.offered == 4
    shown, _, traced = loaded.unwritten.partition("; ")
    assert shown == "not shown: ValueError('no terminal')"
    assert traced.startswith(f"{tmp_path}: cannot be written: ")


@pytest.mark.parametrize("lost", ["metrics", "trace"])
def test_the_result_is_written_first(lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metrics or a trace that cannot be written at the end leave the result; the error is told afterwards."""
    path, metrics, output = tmp_path / "scenario.yaml", tmp_path / "metrics.prom", tmp_path / "result.json"
    given = Scenario.read(scenario_file(path, duration_s=0.1))

    def loaded(*_: object, show: Any, **__: object) -> LoadReport:
        show(metrics_server(), Progress(0.1, 0.1))
        if lost == "metrics":
            metrics.mkdir()
        why = "trace.json: cannot be written: no space left" if lost == "trace" else ""
        return LoadReport(simulate(given, "top-open"), 0.1, "", 1.0, why)

    monkeypatch.setattr(load_session, "load", loaded)
    monkeypatch.setattr(MetricsFile, "listen", lambda _: None)  # the signal is of the whole process
    done = invoke("load", path, "--policy", "top-open", "--output", output, "--metrics", metrics)
    assert done.exit_code == 1
    name = metrics if lost == "metrics" else "trace.json"
    assert f"{name}: cannot be written: " in done.stderr.splitlines()[-1]
    assert "control (launcher, dispatch, results): " in done.stdout
    assert artifacts.load(output, ResultFile).policy == "top-open"
    assert metrics.is_file() == (lost == "trace")


def test_tasks_that_fail_are_counted(faulty: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that raise, and those that make NaN, fail the tasks that they are in, and no others."""
    wait_for_answers(monkeypatch)
    given = scenario(
        tmp_path, {label: {"rate": 100.0} for label in ("branches", "blocks")}, arrivals="periodic", duration_s=0.2
    )
    outcome = Repeat(faulty, draw(given), 0.2, _samples(faulty, *_FAULTS), 1e-4).run()
    for tally in outcome.tallies:
        assert (tally.offered, tally.failed, tally.completed) == (20, 10, 10)


@pytest.mark.slow
@pytest.mark.parametrize("policy_name", ["one-per-lane", "top", "top-open"])
def test_overload_is_shed(policy_name: str, tmp_path: Path) -> None:
    """Overload is shed; at 1.5 times that rate memory is constant, no task is lost, and outputs are right.

    How fast lanes are changes beside other work, so nothing is asked of how much is shed at that rate. The same for
    minutes, with other models: benchmarks/serving_soak.py.
    """
    duration_s = 5.0
    rates: dict[str, dict[str, Any]] = {
        "branches": {"queue": 16},
        "blocks": {"queue": 16, "overflow": "drop-oldest", "deadline_ms": 100},
    }
    fast = scenario(tmp_path, {label: {**own, "rate": 4000.0} for label, own in rates.items()})
    with Server(fast, policy_name, virtual=True) as server:
        samples = _samples(server, 1.0)
        flood = Repeat(server, draw(fast, 1), fast.duration_s, samples, 1e-4).run().tallies
        completed = sum(tally.completed for tally in flood)
        assert sum(tally.dropped + tally.expired for tally in flood) > completed > 0
        models = {label: {**own, "rate": 0.75 * completed / fast.duration_s} for label, own in rates.items()}
        repeat = Repeat(server, draw(scenario(tmp_path, models, duration_s=duration_s)), duration_s, samples, 1e-4)
        processes = [os.getpid(), *server.process_ids]
        before = [private_bytes(pid, written=True) for pid in processes]
        outcome = repeat.run()
        after = [private_bytes(pid, written=True) for pid in processes]
    for tally in outcome.tallies:
        assert tally.unaccounted == 0
        assert tally.failed == 0
        assert tally.completed > 0
    assert repeat.wrong == ""
    # This process also holds what is known of every task, some 100 bytes each, and samples of the queues.
    assert after[0] < before[0] + (8 << 20)
    for was, now in zip(before[1:], after[1:], strict=True):
        assert now < was + (4 << 20)


@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="lanes compute as eager PyTorch does")
def test_what_rounding_explains_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that amplifies rounding is served; with a stricter tolerance it is refused."""
    wait_for_answers(monkeypatch)
    torch.manual_seed(0)
    files = write_files(tmp_path, Amplifying(), (torch.randn(64, 512),))
    write_costs(tmp_path / "costs.json", Graph.read(files.graph), 1.0, 0.1)
    model = {
        **{name: str(getattr(files, name)) for name in ("graph", "weights", "program")},
        "costs": str(tmp_path / "costs.json"),
    }
    given = scenario(tmp_path, {"amplifying": model}, duration_s=0.5, lanes=1)
    loaded = load(given, "sequential", virtual=True)
    assert loaded.wrong == ""
    assert loaded.result.total.completed > 0
    with pytest.raises(PlatformError, match="model amplifying: output 0 differs from the program by up to"):
        load(given, "sequential", virtual=True, tolerance=1e-5)


@pytest.mark.slow
def test_outputs_are_compared_with_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a scenario names programs, outputs are compared with the model itself; a program of another is refused."""
    wait_for_answers(monkeypatch)
    network = networks()["blocks"]
    torch.manual_seed(5)
    save(export(network.module, network.inputs), tmp_path / "right.pt2")
    other = type(network.module)().eval()
    save(export(other, network.inputs), tmp_path / "wrong.pt2")
    right = scenario(tmp_path, {"blocks": {"program": str(tmp_path / "right.pt2")}}, duration_s=0.5, lanes=1)
    loaded = load(right, "sequential", virtual=True)
    assert loaded.wrong == ""
    assert loaded.result.compared_with == {"blocks": "program"}
    assert loaded.result.total.completed > 0
    wrong = scenario(tmp_path, {"blocks": {"program": str(tmp_path / "wrong.pt2")}}, duration_s=0.5, lanes=1)
    with pytest.raises(
        HiosError, match=r"model blocks: output 0 differs from the program by up to .*; allowed: 0.0001"
    ):
        load(wrong, "sequential", virtual=True)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str | None]]:
    """Settings of models with their programs and without weights, which other runtimes have no use for."""
    folder = tmp_path_factory.mktemp("programs")
    for label, network in networks().items():
        save(export(network.module, tuple(inputs(label, 0))), folder / f"{label}.pt2")
    return {label: {"program": str(folder / f"{label}.pt2"), "weights": None} for label in networks()}


@pytest.mark.parametrize(
    ("runtime", "policy"),
    [
        ("eager", "threads"),
        ("onnxruntime", "one-per-lane"),
        pytest.param("openvino", "sequential", marks=needs_openvino),
        pytest.param(
            "compile",
            "sequential",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++"),
            ],
        ),
    ],
)
def test_other_runtimes(runtime: str, policy: str, programs: dict[str, dict[str, str | None]], tmp_path: Path) -> None:
    """The same tasks by a session of another runtime a lane, whose outputs are those of the program too."""
    models = {label: own for label, own in programs.items() if runtime != "compile" or label == "blocks"}
    given = scenario(tmp_path, models, duration_s=0.5, arrivals="periodic")
    loaded = load(given, policy, virtual=True, runtime=runtime)
    assert loaded.result.runtime == runtime
    counts = {label: (row.offered, row.failed) for label, row in loaded.result.models.items()}
    assert counts == dict.fromkeys(models, (10, 0))
    assert loaded.result.compared_with == dict.fromkeys(models, "program")
    assert f"policy {policy} in {runtime}, launcher open" in result_table(loaded.result)


def test_what_other_runtimes_cannot_run(programs: dict[str, dict[str, str | None]], tmp_path: Path) -> None:
    """A policy that runs blocks, a model without a program, and a program of another model are named."""
    with pytest.raises(
        HiosError, match="policy: found auto; allowed with runtime eager: sequential, one-per-lane, threads"
    ):
        load(scenario(tmp_path, programs), "auto", virtual=True, runtime="eager")
    with pytest.raises(HiosError, match=r"models\.blocks\.program: missing; required with runtime eager"):
        load(scenario(tmp_path, {**programs, "blocks": {}}), "sequential", virtual=True, runtime="eager")
    with pytest.raises(HiosError, match="engine: found segments; allowed with runtime eager: operators"):
        load(scenario(tmp_path, programs, engine="segments"), "sequential", virtual=True, runtime="eager")
    mixed = scenario(tmp_path, {"branches": programs["blocks"]})
    with pytest.raises(HiosError, match=r"blocks\.pt2: inputs: found .*; required: .*, as the graph states"):
        load(mixed, "sequential", virtual=True, runtime="eager")
    onnx = tmp_path / "net.onnx"
    onnx.write_bytes(b"")
    with pytest.raises(HiosError, match=r"program: found .*net\.onnx; allowed with runtime eager: program\.pt2"):
        load(scenario(tmp_path, {"blocks": {"program": str(onnx)}}), "sequential", virtual=True, runtime="eager")


def test_another_runtime_has_all_cores_of_its_lane(programs: dict[str, dict[str, str | None]], tmp_path: Path) -> None:
    """Threads that it starts may run on each of them, also where one lane has all cores."""
    given = scenario(tmp_path, {"blocks": programs["blocks"]})
    with Server(given, "threads", virtual=True, whole=lane_faults.count_cores) as server:
        (output,) = server.infer("blocks", inputs("blocks", 0))
        assert output.unique().tolist() == [len(set(server.cores[0]))]


def test_a_lane_that_ends_in_another_runtime(programs: dict[str, dict[str, str | None]], tmp_path: Path) -> None:
    """Its task fails with the name of the model: it has no operators of hios that it could have been at."""
    given = scenario(tmp_path, {"blocks": programs["blocks"]}, lanes=1)
    with (
        Server(given, "one-per-lane", virtual=True, whole=lane_faults.end) as server,
        pytest.raises(TaskFailedError, match=r"^model blocks: .*model blocks\b(?!.*operator)"),
    ):
        server.infer("blocks", inputs("blocks", 0), timeout_s=300)
