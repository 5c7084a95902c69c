"""Opara: streams along first successors, and a launch order that mixes operators by their resource demands."""

from __future__ import annotations

import time
from heapq import heappop, heappush
from typing import NamedTuple

from hios.core.problem import Problem
from hios.core.schedule import Solution, StreamPlan
from hios.schedulers.registry import Parameter, register

#: FLOPs per byte from which on an operator is compute-intensive: peak float32 throughput over memory bandwidth of the
#: paper's A100-PCIE-40GB (19.5 TFLOPS, 1555 GB/s), to the two decimals that the help states.
RIDGE = round(19.5e12 / 1.555e12, 2)


@register(
    "opara",
    paper="Opara (Chen et al., arXiv:2312.10351), Algorithms 1 and 2",
    summary="streams along first successors; memory- and compute-intensive operators launched in turn, small first",
    several_devices=False,
    demand="registers, shared memory and threads of a block if profiled, else FLOPs and bytes; for the launch order",
    parameters=(
        Parameter(
            "rule",
            "paper",
            "whose rule joins an operator to the stream of a predecessor",
            choices=("paper", "released"),
        ),
    ),
)
def opara(problem: Problem, devices: int, *, rule: str = "paper") -> Solution:
    """Algorithm 1 is ``allocate_streams``, Algorithm 2 is ``launch_order``, the profile is ``demands``.

    The notes say where resource demands and classes of operators come from.
    """
    began = time.perf_counter()
    streams = allocate_streams(problem, rule)
    allocated = time.perf_counter() - began
    demanded = demands(problem)
    notes = {"resource demands": demanded.amount_from, "operator classes": demanded.class_from}
    return Solution(StreamPlan((streams,), launch_order(problem, demanded)), notes=notes, allocation_time_s=allocated)


def allocate_streams(problem: Problem, rule: str = "paper") -> tuple[tuple[int, ...], ...]:
    """Stream allocation (Algorithm 1): operators by number, for every stream in order. O(|V| + |E|).

    Operators are enumerated in topological order, predecessors in the order in which the operator takes them. It
    joins the stream of the first predecessor that ``rule`` allows, or a new one where there is none:

    - ``paper``: a predecessor of which it is the first successor (Line 4), in topological order. Where that successor
      has joined another stream, the predecessor's ends.
    - ``released``: a predecessor that no operator has joined yet, as the authors' program does it. There, a later
      successor may go on with the stream, so that there are at most as many streams.
    """
    inputs: list[dict[int, None]] = [{} for _ in range(len(problem))]
    for edge in problem.graph.edges:
        inputs[problem.graph.index[edge.target]][problem.graph.index[edge.source]] = None
    claimed = [False] * len(problem)
    home = [0] * len(problem)
    streams: list[list[int]] = []
    for operator in problem.order:
        for predecessor in inputs[operator]:
            first = problem.successors[predecessor][0][0]
            if (first == operator) if rule == "paper" else not claimed[predecessor]:
                claimed[predecessor] = True
                home[operator] = home[predecessor]
                streams[home[operator]].append(operator)
                break
        else:
            home[operator] = len(streams)
            streams.append([operator])
    return tuple(tuple(stream) for stream in streams)


class Demands(NamedTuple):
    """Resource demands of operators, by number.

    Only comparisons of amounts mean something; what is not memory-intensive is compute-intensive.
    """

    amount: list[float]
    memory_intensive: list[bool]
    amount_from: str
    class_from: str


def demands(problem: Problem) -> Demands:
    """Resource demands and classes of all operators, from the best source that is available for all of them.

    Amounts: the largest share that a block takes of the shared memory, registers or threads that a block can have,
    where a GPU profile gave the three (section 3.2; how to compare them is not said there). Else the larger of the
    operator's bytes and FLOPs, each relative to the largest in the graph. Else, where the graph does not state both,
    the time.

    Classes: memory-intensive below 12.54 FLOPs per byte, where an A100 is bound by its memory; so are operators of an
    extracted graph whose FLOPs are unknown. Else below the median time. The paper classes them by a table of operator
    names that was collected beforehand.
    """
    profiled = [resources for resources in problem.resources if resources is not None]
    work = [
        (operator.flops or 0, operator.bytes)
        for operator in problem.graph.operators
        if operator.bytes is not None and (operator.flops is not None or operator.calls)
    ]
    if len(work) == len(problem):
        memory_intensive = [flops < RIDGE * size for flops, size in work]
        class_from = "arithmetic intensity"
    else:
        median = sorted(problem.time)[len(problem) // 2]
        memory_intensive = [time < median for time in problem.time]
        class_from = "times"
    if len(profiled) == len(problem):
        return Demands([resources.share for resources in profiled], memory_intensive, "GPU profile", class_from)
    if len(work) == len(problem):
        most_flops = max(flops for flops, _ in work) or 1
        most_bytes = max(size for _, size in work) or 1
        amount = [max(flops / most_flops, size / most_bytes) for flops, size in work]
        return Demands(amount, memory_intensive, "FLOPs and bytes", class_from)
    return Demands(list(problem.time), memory_intensive, "times", class_from)


def launch_order(problem: Problem, demanded: Demands) -> tuple[int, ...]:
    """Resource- and interference-aware launch order (Algorithm 2): operators by number. O(|V| log |V| + |E|).

    Two lists hold the operators that can run, memory-intensive and compute-intensive ones. They are drawn from in
    turn, memory-intensive first, or from the one that is not empty; each time the operator with the lowest demand is
    launched, and among equals the one that has been in the list longest.

    The authors' program compares shared memory alone and begins with compute-intensive operators.
    """
    missing = [len(row) for row in problem.predecessors]
    ready: tuple[list[tuple[float, int, int]], ...] = ([], [])  # memory-intensive, compute-intensive
    arrivals = 0

    def add(operator: int) -> None:
        nonlocal arrivals
        heappush(ready[not demanded.memory_intensive[operator]], (demanded.amount[operator], arrivals, operator))
        arrivals += 1

    for operator in problem.order:
        if missing[operator] == 0:
            add(operator)
    launched: list[int] = []
    turn = 0
    while ready[0] or ready[1]:
        turn = turn if ready[turn] else 1 - turn
        operator = heappop(ready[turn])[2]
        launched.append(operator)
        turn = 1 - turn
        for successor, _ in problem.successors[operator]:
            missing[successor] -= 1
            if missing[successor] == 0:
                add(successor)
    return tuple(launched)
