"""The replay buffer: a ring of transitions (TOP, Algorithm 1, lines 18 to 20)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hios.errors import HiosError
from hios.schedulers.policy.network import Array

#: Memory that transitions may take.
_MOST_BYTES = 4 * 10**9


class Batch(NamedTuple):
    """Transitions in rows. Measures are kept, not rewards: those follow from frozen scores."""

    states: Array
    actions: Array
    measures: Array
    superblock: npt.NDArray[np.bool_]
    next_states: Array


class Replay:
    """The last transitions: so many, of so many numbers of a state, of the actions of all agents, and of measures.

    Raises:
        HiosError: they would take too much memory.
    """

    def __init__(self, capacity: int, state: int, actions: int, measures: int) -> None:
        row_bytes = 4 * (2 * state + actions) + 8 * measures + 1
        if capacity * row_bytes > _MOST_BYTES:
            raise HiosError(
                f"replay: found {capacity}, with {state} numbers in a state; allowed: at most "
                f"{_MOST_BYTES // row_bytes}, which take {_MOST_BYTES / 1e9:g} GB"
            )
        self.capacity, self.count = capacity, 0
        self._rows = Batch(
            np.zeros((capacity, state), np.float32),
            np.zeros((capacity, actions), np.float32),
            np.zeros((capacity, measures)),
            np.zeros(capacity, np.bool_),
            np.zeros((capacity, state), np.float32),
        )

    def __len__(self) -> int:
        return min(self.count, self.capacity)

    @property
    def full(self) -> bool:
        """Whether as many transitions have been added as it keeps."""
        return self.count >= self.capacity

    def add(self, state: Array, actions: Array, measures: Array | None, next_state: Array) -> None:
        """Add a transition, in place of the oldest where it is full; no measures: a superblock."""
        place = self.count % self.capacity
        self._rows.states[place], self._rows.actions[place] = state, actions
        self._rows.superblock[place] = measures is None
        self._rows.measures[place] = 0.0 if measures is None else measures
        self._rows.next_states[place] = next_state
        self.count += 1

    def drawn(self, count: int, chance: np.random.Generator) -> Batch:
        """Random transitions, some perhaps more than once."""
        rows = chance.integers(0, len(self), count)
        own = self._rows
        return Batch(
            own.states[rows], own.actions[rows], own.measures[rows], own.superblock[rows], own.next_states[rows]
        )

    def measured(self) -> Array:
        """Measures of all steps that were no superblocks."""
        measures: Array = self._rows.measures[: len(self)][~self._rows.superblock[: len(self)]]
        return measures
