"""A scenario with measured constants: factors of times, overheads, co-run by pair of models, jitter."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from hios.errors import HiosError
from hios.formats.serving_result import CalibrationFile
from hios.serving.pipeline import Pipeline
from hios.serving.scenario import Scenario

#: Factors of runs that are drawn once and taken in turn.
_DRAWN = 4096
#: Factors that one repeat begins after the one before, of those.
_STEP = 1009


def calibrated(scenario: Scenario, calibration: CalibrationFile, source: str = "calibration") -> Scenario:
    """The scenario on the machine that was measured; what policies plan does not change.

    The calibration's overheads replace those of the scenario; ``source`` is the name of its file.

    Raises:
        HiosError: it is of other models or lanes.
    """
    if missing := [model.label for model in scenario.models if model.label not in calibration.models]:
        raise HiosError(
            f"{source}: models: found {', '.join(calibration.models)}, not {missing[0]}; calibrate with "
            f"{scenario.source}"
        )
    if calibration.lanes != scenario.lanes:
        raise HiosError(
            f"{source}: lanes: found {calibration.lanes}; allowed: {scenario.lanes}, as in {scenario.source}"
        )
    measured = scenario.with_settings(overheads=calibration.overheads)
    return dataclasses.replace(measured, calibration=calibration, planned=scenario.plain)


def with_interference(pipeline: Pipeline, scenario: Scenario) -> Pipeline:
    """The pipeline with slow-down by what runs beside and with jitter, where the scenario is calibrated."""
    calibration = scenario.calibration
    if calibration is None:
        return pipeline
    beside: tuple[tuple[float, ...], ...] = ()
    if pipeline.take != "all":
        owners = [tuple(scenario.models[model].label for model, _ in members) for members in pipeline.combined]
        factors = {(pair.model, pair.beside): pair.factor for pair in calibration.corun}
        beside = tuple(tuple(_mean_factor(own, other, factors) for other in owners) for own in owners)
    return dataclasses.replace(pipeline, beside=beside, jitter=drawn_jitter(calibration.jitter, scenario.file.seed))


def with_jitter_of(pipeline: Pipeline, repeat: int) -> Pipeline:
    """The pipeline with the jitter of a repeat: the same factors, which begin at another one."""
    if not (repeat and pipeline.jitter):
        return pipeline
    first = repeat * _STEP % len(pipeline.jitter)
    return dataclasses.replace(pipeline, jitter=(*pipeline.jitter[first:], *pipeline.jitter[:first]))


def _mean_factor(own: Sequence[str], other: Sequence[str], factors: dict[tuple[str, str], float]) -> float:
    pairs = [factors.get((model, beside), 1.0) for model in own for beside in other]
    return sum(pairs) / len(pairs)


def drawn_jitter(quantiles: Sequence[float], seed: int) -> tuple[float, ...]:
    """Factors drawn from a distribution that is given by evenly spaced quantiles, linear between them."""
    draw = random.Random(seed)
    factors = []
    for _ in range(_DRAWN):
        place = draw.random() * (len(quantiles) - 1)
        below = int(place)
        factors.append(quantiles[below] + (place - below) * (quantiles[below + 1] - quantiles[below]))
    return tuple(factors)
