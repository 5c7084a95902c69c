"""Segments in other runtimes: equal outputs for plans of all kinds, and why a runtime is left out."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import onnx
import pytest
import torch
from onnx import helper
from torch import Tensor, nn

from hios import Graph, HiosError, Schedule
from hios.core.graph import Call, Operator, Shapes, Value
from hios.core.schedule import StagedPlan, StreamPlan
from hios.formats.onnx_session import OnnxSession
from hios.machine.description import usable_cores
from hios.platforms.cpu import segment_runtimes
from hios.platforms.cpu.engine import Engine, Task
from hios.platforms.cpu.segment_runtimes import Choosing, Segment
from hios.platforms.segments import Boundary
from hios.verify.consistency import run_problems
from tests.cores_marker import two_cores
from tests.frontends.small_networks import Model, extracted, write_files
from tests.openvino_marker import needs_openvino
from tests.platforms.cpu import forced_segments
from tests.runtime.schedules import one_by_one, run_schedules, write_schedules
from tests.runtime.small import alternating, branches, image, require_right_run, sequential

pytestmark = needs_openvino


def _tasks() -> dict[str, Task]:
    """Plans of all kinds."""
    order = tuple(branches().graph.order)
    stem, left, right, *rest = order
    wide = StreamPlan(((order,), ((left,),)), order, {left: (0, 1)})
    groups = StagedPlan(((((stem,),), ((left,), (right,)), *(((place,),) for place in rest)),))
    return {
        "one": Task(sequential()),
        "staged": Task(alternating()),
        "turned": Task(alternating(), (1, 0)),
        "streams": Task(StreamPlan(((order[:2], order[3:]), (order[2:3],)), order)),
        "wide": Task(wide),
        "groups": Task(groups),
    }


def test_plans_of_all_kinds_give_equal_outputs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever runs their segments, for inputs that change from call to call; also of tasks that come later.

    Once a task is taken, a worker has its segments in their runtimes, and no others.
    """
    monkeypatch.setattr(segment_runtimes, "choose", forced_segments.choose)
    network, (first, *_, last) = branches(), [*usable_cores(), usable_cores()[0]]
    runtimes, choosing = ("packed", "onnxruntime", "openvino"), Choosing(image(0), tmp_path, 1e3)
    tasks = {f"{name} in {runtime}": task for runtime in runtimes for name, task in _tasks().items()}
    with Engine(network.graph, network.tensors, tasks, [[first], [last]], choosing=choosing) as engine:
        for name in tasks:
            for seed in (0, 1):
                require_right_run(engine, name, seed)
        rows = []
        for runtime in runtimes:
            engine.add(f"later in {runtime}", Task(alternating(), (1, 0)), network.tensors, choosing)
            rows.append(engine.timeline(f"later in {runtime}", image(1)))
            require_right_run(engine, f"later in {runtime}", 1)
        before = engine._pool.call(0, forced_segments.sessions)
        engine.keep_only("one in openvino")
        after = engine._pool.call(0, forced_segments.sessions)
        require_right_run(engine, "one in openvino", 1)
    assert before.keys() == {"onnxruntime", "openvino"}
    assert after == {"openvino": 1}
    placed = {
        network.graph.operators[place].id: device
        for device, stages in enumerate(alternating().devices)
        for stage in stages
        for group in stage
        for place in group
    }
    for own in rows:
        assert {row.operator: row.device for row in own} == placed
        assert all(0.0 <= row.start_ms <= row.finish_ms for row in own)


def test_sessions_live_as_long_as_what_computes_by_them() -> None:
    """What is bound to tensors holds its session."""
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "graph", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    session = OnnxSession("model", model.SerializeToString())
    compute = session.bound([torch.ones(2)], [torch.empty(2)])
    held = weakref.ref(session)
    del session
    assert held() is not None
    compute()
    del compute
    gc.collect()
    assert held() is None


def test_choices_are_kept_for_the_same_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for a worker that shares its core, nor for other environment variables that change kernels and threads."""
    asked: list[str] = []

    def kept(key: Any, _: object) -> Any:
        asked.append(msgspec.json.encode(key).decode())
        return {"packed": 1.0}, {}

    monkeypatch.setattr(segment_runtimes.Converter, "_content", lambda *_: "content")
    for shares, policy in ((False, "active"), (True, "active"), (False, "passive"), (False, "active")):
        monkeypatch.setenv("OMP_WAIT_POLICY", policy)
        converter = object.__new__(segment_runtimes.Converter)
        converter.worker = SimpleNamespace(arena=SimpleNamespace(shares_cores=shares))  # type: ignore[assignment]
        converter._key, converter._choices = {}, SimpleNamespace(get=kept)  # type: ignore[assignment]
        assert converter.compared(Segment((), (), Boundary((), ()))) == ({"packed": 1.0}, {}, {})
    assert len(set(asked)) == 3
    assert asked[0] == asked[3]


@pytest.mark.parametrize(
    ("share", "shares_cores", "runtimes", "is_kept"),
    [
        (0.05, False, ["openvino"], True),
        (0.5, False, ["openvino"], False),
        (0.5, False, [], True),
        (0.5, True, ["openvino"], True),
    ],
)
def test_choices_on_a_busy_machine_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    share: float,
    shares_cores: bool,
    runtimes: list[str],
    is_kept: bool,
) -> None:
    """They are used, but what is timed beside other work says little.

    They are kept where there is nothing to choose, and of workers that share cores, as these are always beside others.
    """
    computing = dict.fromkeys(runtimes, int)
    monkeypatch.setattr(segment_runtimes.Converter, "_content", lambda *_: "content")
    monkeypatch.setattr(segment_runtimes.Converter, "_tried", lambda *_: ({}, computing, {}, False))
    monkeypatch.setattr("hios.machine.description.OtherWork.share", lambda _: share)
    worker: Any = SimpleNamespace(state={}, arena=SimpleNamespace(shares_cores=shares_cores))
    for packed_ms, expected_ms in ((1.0, 1.0), (2.0, 1.0 if is_kept else 2.0)):
        monkeypatch.setattr(segment_runtimes.Converter, "_timed", lambda *_, own=packed_ms: {"packed": own})
        converter = segment_runtimes.Converter(worker, {}, tmp_path, 0.0, ("finite",))
        assert converter.compared(Segment((), (), Boundary((), ()))) == ({"packed": expected_ms}, {}, {})


def test_the_content_of_a_segment_has_the_types_of_its_weights() -> None:
    """The same bytes in another shape or dtype are another weight."""
    call = Call("relax.add", (Value(input="x"), Value(weight="w")))
    operator = Operator("add", "add", (call,), Shapes(((2, 4),), ((2, 4),)), "float32")
    boundary = Boundary((("input", "x", 0),), (("operator", "add", 0),))
    contents = set()
    for weight in (torch.zeros(4), torch.zeros(1, 4), torch.zeros(2, 2), torch.zeros(4, dtype=torch.int32)):
        worker: Any = SimpleNamespace(state={})
        converter = segment_runtimes.Converter(worker, {"w": weight}, None, 0.0, ("finite",))
        contents.add(converter._content(Segment([operator], (), boundary, [torch.ones(2, 4)])))
    assert len(contents) == 4


def _crossing(model: Any, x: Tensor) -> Tensor:
    """The last operator reads what the first one made, and what follows from another's."""
    early = model.first(x)
    return torch.cat([early, model.third(model.second(model.other(x)))], 1)


def test_values_leave_with_a_later_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A value that is handed over by a segment after the one that made it is there, by operators and in a runtime."""
    monkeypatch.setattr(segment_runtimes, "choose", forced_segments.choose)
    layers = {name: nn.Linear(8, 8) for name in ("first", "second", "third", "other")}
    given = torch.randn(2, 8)
    network = extracted(Model(_crossing, **layers), (given,))
    at = network.graph.index
    last = network.graph.order[-1]
    rows = ((at["first"], at["second"], at["third"]), (at["other"], last))
    plan = StagedPlan(tuple(tuple(((place,),) for place in row) for row in rows))
    cores = [[usable_cores()[0]], [usable_cores()[-1]]]
    name = "late in onnxruntime"
    choosing = Choosing((given,), None, 1e3)  # the first run, which is recorded, is by operators
    with Engine(network.graph, network.tensors, {name: Task(plan)}, cores, choosing=choosing) as engine:
        for inputs in ((given,), (torch.randn(2, 8),)):
            with torch.no_grad():
                right = network.module(*inputs)
            torch.testing.assert_close(engine.run(name, inputs)[0], right, rtol=1e-4, atol=1e-4)


def _awkward(_: Model, x: Tensor, picked: Tensor) -> tuple[Tensor, Tensor]:
    """A whole number, a truth value and an operator of PyTorch's own beside floats: rows picked, summed and marked."""
    summed = torch.zeros_like(x).scatter_add(0, picked, x * 2).relu()
    return summed, (summed > 1) & (picked > 0)


@two_cores
def test_independent_copies_have_results_of_their_own(tmp_path: Path) -> None:
    """Two devices run the same network at once: neither computes in the memory in which the other does."""
    # Sums of 2048 numbers, which runtimes add up in parts, in the memory of the result.
    wide = Model(lambda model, x: model.linear(x), linear=nn.Linear(2048, 512))
    files = write_files(tmp_path, wide, (torch.randn(32, 2048),))
    graph = Graph.read(files.graph)
    paths = write_schedules(tmp_path, graph, {"first": StagedPlan((*one_by_one(graph).devices, ()))})
    run = run_schedules(files, paths, program=True, engine="segments", devices=2, runs=20)
    assert [ceiling.devices for ceiling in run.ceilings] == [2]
    assert run.results[0].largest_difference < 1e-3


@pytest.mark.parametrize(
    ("right", "wrong"), [(torch.tensor([30000, 5]), torch.tensor([30001, 5])), (torch.full((4,), 1e-5), torch.zeros(4))]
)
def test_other_outputs_rule_a_runtime_out(right: Tensor, wrong: Tensor) -> None:
    """An index that is off by one is wrong, however large it is, and so are zeros for small numbers."""

    class Session:
        def bound(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Callable[[], object]:
            return lambda: outputs[0].copy_(inputs[0])

    converter = object.__new__(segment_runtimes.Converter)
    boundary = SimpleNamespace(outputs=[("operator", "last", 0)])
    recorded = SimpleNamespace(inputs=[wrong], outputs=[right], boundary=boundary)
    with pytest.raises(HiosError, match=r"^its output of operator last differs by "):
        converter._equal(Session(), recorded)  # type: ignore[arg-type]
    recorded.inputs = [right]
    converter._equal(Session(), recorded)  # type: ignore[arg-type]


def _recurrent(layer: nn.Module) -> tuple[segment_runtimes.Converter, Segment]:
    """A recurrent layer as a segment of six steps, and what converts it."""
    given = torch.randn(1, 6, 4)
    network = extracted(Model(lambda model, x: model.layer(x)[0], layer=layer), (given,))
    graph = network.graph
    operators = [graph.operators[place] for place in graph.order]
    boundary = Boundary((("input", graph.inputs[0].name, 0),), (("operator", operators[-1].id, 0),))
    converter = object.__new__(segment_runtimes.Converter)
    converter.deadline, converter.weights, converter.kinds = math.inf, network.tensors, ("finite",)
    return converter, Segment(operators, (), boundary, [given])


def test_recurrent_layers_stay_whole(tmp_path: Path) -> None:
    """ONNX Runtime and OpenVINO run a layer as one operator."""
    from hios.frontends import openvino

    converter, whole = _recurrent(nn.GRU(4, 8, batch_first=True))
    for runtime in ("openvino", "onnxruntime"):
        converter._convert(runtime, whole, tmp_path)
    assert [made.get_type_name() for made in openvino.load(tmp_path / "model.xml").get_ops()].count("GRUSequence") == 1
    nodes = onnx.load_model(tmp_path / "model.onnx").graph.node
    assert [node.op_type for node in nodes].count("GRU") == 1
    assert len(nodes) < 6


def test_recurrent_layers_are_not_written_out_for_openvino(tmp_path: Path) -> None:
    """An RNN is no operator for torch.onnx."""
    converter, segment = _recurrent(nn.RNN(4, 8, batch_first=True))
    with pytest.raises(HiosError, match=r"^it would run recurrent layers step by step$"):
        converter._convert("openvino", segment, tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64])
def test_weights_of_all_types_have_digests(dtype: torch.dtype) -> None:
    """NumPy lacks some types, and a tensor may be a part of another, or a number."""
    tensor = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    assert (
        segment_runtimes.content_digest(tensor)
        == segment_runtimes.content_digest(tensor.clone())
        != segment_runtimes.content_digest(tensor.t())
    )
    assert len(segment_runtimes.content_digest(tensor[0, 0])) == 64


def test_a_run_says_what_ran_its_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """End to end: run.json names the runtime of every segment and is consistent; values of all dtypes pass."""
    monkeypatch.setenv("HIOS_CACHE", str(tmp_path / "cache"))
    files = write_files(tmp_path, Model(_awkward), (torch.randn(4, 8), torch.randint(0, 4, (4, 8))))
    graph = Graph.read(files.graph)
    order = graph.order
    turns = StagedPlan(tuple(tuple(((operator,),) for operator in order[device::2]) for device in (0, 1)))
    plans = {"sequential": one_by_one(graph), "turns": turns}
    paths = write_schedules(tmp_path, graph, plans)
    run = run_schedules(
        files, paths, program=True, engine="segments", devices=2, virtual=len(usable_cores()) < len(plans)
    )
    assert run.engine == "segments"
    schedules = {path.stem: Schedule.read(path) for path in paths}
    assert not run_problems(run, graph, schedules)
    for result in run.results:
        assert sorted(name for own in result.segments or () for name in own.operators) == sorted(graph.index)
        for own in result.segments or ():
            assert own.latency_ms[own.runtime] == min(own.latency_ms.values())
            assert {"packed", *own.latency_ms, *(own.refused or ())} == {"packed", "onnxruntime", "openvino"}
    (first, *_) = run.results[0].segments or ()
    lost = msgspec.structs.replace(first, operators=("other",))
    results = (msgspec.structs.replace(run.results[0], segments=(lost,)), *run.results[1:])
    (problem,) = run_problems(msgspec.structs.replace(run, results=results), graph, schedules)
    assert problem.startswith("results[0].segments[0].operators: found other")
