"""Candidate schedules for a race, for each division of the machine that is predicted to be fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hios.core.costs import Costs, CostsFile
from hios.core.feedback import fed_back
from hios.core.graph import Graph
from hios.core.problem import Problem
from hios.core.schedule import Placement
from hios.optimizing.candidates import SCHEDULE, Candidate, scheduled
from hios.optimizing.options import Options
from hios.optimizing.report import Budget, WayReport
from hios.platforms.cpu.engine import Task
from hios.profiling.profile import profile
from hios.schedulers import find, schedule

#: Algorithms whose schedules take part in ``auto`` on several devices: good ones that take milliseconds.
SCHEDULERS = ("hios-lp", "heft")
#: Minimum measurements of every operator; those with wide intervals get more as the budget allows.
_REPEATS = 3
#: Schedules predicted to take up to this many times the best prediction are measured, as predictions may be off by 15 %
#: (docs/speed.md) in either direction.
PROMISING = 1.3
#: Share of the remaining time that measuring operators may take, and its maximum in seconds.
_PROFILE_SHARE, _PROFILE_S = 0.3, 10.0

#: Cores of every device.
_Division = Sequence[list[int]]


@dataclass
class ScheduleProposals:
    """Proposes schedules of a graph.

    Divisions hold the cores of every device, for each way to divide the machine that is considered; a device that has
    all cores has those of ``everything``. ``keep_s`` seconds of the budget are reserved for later steps.
    """

    graph: Graph
    options: Options
    divisions: Sequence[_Division]
    everything: list[int]
    budget: Budget
    keep_s: float
    #: Rows of the report for divisions that take no part.
    absent: list[WayReport] = field(default_factory=list, init=False)
    #: Costs by the number of devices and the cores of each.
    _costs: dict[tuple[int, int], CostsFile] = field(default_factory=dict, init=False)

    def candidates(self) -> list[Candidate]:
        """All candidate schedules, of the divisions whose best prediction is near the overall best.

        Raises:
            HiosError: operators could not be measured, or a schedule could not be made.
        """
        auto = self.options.algorithm == "auto"
        algorithms = SCHEDULERS if auto else (self.options.algorithm,)
        if not auto and not find(self.options.algorithm).several_devices:
            return [self._by(self._problem([self.everything[:1]], 1), self.options.algorithm, [self.everything[:1]])]
        problems = self._problems()
        proposed = [
            [self._by(problem, name, division) for name in algorithms]
            for division, problem in problems
            if len(division) > 1 or not auto
        ]
        candidates = self._promising(proposed)
        if auto:
            alone = replace(schedule(problems[0][1], "sequential", 1), cores_per_device=1)
            candidates.append(scheduled("sequential, 1 core", alone))
            if len(self.everything) > 1:
                candidates.append(scheduled(f"sequential, {len(self.everything)} cores", alone, wide=True))
        return candidates

    def _problems(self) -> list[tuple[_Division, Problem]]:
        """Divisions with their scheduling problems, from costs measured on their devices within the budget."""
        first, *others = self.divisions
        most = widest(self.graph) if others else 0  # with more devices some would be idle
        wanted = [first, *(division for division in others if len(division) <= most)]
        problems: list[tuple[_Division, Problem]] = []
        for number, division in enumerate(wanted):
            if number and (why := self.budget.too_short_for("costs", keep_s=self.keep_s)):
                label = f"schedules, {_text(division)}"
                self.absent.append(WayReport(label, SCHEDULE, "not started", why))
                continue
            problems.append((division, self._problem(division, len(wanted) - number)))
        return problems

    def _problem(self, division: _Division, left: int) -> Problem:
        """The problem from costs measured on the devices of a division; the remaining time is for so many."""
        left_s = max(self.budget.left_s - self.keep_s, 0.0) / left
        cache = self.options.folder()
        with self.budget.step("costs", f"measuring operators on {_text(division)}"):
            measured = profile(
                self.graph,
                devices=len(division),
                cores_per_device=len(division[0]) if len(division[0]) > 1 else None,
                repeats=_REPEATS,
                stages_of=(),
                budget_s=max(min(_PROFILE_SHARE * left_s, _PROFILE_S), 0.1),
                cache=cache and cache / "measurements",
                warn_of_drift=False,  # the race measures what the costs only predict
            )
        self._costs[len(division), len(division[0])] = measured
        return Problem(self.graph, Costs.of(measured))

    def again(self, candidate: Candidate, runs: Sequence[Sequence[Placement]], label: str) -> Candidate:
        """The schedule of a candidate's algorithm by the costs that runs of the candidate measured."""
        own = candidate.schedule
        assert own is not None  # noqa: S101 - they are schedules
        costs = fed_back(self._costs[own.devices, own.cores_per_device or 1], self.graph, runs)
        plan = schedule(Problem(self.graph, Costs.of(costs)), own.algorithm, own.devices, own.parameters)
        return scheduled(label, replace(plan, cores_per_device=own.cores_per_device))

    def _by(self, problem: Problem, algorithm: str, division: _Division) -> Candidate:
        devices = len(division)
        plan = schedule(problem, algorithm, devices, self.options.parameters)
        return scheduled(f"{algorithm}, {_text(division)}", replace(plan, cores_per_device=len(division[0])))

    def _promising(self, proposed: Sequence[Sequence[Candidate]]) -> list[Candidate]:
        """Candidates of the divisions whose best prediction is near the best of all."""
        predicted = [min(entry.schedule.latency_ms for entry in own if entry.schedule) for own in proposed]
        kept: list[Candidate] = []
        for own, latency_ms in zip(proposed, predicted, strict=True):
            if latency_ms <= PROMISING * min(predicted):
                kept += own
            else:
                why = f"predicted to take {latency_ms / min(predicted):.1f} times as long as the fastest schedule"
                self.absent += [WayReport(entry.label, SCHEDULE, "not started", why) for entry in own]
        return kept


def widest(graph: Graph) -> int:
    """The size of the largest level of the graph: this many operators can run at once."""
    depth: dict[int, int] = {}
    problem = Problem(graph, Costs(dict.fromkeys(graph.index, 0.0), {(e.source, e.target): 0.0 for e in graph.edges}))
    for operator in problem.order:
        depth[operator] = 1 + max((depth[before] for before, _ in problem.predecessors[operator]), default=0)
    depths = list(depth.values())
    return max(map(depths.count, set(depths)))


def tasks(
    graph: Graph, candidates: Sequence[Candidate], divisions: Sequence[_Division], everything: list[int]
) -> tuple[dict[str, Task], list[list[int]]]:
    """The tasks of an engine that races schedules, by label, and the cores of its workers.

    Devices with the same cores are one worker. Divisions and all cores are those of `Candidate.cores`.
    """
    workers: list[list[int]] = []
    made: dict[str, Task] = {}
    for candidate in candidates:
        assert candidate.schedule is not None  # noqa: S101 - they are schedules
        numbers = []
        for cores in candidate.cores([list(map(list, own)) for own in divisions], everything):
            if cores not in workers:
                workers.append(cores)
            numbers.append(workers.index(cores))
        made[candidate.label] = Task(candidate.schedule.plan(graph), tuple(numbers))
    return made, workers


def _text(division: _Division) -> str:
    """Such as "2 devices" or "2 devices of 4 cores"."""
    devices, size = len(division), len(division[0])
    return f"{devices} device{'s' if devices > 1 else ''}" + (f" of {size} cores" if size > 1 else "")
