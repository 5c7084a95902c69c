"""The stages and merges that algorithms ask for, collected before they are measured; equal ones are measured once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hios.core.costs import Costs
from hios.core.evaluate import evaluate
from hios.core.graph import Graph
from hios.core.merging import convolutions, merge_candidates
from hios.core.problem import Group, Problem
from hios.core.problem import Stage as Groups
from hios.schedulers import find

if TYPE_CHECKING:  # it imports torch
    from hios.platforms.timer import Merge, Stage


@dataclass
class StageRequests:
    """Stages and merges that algorithms asked for, each with the stand-ins that are measured in its place.

    ``stand_in`` is the operator that is measured for each operator, by id: one per signature.
    """

    graph: Graph
    stand_in: Mapping[str, str]
    stages: dict[Stage, Stage] = field(default_factory=dict)
    merges: dict[Merge, Merge] = field(default_factory=dict)

    def ask(self, algorithms: Sequence[str], devices: int, costs: Costs) -> None:
        """Add what the algorithms request on 1 to ``devices`` devices and the costs do not contain."""
        for name in algorithms:
            algorithm = find(name)
            for count in range(1, devices + 1 if algorithm.several_devices else 2):
                problem = RecordingProblem(Problem(self.graph, costs))
                # The evaluation of the plan asks for stages that the algorithm did not ask for in its search.
                evaluate(problem, algorithm.solve(problem, count).plan)
                self._note(problem)

    def ask_merges(self) -> None:
        """Add all merges that algorithms may choose from where operators take several devices."""
        for merge in merge_candidates(convolutions(self.graph)):
            self._add_merge([self.graph.operators[number].id for number in sorted(merge)])

    def _add_merge(self, operators: Sequence[str]) -> None:
        self.merges[tuple(operators)] = tuple(sorted(self.stand_in[operator] for operator in operators))

    def _note(self, problem: RecordingProblem) -> None:
        for stage in problem.asked:
            groups = tuple(sorted(tuple(problem.ids[operator] for operator in group) for group in stage))
            self.stages[groups] = tuple(
                sorted(tuple(self.stand_in[operator] for operator in group) for group in groups)
            )
        for numbers in sorted(map(sorted, problem.asked_merges)):
            self._add_merge([problem.ids[operator] for operator in numbers])

    def merge_of(self, alike: Merge) -> Merge:
        """A requested merge measured by these stand-ins; the stand-ins themselves need not read the same value."""
        return next(merge for merge, own in self.merges.items() if own == alike)


class RecordingProblem(Problem):
    """The same problem, recording the stages and merges whose time was modeled because it was not measured.

    ``on(M)`` of it adds to the same record. Graph, times and measured stages are shared with the problem. ``asked`` are
    stages of several groups, and ``asked_merges`` merges, whose time was asked for and not measured.
    """

    def __init__(self, problem: Problem) -> None:
        self.__dict__.update(problem.__dict__)
        self.asked: set[frozenset[Group]] = set()
        self.asked_merges: set[frozenset[int]] = set()

    def stage_ms(self, stage: Groups) -> float:
        """t(S) of a stage in milliseconds; records the request."""
        if len(stage) > 1 and (key := frozenset(stage)) not in self.measured:
            self.asked.add(key)
        return super().stage_ms(stage)

    def merge_ms(self, operators: Iterable[int]) -> float | None:
        """Time of a merged operator in milliseconds, None as in `Problem`; records the request."""
        key = frozenset(operators)
        time_ms = super().merge_ms(key)
        if time_ms is not None and key not in self.measured_merges:
            self.asked_merges.add(key)
        return time_ms
