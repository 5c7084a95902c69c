"""Segments of launches, on streams that are threads of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from tests.platforms.cuda.test_executor import NETWORKS, check, executor, placed, plans, shared, squeezenet
from tests.runtime.schedules import one_by_one, random_streams

#: What stands in for inductor: what a segment is, and what computes it by its operators.
Compiled = Callable[[Any, Callable[..., Any]], Callable[..., Any]]


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> Callable[[Compiled], None]:
    """Has something else in inductor's place, which is always the faster."""

    def use(compiled: Compiled) -> None:
        def made(chooser: Chooser, candidate: Any, *_: Any) -> Callable[..., Any]:
            return compiled(candidate, chooser._by_operators(candidate))

        def timed(_: Chooser, __: Any, ways: dict[str, Any], ___: Any) -> dict[str, float]:
            return {name: 1.0 if name == INDUCTOR else 2.0 for name in ways}

        monkeypatch.setattr(Chooser, "_compiled", made)
        monkeypatch.setattr(Chooser, "_timed", timed)

    return use


def _prepared(network: Network, plan: Plan, backend: HostBackend | None = None) -> tuple[Executor, list[SegmentResult]]:
    made = executor(network, backend or HostBackend())
    made.prepare("plan", [plan])
    return made, made.use_segments("plan")


def _flow(network: Network) -> Flow:
    return placed(network, 1).flow(lambda _, function, arguments: function(*arguments))


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("backend", [HostBackend, PooledBackend, lambda: HostBackend(capturing=False)])
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
        assert [name for own in whole.launches for name in own.operators if own.copied is None] != []
        kept = {value for own in planned.launches for value in own.lets_go}
        assert {value for own in whole.launches for value in own.lets_go} <= kept
        assert all(other < place for place, own in enumerate(whole.launches) for other in own.waits)


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
    """The plan would free that memory too early: it knows what operators do, not what was made of them."""

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
    assert "lies in the memory of what it reads" in result.refused[INDUCTOR]


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


def test_running_out_of_memory_is_told(compiling: Callable[[Compiled], None]) -> None:
    """It is no reason to go on by operators."""

    def fails(*_: Any) -> Any:
        raise torch.OutOfMemoryError("2 GiB")

    compiling(fails)
    network = shared()
    with pytest.raises(torch.OutOfMemoryError, match="2 GiB"):
        _prepared(network, one_by_one(network.graph))


def test_time_for_compiling_is_of_each_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes too late for one is compiled for the next; what is one kernel is never compiled."""
    network, late = shared(), "not compiled within the time for it"
    prepared = executor(network, HostBackend())
    monkeypatch.setattr(segments, "exported", _refuse)
    runs_of = [(0, tuple(network.graph.operators[place].id for place in network.graph.order))]
    runs_of += [(0, (name,)) for name in runs_of[0][1][:1]]
    chooser = prepared._chooser
    for seconds, reason in ((-1.0, late), (60.0, "no torch.export here")):
        with torch.inference_mode():
            _, results = chooser.chosen(runs_of, {}, seconds)
        assert [own.refused for own in results] == [{INDUCTOR: reason}, {INDUCTOR: "it is a single call"}]


def _refuse(*_: Any, **__: Any) -> Sequence[Any]:
    raise UnsupportedError("no torch.export here")
