"""Chains of simulated annealing side by side, until the gap to a bound is closed or the time is up."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

#: Chains of simulated annealing side by side.
CHAINS = 2
#: A gap below this share is rounding in floating point.
CLOSED = 1e-9


@dataclass(frozen=True, slots=True)
class Clock:
    """When a search began, by `time.perf_counter`, and how many seconds it may take."""

    began: float
    limit: float

    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.began

    def left(self) -> float:
        """Seconds to the end."""
        return self.limit - self.spent()


def is_open(latency: float, bound: float) -> bool:
    """Whether there is a gap between a latency and a bound."""
    return latency > bound * (1 + CLOSED)


class SearchChain(Protocol):
    """What is run side by side: `hios.schedulers.opt.annealing.Chain`."""

    moves: int
    slice: int

    @property
    def latency_ms(self) -> float:
        """Latency of the best candidate so far."""

    def run(self, progress: float, moves: int) -> None:
        """Try moves at a progress between 0 and 1."""


def anneal(chains: Sequence[SearchChain], bound: float, clock: Clock, moves: int, share: float) -> None:
    """Run chains side by side until the gap is closed or their moves or their share of the time is spent.

    ``bound`` is in milliseconds; ``moves`` are those of each chain, independently of the others, 0 for no limit;
    ``share`` is the share of the time limit at which they end.
    """
    from concurrent.futures import ThreadPoolExecutor  # not when hios is imported: it takes some milliseconds

    end = share * clock.limit
    began = clock.spent()
    stop = threading.Event()

    def run(chain: SearchChain) -> None:
        while not stop.is_set() and is_open(
            chain.latency_ms if moves else min(other.latency_ms for other in chains), bound
        ):
            spent = clock.spent()
            if spent >= end or (moves and chain.moves >= moves):
                break
            if moves:
                chain.run(chain.moves / moves, min(chain.slice, moves - chain.moves))
            else:
                chain.run((spent - began) / (end - began), chain.slice)

    with ThreadPoolExecutor(len(chains)) as pool:
        try:
            for done in [pool.submit(run, chain) for chain in chains]:
                done.result()
        finally:
            stop.set()  # Ctrl-C reaches only the main thread; the pool waits for the others
