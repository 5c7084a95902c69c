"""The one evaluator: start and finish of every operator of a plan under the cost model.

Staged plans (``staged``) follow HIOS section III; the operators of stream plans (``streams``) progress at the rate
that contention leaves them, and may take several devices at once. The times mean the same for all
algorithms, so their schedules can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from hios.contraction import Contraction
from hios.errors import ScheduleError
from hios.evaluate.plan_errors import require_merges, require_wide
from hios.evaluate.staged import evaluate_staged, staged_times
from hios.evaluate.streams import evaluate_streams
from hios.problem import Problem
from hios.schedule import Placement, Plan, StagedPlan, StreamPlan

__all__ = ["evaluate", "latency_ms", "staged_times"]


def evaluate(problem: Problem, plan: Plan) -> list[Placement]:
    """Times of every operator, rows in launch order; those of a schedule for the devices of the plan (``Problem.on``).

    Args:
        problem: graph and costs.
        plan: where and in what order operators run, by operator number.

    Returns:
        A `Placement` for every operator, with start and finish in milliseconds.

    Raises:
        ScheduleError: the plan does not hold every operator once, or on each of its devices; it gives an operator a
            number of devices that the costs do not list; it merges operators of streams that cannot run as one or do
            not stand together; or it deadlocks. The message names operators.

    Notes:
        Stages follow HIOS, section III: a stage starts when the one before it on its device has finished and all inputs
        have arrived. Operators on streams progress at the rate that contention leaves them.

    References:
        Kundu and Shu, "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured Deep
        Learning Models on Multiple GPUs", section III.

    Examples:
        >>> import hios
        >>> graph = hios.Graph("pair", (hios.Operator("a", "conv"), hios.Operator("b", "conv")), (hios.Edge("a", "b"),))
        >>> problem = hios.Problem(graph, hios.Costs({"a": 1.0, "b": 2.0}, {("a", "b"): 0.5}))
        >>> apart = hios.StagedPlan(((((0,),),), (((1,),),)))  # a on device 0, b on device 1
        >>> [(row.operator, row.device, row.start_ms, row.finish_ms) for row in hios.evaluate(problem, apart)]
        [('a', 0, 0.0, 1.0), ('b', 1, 1.5, 3.5)]
    """
    problem = problem.on(len(plan.devices))
    if isinstance(plan, StreamPlan) and plan.merges:
        return _evaluate_merged(problem, plan)
    if isinstance(plan, StreamPlan) and plan.wide:
        require_wide(problem, plan)
        return evaluate_streams(problem, plan)
    rows = [row for device in plan.devices for row in device]
    held = Counter(_operators(rows))
    for operator in range(len(problem)):
        if held[operator] != 1:
            raise ScheduleError(
                f"operator {problem.ids[operator]} is in the plan {held[operator]} times; allowed: once"
            )
    return evaluate_staged(problem, plan) if isinstance(plan, StagedPlan) else evaluate_streams(problem, plan)


def _evaluate_merged(problem: Problem, plan: StreamPlan) -> list[Placement]:
    """Times of streams with merges: each merge is one operator, and its operators all have its times."""
    contraction = Contraction(problem, plan.merges)
    require_merges(problem, plan)
    rows = evaluate(contraction.problem, contraction.contracted(plan))
    number = contraction.problem.graph.index
    return [
        replace(row, operator=problem.ids[operator])
        for row in rows
        for operator in contraction.members[number[row.operator]]
    ]


def _operators(nested: Iterable[Any]) -> Iterator[int]:
    """Operator numbers of stages (groups of operators) or streams (operators)."""
    for part in nested:
        if isinstance(part, int):
            yield part
        else:
            yield from _operators(part)


def latency_ms(placements: list[Placement]) -> float:
    """Latency of placements: the last finish, in milliseconds."""
    return max(row.finish_ms for row in placements)
