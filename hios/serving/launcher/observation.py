"""The state that all agents see: inference progress and queues, sampled at random moments (TOP, section V-B)."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from hios.schedulers.policy.perceptron import Array
from hios.serving.stepping import Steps


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


def sampled(steps: Steps, until_s: float, samples: int, chance: random.Random) -> Array:
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
    found: Array = np.sign(state) * np.log1p(np.abs(state))
    return found
