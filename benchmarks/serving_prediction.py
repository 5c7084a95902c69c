"""How well the calibrated simulator predicts real servers: policies and loads that it was not calibrated with.

    python benchmarks/serving_prediction.py SCENARIO [--calibration FILE] [--duration SECONDS]

SCENARIO is as `hios load` takes it, such as examples/scenario.yaml; its rates should be shares of what the machine can
do (`share` in place of `rate`). Without --calibration, calibration comes first (less than a minute). Then every policy
runs at every load for so many seconds, on traces that the simulation gets too, but drawn with another seed than the
calibration's tasks. Goals: throughput within 5 %, p50 within 10 %, p99 within 20 % up to load 0.85; beyond it
throughput only. Measure on an idle machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import msgspec

from hios import artifacts
from hios.formats.calibration_file import CalibrationFile
from hios.formats.serving_result_file import ResultFile
from hios.serving.calibrating import calibrate
from hios.serving.calibration import calibrated
from hios.serving.load_session import load
from hios.serving.result_table import calibration_table
from hios.serving.scenario import Scenario
from hios.serving.simulate import simulate

POLICIES = ("one-per-lane", "sequential", "top-open", "hios-lp")
LOADS = (0.3, 0.6, 0.8)
#: Largest load at which percentiles are to agree, and by how much what is to agree.
MOST_LOAD = 0.85
GOALS = {"done/s": 0.05, "p50 ms": 0.10, "p99 ms": 0.20}


def numbers(result: ResultFile) -> dict[str, float]:
    """What is compared of a result."""
    total = result.total
    done = total.completed / (result.duration_s * result.repeats)
    return {"done/s": done, "p50 ms": total.p50_ms or 0.0, "p99 ms": total.p99_ms or 0.0}


def compared(scenario: Scenario, calibration: CalibrationFile, policy: str) -> tuple[dict[str, float], bool]:
    """Print measured, predicted and the error of each number; the errors, and whether all are within goals."""
    measured = numbers(load(scenario, policy).result)
    predicted = numbers(simulate(calibrated(scenario, calibration), policy))
    plain = numbers(simulate(scenario, policy))
    errors = {name: predicted[name] / value - 1 if value else 0.0 for name, value in measured.items()}
    judged = {name: error for name, error in errors.items() if name == "done/s" or scenario.load <= MOST_LOAD}
    within = all(abs(error) <= GOALS[name] for name, error in judged.items())
    cells = [f"{measured[name]:9.4g} {predicted[name]:9.4g} {errors[name]:+7.1%} {plain[name]:9.4g}" for name in GOALS]
    print(f"{policy:14} {scenario.load:5g}  " + "  ".join(cells) + f"  {'within' if within else 'beyond'}", flush=True)
    return errors, within


def main() -> None:
    """Calibrate, run and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--duration", type=float, default=30.0)
    given = parser.parse_args()
    scenario = Scenario.read(given.scenario)
    if given.calibration is None:
        calibration = calibrate(scenario, show=lambda text: print(f"measuring {text}", file=sys.stderr))
    else:
        calibration = artifacts.load(given.calibration, CalibrationFile)
    print(calibration_table(calibration))
    heads = "  ".join(f"{name:>9} {'predicted':>9} {'error':>7} {'no calib.':>9}" for name in GOALS)
    print(f"\n{'policy':14} {'load':>5}  {heads}  goals")
    found = []
    for rate in LOADS:
        own = Scenario.read(given.scenario, load=rate)
        file = msgspec.structs.replace(own.file, duration_s=given.duration, seed=own.file.seed + 1)
        own = dataclasses.replace(own, file=file)
        found += [compared(own, calibration, policy) for policy in POLICIES]
    for name in GOALS:
        worst = max(abs(errors[name]) for errors, _ in found)
        print(f"{name}: largest error {worst:.1%}, goal {GOALS[name]:.0%}")
    print(f"{sum(within for _, within in found)} of {len(found)} points within all goals")


if __name__ == "__main__":
    main()
