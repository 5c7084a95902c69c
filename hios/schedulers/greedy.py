"""Greedy schedule of IOS section 6.1: every stage takes all operators that can run."""

from __future__ import annotations

from hios.core.problem import Problem
from hios.core.schedule import StagedPlan
from hios.schedulers.registry import register


@register(
    "greedy",
    paper="IOS (MLSys 2021), section 6.1",
    summary="all operators that can run form a stage, again and again, on one device",
    several_devices=False,
)
def greedy(problem: Problem, devices: int) -> StagedPlan:
    """Puts all operators that can be executed into one stage and repeats until none is left.

    Every operator is a group of its own, so the stage of an operator is its depth: the number of edges on the
    longest path to it. O(|V| + |E|).
    """
    depth = [0] * len(problem)
    stages: list[list[int]] = []
    for operator in problem.order:
        depth[operator] = max((depth[u] + 1 for u, _ in problem.predecessors[operator]), default=0)
        if depth[operator] == len(stages):
            stages.append([])
        stages[depth[operator]].append(operator)
    return StagedPlan((tuple(tuple((operator,) for operator in operators) for operators in stages),))
