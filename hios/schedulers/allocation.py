"""How many devices each operator takes, decided before scheduling: CPA and MCPA for moldable tasks."""

from __future__ import annotations

from hios.problem import Problem
from hios.schedulers.deadline import check_deadline


def cpa_widths(problem: Problem, devices: int, *, per_level: bool = False) -> list[int]:
    """Numbers of devices by operator: operators of the critical path widen until it is no longer than the area.

    CPA (Radulescu and van Gemund, ICPP 2001, Fig. 2): while the critical path without transfers is longer than the sum
    of k*t(v, k) over M, the operator on it whose t(v, k)/k falls most takes the next of its numbers of devices. With
    ``per_level``, as in MCPA (Bansal, Kumar and Singh, Parallel Computing 2006), operators of one depth take no more
    than M devices together, so that they can run concurrently. O(|V| W (|V| + |E|)), W numbers of devices.

    Args:
        problem: graph and costs, with the times on ``devices`` (``Problem.on``).
        devices: number of devices M.
        per_level: whether it is MCPA.
    """
    widths, times = [1] * len(problem), list(problem.time)
    level = [0] * len(problem)
    for operator in problem.order:
        level[operator] = max((level[u] + 1 for u, _ in problem.predecessors[operator]), default=0)
    taken = [level.count(depth) for depth in range(max(level) + 1)]
    while True:
        check_deadline()
        path, length = _critical_path(problem, times)
        if length <= sum(width * time for width, time in zip(widths, times, strict=True)) / devices:
            return widths
        best: tuple[float, int, int] | None = None
        for operator in path:
            wider = next((width for width in problem.wide_ms.get(operator, ()) if width > widths[operator]), 0)
            crowded = per_level and taken[level[operator]] - widths[operator] + wider > devices
            if not wider or crowded or problem.time_on(operator, wider) >= times[operator]:
                continue
            gain = times[operator] / widths[operator] - problem.time_on(operator, wider) / wider
            if best is None or gain > best[0]:
                best = (gain, operator, wider)
        if best is None:
            return widths
        _, operator, wider = best
        taken[level[operator]] += wider - widths[operator]
        widths[operator], times[operator] = wider, problem.time_on(operator, wider)


def _critical_path(problem: Problem, times: list[float]) -> tuple[list[int], float]:
    """A longest path without transfers, and its length in milliseconds."""
    below = [0.0] * len(problem)
    for operator in reversed(problem.order):
        after = max((below[successor] for successor, _ in problem.successors[operator]), default=0.0)
        below[operator] = times[operator] + after
    path = [max(problem.order, key=below.__getitem__)]
    while following := [successor for successor, _ in problem.successors[path[-1]]]:
        path.append(max(following, key=below.__getitem__))
    return path, below[path[0]]
