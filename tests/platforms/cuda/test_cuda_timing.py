"""Timing on GPUs, with a simulated clock in place of a GPU: what is measured is what was launched, and nothing else.

Resources of kernels are read from a trace that is written by hand as Kineto writes them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from hios import Costs, Edge, Graph, Operator
from hios.core.costs import BlockResources
from hios.errors import PlatformError
from hios.platforms.cuda import graph_pool
from hios.platforms.cuda import timed_graphs as graphs
from hios.platforms.cuda import timing as cuda
from hios.platforms.cuda.timed_graphs import MOST, TARGET_MS, TRIAL
from hios.platforms.cuda.timing import ANNOTATION, resources_of
from tests.platforms.cuda.simulated_timing import PROPERTIES, Machine, merged, workload

COSTS = {"a": 0.004, "b": 0.010, "c": 3.0, "view": 0.0}
_BYTES = 1 << 13
_OCCUPANCY = "est. achieved occupancy %"


class _Worker:
    """A worker without a process."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.marks: list[int] = []
        self.mark = self.marks.append


@pytest.fixture
def machine() -> Machine:
    """GPUs that are idle."""
    return Machine()


@pytest.fixture
def worker(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A worker with two devices on two GPUs."""
    return _open(machine, monkeypatch, tmp_path)


def _open(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    for module in (graphs, graph_pool, cuda):
        monkeypatch.setattr(module, "torch", machine.torch())
    monkeypatch.setattr(graphs, "Workload", workload(machine, COSTS, _BYTES))
    monkeypatch.setattr(graphs, "Merged", merged(machine, COSTS, _BYTES))
    monkeypatch.setattr(cuda, "Merged", graphs.Merged)  # type: ignore[attr-defined] # what the module imported
    edges = (Edge("a", "b"), Edge("a", "c"), Edge("a", "view"))
    Graph("four", tuple(Operator(name, "conv") for name in COSTS), edges).write(tmp_path / "graph.json")
    opened = _Worker()
    assert cuda.open_gpus(opened, str(tmp_path / "graph.json"), [0, 1], 4) == ["GPU 0", "GPU 1"]  # type: ignore[arg-type]
    return opened


def test_operators(worker: Any) -> None:
    """An operator takes its own time, however long it is, without that of starting a graph."""
    assert cuda.torch.backends.cudnn.benchmark  # type: ignore[attr-defined] # what the module imported
    cuda.load(worker, dict.fromkeys(COSTS, 1))
    times = cuda.time_rounds(worker, 1, list(COSTS), rounds=3, warmup=1)
    assert times == [[(pytest.approx(max(cost, 1e-6)),)] * 3 for cost in COSTS.values()]


def test_chains_are_kept(worker: Any, machine: Machine) -> None:
    """The second call captures nothing: it replays a chain ahead, one of K and one of 2K."""
    cuda.time_rounds(worker, 0, ["a"], rounds=1, warmup=0)
    machine.log.clear()
    cuda.time_rounds(worker, 0, ["a"], rounds=1, warmup=0)
    count, *others = machine.log
    assert others == [count, 2 * count]
    assert count == round(TARGET_MS / COSTS["a"])


def test_chains_exceed_the_cache(machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The longer chain reads more than twice what the cache holds, so that no replay finds its weights there."""
    machine.cache_bytes = 4 * round(TARGET_MS / COSTS["a"]) * _BYTES
    opened = _open(machine, monkeypatch, tmp_path)
    machine.log.clear()
    cuda.time_rounds(opened, 0, ["a"], rounds=1, warmup=0)
    assert machine.log[-1] * _BYTES > 2 * machine.cache_bytes
    assert machine.log[-1] == 2 * machine.log[-2]


def test_times_are_those_of_weights_in_memory(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the cache still holds is read faster: of operators, stages and merges in chains nothing is there."""
    runs = round(TARGET_MS / COSTS["a"])
    machine.cache_bytes, machine.free_bytes = 8 * runs * _BYTES, 1 << 30
    opened = _open(machine, monkeypatch, tmp_path)
    a, b = COSTS["a"], COSTS["b"]
    cuda.load_merges(opened, [["a", "b"]])
    times = cuda.time_rounds(opened, 0, ["a", (("a",), ("b",)), 0], rounds=2, warmup=1)
    expected = [(a,), (b, a + b), (b, a + b)]
    assert times == [[tuple(map(pytest.approx, own))] * 2 for own in expected]


def test_views_have_chains_of_bounded_length(worker: Any, machine: Machine) -> None:
    """What launches no kernel ends too."""
    cuda.time_rounds(worker, 0, ["view"], rounds=1, warmup=0)
    assert max(machine.log) <= 2 * MOST


def test_copies_fit_into_memory(worker: Any) -> None:
    """A chain has as many copies of its operator as half of the free memory has room for, and goes through them."""
    cuda.time_rounds(worker, 0, ["a", "c"], rounds=1, warmup=0)
    held = worker.state["gpus"][0].workloads
    assert len(held["a"]) == (1 << 20) // 2 // 4 // _BYTES
    assert len(held["c"]) == 2 * TRIAL
    cuda.load(worker, {"c": 30})
    assert [len(gpu.workloads["c"]) for gpu in worker.state["gpus"]] == [30, 30]


def test_stages(worker: Any) -> None:
    """Groups run side by side between one fork and one join; their operators alone take their sum."""
    stages = ((("a", "b"), ("c",)), (("a",), ("a",), ("b",)))
    samples_of = cuda.time_rounds(worker, 0, stages, rounds=2, warmup=1)
    assert samples_of[0] == [(pytest.approx(3.0), pytest.approx(3.014))] * 2
    assert samples_of[1] == [(pytest.approx(0.010), pytest.approx(0.018))] * 2
    assert set(worker.state["gpus"][0].pairs) == set(stages)


def test_only_the_stages_of_the_last_call_are_kept(worker: Any) -> None:
    """Graphs of stages that are settled are let go."""
    first, second = (("a",), ("b",)), (("a",), ("c",))
    cuda.time_rounds(worker, 0, [first, second], rounds=1, warmup=0)
    cuda.time_rounds(worker, 0, [second], rounds=1, warmup=0)
    assert list(worker.state["gpus"][0].pairs) == [second]


def test_merges(worker: Any) -> None:
    """A merge is timed beside its operators one after another; a new batch takes the place of the old."""
    cuda.load_merges(worker, [["a", "b"], ["b", "c"]])
    assert cuda.time_rounds(worker, 1, [1], rounds=1, warmup=1) == [[(pytest.approx(3.0), pytest.approx(3.010))]]
    cuda.load_merges(worker, [["a", "c"], ["a", "b"]])
    assert cuda.time_rounds(worker, 1, [1], rounds=1, warmup=1) == [[(pytest.approx(0.010), pytest.approx(0.014))]]


@pytest.mark.parametrize("devices", [1, 2])
def test_transfers(worker: Any, devices: int) -> None:
    """A hand-over takes the time of a copy, between two devices or on one."""
    del worker.state["gpus"][devices:]
    times_ms = cuda.time_transfers(worker, [1_000, 1_000_000], rounds=2)
    assert times_ms == {1_000: pytest.approx([0.001] * 2), 1_000_000: pytest.approx([1.0] * 2)}


def test_devices_at_once(worker: Any, machine: Machine) -> None:
    """GPUs that share nothing take as long together as alone, and each has a copy of all operators."""
    network = ["a", "b", "a", "c"]
    assert cuda.corun(worker, 1, 2, network) == pytest.approx(1.0)
    assert [len(gpu.workloads["a"]) for gpu in worker.state["gpus"]] == [2, 2]
    machine.log.clear()
    cuda.corun(worker, 1, 2, network)
    assert set(machine.log) == {4}


def test_overheads(worker: Any, machine: Machine) -> None:
    """Work on another stream begins a synchronization later; a further group of a stage waits twice."""
    machine.sync_ms = 0.003
    assert cuda.overheads(worker) == (pytest.approx(0.003), pytest.approx(0.006))


@pytest.mark.parametrize(("major", "minor", "held"), [(7, 0, 4), (9, 0, 3), (7, 5, 4), (12, 1, 3)])
def test_room_by_compute_capability(
    worker: Any, monkeypatch: pytest.MonkeyPatch, major: int, minor: int, held: int
) -> None:
    """Of 64 KB an SM holds four blocks of 16 KB, but three where the system keeps 1 KB of each."""
    monkeypatch.setitem(PROPERTIES, "major", major)
    monkeypatch.setitem(PROPERTIES, "minor", minor)
    sms, room = cuda.room(worker)
    assert (sms, room.held(BlockResources(1 << 14, 0, 32))) == (4, held)
    assert room.blocks == {(7, 5): 16, (12, 1): 24}.get((major, minor), 32)


def test_what_cannot_be_captured_is_launched(worker: Any, machine: Machine) -> None:
    """An operator that a graph cannot hold is timed all the same, and noted with the first cause."""
    machine.refused.add("b")
    times = cuda.time_rounds(worker, 0, ["a", "b"], rounds=1, warmup=0)
    assert times == [[(pytest.approx(COSTS["a"]),)], [(pytest.approx(COSTS["b"]),)]]
    why = "operation not permitted when stream is capturing"
    assert cuda.uncaptured(worker) == {"operator b": why}
    cuda.time_rounds(worker, 0, [(("a",), ("b",))], rounds=1, warmup=0)
    assert cuda.uncaptured(worker) == {"operator b": why, "a stage of operators a, b": why}


def test_an_operator_that_fails_is_named(worker: Any, machine: Machine) -> None:
    """What cannot run at all ends the profile, in one line."""
    machine.broken.add("b")
    with pytest.raises(PlatformError) as caught:
        cuda.time_rounds(worker, 0, ["a", "b"], rounds=1, warmup=0)
    assert str(caught.value) == "operator b: no kernel image is available"


def test_memory_that_is_short_is_named(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no memory for an operator, the profile ends with its name."""

    def full(*_: object, **__: object) -> None:
        raise MemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore")  # as the simulated torch has it

    monkeypatch.setattr(graphs, "Workload", full)
    with pytest.raises(PlatformError, match=r"^operator b: CUDA out of memory\. Tried to allocate 2\.00 GiB$"):
        cuda.load(worker, {"b": 1})


def test_operators_are_marked(worker: Any) -> None:
    """The controller can tell at which operator a worker died: its number in the graph, from 1 on."""
    cuda.load(worker, {"b": 1})
    assert worker.marks[-1] == 2
    cuda.time_rounds(worker, 0, ["c"], rounds=1, warmup=0)
    assert worker.marks[-1] == 3


def _annotation(operator: str, begin: float, duration: float) -> dict[str, Any]:
    """What ``record_function`` leaves."""
    name = f"{ANNOTATION}{operator}"
    place = {"ph": "X", "pid": 7, "tid": 11, "ts": begin, "dur": duration}
    return {**place, "cat": "user_annotation", "name": name, "args": {"External id": 1, "Record function id": 0}}


def _launch(number: int, at: float, category: str = "cuda_runtime") -> dict[str, Any]:
    """A call that launches a kernel."""
    place = {"ph": "X", "pid": 7, "tid": 11, "ts": at, "dur": 1.5, "cat": category}
    return {**place, "name": "cudaLaunchKernel", "args": {"External id": 3, "cbid": 211, "correlation": number}}


def _kernel(number: int, registers: int, shared: int, block: list[int], **more: Any) -> dict[str, Any]:
    """A kernel on the GPU: processes are GPUs there, threads are streams."""
    arguments = {
        "External id": 3,
        "queued": 0,
        "device": 0,
        "context": 1,
        "stream": 7,
        "correlation": number,
        "registers per thread": registers,
        "shared memory": shared,
        "blocks per SM": 0.5,
        "warps per SM": 2.0,
        "grid": [6, 2, 1],
        "block": block,
        **more,
    }
    place = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 9000.0 - number, "dur": 3.0}
    return {**place, "name": "void gemm(float*)", "args": arguments}


def _trace(*events: dict[str, Any]) -> dict[str, Any]:
    others = [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0.0, "args": {"name": "python"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::conv2d", "pid": 7, "tid": 11, "ts": 101.0, "dur": 5.0},
        {"ph": "f", "id": 1, "pid": 0, "tid": 7, "ts": 8999.0, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        {"ph": "X", "cat": "gpu_user_annotation", "name": f"{ANNOTATION}a", "pid": 0, "tid": 7, "ts": 8e3, "dur": 1e3},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": 0, "ts": 1.0, "dur": 1e4},
    ]
    return {"schemaVersion": 1, "deviceProperties": [], "traceEvents": [*others, *events], "traceName": "trace.json"}


def test_kernels_belong_to_the_operator_that_launched_them() -> None:
    """Launches within an operator's annotation are its own, whenever and in which order their kernels run."""
    found = resources_of(
        _trace(
            _annotation("a", 100.0, 50.0),
            _launch(1, 110.0),
            _annotation("b", 200.0, 50.0),
            _launch(2, 210.0, "cuda_driver"),
            _launch(3, 300.0),
            _kernel(3, 255, 49152, [1024, 1, 1]),
            _kernel(2, 32, 1024, [16, 16, 1], **{_OCCUPANCY: 25}),
            _kernel(1, 40, 0, [128, 1, 1]),
        )
    )
    assert found == {
        "a": BlockResources(0, 40 * 128, 128, blocks=12),
        "b": BlockResources(1024, 32 * 256, 256, blocks=12, occupancy=0.25),
    }


@pytest.mark.parametrize(
    ("first", "second", "threads"),
    [
        ((16, 0, [256]), (16, 0, [512]), 512),  # threads: 1/2 is more than 1/4
        ((255, 0, [256]), (16, 0, [512]), 256),  # registers: 255 * 256 of 65536 is nearly all
        ((16, 49152, [64]), (255, 0, [256]), 64),  # shared memory: all of it
    ],
)
def test_the_most_demanding_kernel_counts(first: Any, second: Any, threads: int) -> None:
    """Of several kernels it is the one that takes the largest share of anything that a block can have."""
    for kernels in ((first, second), (second, first)):
        launched = [_launch(number, 110.0 + number) for number in (1, 2)]
        ran = [_kernel(number, *kernel) for number, kernel in enumerate(kernels, 1)]
        assert resources_of(_trace(_annotation("a", 100.0, 50.0), *launched, *ran))["a"].threads == threads


def test_changes_of_layout_do_not_count_beside_a_convolution() -> None:
    """Kernels of cuDNN stand around one that is not channels last, and may take more of an SM than it does."""
    launched = [_launch(number, 110.0 + number) for number in (1, 2, 3)]
    reordering = {**_kernel(1, 40, 8448, [512]), "name": "void cudnn::ops::nchwToNhwcKernel<float, float, float>(...)"}
    back = {**_kernel(3, 40, 8448, [512]), "name": "void cudnn::engines_precompiled::nhwcToNchwKernel<float>(...)"}
    convolution = _kernel(2, 96, 8192, [128], grid=[49, 1, 1])
    found = resources_of(_trace(_annotation("a", 100.0, 50.0), *launched, reordering, convolution, back))
    assert found == {"a": BlockResources(8192, 96 * 128, 128, blocks=49)}
    alone = resources_of(_trace(_annotation("a", 100.0, 50.0), launched[0], reordering))
    assert alone["a"].threads == 512  # an operator that does nothing else


def test_an_operator_without_kernels_asks_for_nothing() -> None:
    """A view launches no kernel, and a copy is none."""
    copied = {**_kernel(2, 0, 0, [1]), "cat": "gpu_memcpy", "args": {"correlation": 2, "bytes": 4}}
    events = [_annotation("view", 100.0, 5.0), _annotation("copy", 110.0, 5.0), _launch(2, 111.0), copied]
    found = resources_of(_trace(*events, _annotation("a", 200.0, 9.0), _launch(1, 201.0), _kernel(1, 8, 0, [32])))
    nothing = BlockResources(0, 0, 1)
    assert {name: entry for name, entry in found.items() if name != "a"} == {"view": nothing, "copy": nothing}


def test_a_trace_without_kernels_says_nothing() -> None:
    """Where no kernel was recorded, as without leave to trace them, no operator is said to ask for nothing."""
    assert resources_of(_trace(_annotation("a", 100.0, 50.0), _launch(1, 110.0))) == {}


def test_costs_hold_resources() -> None:
    """costs.json takes what was found, and scheduling reads of it what Opara compares."""
    events = [_annotation("a", 100.0, 50.0), _launch(1, 110.0), _kernel(1, 40, 64, [128], **{_OCCUPANCY: 150})]
    entry = resources_of(_trace(*events))["a"]
    assert entry.occupancy == 1.0
    data = {"operators": {"a": {"time_ms": 1.0, "resources": msgspec.to_builtins(entry)}}, "transfers": []}
    assert Costs.from_json(data).resources == {"a": BlockResources(64, 5120, 128, blocks=12, occupancy=1.0)}


def test_annotations_are_as_torch_writes_them(tmp_path: Path) -> None:
    """An annotation in a trace of torch, here without a GPU, has the operator's name, and is found with a kernel."""
    cpu = [torch.profiler.ProfilerActivity.CPU]
    name = f"{ANNOTATION}blocks.0/conv"
    with torch.profiler.profile(activities=cpu) as profiler, torch.profiler.record_function(name):
        torch.ones(8).relu()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    (own,) = [event for event in trace["traceEvents"] if event.get("cat") == "user_annotation"]
    trace["traceEvents"] += [_launch(1, own["ts"] + own["dur"] / 2), _kernel(1, 8, 0, [32])]
    assert {name: entry.threads for name, entry in resources_of(trace).items()} == {"blocks.0/conv": 32}
