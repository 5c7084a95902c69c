"""Actions of the agents: numbers in [0, 1] to intervals of the queues and combined blocks (TOP, section V-B)."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hios.errors import HiosError
from hios.schedulers.policy.perceptron import Array
from hios.serving.launcher.launcher_settings import LauncherSettings
from hios.serving.pipeline import SubBlock
from hios.serving.scenario import Scenario
from hios.serving.work_bound import least_work_s

#: Intervals are at most a second: the least rate at which a queue is emptied is one task a second (TOP, section V-B).
LONGEST_S = 1.0
#: The shortest useful interval is this share of the time that all lanes together need for a task at least.
_SHORTEST = 0.25
#: No interval is shorter, also where tasks take no time: the simulator carries out every tick.
_LEAST_S = 1e-4


class LauncherDecision(NamedTuple):
    """What the agents decide together: seconds between two tasks of every model, and the combined blocks."""

    intervals_s: tuple[float, ...]
    combined: tuple[tuple[SubBlock, ...], ...]

    @property
    def largest(self) -> int:
        """Sub-blocks of the largest combined block."""
        return max(map(len, self.combined))


@dataclass(frozen=True)
class ActionSpace:
    """What actions mean. Agent 0 has a number for every model, agent i one for every block of model i.

    Attributes:
        blocks: number of blocks of every model.
        parts: parts of [0, 1]; blocks whose numbers fall into the same part are one combined block (K).
        shortest_s: by model, the shortest interval.
        rates: by model, tasks that arrive in a second.
        log: whether intervals are on a log scale from the shortest one (0) to 1 s (1); else they are the numbers
            themselves, in seconds, but at least 0.1 ms: 0 would be no interval.
    """

    blocks: tuple[int, ...]
    parts: int
    shortest_s: tuple[float, ...]
    rates: tuple[float, ...]
    log: bool = True

    @classmethod
    def of(cls, scenario: Scenario, settings: LauncherSettings) -> ActionSpace:
        """The actions of a scenario.

        Raises:
            HiosError: there are so few parts that combined blocks are always larger than H.
        """
        blocks = tuple(len(model.blocks) for model in scenario.models)
        parts, least = settings.intervals or sum(blocks), math.ceil(sum(blocks) / settings.most)
        if parts < least:
            raise HiosError(
                f"intervals: found {parts} for {sum(blocks)} blocks; allowed: at least {least}, as combined blocks "
                f"have at most {settings.most} of them (most), or 0: as many as there are blocks"
            )
        work = [least_work_s(model, gpu=scenario.gpu) for model in scenario.models]
        shortest = tuple(min(LONGEST_S, max(_LEAST_S, _SHORTEST * own / scenario.lanes)) for own in work)
        rates = tuple(model.rate for model in scenario.models)
        return cls(blocks, parts, shortest, rates, settings.interval_scale == "log")

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers every agent has."""
        return (len(self.blocks), *self.blocks)

    @property
    def total(self) -> int:
        """How many numbers all agents have."""
        return sum(self.sizes)

    @property
    def members(self) -> list[SubBlock]:
        """All blocks, in the order of the agents' numbers."""
        return [(model, block) for model, count in enumerate(self.blocks) for block in range(count)]

    def decision(self, actions: Sequence[float] | Array) -> LauncherDecision:
        """What the numbers of all agents, one after another, mean."""
        numbers = [min(1.0, max(0.0, float(number))) for number in actions]
        count = len(self.blocks)
        intervals = tuple(self._interval_s(model, number) for model, number in enumerate(numbers[:count]))
        by_part: dict[int, list[SubBlock]] = {}
        for number, member in zip(numbers[count:], self.members, strict=True):
            by_part.setdefault(min(self.parts - 1, int(number * self.parts)), []).append(member)
        return LauncherDecision(intervals, tuple(tuple(by_part[part]) for part in sorted(by_part)))

    def _interval_s(self, model: int, number: float) -> float:
        shortest = self.shortest_s[model]
        if self.log:
            return float(shortest ** (1 - number) * LONGEST_S**number)
        return max(number, _LEAST_S)

    def number_of(self, model: int, interval_s: float) -> float:
        """The number that means an interval."""
        shortest = self.shortest_s[model]
        if not self.log:
            return interval_s
        if shortest >= LONGEST_S:
            return 0.0
        return min(1.0, max(0.0, math.log(interval_s / shortest) / math.log(LONGEST_S / shortest)))

    def alone(self) -> Array:
        """Actions that combine as little as there are parts for, and empty the queues twice as fast as tasks arrive."""
        intervals = [0.5 / rate if rate > 0 else LONGEST_S for rate in self.rates]
        first = [self.number_of(model, min(LONGEST_S, interval)) for model, interval in enumerate(intervals)]
        blocks = [(place % self.parts + 0.5) / self.parts for place in range(sum(self.blocks))]
        return np.array([*first, *blocks])

    def numbers(self, decision: LauncherDecision) -> Array:
        """Actions that mean a decision: a combined block is where its first block is in those of `alone`, if it can be.

        Args:
            decision: of at most as many combined blocks as there are parts.
        """
        numbers = self.alone()
        count = len(self.blocks)
        place = {member: number for number, member in enumerate(self.members)}
        numbers[:count] = [self.number_of(model, interval) for model, interval in enumerate(decision.intervals_s)]
        free = dict.fromkeys(range(self.parts))
        for members in decision.combined:
            wanted = place[members[0]] % self.parts
            part = wanted if wanted in free else next(iter(free))
            del free[part]
            numbers[[count + place[member] for member in members]] = (part + 0.5) / self.parts
        return numbers

    def drawn(self, chance: random.Random, most: int) -> LauncherDecision:
        """A random decision without superblocks: what a search without learning tries."""
        combined: list[list[SubBlock]] = []
        for member in chance.sample(self.members, len(self.members)):
            room = [own for own in combined if len(own) < most]
            if room and chance.random() < 0.5:
                chance.choice(room).append(member)
            else:
                combined.append([member])
        intervals = tuple(self._interval_s(model, chance.random()) for model in range(len(self.blocks)))
        return LauncherDecision(intervals, tuple(tuple(sorted(own)) for own in combined))


def bounds(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Where the numbers of every agent begin and end among those of all."""
    return list(itertools.pairwise(itertools.accumulate(sizes, initial=0)))
