"""What no policy can pass, and rates that share a device evenly."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from hios.bound import least_of_all
from hios.serving.scenario import Scenario, ServedModel
from hios.serving.stage_times import threaded_ms


def least_work_s(model: ServedModel, *, gpu: bool = False) -> float:
    """The least device time of a task in seconds: how long all its operators keep lanes, or a GPU, busy at least.

    On lanes an operator takes t(v), or k*t(v, k) with k lanes at once where that is less. On a GPU its kernels leave
    room for others, as far as contention model and measured stages allow (`hios.bound`); without contention it takes
    none.
    """
    problem = model.problem
    if not gpu:
        wide = problem.wide_ms
        work = [min([t, *(k * time for k, time in wide.get(v, {}).items())]) for v, t in enumerate(problem.time)]
        return sum(work) / 1e3
    if problem.alpha is None:
        return 0.0
    return sum(least_of_all(problem).work) / 1e3


def least_works_s(scenario: Scenario) -> list[float]:
    """The least device time of a task of each model in seconds, as long as operators take on the machine simulated.

    Without a calibration, as long as the costs say.
    """
    calibration = scenario.calibration
    if calibration is None:
        return [least_work_s(model, gpu=scenario.gpu) for model in scenario.models]
    steady = min(1.0, statistics.fmean(calibration.jitter))
    works = []
    for number, model in enumerate(scenario.models):
        widths = zip(model.problem.time, threaded_ms(scenario, number), strict=True)
        least_ms = sum(min(alone, used * time) for alone, (time, used) in widths)
        works.append(steady * scenario.factor(number) * least_ms / 1e3)
    return works


def bound_per_s(scenario: Scenario, offered_per_s: Sequence[float]) -> float:
    """Upper bound of the tasks per second that a policy can complete.

    The linear program: maximize sum(x) with 0 <= x_i <= offered_i and sum(x_i w_i) <= lanes, where w_i is the least
    device time of a task. With one constraint the models with the least work come first (Dantzig), so no solver is
    needed.
    """
    left, total = float(scenario.lanes), 0.0
    for least, offered in sorted(zip(least_works_s(scenario), offered_per_s, strict=True)):
        served = offered if least * offered <= left else left / least
        total += served
        left -= served * least
    return total


def even_intervals_s(scenario: Scenario, work_s: Sequence[float]) -> list[float]:
    """Seconds between two tasks of each model, so that the device's time is shared evenly (water-filling).

    The device time that all together ask for is filled up like vessels: every model gets what it asks for or the common
    level, whichever is less, and the levels add up to the lanes. Where all get what they ask for, the time that is left
    is divided in proportion, so that bursts are not held back. Intervals are at most 1 s, as TOP has them.
    """
    asked = [model.rate * work for model, work in zip(scenario.models, work_s, strict=True)]
    lanes = float(scenario.lanes)
    if sum(asked) <= lanes:
        share = lanes / sum(asked) if sum(asked) > 0 else math.inf
        granted = [share * ask for ask in asked]
    else:
        level = _level(sorted(asked), lanes)
        granted = [min(ask, level) for ask in asked]
    return [
        min(1.0, work / grant) if grant > 0 and work > 0 else 0.0 for work, grant in zip(work_s, granted, strict=True)
    ]


def _level(asked: Sequence[float], capacity: float) -> float:
    """The level at which sum(min(asked, level)) is the capacity; ``asked`` is ascending and adds up to more."""
    left = capacity
    for place, ask in enumerate(asked):
        level = left / (len(asked) - place)
        if ask >= level:
            return level
        left -= ask
    return math.inf
