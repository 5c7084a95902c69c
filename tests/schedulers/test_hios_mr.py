"""HIOS-MR against Algorithm 3."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hios import Problem, schedule
from hios.core.problem import priority_order
from hios.schedulers.hios_mr import recorded_table
from tests.problems import problem, problems

#: a -> b, c.
FORK = problem({"a": 2.0, "b": 4.0, "c": 3.0}, {("a", "b"): 1.0, ("a", "c"): 1.0})


def test_table_of_a_fork() -> None:
    """The table of a fork on two devices, cell by cell as Lines 5 to 21 fill it."""
    order = priority_order(FORK)
    assert [FORK.ids[operator] for operator in order] == ["a", "b", "c"]
    assert recorded_table(FORK, order, 2) == [
        [(2.0, 0)],  # a on device 0
        [(6.0, 0), (7.0, 0)],  # b after a on device 0; on device 1 after the transfer
        # c on device 0: behind b on 0 it ends at 9, with b on 1 at 5; on device 1: with b on 0 at 6, behind b at 10
        [(5.0, 1), (6.0, 0)],
    ]


def test_schedule_follows_the_recorded_devices() -> None:
    """Lines 22 to 25 take the best last cell and go back: c on device 0, b on device 1, a on device 0."""
    scheduled = schedule(FORK, "hios-mr-inter", 2)
    assert {row.operator: row.device for row in scheduled.placements} == {"a": 0, "b": 1, "c": 0}
    # Algorithm 3 minimizes the finish of the last operator, not of all: b ends at 7, later than c.
    assert scheduled.latency_ms == 7.0


def _by_the_letter(instance: Problem, order: list[int], devices: int) -> list[list[tuple[float, int]]]:
    """Lines 2 to 21 as printed, with 1-based indices and the walk inside the innermost loop."""
    n = len(order)
    infinity = float("inf")
    t = [[infinity] * (devices + 1) for _ in range(n + 1)]
    g = [[0] * (devices + 1) for _ in range(n + 1)]
    t[1][1] = instance.time[order[0]]
    for i in range(2, n + 1):
        for j in range(1, min(devices, i) + 1):
            for k in range(1, min(devices, i - 1) + 1):
                finish: dict[int, float] = {}
                where: dict[int, int] = {}
                m = k
                for line in range(i - 1, 0, -1):
                    finish[order[line - 1]], where[order[line - 1]] = t[line][m], m
                    m = g[line][m]
                start = max((finish[v] for v in finish if where[v] == j), default=0.0)
                for u, transfer in instance.predecessors[order[i - 1]]:
                    start = max(start, finish[u] if where[u] == j else finish[u] + transfer)
                if t[i][j] > start + instance.time[order[i - 1]]:
                    t[i][j], g[i][j] = start + instance.time[order[i - 1]], k
    return [list(zip(t[i][1:], g[i][1:], strict=True)) for i in range(1, n + 1)]


@given(problems(), st.integers(1, 4))
def test_table_equals_the_algorithm_by_the_letter(instance: Problem, devices: int) -> None:
    """The faster table has the times and devices of Algorithm 3 read literally."""
    order = priority_order(instance)
    first, *others = _by_the_letter(instance, order, devices)
    found_first, *found_others = recorded_table(instance, order, devices)
    assert found_first == first[:1]  # its g is never read
    for number, (entries, row) in enumerate(zip(found_others, others, strict=True), start=2):
        # Devices count from 0 here and from 1 in the paper.
        assert [(time, before + 1) for time, before in entries] == row[: min(devices, number)]
        assert all(time == float("inf") for time, _ in row[min(devices, number) :])
