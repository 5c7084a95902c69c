"""Programs of launches, on streams that are threads of this machine."""

from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios import ALGORITHMS, Costs, Graph, Problem, schedule
from hios.core.graph import Call, Edge, Operator, Shapes, TensorSpec, Value
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.errors import PlatformError
from hios.platforms.cuda import launch
from hios.platforms.cuda.compiled_network import Network as Placed
from hios.platforms.cuda.executor import Executor
from hios.platforms.cuda.plan import Lane
from tests.frontends.small_networks import Model, Network, extracted_once, network
from tests.platforms.cuda.host import HostBackend, PooledBackend
from tests.problems import briefly
from tests.runtime.schedules import merged_plan, random_plan, random_streams
from tests.runtime.small import branches

DEVICES = 3


def _shared(_: Any, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    """Two inputs and outputs; parts of values, and values in other shapes, which lie in the memory of others."""
    a = F.relu(x) + y
    b, c = a.chunk(2, 1)
    d, e = b.flatten(1), torch.sigmoid(c).reshape(1, -1)
    f = d * e
    return torch.cat([f + d, e], 1), c.permute(0, 2, 3, 1), F.adaptive_avg_pool2d(a, 1)


@functools.cache
def shared() -> Network:
    """A network whose operators share memory."""
    generator = torch.Generator().manual_seed(0)
    return extracted_once(
        "shared", Model(_shared), tuple(torch.randn(1, 4, 6, 6, generator=generator) for _ in range(2))
    )


def _strided(_: Any, x: Tensor) -> tuple[Tensor, ...]:
    """A part of the rows of a value, in one dimension: a copy, but of a dense copy of that part a view."""
    v = x.chunk(2, 1)[0].flatten()
    p = torch.exp(-v)
    return v.abs(), -p, -p.square()


#: Operators of this network, with what each reads and its attributes, and the device of each in `across`.
_STRIDED: dict[str, tuple[str, str, dict[str, Any], int]] = {
    "s": ("split", "x", {"indices_or_sections": 2, "axis": 1}, 0),
    "v": ("flatten", "s", {}, 1),
    "q": ("negative", "v", {}, 1),
    "r": ("abs", "v", {}, 1),
    "p": ("exp", "q", {}, 0),
    "f": ("negative", "p", {}, 1),
    "z": ("square", "p", {}, 0),
    "g": ("negative", "z", {}, 1),
}


@functools.cache
def strided() -> Network:
    """A network in which what shares memory depends on where it runs."""
    shapes: dict[str, tuple[int, ...]] = {"x": (4, 8), "s": (4, 4)}
    operators = []
    for name, (function, read, attributes, _) in _STRIDED.items():
        argument = Value(input="x") if read == "x" else Value(operator=read)
        shape = shapes.setdefault(name, (16,))
        made = Shapes((shapes[read],), (shape, shape) if name == "s" else (shape,))
        operators.append(
            Operator(name, function, (Call(f"relax.{function}", (argument,), attributes),), made, "float32")
        )
    edges = tuple(Edge(read, name) for name, (_, read, *_) in _STRIDED.items() if read != "x")
    outputs = tuple(Value(operator=name) for name in "rfg")
    graph = Graph("strided", tuple(operators), edges, (TensorSpec("x", (4, 8), "float32"),), outputs)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    return Network(Model(_strided), (x,), graph, {})


def across(count: int) -> StreamPlan:
    """A plan of it on two devices, or on one with as many streams, launched in the order of `_STRIDED`."""
    rows = tuple(
        tuple(place for place, (*_, device) in enumerate(_STRIDED.values()) if device == own) for own in range(2)
    )
    return StreamPlan(tuple((row,) for row in rows) if count > 1 else (rows,), tuple(range(len(_STRIDED))))


def squeezenet() -> Network:
    """A network with eight pairs of branches."""
    return network("squeezenet", 64)


NETWORKS: dict[str, Callable[[], Network]] = {
    "branches": branches,
    "shared": shared,
    "squeezenet": squeezenet,
    "strided": strided,
}


def placed(extracted_network: Network, devices: int = DEVICES, cls: type[Placed] = Placed) -> Placed:
    """A network on devices that are this machine."""
    made = cls(extracted_network.graph, extracted_network.tensors, [torch.device("cpu")] * devices)
    made.write(extracted_network.inputs)
    return made


def executor(extracted_network: Network, backend: HostBackend) -> Executor:
    """A network that is ready to run there."""
    return Executor(placed(extracted_network), backend, lambda _: None)


def check(outputs: Sequence[Any], expected: Sequence[Tensor]) -> None:
    """Outputs are those of eager PyTorch."""
    assert len(outputs) == len(expected)
    for output, own in zip(outputs, expected, strict=True):
        torch.testing.assert_close(output.value, own, rtol=1e-4, atol=1e-4)


def plans(graph: Graph) -> list[Plan]:
    """Plans on one to three devices, by stages and by streams."""
    made: list[Plan] = [merged_plan(graph, count) for count in (1, 2)]
    made += [random_plan(graph, devices, seed) for devices in (1, 2, DEVICES) for seed in range(4)]
    made += [random_streams(graph, devices, streams, seed=streams) for devices in (1, DEVICES) for streams in (1, 2, 4)]
    return [*made, StreamPlan((tuple((place,) for place in graph.order),), tuple(graph.order))]


@pytest.mark.parametrize("capturing", [True, False])
@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_equal_eager(name: str, capturing: bool) -> None:
    """Whatever the plan and the delays, captured or not, and run after run: outputs are those of eager PyTorch."""
    extracted_network = NETWORKS[name]()
    expected, backend = extracted_network.eager(), HostBackend(capturing=capturing)
    prepared = executor(extracted_network, backend)
    for number, plan in enumerate(plans(extracted_network.graph)):
        how = prepared.prepare(str(number), [plan])
        assert bool(how.replays) == capturing
        assert how.why == ("" if capturing else "operation not permitted when stream is capturing")
        for _ in range(2):
            assert prepared.run(str(number)) > 0
            check(prepared.outputs(str(number)), expected)
        check(prepared.run_exactly(str(number)), expected)
    assert backend.copies > 0


def test_graphs_share_memory() -> None:
    """Graphs overwrite each other's values: of those that are run in turns, each computes all of its own again."""
    extracted_network, backend = squeezenet(), PooledBackend()
    prepared = executor(extracted_network, backend)
    for seed in range(3):
        prepared.prepare(str(seed), [random_plan(extracted_network.graph, 2, seed)])
    assert backend.taken_again > len(extracted_network.graph.index)
    for name in "010212":
        prepared.run(name)
        check(prepared.outputs(name), extracted_network.eager())


@pytest.mark.parametrize("streams", [1, 2])
def test_lanes_may_share_streams(streams: int) -> None:
    """A device has fewer streams than a plan asks for: outputs are right, and nothing waits for ever."""
    extracted_network = squeezenet()
    prepared = executor(extracted_network, HostBackend(streams=streams))
    for number, plan in enumerate(plans(extracted_network.graph)):
        prepared.prepare(str(number), [plan])
        prepared.run(str(number))
        check(prepared.outputs(str(number)), extracted_network.eager())


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_runs(name: str) -> None:
    """Schedules of all algorithms, for costs at random, compute what eager PyTorch does."""
    extracted_network, choose = squeezenet(), random.Random(name)
    graph = extracted_network.graph
    times = {operator: choose.uniform(0.1, 2.0) for operator in graph.index}
    costs = Costs(times, {(edge.source, edge.target): choose.uniform(0.0, 0.5) for edge in graph.edges})
    devices = DEVICES if ALGORITHMS[name].several_devices else 1
    plan = schedule(Problem(graph, costs), name, devices, briefly(name)).plan(graph)
    prepared = executor(extracted_network, HostBackend())
    prepared.prepare(name, [plan])
    prepared.run(name)
    check(prepared.outputs(name), extracted_network.eager())


def test_replays_read_new_inputs() -> None:
    """Inputs are buffers: what is written there later is what the next replay computes with."""
    extracted_network = shared()
    devices = placed(extracted_network)
    devices.write([torch.zeros_like(value) for value in extracted_network.inputs])
    prepared = Executor(devices, HostBackend(), lambda _: None)
    prepared.prepare("random", [random_plan(extracted_network.graph, 2, seed=1)])
    devices.write(extracted_network.inputs)
    prepared.run("random")
    check(prepared.outputs("random"), extracted_network.eager())


def test_memory_that_is_shared_is_found() -> None:
    """Parts of a value and values in another shape lie in its memory; what operators compute does not."""
    extracted_network = shared()
    flow = placed(extracted_network, 1).flow(lambda _, function, arguments: function(*arguments))
    types = {operator.id: operator.type for operator in extracted_network.graph.operators}
    sharing = {types[value[1]] for value in flow.views}
    assert {"split"} <= sharing
    assert not sharing & {"add", "concat", "sigmoid", "relu"}
    assert all(others == tuple(flow.reads[value[1]]) for value, others in flow.views.items())


def test_memory_that_may_be_shared_is_known() -> None:
    """Whatever the strides are where operators run first."""
    flow = placed(strided(), 1).flow(lambda _, function, arguments: function(*arguments))
    s, v = ("operator", "s", 0), ("operator", "v", 0)
    assert flow.views == {s: (("input", "x", 0),), ("operator", "s", 1): (("input", "x", 0),), v: (s,)}


def test_copies_take_no_memory_that_is_read() -> None:
    """The memory of an arrival stays while what lies in it there, but not where it was made, is read beside copies."""
    taken: list[int] = []

    class Noting(PooledBackend):
        def copy(self, lane: Any, value: Any) -> Any:
            made = super().copy(lane, value)
            if self._recording is not None and lane == Lane(1, source=0):
                taken.append(made.value.data_ptr())
            return made

    backend = Noting()
    prepared = executor(strided(), backend)
    prepared.prepare("across", [across(2)])
    assert len(set(taken)) == len(taken) == 3
    prepared.run("across")
    check(prepared.outputs("across"), strided().eager())


@pytest.mark.parametrize("capturing", [True, False])
def test_rows_cover_all_operators(capturing: bool) -> None:
    """Every operator has a row where the plan has it, after what it reads."""
    extracted_network = squeezenet()
    plan = random_plan(extracted_network.graph, DEVICES, seed=2)
    prepared = executor(extracted_network, HostBackend(capturing=capturing))
    prepared.prepare("random", [plan])
    timed, why = prepared.rows("random")
    rows = {row[0]: row for row in timed}
    assert why == ""
    index = extracted_network.graph.index
    assert sorted(rows) == sorted(index)
    for device, row in enumerate(plan.devices):
        for number, stage in enumerate(row):
            for group, operators in enumerate(stage):
                for place in operators:
                    assert rows[extracted_network.graph.operators[place].id][1:4] == (device, group, number)
    for edge in extracted_network.graph.edges:  # clocks of one machine, begun at the first launch of each device
        if rows[edge.source][1] == rows[edge.target][1]:
            assert rows[edge.source][5] <= rows[edge.target][4]


def test_rows_are_of_streams_where_events_are_refused() -> None:
    """A graph with events around operators may be refused: the rows are there all the same, with the reason."""

    class Refusing(HostBackend):
        def record(self, lane: Any, event: Any = None, *, timed: bool = False) -> Any:
            if timed and self._recording is not None:
                raise RuntimeError("external events are not supported\nmore")
            return super().record(lane, event, timed=timed)

    extracted_network = branches()
    prepared = executor(extracted_network, Refusing())
    prepared.prepare("random", [random_plan(extracted_network.graph, 2, seed=0)])
    rows, why = prepared.rows("random")
    assert sorted(row[0] for row in rows) == sorted(extracted_network.graph.index)
    assert why == "external events are not supported"
    prepared.run("random")
    check(prepared.outputs("random"), extracted_network.eager())


def test_operators_run_alone_when_they_run_first() -> None:
    """Libraries try their algorithms in the first call of a function: nothing else runs meanwhile, merges included."""
    began, disturbed = set[int](), set[int]()
    lock, running = threading.Lock(), list[int]()

    class Trying(HostBackend):
        def run(self, lane: Any, function: Any, arguments: list[Any], outputs: int) -> list[Any]:
            def tried(*values: Tensor) -> Any:
                with lock:
                    disturbed.update(({id(function)} - began) if running else ({*running} - settled))
                    running.append(id(function))
                    first = id(function) not in began
                    began.add(id(function))
                result = function(*values)
                with lock:
                    running.remove(id(function))
                    if first:
                        settled.add(id(function))
                return result

            return super().run(lane, tried, arguments, outputs)

    settled = set[int]()
    extracted_network = squeezenet()
    prepared = executor(extracted_network, Trying())
    for number, plan in enumerate(
        [random_plan(extracted_network.graph, 2, seed=0), merged_plan(extracted_network.graph, 1)]
    ):
        prepared.prepare(str(number), [plan])
        prepared.run(str(number))
    assert len(began) > len(extracted_network.graph.index)
    assert disturbed == set()


def test_copies_run_on_all_devices() -> None:
    """Independent copies are programs of their own, each on its device."""
    extracted_network = branches()
    order = tuple(((place,),) for place in extracted_network.graph.order)
    prepared = executor(extracted_network, HostBackend())
    how = prepared.prepare("copies", [StagedPlan((*[()] * device, order)) for device in range(DEVICES)])
    assert how.devices == [0, 1, 2]
    assert len(how.replays) == DEVICES
    prepared.run("copies")
    check(prepared.outputs("copies"), extracted_network.eager())


def test_operators_that_fail_are_named() -> None:
    """A kernel that fails ends the preparation with device, operator and stage."""
    extracted_network = branches()

    class Failing(HostBackend):
        def run(self, lane: Any, function: Any, arguments: list[Any], outputs: int) -> list[Any]:
            if lane.device == 1:
                raise RuntimeError("no such kernel\nsecond line")
            return super().run(lane, function, arguments, outputs)

    order = extracted_network.graph.order
    plan = StagedPlan(((((order[0],),),), tuple(((place,),) for place in order[1:])))
    name = extracted_network.graph.operators[order[1]].id
    with pytest.raises(PlatformError, match=rf"^device 1, operator {name}, stage 0: no such kernel$"):
        executor(extracted_network, Failing()).prepare("failing", [plan])


def test_operators_that_fail_alone_are_named() -> None:
    """All operators run once by themselves when a network is loaded: one that fails is named, whatever the plans."""
    extracted_network, marks = branches(), list[int]()
    last = extracted_network.graph.operators[extracted_network.graph.order[-1]].id

    class Failing(Placed):
        def function(self, device: int, operators: tuple[str, ...]) -> Any:
            function, arguments = super().function(device, operators)
            return (function if operators[0] != last else _fail), arguments

    with pytest.raises(PlatformError, match=rf"^device 0, operator {last}, stream 0: no such kernel$"):
        Executor(placed(extracted_network, 1, Failing), HostBackend(), marks.append)
    assert [launch.text(extracted_network.graph, [], mark) for mark in marks] == [
        f"device 0, operator {extracted_network.graph.operators[place].id}, stream 0"
        for place in extracted_network.graph.order
    ]


def _fail(*_: Tensor) -> Tensor:
    raise RuntimeError("no such kernel\nsecond line")


def test_devices_that_fail_are_named() -> None:
    """An error in a kernel is raised when its device is synchronized."""
    extracted_network = branches()

    class Failing(HostBackend):
        def synchronize(self, device: int) -> None:
            super().synchronize(device)
            if self.captures:
                raise RuntimeError("an illegal memory access was encountered\nsecond line")

    prepared = executor(extracted_network, Failing())
    prepared.prepare("random", [random_plan(extracted_network.graph, 1, seed=0)])
    with pytest.raises(PlatformError, match=r"^device 0, which runs all of random: an illegal memory access was enc"):
        prepared.run("random")


@pytest.mark.parametrize("when", ["launching", "capturing"])
def test_a_lack_of_memory_is_no_reason_to_go_on(when: str) -> None:
    """Out of memory ends the preparation, also where only the capture was: launched on streams it would be again."""

    class Short(HostBackend):
        def run(self, lane: Any, function: Any, arguments: list[Any], outputs: int) -> list[Any]:
            if when == "launching" or self._recording is not None:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return super().run(lane, function, arguments, outputs)

    extracted_network = branches()
    with pytest.raises(PlatformError, match=r"^device 0, operator \S+, stage \d: CUDA out of memory\. Tried"):
        executor(extracted_network, Short()).prepare("short", [random_plan(extracted_network.graph, 1, seed=0)])


def test_marks_say_where_the_process_is() -> None:
    """Every launch is marked before it is made, and every device before it is waited for; each mark has a text."""
    extracted_network, marks = branches(), list[int]()
    prepared = Executor(placed(extracted_network), HostBackend(), marks.append)
    order = extracted_network.graph.order
    plan = StagedPlan(tuple(tuple(((place,),) for place in order[device::2]) for device in (0, 1)))
    prepared.prepare("alternating", [plan])
    launched = [launch.text(extracted_network.graph, ["alternating"], mark) for mark in marks]
    names = [operator.id for operator in extracted_network.graph.operators]
    assert {f"device 0, operator {names[order[0]]}, stage 0", f"device 1, operator {names[order[1]]}, stage 0"} <= {
        *launched
    }
    marks.clear()
    prepared.run("alternating")
    assert [launch.text(extracted_network.graph, ["alternating"], mark) for mark in marks] == [
        "device 0, which runs all of alternating",
        "device 1, which runs all of alternating",
    ]


@pytest.mark.parametrize(("device", "stage", "stream"), [(0, None, 0), (3, 40, 2), (500, None, 511), (7, 9000, 3)])
def test_marks_fit_a_flag(device: int, stage: int | None, stream: int) -> None:
    """A mark fits 63 bits and holds device, operator, and stage or stream."""
    graph = branches().graph
    marker = launch.launching(device, 1, stage, stream)
    assert 0 < marker < 2**63
    where = f"stream {stream}" if stage is None else f"stage {stage}"
    assert launch.text(graph, [], marker) == f"device {device}, operator {graph.operators[1].id}, {where}"
    assert launch.text(graph, [], 0) == ""
