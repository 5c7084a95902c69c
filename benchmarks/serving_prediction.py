"""How well the calibrated simulator predicts real servers: policies and loads that it was not calibrated with.

    python benchmarks/serving_prediction.py SCENARIO [--rounds N] [--budget S] [--duration S] [--policies NAME ...]

SCENARIO is as `hios load` takes it, such as examples/scenario.yaml; its rates count as proportions. Every round begins
with a calibration (--budget seconds of runs). Then every policy runs at every load, on traces that the simulation gets
too, but drawn with another seed than the calibration's tasks. A load is a share of what the calibrated simulator has
that policy complete in overload. Printed are medians over the rounds, as a machine that is shared may change its speed
within a minute. Goals: throughput within 5 %, p50 within 10 %, p99 within 20 % up to load 0.85; beyond it throughput
only. Measure on an idle machine.

"time" is the mean time of lanes for a task over the predicted one: how much slower the machine was than when it was
calibrated, and what calibration got wrong. The errors "at that" are those of a simulation with all times multiplied by
it, so they are of queues and policies alone. For policies over several lanes the measured time has their waiting for
each other in it, which the prediction does not count, and these errors say little.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from hios.formats.serving_result import CalibrationFile, ResultFile
from hios.serving.calibrate import calibrate
from hios.serving.calibration import calibrated
from hios.serving.load import load
from hios.serving.scenario import Scenario
from hios.serving.simulate import simulate
from hios.serving.tables import calibration_table

POLICIES = ("one-per-lane", "sequential", "top-open", "hios-lp")
LOADS = (0.3, 0.6, 0.8, 1.2)
#: Tasks offered to find out what a policy can complete, over what all lanes can.
OVERLOAD = 1.5
#: Largest load at which percentiles are to agree, and by how much what is to agree.
MOST_LOAD = 0.85
GOALS = {"done/s": 0.05, "p50 ms": 0.10, "p99 ms": 0.20}


def numbers(result: ResultFile) -> dict[str, float]:
    """What is compared of a result."""
    total = result.total
    done = total.completed / (result.duration_s * result.repeats)
    return {"done/s": done, "p50 ms": total.p50_ms or 0.0, "p99 ms": total.p99_ms or 0.0}


def scenario_at(path: Path, load_factor: float, duration_s: float, number: int) -> Scenario:
    """The scenario at another load and with traces of a round."""
    scenario = Scenario.read(path, load=load_factor)
    return scenario.with_settings(duration_s=duration_s, seed=scenario.file.seed + 1 + number)


def capacity(path: Path, calibration: CalibrationFile, policy: str) -> float:
    """The load at which a policy is as busy as it can be: what it completes in overload, over what 1 offers."""
    offered = Scenario.read(path)
    work = sum(m.rate * sum(m.problem.time) / 1e3 * calibration.models[m.label] for m in offered.models)
    overload = scenario_at(path, OVERLOAD * offered.lanes / work, 60.0, 0)
    return numbers(simulate(calibrated(overload, calibration), policy))["done/s"] / sum(m.rate for m in offered.models)


def lane_time(result: ResultFile) -> float:
    """Seconds of a lane for a task, on average."""
    return result.utilisation * result.lanes * result.duration_s * result.repeats / max(1, result.total.completed)


def slower(calibration: CalibrationFile, factor: float) -> CalibrationFile:
    """The calibration of a machine on which every operator takes so many times as long."""
    return msgspec.structs.replace(calibration, models={name: own * factor for name, own in calibration.models.items()})


@dataclass(frozen=True)
class Point:
    """A policy at a load, measured once.

    Attributes:
        factor: measured mean time of lanes for a task over the predicted one.
        measured: by name.
        errors: of costs alone, calibrated, and calibrated at the measured time of a task; by name.
    """

    factor: float
    measured: dict[str, float]
    errors: tuple[dict[str, float], dict[str, float], dict[str, float]]


def point(scenario: Scenario, calibration: CalibrationFile, policy: str) -> Point:
    """Run and simulate a policy on the same trace."""
    result = load(scenario, policy).result
    measured, prediction = numbers(result), simulate(calibrated(scenario, calibration), policy)
    if not (result.total.completed and prediction.total.completed):
        sys.exit(f"{policy} at load {scenario.load:g}: no task completed; take a longer --duration or a smaller share")
    factor = lane_time(result) / lane_time(prediction)
    again = numbers(simulate(calibrated(scenario, slower(calibration, factor)), policy))
    plain, predicted = numbers(simulate(scenario, policy)), numbers(prediction)
    costs, own, scaled = (
        {name: these[name] / value - 1 for name, value in measured.items()} for these in (plain, predicted, again)
    )
    return Point(factor, measured, (costs, own, scaled))


def judged(policy: str, load_share: float, points: Sequence[Point]) -> list[tuple[dict[str, float], bool]]:
    """Print a policy at a load: medians over the rounds.

    Returns:
        The errors, and whether all are within goals: as predicted, and at the time of a task that was measured.
    """
    counted = [name for name in GOALS if name == "done/s" or load_share <= MOST_LOAD]
    errors_of = [{name: median(own.errors[kind][name] for own in points) for name in GOALS} for kind in range(3)]
    rows = [(errors, all(abs(errors[name]) <= GOALS[name] for name in counted)) for errors in errors_of[1:]]
    cells = [
        f"{median(own.measured[name] for own in points):8.4g}{''.join(f'{errors[name]:+8.1%}' for errors in errors_of)}"
        for name in GOALS
    ]
    words = ["within" if good else "beyond" for _, good in rows]
    factor = median(own.factor for own in points)
    print(f"{policy:14} {load_share:5g} {factor:5.2f}  {'  '.join(cells)}  {words[0]}, {words[1]} at that", flush=True)
    return rows


def main() -> None:
    """Calibrate, run and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=40.0)
    parser.add_argument("--duration", type=float, default=15.0)
    parser.add_argument("--policies", nargs="+", default=list(POLICIES))
    options = parser.parse_args()
    points: dict[tuple[str, float], list[Point]] = {}
    for number in range(options.rounds):
        calibration = calibrate(Scenario.read(options.scenario), budget_s=options.budget)
        print(f"round {number}\n{calibration_table(calibration)}", file=sys.stderr, flush=True)
        for policy in options.policies:
            full = capacity(options.scenario, calibration, policy)
            for share in LOADS:
                scenario = scenario_at(options.scenario, share * full, options.duration, number)
                points.setdefault((policy, share), []).append(point(scenario, calibration, policy))
    heads = "  ".join(f"{name:>8} {'costs':>7} {'error':>7} {'at that':>7}" for name in GOALS)
    print(f"{'policy':14} {'load':>5} {'time':>5}  {heads}  goals")
    rows = [judged(policy, share, own) for (policy, share), own in points.items()]
    for number, words in enumerate(("as predicted", "at the measured time of a task")):
        column = [row[number] for row in rows]
        worst = ", ".join(f"{name} {max(abs(errors[name]) for errors, _ in column):.1%}" for name in GOALS)
        print(f"{words}: {sum(within for _, within in column)} of {len(rows)} within goals, largest errors {worst}")


if __name__ == "__main__":
    main()
