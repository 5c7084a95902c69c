"""What the engine refuses; devices that fail, hang or die: what is named and left behind; Ctrl-C, which reaches all."""

from __future__ import annotations

import dataclasses
import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file

from hios import Edge, Graph, HiosError, Operator, Schedule
from hios.cli.files import execute
from hios.core.schedule import StagedPlan
from hios.errors import ArtifactError, PlatformError, ScheduleError
from hios.formats.settings import Settings
from hios.frontends.program import export, save
from hios.platforms.cpu import thread_team
from hios.platforms.cpu import worker as device
from hios.platforms.program import ArenaPlan
from hios.platforms.workloads import load_weights
from hios.runtime import competitors
from tests.frontends.small_networks import Files, Model, write_files
from tests.refusals import refused
from tests.runtime import faults
from tests.runtime.conftest import DEVICES
from tests.runtime.schedules import merged_plan, one_by_one, random_plan, run_schedules, write_schedules
from tests.scripts import ROOT
from tests.workers.processes import children, eventually, running

SPOILT = "fire4.expand3x3"


@pytest.mark.parametrize("how", faults.MESSAGES)
def test_operator_and_stage_are_named(files: Files, graph: Graph, how: str) -> None:
    """However an operator fails, the run ends with one line that names device, operator and stage."""
    stage = list(graph.order).index(graph.index[SPOILT])
    timeout_s = 10.0 if how == "hang" else 300.0
    with pytest.raises(HiosError) as caught:
        faults.run_spoilt(files, graph, one_by_one(graph), [0], SPOILT, how, wait_s=300.0, timeout_s=timeout_s)
    assert str(caught.value) == faults.MESSAGES[how].format(at=f"{SPOILT}, stage {stage}", timeout_s=timeout_s)


@pytest.mark.slow
@pytest.mark.skipif(DEVICES < 2, reason="needs two cores")
def test_a_device_that_waits_for_one_that_hangs(files: Files, graph: Graph) -> None:
    """The device that gave up waiting is named with what it waited for, and so is the one that hung, with where."""
    first, *others = graph.order
    plan = StagedPlan((tuple(((operator,),) for operator in others), (((first,),),)))
    message = (
        r"^device 0: waited 0\.5 s for the output of operator conv1, stage 0; device 1 did not answer within 15 s "
        r"\(run\), last at operator conv1, stage 0; the run was ended$"
    )
    with pytest.raises(PlatformError, match=message):
        faults.run_spoilt(files, graph, plan, [1], "conv1", "hang", wait_s=0.5, timeout_s=15.0)


def test_merged_operators_are_named(files: Files, graph: Graph) -> None:
    """Operators that run as one are named together where that fails: here what they read is empty."""
    with pytest.raises(HiosError, match=r"^device 0: operators fire2\.expand1x1, fire2\.expand3x3, stage \d+: "):
        faults.run_spoilt(
            files, graph, merged_plan(graph, 1), [0], "fire2.squeeze", "empty", wait_s=300.0, timeout_s=300.0
        )


@pytest.mark.slow
def test_a_session_names_what_killed_it(
    files: Files, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that Linux kills in an execution ends it with one line; no file, process or descriptor is left."""
    monkeypatch.setattr(device, "load", faults.load_dying)
    paths = write_schedules(tmp_path, graph, {"sequential": one_by_one(graph)})
    before, descriptors = set(children()), _descriptors()
    with pytest.raises(
        PlatformError, match=r"^device 0 died by signal SIGKILL \(run\), last at operator fire4\.squeeze, "
    ):
        run_schedules(files, paths, devices=1)
    assert set(children()) <= before
    assert [path.name for path in tmp_path.iterdir()] == ["sequential.json"]
    assert _descriptors() <= descriptors  # shared memory has no name: it is gone with them


def _descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(
    ("operator", "stage", "stream", "where"),
    [(0, 0, 0, "stage 0"), (3, 40, 2, "stage 40"), (49, None, 0, "stream 0"), (7, None, 511, "stream 511")],
)
def test_markers_in_words(graph: Graph, operator: int, stage: int | None, stream: int, where: str) -> None:
    """A marker fits a flag of 64 bits, and holds operator, and stage or stream."""
    marker = thread_team.marker(operator, stage, stream)
    assert 0 < marker < 2**63
    assert thread_team.text(graph, marker) == f"operator {graph.operators[operator].id}, {where}"


def test_no_marker(graph: Graph) -> None:
    """A device that has not begun its first operator has no position."""
    assert thread_team.text(graph, 0) == ""


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_an_early_interrupt_is_quiet(files: Files, graph: Graph, tmp_path: Path, seconds: float) -> None:
    """Interrupted as soon as a process runs or while it imports torch, execute says so and leaves nothing behind."""
    write_schedules(tmp_path, graph, {"sequential": one_by_one(graph)})
    arguments: list[str | Path] = [files.graph, files.weights, "sequential.json", "--program", files.program]
    with subprocess.Popen(
        [sys.executable, "-m", "hios", "execute", *arguments, "--output", "run.json", "--traces", "traces"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,  # a process group of its own, as a command in a terminal has
    ) as controller:
        assert eventually(lambda: bool(children(controller.pid, servers_too=True)))
        workers = children(controller.pid, servers_too=True)
        time.sleep(seconds)
        os.killpg(controller.pid, signal.SIGINT)
        printed, _ = controller.communicate(timeout=300)
    assert controller.returncode == 130
    assert printed.strip() == "Aborted"
    assert eventually(lambda: not any(map(running, workers)))
    assert [path.name for path in tmp_path.iterdir()] == ["sequential.json"]


@pytest.fixture
def sequential(graph: Graph, tmp_path: Path) -> Path:
    """The schedule of one operator after another."""
    return write_schedules(tmp_path, graph, {"sequential": one_by_one(graph)})[0]


def _refused(
    message: str, files: Files, schedules: Sequence[Path], *, program: Path | None = None, **changes: Any
) -> None:
    """The run fails with one line and writes nothing."""
    output = schedules[0].parent / "output"
    with pytest.raises(HiosError, match=message) as caught:
        execute(
            files.graph,
            files.weights,
            schedules,
            output / "run.json",
            Settings(**{"devices": 1, "runs": 1, "warmup": 0, **changes}),
            program=program,
            traces=output / "traces",
        )
    assert "\n" not in str(caught.value)
    assert not output.exists()


@pytest.mark.slow
def test_wrong_weights_are_found(files: Files, sequential: Path, tmp_path: Path) -> None:
    """Weights that were changed a little give other outputs than eager PyTorch: the run ends and nothing is written."""
    tensors = load_file(files.weights)
    tensors["conv10.bias"] += 0.01
    changed = dataclasses.replace(files, weights=tmp_path / "weights.safetensors")
    save_file(tensors, changed.weights)
    _refused(
        r"^sequential on one device: output 0 differs from the reference by up to 0\.01; allowed: 0\.0001 absolute "
        "plus relative; graph, weights and program are not of one extraction: extract again from this program",
        changed,
        [sequential],
        program=files.program,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image_size", "made", "message"),
    [
        (
            32,
            lambda _, x: x * 2,
            r"other\.pt2: inputs: found float32 \[1, 3, 32, 32\]; required: float32 \[1, 3, 64, 64\], as the graph",
        ),
        (
            64,
            lambda _, x: x.new_ones(1, 1000) * x.mean(),
            r"other\.pt2: outputs: found float32 \[1, 1000\]; required: float32 \[1, 1000, 1, 1\], as the graph",
        ),
    ],
)
def test_program_of_another_network_is_named(
    files: Files, sequential: Path, tmp_path: Path, image_size: int, made: Callable[..., torch.Tensor], message: str
) -> None:
    """A program with other inputs or outputs is what the message blames, not the schedule."""
    program = tmp_path / "other.pt2"
    save(export(Model(made), (torch.ones(1, 3, image_size, image_size),)), program)
    _refused(message, files, [sequential], program=program)


def _without(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name != "conv1.bias"}


def _transposed(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**tensors, "conv1.weight": tensors["conv1.weight"].transpose(0, 1).contiguous()}


def test_weights_belong_to_the_graph(files: Files, graph: Graph, tmp_path: Path) -> None:
    """Weights that lack a tensor or have another shape, and damaged files, are refused by name."""
    path = tmp_path / "weights.safetensors"
    for change, message in (
        (_without, r"conv1\.bias: found none; required: float32 of shape \[96\]"),
        (
            _transposed,
            r"conv1\.weight: found float32 of shape \[3, 96, 7, 7\]; required: float32 of shape \[96, 3, 7, 7\]",
        ),
    ):
        save_file(change(load_file(files.weights)), path)
        with pytest.raises(ArtifactError, match=r"weights\.safetensors: " + message):
            load_weights(path, graph)
    for data in (b"", b"\x00" * 100, files.weights.read_bytes()[:5000]):
        path.write_bytes(data)
        with refused(f"{path}: damaged or not a safetensors file", kind=ArtifactError):
            load_weights(path, graph)
    for unreadable in (tmp_path, tmp_path / "nowhere.safetensors"):
        with refused(f"{unreadable}: cannot be read: ", kind=ArtifactError):
            load_weights(unreadable, graph)
    assert sorted(load_weights(files.weights, graph)) == sorted(load_file(files.weights))


def test_more_devices_than_the_session_are_refused(files: Files, graph: Graph, tmp_path: Path) -> None:
    """A schedule for more devices than the session has is named."""
    paths = write_schedules(tmp_path, graph, {"wide": random_plan(graph, 2, seed=1)})
    _refused(r"wide\.json: devices: found 2; allowed: at most 1, the devices of this run", files, paths)


@pytest.mark.parametrize("devices", [0, 10_000])
def test_wrong_devices_are_refused(files: Files, sequential: Path, devices: int) -> None:
    """A session without devices, or with more than there are cores, is refused."""
    allowed = len(os.sched_getaffinity(0))
    message = (
        "devices: found 1; allowed: at most 0"
        if devices == 0
        else f"platform cpu: devices: found {devices}; allowed: 1 to {allowed}"
    )
    _refused(message, files, [sequential], devices=devices)


def _on_streams(schedule: Schedule, stream_of: dict[str, int], first: Sequence[str] = ()) -> Schedule:
    """The same operators without stages, on streams of device 0; some of them launched ahead of the others."""
    rows = [
        msgspec.structs.replace(row, stage=None, stream=stream_of.get(row.operator, row.stream))
        for row in schedule.placements
    ]
    ahead = {operator: number - len(first) for number, operator in enumerate(first)}
    return dataclasses.replace(schedule, placements=tuple(sorted(rows, key=lambda row: ahead.get(row.operator, 0))))


def test_too_many_streams_are_refused(files: Files, sequential: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is a thread; more streams than a device supports are refused, with their number."""
    monkeypatch.setattr(competitors, "MOST_STREAMS", 2)
    schedule = Schedule.read(sequential)
    _on_streams(schedule, {"conv1": 7, "conv10": 5}).write(sequential)
    _refused(
        r"sequential\.json: placements: found 3 streams on device 0; allowed: at most 2, as each is a thread; ",
        files,
        [sequential],
    )


def _placed(schedule: Schedule, changes: dict[str, dict[str, int]]) -> Schedule:
    """The same schedule with some operators placed elsewhere."""
    rows = [msgspec.structs.replace(row, **changes.get(row.operator, {})) for row in schedule.placements]
    return dataclasses.replace(schedule, placements=tuple(rows))


def _crosswise(schedule: Schedule) -> Schedule:
    """Of a -> b and c -> d, a is on device 0 behind c, which is behind b, which is on device 1 ahead of d."""
    a, b, c, d = (row.operator for row in schedule.placements[:4])  # conv1, pool and the first two of fire 2
    places = {a: (0, 1), b: (1, 0), c: (0, 0), d: (1, 1)}
    changes = {operator: {"device": device, "stage": stage} for operator, (device, stage) in places.items()}
    return dataclasses.replace(_placed(schedule, changes), devices=2)


def _of_another_graph(schedule: Schedule) -> Schedule:
    first = msgspec.structs.replace(schedule.placements[0], operator="stem1")
    return dataclasses.replace(schedule, placements=(first, *schedule.placements[1:]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            lambda schedule: _on_streams(schedule, {"fire2.expand1x1": 1, "conv1": 1}, ["fire2.expand1x1", "conv1"]),
            "the schedule deadlocks: .* wait for each other",
            id="two streams that each begin with an operator that waits for the other",
        ),
        pytest.param(
            lambda schedule: _placed(schedule, {"conv1": {"stage": len(schedule.placements)}}),
            "the schedule deadlocks: .* wait for each other",
            id="a device whose first stage waits for its last one",
        ),
        pytest.param(_crosswise, "the schedule deadlocks", id="two devices that wait for each other"),
        pytest.param(
            lambda schedule: _placed(schedule, {"max_pool2d": {"stage": 0, "stream": 1}}),
            "operator max_pool2d depends on conv1",
            id="two groups of one stage that depend on each other and would race",
        ),
        pytest.param(
            lambda schedule: dataclasses.replace(schedule, merges=(("conv1", "conv10"),)),
            r"merges\[0\]: found conv1, conv10, which is not a stage",
            id="merged operators that are no stage",
        ),
        pytest.param(
            _of_another_graph,
            r"placements\[0\]\.operator: found stem1, which is not an operator",
            id="an operator that the graph does not have",
        ),
        pytest.param(
            lambda schedule: dataclasses.replace(schedule, graph_fingerprint="0" * 16),
            r"graph_fingerprint: found 0{16}; allowed: .* schedule this one",
            id="another graph of the same name",
        ),
        pytest.param(
            lambda schedule: dataclasses.replace(schedule, placements=schedule.placements[:-1]),
            "placements: operator .* is missing",
            id="an operator that the schedule lacks",
        ),
    ],
)
def test_schedules_that_cannot_run_are_refused_before_the_run(
    files: Files, sequential: Path, change: Callable[[Schedule], Schedule], message: str
) -> None:
    """What would wait for ever, race or is of another graph is refused, with names."""
    changed = change(Schedule.read(sequential))
    changed.write(sequential)
    _refused(rf"sequential\.json: {message}", files, [sequential], devices=changed.devices)


def test_two_schedules_of_one_name_are_refused(files: Files, sequential: Path, tmp_path: Path) -> None:
    """Schedules are told apart by file name: two of one name would be taken for each other."""
    other = tmp_path / "other" / "sequential.json"
    Schedule.read(sequential).write(other)
    _refused(r"other/sequential\.json: a schedule named sequential already takes part", files, [sequential, other])
    reserved = tmp_path / "sequential on one device.json"
    Schedule.read(sequential).write(reserved)
    _refused("a schedule named sequential on one device already takes part", files, [reserved], devices=2)


def test_synthetic_graph_is_refused(tmp_path: Path, files: Files) -> None:
    """A graph without calls has nothing to run: the operator is named."""
    graph = Graph("test", (Operator("a", "task"), Operator("b", "task")), (Edge("a", "b"),))
    graph.write(tmp_path / "graph.json")
    paths = write_schedules(tmp_path, graph, {"schedule": StagedPlan(((((0, 1),),),))})
    _refused(
        r"graph\.json: operators\[0\]\.calls: operator a has none, so it can be scheduled but not run",
        dataclasses.replace(files, graph=tmp_path / "graph.json"),
        paths,
    )


def test_outputs_that_nothing_makes_are_refused(tmp_path: Path) -> None:
    """An output that is an input of the network cannot be timed."""
    files = write_files(tmp_path, Model(lambda _, x: (F.relu(x), x)), (torch.randn(3),))
    with pytest.raises(ScheduleError, match="an output that no operator makes cannot be executed"):
        ArenaPlan(Graph.read(files.graph), 1)
