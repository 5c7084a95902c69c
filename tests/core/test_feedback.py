"""Costs as a run of a schedule measured them."""

import pytest
from msgspec.structs import replace

import hios
from hios.core.costs import CorunFactor, Demand, MergeCost, OperatorCost, StageCost, TransferCost
from hios.core.feedback import fed_back
from hios.errors import ArtifactError

#: a feeds b and c; d reads both.
_GRAPH = hios.Graph(
    "diamond",
    tuple(hios.Operator(name, "task") for name in "abcd"),
    (hios.Edge("a", "b"), hios.Edge("a", "c"), hios.Edge("b", "d"), hios.Edge("c", "d")),
)
_COSTS = hios.CostsFile(
    operators={name: OperatorCost(time_ms=10.0, p20_ms=9.0, p80_ms=11.0) for name in "abcd"},
    transfers=tuple(TransferCost(source=edge.source, target=edge.target, time_ms=2.0) for edge in _GRAPH.edges),
    corun=(CorunFactor(devices=2, factor=1.5),),
)


def _row(operator: str, device: int, start_ms: float, finish_ms: float) -> hios.Placement:
    return hios.Placement(operator, device, 0, None, start_ms, finish_ms)


#: c waits for a on another device, and d for nothing: c came before b ended.
_RUN = [_row("a", 0, 0.0, 1.0), _row("b", 0, 1.0, 6.0), _row("c", 1, 1.25, 3.0), _row("d", 0, 6.0, 7.0)]


def test_a_schedule_is_predicted_as_it_ran() -> None:
    """Operators and the hand-over that one waited for take what they took, whatever they take alone."""
    costs = fed_back(_COSTS, _GRAPH, [_RUN])
    assert {name: cost.time_ms for name, cost in costs.operators.items()} == {"a": 1.0, "b": 5.0, "c": 1.75, "d": 1.0}
    plan = hios.StreamPlan((((0, 1, 3),), ((2,),)))
    problem = hios.Problem(_GRAPH, hios.Costs.of(costs)).on(2)
    assert {row.operator: (row.start_ms, row.finish_ms) for row in hios.evaluate(problem, plan)} == {
        row.operator: (row.start_ms, row.finish_ms) for row in _RUN
    }


def test_hand_overs_that_nothing_waited_for_are_at_most_the_time_between() -> None:
    """Their time stays what it was, unless the operator began sooner after its producer than that."""
    late = [*_RUN[:1], _row("b", 0, 1.0, 4.0), _RUN[2], _row("d", 0, 4.0, 5.0)]
    for run, expected in ((_RUN, 2.0), (late, 1.0)):
        costs = fed_back(_COSTS, _GRAPH, [run])
        assert isinstance(costs.transfers, tuple)
        known = {(entry.source, entry.target): entry.time_ms for entry in costs.transfers}
        assert known == {("a", "b"): 2.0, ("a", "c"): 0.25, ("b", "d"): 2.0, ("c", "d"): expected}


def test_times_are_medians_of_runs() -> None:
    """One slow run of three changes nothing."""
    slow = [*_RUN[:3], _row("d", 0, 6.0, 60.0)]
    assert fed_back(_COSTS, _GRAPH, [_RUN, slow, _RUN]) == fed_back(_COSTS, _GRAPH, [_RUN])


def test_a_run_of_another_graph_is_refused() -> None:
    """It lacks an operator."""
    with pytest.raises(ArtifactError, match="run: found operators other than those of"):
        fed_back(_COSTS, _GRAPH, [_RUN[:3]])


def test_costs_that_lack_an_operator_are_refused() -> None:
    """Its time would be that of no run."""
    few = {name: cost for name, cost in _COSTS.operators.items() if name != "c"}
    with pytest.raises(ArtifactError, match="operators: no entry for operator c of the graph"):
        fed_back(replace(_COSTS, operators=few), _GRAPH, [_RUN])


def test_stages_merges_and_demands_of_earlier_times_are_dropped() -> None:
    """What was measured with b and c does not fit their times; it stays where these are wide, and others' are known."""
    known = replace(
        _COSTS,
        operators={
            name: replace(cost, demand=Demand(slots=0.5, compute=0.5, memory=0.5))
            for name, cost in _COSTS.operators.items()
        },
        stages=(StageCost(groups=(("b",), ("c",)), time_ms=12.0),),
        merges=(MergeCost(operators=("b", "c"), time_ms=15.0),),
    )
    costs = fed_back(known, _GRAPH, [_RUN])
    assert (costs.stages, costs.merges) == ((), ())
    assert [cost.demand for cost in costs.operators.values()] == [None] * 4
    wide = [hios.Placement(name, 0, 0, None, 0.0, 1.0, (0, 1)) for name in "bc"]
    kept = fed_back(known, _GRAPH, [[_RUN[0], *wide, _RUN[3]]])
    assert (kept.stages, kept.merges) == (known.stages, known.merges)
    assert [name for name, cost in kept.operators.items() if cost.demand is not None] == ["b", "c"]
