"""The state that all agents see: inference progress and queues, sampled at random moments (TOP, section V-B)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from hios.schedulers.policy.perceptron import Array
from hios.serving.pipeline import Pipeline, QueueRules


class Watched(Protocol):
    """What a launcher observes and controls: a simulation in steps (``stepping.Simulation``), or a server."""

    @property
    def now(self) -> float:
        """Seconds since the beginning; infinite once it is over."""

    def run_to(self, until_s: float) -> None:
        """Advance the time to a moment."""

    def lengths(self) -> list[int]:
        """Tasks in every queue."""

    def progress(self) -> list[bool]:
        """Of every block of all models, whether an instance waits before it or runs in it (P_t)."""

    def waits_s(self) -> float:
        """Mean time since the arrival of the tasks that wait in the queues; 0 without any."""

    def change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None:
        """Switch to other combined blocks and intervals."""


def row(progress: Sequence[bool], lengths: Sequence[int]) -> list[float]:
    """A sample: 1 for each block that holds an instance, 0 for others; then deviations of the queues from their mean.

    Args:
        progress: by block of all models, one model after another.
        lengths: tasks in every queue.
    """
    mean = sum(lengths) / len(lengths)
    return [*map(float, progress), *(length - mean for length in lengths)]


def state_size(blocks: Sequence[int], samples: int) -> int:
    """Numbers of a state, n x (W + sum B_i)."""
    return samples * (len(blocks) + sum(blocks))


def sampled(steps: Watched, until_s: float, samples: int, chance: random.Random) -> Array:
    """Go on to a moment, and take samples at random moments on the way: the state, samples one after another."""
    begin = steps.now
    rows: list[float] = []
    for moment in sorted(begin + (until_s - begin) * chance.random() for _ in range(samples)):
        steps.run_to(moment)
        rows += row(steps.progress(), steps.lengths())
    steps.run_to(until_s)
    return np.array(rows, np.float32)


def squeezed(state: Array) -> Array:
    """sign(x) ln(1 + |x|), so that a queue of hundreds does not drown the blocks."""
    logarithms: Array = np.sign(state) * np.log1p(np.abs(state))
    return logarithms
