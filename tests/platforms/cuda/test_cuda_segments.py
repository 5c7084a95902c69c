"""Segments of launches, on streams that are threads of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from hios.core.schedule import Plan
from hios.errors import UnsupportedError
from hios.formats.run import SegmentResult
from hios.platforms.cuda import segments
from hios.platforms.cuda.executor import Executor
from hios.platforms.cuda.plan import Flow, joined, launch_plan, runs
from hios.platforms.cuda.segments import INDUCTOR, PACKED, Chooser
from tests.frontends.small_networks import Network
from tests.platforms.cuda.host import HostBackend, PooledBackend
from tests.platforms.cuda.test_executor import (
    NETWORKS,
    across,
    check,
    executor,
    placed,
    plans,
    shared,
    squeezenet,
    strided,
)
from tests.runtime.schedules import one_by_one, random_streams

#: Networks of few operators.
_SMALL = [name for name in NETWORKS if name != "squeezenet"]
#: What stands in for inductor: what a segment is, and what computes it by its operators.
Compiled = Callable[[Any, Callable[..., Any]], Callable[..., Any]]


def use_in_place_of_inductor(patch: pytest.MonkeyPatch, compiled: Compiled) -> None:
    """Have something else in inductor's place, which is always the faster."""

    def made(chooser: Chooser, candidate: Any, *_: Any) -> Callable[..., Any]:
        return compiled(candidate, chooser._by_operators(candidate))

    def timed(_: Chooser, __: Any, ways: dict[str, Any], ___: Any) -> dict[str, float]:
        return {name: 1.0 if name == INDUCTOR else 2.0 for name in ways}

    patch.setattr(Chooser, "_compiled", made)
    patch.setattr(Chooser, "_timed", timed)
    patch.setattr(Executor, "_slower", lambda *_: 0.5)


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Callable[[Compiled], None]:
    """The same for a test."""
    return partial(use_in_place_of_inductor, monkeypatch)


def _prepared(network: Network, plan: Plan, backend: HostBackend | None = None) -> tuple[Executor, list[SegmentResult]]:
    made = executor(network, backend or HostBackend())
    made.prepare("plan", [plan])
    return made, made.use_segments("plan")


def _flow(network: Network) -> Flow:
    return placed(network, 1).flow(lambda _, function, arguments: function(*arguments))


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        *((name, HostBackend) for name in NETWORKS),
        *((name, PooledBackend) for name in _SMALL),
        *((name, lambda: HostBackend(capturing=False)) for name in _SMALL),
    ],
)
def test_whatever_the_segments_outputs_are_right(
    name: str, backend: Callable[[], HostBackend], compiling: Callable[[Compiled], None]
) -> None:
    """All segments as one launch each: outputs are those of eager PyTorch, operators where they were."""
    compiling(lambda _, by_operators: by_operators)
    network = NETWORKS[name]()
    prepared = executor(network, backend())
    for number, plan in enumerate(plans(network.graph)):
        prepared.prepare(str(number), [plan])
        before = sorted(row[:4] for row in prepared.rows(str(number))[0])
        assert {result.runtime for result in prepared.use_segments(str(number))} <= {INDUCTOR}
        for _ in range(2):
            prepared.run(str(number))
            check(prepared.outputs(str(number)), network.eager())
        check(prepared.run_exactly(str(number)), network.eager())
        rows, _why = prepared.rows(str(number))
        assert sorted(row[:4] for row in rows) == before
        assert all(start <= finish for *_, start, finish in rows)


@pytest.mark.parametrize("name", NETWORKS)
def test_runs_wait_first_and_are_waited_for_last(name: str) -> None:
    """Every operator that is not merged is in one of them, in the order of its stream, none could be longer."""
    network = NETWORKS[name]()
    flow = _flow(network)
    for plan in plans(network.graph):
        planned = launch_plan(network.graph, flow, plan)
        found = runs(planned)
        alone = [place for place, own in enumerate(planned.launches) if own.copied is None and len(own.operators) == 1]
        assert sorted(place for run in found for place in run) == alone
        ends: dict[Any, int] = {}
        for run in sorted(found):
            launches = [planned.launches[place] for place in run]
            assert len({launch.lane for launch in launches}) == 1
            assert not any(launch.waits for launch in launches[1:])
            assert not any(launch.awaited for launch in launches[:-1])
            lane = launches[0].lane
            before = [place for place, own in enumerate(planned.launches[: run[0]]) if own.lane == lane]
            if ends.get(lane) in before[-1:]:
                assert launches[0].waits or planned.launches[before[-1]].awaited
            ends[lane] = run[-1]
        whole = joined(planned, found)
        assert all(other < place for place, own in enumerate(whole.launches) for other in own.waits)
        for lane in planned.lanes:
            separate, together = ([own for own in each.launches if own.lane == lane] for each in (planned, whole))
            names = [name for own in together for name in own.operators]
            assert names == [name for own in separate for name in own.operators]
            # What would be let go of within the last run of a stream stays until the end.
            late = {name for own in together[-1:] for name in own.operators[1:]} if lane.source is None else set()
            gone = [value for own in separate for value in own.lets_go if own.operators[0] not in late]
            assert [value for own in together for value in own.lets_go] == gone


def test_a_sequential_schedule_is_one_segment(compiling: Callable[[Compiled], None]) -> None:
    """It reads the inputs of the network, and makes its outputs alone; its time is shared as operators took theirs."""
    seen: list[Any] = []
    compiling(lambda candidate, by_operators: seen.append(candidate) or by_operators)
    network = squeezenet()
    prepared, (result,) = _prepared(network, one_by_one(network.graph))
    assert result.operators == tuple(network.graph.operators[place].id for place in network.graph.order)
    (candidate,) = seen
    assert candidate.reads == (("input", network.graph.inputs[0].name, 0),)
    assert list(candidate.makes) == list(_flow(network).outputs)
    rows, _ = prepared.rows("plan")
    assert [row[0] for row in rows] == list(result.operators)
    assert all(before[5] == pytest.approx(after[4]) for before, after in pairwise(rows))


def test_what_differs_is_not_used(compiling: Callable[[Compiled], None]) -> None:
    """A segment whose outputs differ beyond the tolerance runs by its operators, and the result says why."""
    compiling(lambda _, by_operators: lambda *values: by_operators(*values) * 1.001)
    network = squeezenet()
    prepared, (result,) = _prepared(network, one_by_one(network.graph))
    assert (result.runtime, set(result.latency_ms)) == (PACKED, {PACKED})
    assert result.refused is not None
    assert result.refused[INDUCTOR].startswith("its output of operator ")
    assert result.refused[INDUCTOR].endswith("of its largest value; allowed: 0.0001")
    prepared.run("plan")
    check(prepared.outputs("plan"), network.eager())


def test_outputs_in_the_memory_of_inputs_are_refused(compiling: Callable[[Compiled], None]) -> None:
    """The plan would free that memory too early, as it knows what operators do."""

    def in_place(candidate: Any, by_operators: Callable[..., Any]) -> Callable[..., Any]:
        def run(*values: Tensor) -> Any:
            made = by_operators(*values)
            first = made if isinstance(made, Tensor) else made[0]
            room = next(value for value in values if value.numel() >= first.numel())
            own = room.flatten()[: first.numel()].view(first.shape).copy_(first)
            return own if isinstance(made, Tensor) else (own, *made[1:])

        return run

    compiling(in_place)
    network = squeezenet()
    _, (result,) = _prepared(network, one_by_one(network.graph))
    assert result.refused is not None
    assert result.refused[INDUCTOR].endswith("is not in the memory in which the operator returns it")


def test_what_cannot_be_compiled_runs_by_operators(compiling: Callable[[Compiled], None]) -> None:
    """Whatever the compiler raises, the schedule runs, and the result has the first line of it."""

    def fails(candidate: Any, _: Any) -> Any:
        raise RuntimeError("no kernel\nfor this") if len(candidate.operators) > 1 else UnsupportedError("too short")

    compiling(fails)
    network = shared()
    prepared, results = _prepared(network, random_streams(network.graph, 1, 2, seed=1))
    reasons = {len(result.operators) > 1: (result.refused or {})[INDUCTOR] for result in results}
    assert reasons == {True: "no kernel", False: "too short"}
    prepared.run("plan")
    check(prepared.outputs("plan"), network.eager())


def test_what_may_pass_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What found no time or no memory for one schedule is compiled for the next; one kernel is never compiled."""
    network, reasons = shared(), iter([torch.OutOfMemoryError("2 GiB"), UnsupportedError("no export")])
    prepared = executor(network, HostBackend())
    order = tuple(network.graph.operators[place].id for place in network.graph.order)

    def refuse(*_: Any, **__: Any) -> Any:
        raise next(reasons)

    monkeypatch.setattr(segments, "exported", refuse)
    for seconds, reason in (
        (-1.0, "not compiled within the time for it"),
        (60.0, "2 GiB"),
        (60.0, "no export"),
        (60.0, "no export"),
    ):
        monkeypatch.setattr(segments, "BUDGET_S", seconds)
        with torch.inference_mode():
            made, results = prepared._chooser.chosen([(0, order), (0, order[:1])], dict.fromkeys(order, 1.0), {})
        assert made == []
        assert [own.refused for own in results] == [{INDUCTOR: reason}, {INDUCTOR: "it is a single call"}]
        assert all(own.latency_ms.keys() == {PACKED} for own in results)


@pytest.mark.parametrize(
    ("change", "found"),
    [(torch.Tensor.contiguous, "is torch.float32 of [1, 6, 6, 2]"), (torch.Tensor.double, "is torch.float64 of ")],
)
def test_outputs_with_other_strides_or_types_are_refused(
    change: Callable[[Tensor], Tensor], found: str, compiling: Callable[[Compiled], None]
) -> None:
    """What is compiled for their readers expects the order of dimensions, and the type, that the operator gives."""
    compiling(lambda _, by_operators: lambda *values: tuple(change(value.clone()) for value in by_operators(*values)))
    network = shared()
    _, (result,) = _prepared(network, one_by_one(network.graph))
    assert result.refused is not None
    assert found in result.refused[INDUCTOR]
    assert "; allowed: torch.float32 of [1, " in result.refused[INDUCTOR]


@pytest.mark.parametrize(
    ("slower", "fails", "reason"),
    [
        (1.25, False, "the schedule took 1.25 times as long with it"),
        (0.5, True, "expected size 2==2, stride 8==4 at dim=0"),
    ],
)
def test_a_schedule_goes_back_to_operators(
    slower: float, fails: bool, reason: str, compiling: Callable[[Compiled], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it is slower by segments, or a value has other strides than the example."""
    made: list[Callable[..., Any]] = []

    class Asserting(HostBackend):
        def run(self, lane: Any, function: Any, arguments: list[Any], outputs: int) -> list[Any]:
            if fails and function in made:
                raise AssertionError(reason)
            return super().run(lane, function, arguments, outputs)

    def compiled(_: Any, by_operators: Callable[..., Any]) -> Callable[..., Any]:
        made.append(by_operators)
        return by_operators

    compiling(compiled)
    monkeypatch.setattr(Executor, "_slower", lambda *_: slower)
    network = squeezenet()
    prepared, (result,) = _prepared(network, one_by_one(network.graph), Asserting())
    assert result.runtime == PACKED
    assert result.latency_ms == {PACKED: 2.0}
    assert result.refused is not None
    assert result.refused[INDUCTOR].endswith(reason)
    prepared.run("plan")
    check(prepared.outputs("plan"), network.eager())


@pytest.mark.parametrize("devices", [(2, 1), (1, 2)])
def test_strides_are_those_of_the_plan(
    devices: Sequence[int], compiling: Callable[[Compiled], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What arrives from another device is dense, and what was compiled for other strides is compiled again."""

    def made(chooser: Chooser, candidate: Any, inputs: Sequence[Tensor], _: float) -> Callable[..., Any]:
        by_operators, expected = chooser._by_operators(candidate), [value.stride() for value in inputs]

        def run(*values: Tensor) -> Any:
            assert [value.stride() for value in values] == expected
            return by_operators(*values)

        return run

    compiling(lambda _, by_operators: by_operators)
    monkeypatch.setattr(Chooser, "_compiled", made)
    prepared = executor(strided(), HostBackend())
    for count in devices:
        prepared.prepare(str(count), [across(count)])
        results = prepared.use_segments(str(count))
        assert {result.runtime for result in results} == {INDUCTOR}
        assert {("v", "q")} <= {result.operators for result in results}
        prepared.run(str(count))
        check(prepared.outputs(str(count)), strided().eager())


@pytest.mark.parametrize(("nanoseconds", "is_kept"), [((2, 1), False), ((1, 2), True), ((1002, 1000), True)])
def test_the_faster_schedule_is_kept(
    nanoseconds: tuple[int, int],
    is_kept: bool,
    compiling: Callable[[Compiled], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That by segments, where it takes no longer than that by operators, beside which it runs in turns."""
    slower = Executor._slower
    compiling(lambda _, by_operators: by_operators)
    monkeypatch.setattr(Executor, "_slower", slower)
    network = squeezenet()
    made = executor(network, HostBackend())
    by_operators = made.prepare("plan", [one_by_one(network.graph)])
    monkeypatch.setattr(Executor, "_run", lambda _, prepared: nanoseconds[prepared is by_operators])
    (result,) = made.use_segments("plan")
    assert (result.runtime == INDUCTOR) is is_kept
    assert (made._prepared["plan"] is by_operators) is not is_kept


def test_graphs_by_operators_are_kept_where_segments_cannot_be_captured(compiling: Callable[[Compiled], None]) -> None:
    """A schedule whose capture fails with segments only is replayed by operators."""

    class Refusing(HostBackend):
        def capture(self, lanes: Any, launch: Any) -> Any:
            if self.captures > 1:  # after the graph by operators, and the one that times them
                raise RuntimeError("operation not permitted when stream is capturing")
            return super().capture(lanes, launch)

    compiling(lambda _, by_operators: by_operators)
    network = squeezenet()
    prepared, (result,) = _prepared(network, one_by_one(network.graph), Refusing())
    assert prepared.why("plan") == ""
    assert result.refused == {INDUCTOR: "operation not permitted when stream is capturing"}
    prepared.run("plan")
    check(prepared.outputs("plan"), network.eager())


def test_the_faster_way_is_chosen(monkeypatch: pytest.MonkeyPatch, compiling: Callable[[Compiled], None]) -> None:
    """Operators where they take no longer, though what inductor made is right."""
    compiling(lambda _, by_operators: by_operators)
    monkeypatch.setattr(Chooser, "_timed", lambda *_: {PACKED: 1.0, INDUCTOR: 1.0})
    network = squeezenet()
    _, (result,) = _prepared(network, one_by_one(network.graph))
    assert (result.runtime, result.latency_ms, result.refused) == (PACKED, {PACKED: 1.0, INDUCTOR: 1.0}, {})
