"""What the stages of a block cost in IOS's search: GENERATESTAGE of Algorithm 1."""

from __future__ import annotations

from typing import NamedTuple

from hios.problem import Problem
from hios.schedulers.ios_space import SearchedBlock, members

#: A gain below this share is rounding in floating point, not a gain.
ROUNDING = 1e-12
#: Operators of a block that is searched with 64-bit integers; the sign is left alone.
MOST_OPERATORS = 62
_NEVER = float("inf")


class _Sums(NamedTuple):
    """Of the operators of an ending: sum of t, sum of t*u, and the longest of its groups; milliseconds."""

    total: float = 0.0
    work: float = 0.0
    longest: float = 0.0


class StageTimes(dict[int, float]):
    """Milliseconds by ending of a block, computed on first use.

    Where no stage was measured, the contention model gives an ending's time from that of the ending with one group
    less, which the search has asked for before; it adds up in the order of `Problem.stage_ms`, so that not even the
    last bit differs.

    Attributes:
        is_modeled: whether all times of several groups are those of the contention model.
        merged: endings that take least as one merged operator.
    """

    def __init__(self, problem: Problem, block: SearchedBlock, mode: str) -> None:
        self._problem, self._block, self._mode = problem, block, mode
        self._time = [problem.time[operator] for operator in block.operators]
        self._work = [problem.time[operator] * problem.utilization[operator] for operator in block.operators]
        # A subclass has its own `stage_ms`: it records requests, or models lanes.
        self.is_modeled = type(problem) is Problem and not problem.measured
        self._sums = {0: _Sums()}
        self._mergeable = sum(
            1 << place for place, operator in enumerate(block.operators) if problem.convolutions[operator] is not None
        )
        self.merged: set[int] = set()

    @property
    def can_merge(self) -> bool:
        """Whether the block holds two operators that might run as one."""
        return self._mode != "parallel" and self._mergeable.bit_count() > 1

    def __missing__(self, ending: int) -> float:
        root = self._last_root(ending)
        rest = ending & ~self._block.descendants[root]
        concurrent = _NEVER if rest and self._mode == "merge" else self._concurrent(ending, rest)
        if rest and self._mode != "parallel" and not ending & ~self._mergeable:
            merged = self._merged(ending)
            if merged is not None and merged < concurrent * (1 - ROUNDING):
                self.merged.add(ending)
                concurrent = merged
        self[ending] = concurrent
        return concurrent

    def _last_root(self, ending: int) -> int:
        """The last operator that depends on no other of the ending: all that depend on it are one group."""
        root = ending.bit_length() - 1
        while self._block.predecessors[root] & ending:
            root = (ending & ((1 << root) - 1)).bit_length() - 1
        return root

    def _concurrent(self, ending: int, rest: int) -> float:
        """Time of the groups beside each other; ``rest`` is the ending without its last group."""
        if not self.is_modeled:
            operators = self._block.operators
            groups = self._block.groups(ending)
            return self._problem.stage_ms(tuple(tuple(operators[place] for place in group) for group in groups))
        before = self._sums[rest] if rest in self._sums else self._added(rest)
        alone = before is self._sums[0]
        sums = self._sums[ending] = self._with_group(before, ending ^ rest)
        if alone or self._problem.alpha is None:
            return sums.longest
        alpha = self._problem.alpha
        return alpha * sums.total + (1 - alpha) * max(sums.work, sums.longest)

    def _added(self, ending: int) -> _Sums:
        """The sums of an ending that was not asked for."""
        rest = ending & ~self._block.descendants[self._last_root(ending)]
        before = self._sums[rest] if rest in self._sums else self._added(rest)
        self._sums[ending] = self._with_group(before, ending ^ rest)
        return self._sums[ending]

    def _with_group(self, before: _Sums, group: int) -> _Sums:
        total, work, longest = before
        alone = 0.0
        for place in members(group):
            time = self._time[place]
            total, work, alone = total + time, work + self._work[place], alone + time
        return _Sums(total, work, max(longest, alone))

    def _merged(self, ending: int) -> float | None:
        """Time of the merged operator; None where groups have several operators, or these cannot be merged."""
        groups = self._block.groups(ending)
        if any(len(group) > 1 for group in groups):
            return None
        return self._problem.merge_ms(self._block.operators[place] for (place,) in groups)
