"""Passes of Algorithm 2 of TOP over a combined block: the stages from the last to the first, one ending at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from hios.problem import Stage
from hios.schedulers.deadline import check_deadline
from hios.schedulers.policy.endings import CombinedState, Ending

#: m of a state, at least 0; 1 and more stand for the last ending.
Action = Callable[[CombinedState], float]

#: Share of the steps of later passes in which a random ending is taken.
_EXPLORED = 0.25


def largest(state: CombinedState) -> float:
    """The action without a policy: the last ending, one of those with most groups."""
    return 1.0


def index_of(action: float, count: int) -> int:
    """The index of an ending, floor(m M), the last one where m is 1."""
    return min(int(action * count), count - 1)


def one_pass(start: CombinedState, action: Action) -> list[Stage]:
    """The stages of a combined block in the order in which they run (Algorithm 2)."""
    stages: list[Stage] = []
    state = start
    while state.count:
        check_deadline()
        ending = state.ending(index_of(action(state), state.count))
        stages.append(ending.stage)
        state = ending.left
    return stages[::-1]


@dataclass(frozen=True, slots=True)
class _Tail:
    """The best that is known for a state: the ending to take, and the time of all that is left."""

    ending: Ending
    latency_ms: float


class Passes:
    """Several passes, of which each profits from those before.

    The first takes the actions of the policy. In later ones a quarter of the steps, at random, take any ending. The
    others take the ending that led to the least time from a state on where it was reached before, and the action of
    the policy elsewhere.

    ``stage_ms`` gives the time of a stage in milliseconds; ``seed`` is that of the random steps.
    """

    def __init__(self, stage_ms: Callable[[Stage], float], action: Action, seed: int) -> None:
        self._stage_ms, self._action = stage_ms, action
        self._chance = random.Random(seed)
        self._best: dict[Hashable, _Tail] = {}

    def run(self, start: CombinedState, passes: int) -> tuple[list[Stage], float]:
        """The best stages found, in the order in which they run, and their time in milliseconds."""
        for number in range(passes):
            self._run(start, explore=number > 0)
        stages: list[Stage] = []
        state = start
        while state.count:
            stages.append(self._best[state.key].ending.stage)
            state = self._best[state.key].ending.left
        return stages[::-1], self._best[start.key].latency_ms if stages else 0.0

    def _run(self, start: CombinedState, *, explore: bool) -> None:
        taken: list[tuple[Hashable, Ending]] = []
        state = start
        while state.count:
            check_deadline()
            key = state.key
            ending = self._chosen(state, key, explore=explore)
            taken.append((key, ending))
            state = ending.left
        for key, ending in reversed(taken):
            rest = self._best[ending.left.key].latency_ms if ending.left.count else 0.0
            latency = self._stage_ms(ending.stage) + rest
            known = self._best.get(key)
            if known is None or latency < known.latency_ms:
                self._best[key] = _Tail(ending, latency)

    def _chosen(self, state: CombinedState, key: Hashable, *, explore: bool) -> Ending:
        if explore and self._chance.random() < _EXPLORED:
            return state.ending(self._chance.randrange(state.count))
        if (known := self._best.get(key)) is not None:
            return known.ending
        return state.ending(index_of(self._action(state), state.count))
