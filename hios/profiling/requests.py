"""Which stages and merges algorithms ask for: enumerated before they are measured, equal ones once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hios.costs import Costs
from hios.evaluate import evaluate
from hios.graph import Graph
from hios.platforms.bench import Merge, Stage
from hios.problem import Problem
from hios.recording import RecordingProblem
from hios.schedulers import find


@dataclass
class Questions:
    """Stages and merges that were asked for, with what is measured for each: the same by stand-ins.

    Args:
        graph: the graph.
        stand_in: the operator that is measured for each, by id: one for every signature.
    """

    graph: Graph
    stand_in: Mapping[str, str]
    stages: dict[Stage, Stage] = field(default_factory=dict)
    merges: dict[Merge, Merge] = field(default_factory=dict)

    def ask(self, algorithms: Sequence[str], devices: int, costs: Costs) -> None:
        """Add what algorithms ask for on 1 to ``devices`` devices and what the costs do not hold."""
        for name in algorithms:
            algorithm = find(name)
            for count in range(1, devices + 1 if algorithm.several_devices else 2):
                problem = RecordingProblem(Problem(self.graph, costs))
                # What an algorithm does not ask for while it searches, the evaluation of its plan does.
                evaluate(problem, algorithm.solve(problem, count).plan)
                self._note(problem)

    def _note(self, problem: RecordingProblem) -> None:
        for stage in problem.asked:
            groups = tuple(sorted(tuple(problem.ids[operator] for operator in group) for group in stage))
            self.stages[groups] = tuple(
                sorted(tuple(self.stand_in[operator] for operator in group) for group in groups)
            )
        for numbers in sorted(map(sorted, problem.asked_merges)):
            merge = tuple(problem.ids[operator] for operator in numbers)
            self.merges[merge] = tuple(sorted(self.stand_in[operator] for operator in merge))

    def merge_of(self, alike: Merge) -> Merge:
        """A merge that was asked for and is measured by these stand-ins, which need not read one value themselves."""
        return next(merge for merge, own in self.merges.items() if own == alike)
