"""How operators that run at the same time share a device: max-min fairness over time slots, arithmetic and memory.

A demand is a triple: the shares of a device's slots (room for thread blocks, threads), arithmetic and memory bandwidth
that an operator takes while it runs alone. Slots are given in launch order and kept, as thread blocks are not
preempted: an operator gets those that earlier ones leave, and progresses in that proportion. What runs then asks for
arithmetic and bandwidth; where the demands for one add up to more than the device has, each operator gets its max-min
fair share of it (Bertsekas and Gallager, "Data Networks", section 6.5). The scarcest resource sets an operator's rate;
what it leaves of others stays unused. So an operator that is launched after others never speeds one of them up.
"""

from __future__ import annotations

import functools
from bisect import insort
from collections.abc import Iterable, Sequence
from itertools import pairwise

from hios.core.sums import add_up

#: Shares of a device's slots, arithmetic and memory bandwidth.
DemandShares = tuple[float, float, float]
#: What is left of an operator's time, relative to it, below which it is rounding in floating point.
ROUNDING = 1e-12


def rates(demands: Sequence[DemandShares]) -> list[float]:
    """How fast each of several operators progresses, over its speed alone; demands are in launch order.

    Examples:
        Two operators that take all of the bandwidth halve; beside arithmetic, one of them hardly slows down.

        >>> rates([(0.2, 0.1, 1.0), (0.2, 0.1, 1.0)])
        [0.5, 0.5]
        >>> rates([(0.5, 0.1, 0.9), (0.5, 0.9, 0.1)])
        [1.0, 1.0]
        >>> rates([(0.75, 0.5, 0.1), (0.5, 0.1, 0.1)])  # the second finds half of its slots free
        [1.0, 0.5]
    """
    free = 1.0
    granted = []
    for slots, _, _ in demands:
        share = min(slots, free)
        free -= share
        granted.append(share / slots)
    result = granted
    for resource in (1, 2):
        asked = [rate * demand[resource] for rate, demand in zip(granted, demands, strict=True)]
        if add_up(asked) > 1.0:
            level = _fair_share(asked)
            result = [
                min(rate, level / demand[resource]) if share > level else rate
                for rate, share, demand in zip(result, asked, demands, strict=True)
            ]
    return result


def _fair_share(asked: Iterable[float]) -> float:
    """The most that anyone gets of a resource for which the shares asked for add up to more than 1."""
    ascending = sorted(asked)
    left = 1.0
    for number, share in enumerate(ascending):
        level = left / (len(ascending) - number)
        if share > level:
            return level
        left -= share
    return ascending[-1]


@functools.lru_cache(maxsize=1 << 16)
def _known_rates(demands: tuple[DemandShares, ...]) -> tuple[float, ...]:
    """`rates`, once for the same operators: searches ask for many stages that have operators in common."""
    return tuple(rates(demands))


@functools.lru_cache(maxsize=1 << 8)
def memory_level(memory: tuple[float, ...], times: tuple[float, ...], factor: float) -> float:
    """The most of the memory bandwidth that each of several devices gets while all of them run the same operators.

    Operators that ask for more of it take as many times as long as they ask for more, the others as long as before, and
    all of them together ``factor`` times as long, which is above 1.

    Examples:
        >>> memory_level((1.0, 0.1), (1.0, 1.0), 1.5)  # the first operator takes twice as long, the second as before
        0.5
    """
    asked, rest = 0.0, add_up(times)
    wanted = factor * rest
    level = 1.0
    for share, time in sorted(zip(memory, times, strict=True), reverse=True):
        if asked and level >= share:
            break
        asked += share * time
        rest -= time
        level = asked / (wanted - rest) if asked else share
    return level


class SharedDevice:
    """The operators that run on a device, each at the rate that `rates` leaves it.

    Operators that start earlier count as launched earlier; of those that start together, the one with the lower
    ``rank``.
    """

    def __init__(self, demand: Sequence[DemandShares], rank: Sequence[int]) -> None:
        self._demand, self._rank = demand, rank
        self._running: list[tuple[float, int, int]] = []
        self._left: dict[int, float] = {}
        self._least: dict[int, float] = {}
        self._rates: tuple[float, ...] = ()
        self._since = 0.0

    def _advance(self, now: float) -> None:
        if now == self._since:
            return
        for (_, _, operator), rate in zip(self._running, self._shared(), strict=True):
            left = self._left[operator] - (now - self._since) * rate
            self._left[operator] = left if left > self._least[operator] else 0.0
        self._since = now

    def _shared(self) -> tuple[float, ...]:
        """The rates of what runs, worked out when they are asked for: often several operators start together."""
        if len(self._rates) != len(self._running):
            self._rates = _known_rates(tuple(self._demand[operator] for _, _, operator in self._running))
        return self._rates

    def start(self, operator: int, now: float, time: float) -> None:
        """An operator that takes ``time`` alone begins."""
        self._advance(now)
        self._left[operator], self._least[operator] = time, ROUNDING * time
        insort(self._running, (now, self._rank[operator], operator))
        self._rates = ()

    def finish(self, operator: int, now: float) -> None:
        """An operator ends."""
        self._advance(now)
        del self._left[operator]
        self._running = [entry for entry in self._running if entry[2] != operator]
        self._rates = ()

    def next_finish(self) -> tuple[float, int] | None:
        """When the first of the running operators ends, and which; None if nothing runs."""
        if not self._running:
            return None
        return min(
            (self._since + (left / rate if left else 0.0), operator)
            for (_, _, operator), rate in zip(self._running, self._shared(), strict=True)
            if (left := self._left[operator]) == 0.0 or rate > 0.0
        )


def together_ms(
    groups: Sequence[Sequence[int]], time: Sequence[float], demand: Sequence[DemandShares], rank: Sequence[int]
) -> float:
    """How long groups of operators, each one after another, take beside each other on a device, in milliseconds."""
    following = {before: after for group in groups for before, after in pairwise(group)}
    device = SharedDevice(demand, rank)
    now = 0.0
    for group in groups:
        device.start(group[0], now, time[group[0]])
    while (end := device.next_finish()) is not None:
        now, operator = end
        device.finish(operator, now)
        if operator in following:
            device.start(following[operator], now, time[following[operator]])
    return now
