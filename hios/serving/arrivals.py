"""When tasks arrive: periodic, Poisson or from a file; drawn once, and the same for every policy, simulated or real."""

from __future__ import annotations

import random
from array import array
from dataclasses import dataclass

from hios.serving.scenario import Scenario, ServedModel

#: Distance of the seeds of two repeats; a scenario's own seed and its neighbors then give other traces.
_SEED_STEP = 1_000_003


@dataclass(frozen=True)
class Trace:
    """Tasks in the order in which they arrive; the number of a task is its place.

    Attributes:
        times_s: when each arrives, in seconds from the start; ascending, less than the duration.
        models: number of its model in the scenario.
    """

    times_s: array[float]
    models: array[int]

    def __len__(self) -> int:
        return len(self.times_s)


def draw(scenario: Scenario, repeat: int = 0) -> Trace:
    """The tasks of a scenario.

    Each model has random numbers of its own, from the scenario's seed, the number of the repeat and the model's label:
    other models, their order and the policy change nothing. A file gives the same tasks in every repeat. Tasks of one
    moment come in the order of their models' labels.

    Args:
        scenario: models with rates, duration and seed.
        repeat: which of the scenario's traces, from 0; any number gives a trace.
    """
    label = [model.label for model in scenario.models]
    if scenario.rows is not None:
        rows = [(time, number) for time, number in scenario.rows if time < scenario.duration_s]
    else:
        rows = [
            (time, number)
            for number, model in enumerate(scenario.models)
            for time in _times(scenario, model, scenario.file.seed + _SEED_STEP * repeat)
        ]
    rows.sort(key=lambda row: (row[0], label[row[1]]))
    return Trace(array("d", (time for time, _ in rows)), array("q", (number for _, number in rows)))


def _times(scenario: Scenario, model: ServedModel, seed: int) -> list[float]:
    """Arrivals of one model: every 1 / rate seconds from 0, or with exponential distances."""
    times: list[float] = []
    if scenario.file.arrivals == "periodic":
        # As ticks of a launcher with this interval are computed: a tick rounded to before its task would be lost.
        interval_s = 1 / model.rate
        while (time := len(times) * interval_s) < scenario.duration_s:
            times.append(time)
        return times
    gaps = random.Random(f"{seed}/{model.label}")
    time = gaps.expovariate(model.rate)
    while time < scenario.duration_s:
        times.append(time)
        time += gaps.expovariate(model.rate)
    return times
