"""Sequential schedule: one operator after another on one device."""

from __future__ import annotations

from hios.core.problem import Problem
from hios.core.schedule import StagedPlan
from hios.schedulers.registry import register


@register(
    "sequential",
    paper="the order of the network; yardstick of every paper",
    summary="one operator after another in topological order on one device",
    several_devices=False,
)
def sequential(problem: Problem, devices: int) -> StagedPlan:
    """Every operator is a stage of its own, in topological order (IOS section 6.1, HIOS section V-B)."""
    return StagedPlan((tuple(((operator,),) for operator in problem.order),))
