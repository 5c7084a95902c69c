"""Schedules for the ways to divide a machine; topologies are virtual, and nothing is measured."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hios import Costs, Edge, Graph, Operator, Problem
from hios.errors import HiosError
from hios.machine import topology
from hios.machine.topology import LogicalCpu
from hios.optimizing.candidates import Candidate, distinct
from hios.optimizing.options import Options
from hios.optimizing.report import Budget
from hios.optimizing.schedules import ScheduleProposals, tasks

_EIGHT = [LogicalCpu(number, number, cache=4 * (number // 4)) for number in range(8)]
_ALL = list(range(8))
#: Eight operators that can run side by side.
_FORK = Graph(
    "fork", tuple(Operator(name, "task") for name in "abcdefghi"), tuple(Edge("a", name) for name in "bcdefghi")
)


class _Times(ScheduleProposals):
    """ScheduleProposals by given times of operators, by how many cores a device has.

    Args:
        times: milliseconds of every operator, by cores of a device.
        options: what the user asks for.
        divisions: cores of every device, for each way to divide the machine.
    """

    def __init__(
        self,
        times: dict[int, float],
        options: Options | None = None,
        divisions: Sequence[list[list[int]]] | None = None,
    ) -> None:
        ways = topology.divisions(_EIGHT, 8) if divisions is None else divisions
        super().__init__(_FORK, options or Options(cache=False), ways, _ALL, Budget(3600.0, "Net", 1, None), 10.0)
        self._times = times
        self.asked: list[tuple[int, int]] = []

    def _problem(self, division: Sequence[list[int]], left: int) -> Problem:
        self.asked.append((len(division), len(division[0])))
        names = [operator.id for operator in _FORK.operators]
        time_ms = self._times[len(division[0])]
        edges = {(edge.source, edge.target): 0.0 for edge in _FORK.edges}
        return Problem(_FORK, Costs(dict.fromkeys(names, time_ms), edges))


def _labels(candidates: Sequence[Candidate]) -> list[str]:
    return [candidate.label for candidate in candidates]


def test_machines_are_divided_by_their_topology() -> None:
    """Two, four and eight devices, each within a cache where it fits; a machine of one core has one device."""
    divisions = topology.divisions(_EIGHT, 8)
    assert divisions == [
        [[0, 1, 2, 3], [4, 5, 6, 7]],
        [[0, 1], [2, 3], [4, 5], [6, 7]],
        [[0], [1], [2], [3], [4], [5], [6], [7]],
    ]
    assert topology.divisions(_EIGHT, 4) == divisions[:2]
    assert topology.divisions(_EIGHT[:2], 8) == [[[0], [1]]]
    siblings = [LogicalCpu(0, 0), LogicalCpu(1, 0)]
    assert topology.divisions(siblings, 8) == [[[0]]]


def test_divisions_that_are_predicted_to_be_slow_take_no_part() -> None:
    """Each partition has its own costs; the report names those predicted far from the best."""
    proposals = _Times({4: 1.0, 2: 1.1, 1: 3.0})
    assert _labels(proposals.candidates()) == [
        "hios-lp, 4 devices of 2 cores",
        "heft, 4 devices of 2 cores",
        "sequential, 1 core",
        "sequential, 8 cores",
    ]
    assert proposals.asked == [(2, 4), (4, 2), (8, 1)]
    assert {row.label: row.outcome for row in proposals.absent} == {
        f"{name}, {division}": "not started"
        for name in ("hios-lp", "heft")
        for division in ("2 devices of 4 cores", "8 devices")
    }
    assert all(row.why.startswith("predicted to take ") for row in proposals.absent)


def test_divisions_near_the_best_all_race() -> None:
    """Predictions that hardly differ leave it to the race."""
    proposals = _Times({4: 1.0, 2: 1.7, 1: 2.6})
    assert len(proposals.candidates()) == 3 * 2 + 2
    assert proposals.absent == []


def test_more_devices_than_operators_are_not_tried() -> None:
    """Of a network with eight operators side by side no division into sixteen devices is asked for."""
    sixteen = [[number] for number in range(16)]
    proposals = _Times({4: 1.0, 1: 1.0}, divisions=[[[0, 1, 2, 3], [4, 5, 6, 7]], sixteen])
    proposals.candidates()
    assert proposals.asked == [(2, 4)]


def test_the_budget_ends_trying(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first division is measured in any case; others are begun only if there is time, which the report says."""
    monkeypatch.setattr(Budget, "left_s", property(lambda self: 11.0))
    proposals = _Times({4: 1.0})
    assert "hios-lp, 2 devices of 4 cores" in _labels(proposals.candidates())
    assert proposals.asked == [(2, 4)]
    assert [row.label for row in proposals.absent] == ["schedules, 4 devices of 2 cores", "schedules, 8 devices"]
    assert all("budget_s" in row.why for row in proposals.absent)


def test_named_algorithms() -> None:
    """One for several devices is tried on all divisions, one for a single device on one core."""
    proposals = _Times({4: 1.0, 2: 1.1, 1: 3.0}, Options(algorithm="heft", cache=False))
    assert _labels(proposals.candidates()) == ["heft, 4 devices of 2 cores"]
    alone = _Times({1: 1.0}, Options(algorithm="ios", cache=False))
    assert _labels(alone.candidates()) == ["ios, 1 device"]
    assert alone.asked == [(1, 1)]


def test_workers_are_shared_by_schedules_on_the_same_cores() -> None:
    """Every schedule runs on the cores that it was predicted for; devices with the same cores are one worker."""
    proposals = _Times({4: 1.0, 2: 1.7, 1: 2.6})
    candidates = distinct(proposals.candidates(), _FORK)
    racing, workers = tasks(_FORK, candidates, proposals.divisions, _ALL)
    cores = {label: [workers[number] for number in task.workers] for label, task in racing.items()}
    for candidate in candidates:
        assert cores[candidate.label] == candidate.cores(proposals.divisions, _ALL)
    assert cores["sequential, 8 cores"] == [_ALL]
    assert cores["sequential, 1 core"] == [[0]]
    assert len(workers) == len({tuple(own) for own in workers})
    assert len(workers) == 1 + 2 + 4 + 8


def test_a_kept_schedule_gets_its_cores_again() -> None:
    """What the cache kept of a schedule says how many cores a device has."""
    proposals = _Times({4: 1.0, 2: 1.1, 1: 3.0})
    kept = Candidate.from_json(proposals.candidates()[0].to_json())
    task, cores = kept.alone(_FORK, proposals.divisions, _ALL)
    assert cores == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert task.workers == (0, 1, 2, 3)
    assert kept.busy_cores
    with pytest.raises(HiosError, match="found 4 devices of 2 cores; allowed: those of the machine"):
        kept.alone(_FORK, [[[0], [1]]], [0, 1])
