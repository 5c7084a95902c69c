"""A problem that records which stages and merges algorithms ask for, so that a profile can measure them."""

from __future__ import annotations

from collections.abc import Iterable

from hios.problem import Group, Problem, Stage


class RecordingProblem(Problem):
    """The same problem, with a record of the questions whose answer was modelled because nothing is measured.

    ``on(M)`` of it writes into the same record.

    Args:
        problem: what is asked about; graph, times and measured stages are shared with it.

    Attributes:
        asked: stages of several groups whose time was asked for and not measured.
        asked_merges: merges whose time was asked for and not measured.
    """

    def __init__(self, problem: Problem) -> None:
        self.__dict__.update(problem.__dict__)
        self.asked: set[frozenset[Group]] = set()
        self.asked_merges: set[frozenset[int]] = set()

    def stage_ms(self, stage: Stage) -> float:
        """t(S) of a stage in milliseconds, and a record of the question."""
        if len(stage) > 1 and (key := frozenset(stage)) not in self.measured:
            self.asked.add(key)
        return super().stage_ms(stage)

    def merge_ms(self, operators: Iterable[int]) -> float | None:
        """Time of operators merged into one, in milliseconds, and a record of the question; None as in `Problem`."""
        key = frozenset(operators)
        found = super().merge_ms(key)
        if found is not None and key not in self.measured_merges:
            self.asked_merges.add(key)
        return found
