"""GPG: Algorithm 2 of TOP as an algorithm of the registry."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings

from benchmarks.networks import inception_v3, resnet50, squeezenet, synthetic_costs
from hios import Costs, Edge, Graph, HiosError, Operator, Problem, schedule, violations
from hios.core.schedule import StagedPlan
from hios.errors import ArtifactError
from hios.schedulers.policy.endings import combined_problem, model_blocks
from tests.problems import problem, problems, synthetic_problem


def _latency(instance: Problem, **parameters: float | str) -> float:
    scheduled = schedule(instance, "gpg", parameters=parameters)
    assert violations(instance, scheduled) == []
    return scheduled.latency_ms


@given(instance=problems())
@settings(max_examples=50)
def test_never_above_sequential_and_never_below_the_optimum(instance: Problem) -> None:
    """No schedule takes longer than the operators in sequence, or less time than that of ios without merges."""
    latency = _latency(instance, passes=8)
    assert latency <= schedule(instance, "sequential").latency_ms + 1e-9
    best = schedule(instance, "ios", parameters={"mode": "parallel"})
    if not best.cuts:
        assert latency >= best.latency_ms - 1e-9


@given(instance=problems())
@settings(max_examples=30)
def test_stages_keep_the_limits(instance: Problem) -> None:
    """Every operator runs once, in stages of at most s groups of at most r operators, each rooted."""
    plan = schedule(instance, "gpg", parameters={"passes": 4, "r": 2, "s": 3}).plan(instance.graph)
    assert isinstance(plan, StagedPlan)
    (row,) = plan.devices
    assert sorted(v for stage in row for group in stage for v in group) == list(range(len(instance)))
    for stage in row:
        assert len(stage) <= 3
        assert all(len(group) <= 2 for group in stage)


def test_more_passes_are_never_worse_and_find_the_optimum() -> None:
    """With a seed, the first passes of a longer search are those of a shorter one; SqueezeNet's optimum is found."""
    instance = synthetic_problem(squeezenet())
    latencies = [_latency(instance, passes=passes) for passes in (1, 4, 16, 256)]
    assert all(later <= earlier for earlier, later in itertools.pairwise(latencies))
    assert latencies[-1] == pytest.approx(schedule(instance, "ios", parameters={"mode": "parallel"}).latency_ms)


def test_inception_is_close_to_the_optimum() -> None:
    """With its defaults and nothing learned, within 5 % of dynamic programming."""
    instance = synthetic_problem(inception_v3())
    best = schedule(instance, "ios", parameters={"mode": "parallel"}).latency_ms
    assert best <= _latency(instance) <= 1.05 * best


_NETWORKS = {
    "inception_v3": (inception_v3, 13),
    "resnet50": (lambda: resnet50(pooled=True), 5),
    "squeezenet": (squeezenet, 12),
}


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, (_, count) in _NETWORKS.items() for number in range(count)]
)
def test_blocks_of_the_papers_networks(name: str, number: int) -> None:
    """Each of TOP's 30 blocks alone: by default within 2 % of the exact optimum; with 256 passes the optimum itself."""
    blocks = model_blocks(name, synthetic_problem(_NETWORKS[name][0]()))
    assert len(blocks) == _NETWORKS[name][1]
    block = combined_problem([blocks[number]])
    best = schedule(block, "ios", parameters={"mode": "parallel"})
    assert best.cuts == 0
    assert best.latency_ms - 1e-9 <= _latency(block) <= 1.02 * best.latency_ms
    assert _latency(block, passes=256) == pytest.approx(best.latency_ms)


def test_equal_seeds_give_equal_schedules() -> None:
    """The seed decides everything."""
    instance = synthetic_problem(inception_v3())
    first, second = (schedule(instance, "gpg", parameters={"seed": 3, "passes": 8}) for _ in range(2))
    assert first.placements == second.placements


def test_relabeling_changes_nothing() -> None:
    """Operators listed and named otherwise get a schedule of the same latency, with its first pass alone or more."""
    graph = squeezenet()
    costs = synthetic_costs(graph)
    assert not isinstance(costs.transfers, tuple)
    new = {operator.id: f"x{number}" for number, operator in enumerate(reversed(graph.operators))}
    renamed = Graph(
        "renamed",
        tuple(Operator(new[operator.id], operator.type) for operator in reversed(graph.operators)),
        tuple(Edge(new[edge.source], new[edge.target]) for edge in graph.edges),
        blocks=tuple(tuple(new[name] for name in block) for block in graph.blocks),
    )
    other = Costs(
        {new[name]: time for name, time in costs.time_ms.items()},
        {(edge.source, edge.target): 0.0 for edge in renamed.edges},
        {new[name]: share for name, share in costs.utilization.items()},
        contention=costs.contention,
        alpha=costs.alpha,
    )
    for passes in (1, 8):
        assert _latency(Problem(renamed, other), passes=passes) == pytest.approx(
            _latency(Problem(graph, costs), passes=passes)
        )


def test_one_pass_without_a_policy_takes_the_last_endings() -> None:
    """Nothing learned and a single pass: as many groups as possible from the end on."""
    instance = problem(
        {"a": 1.0, "b": 1.0, "c": 1.0}, {("a", "c"): 0.0, ("b", "c"): 0.0}, utilization={"a": 0.5, "b": 0.5}
    )
    scheduled = schedule(instance, "gpg", parameters={"passes": 1})
    assert [placement.stage for placement in scheduled.placements] == [0, 0, 1]
    assert scheduled.latency_ms == pytest.approx(0.5 * 2 + 0.5 * 1 + 1)


def test_what_cannot_be_weights_is_refused() -> None:
    """A missing file of weights is named."""
    instance = problem({"a": 1.0}, {})
    with pytest.raises(ArtifactError, match=r"nowhere\.safetensors: cannot be read"):
        schedule(instance, "gpg", parameters={"weights": "nowhere.safetensors"})
    with pytest.raises(HiosError, match="parameter passes: found 0; allowed: a whole number of at least 1"):
        schedule(instance, "gpg", parameters={"passes": 0})
