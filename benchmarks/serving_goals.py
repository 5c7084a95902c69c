"""Policies for several models on this machine's cores, all measured on the same traces, and the goals for them.

    python benchmarks/serving_goals.py SCENARIO [--calibration FILE] [--duration S] [--rounds N] [--loads SHARE ...]

SCENARIO is as `hios load` takes it, with Poisson arrivals; its rates count as proportions. A load of 1 is what keeps
all lanes busy by the calibration, which comes first (about a minute) unless a file is given. A launcher is trained at
every load with --size. Then, at every load and in every round, each policy gets the same trace from a server of its
own, in an order that rotates. The policy that `auto` takes is chosen in the simulator, on other traces. Policies run
under the scenario's launcher, and some of them under the launcher `deadline` as well, as does what `auto` takes with
the launcher `auto`; --policies names a part of them.

Printed for every load: tasks within their SLO a second, completed tasks a second, median and mean latency of all
models together, and the work that they did (the least lane time of completed tasks, as a share of that of all lanes),
as medians over the rounds. Then the goals, at the loads that are there:

- auto: within 2 % of the best policy without learning, in goodput, at every load;
- learned: goodput 10 % above every baseline as published (one task at a time, strict rounds), at 0.8;
- the best policy that is not one task per lane: median latency 10 % below one-per-lane, at 0.3;
- top-open: within 5 % of one-per-lane in completed tasks, in overload.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hios.errors import HiosError
from hios.files import artifacts
from hios.formats.serving_result import CalibrationFile, ResultFile
from hios.serving.calibrate import calibrate
from hios.serving.calibration import calibrated
from hios.serving.launcher.launcher_settings import SIZES, settings_of
from hios.serving.launcher.training import train_launcher
from hios.serving.load import load
from hios.serving.policies import AUTO, LEARNED_POLICIES, policies_of
from hios.serving.scenario import Scenario
from hios.serving.simulate import ChosenPolicy, choose
from hios.serving.tables import calibration_table

#: Baselines as their papers have them: one task at a time, and rounds that wait for a task of every model.
PUBLISHED = ("sequential", "ios", "nimble", "opara", "hios-lp", "threads", "pos-strict")
#: Policies that run under the launcher deadline, too.
ALSO_BY_DEADLINE = ("one-per-lane", "threads", "top-open", "shortest-first")
COLUMNS = ("goodput/s", "done/s", "p50 ms", "mean ms", "work")
#: In a row, what the name of a model follows.
OF_MODEL = "p50 ms of "
Row = dict[str, float]


def row_of(result: ResultFile) -> Row:
    """What is compared of a result."""
    total, seconds = result.total, result.duration_s * result.repeats
    numbers = (total.goodput / seconds, total.completed / seconds, total.p50_ms, total.mean_ms, result.work_share)
    medians = {f"{OF_MODEL}{name}": own.p50_ms for name, own in result.models.items()}
    row = {**dict(zip(COLUMNS, numbers, strict=True)), **medians}
    return {name: float("nan") if value is None else value for name, value in row.items()}


def capacity(scenario: Scenario, calibration: CalibrationFile) -> float:
    """The load at which operators keep all lanes busy."""
    work = sum(m.rate * sum(m.problem.time) / 1e3 * calibration.models[m.label] for m in scenario.models)
    return scenario.lanes / work


def at(path: Path, factor: float, duration_s: float, seed: int) -> Scenario:
    """The scenario with other rates, duration and seed; what is best is goodput, as in the goals."""
    settings = {"duration_s": duration_s, "seed": seed, "repeats": 1, "objective": "throughput"}
    return Scenario.read(path, load=factor).with_settings(**settings)


def label(choice: ChosenPolicy, scenario: Scenario) -> str:
    """A policy by name; under another launcher than the scenario's, "NAME, LAUNCHER"."""
    usual = choice.launcher == scenario.file.launcher or choice.policy in LEARNED_POLICIES
    return choice.policy if usual else f"{choice.policy}, {choice.launcher}"


def measured(
    path: Path,
    factor: float,
    weights: Path,
    duration_s: float,
    rounds: int,
    wanted: Sequence[str],
    more: Sequence[str],
) -> dict[str, Row]:
    """Medians over the rounds for every policy that can run the scenario, by name, or "NAME, LAUNCHER"."""
    rows: dict[str, list[Row]] = {}
    names = [name for name in policies_of(Scenario.read(path).with_launcher(weights)) if not wanted or name in wanted]
    names += [f"{name}, deadline" for name in ALSO_BY_DEADLINE if name in names]
    names += [name for name in dict.fromkeys(more) if name not in names]
    for number in range(rounds):
        scenario = at(path, factor, duration_s, 100 + number).with_launcher(weights)
        turn = number * len(names) // max(1, rounds)
        for name in [*names[turn:], *names[:turn]]:
            try:
                policy, _, launcher = name.partition(", ")
                report = load(scenario, policy, launcher=launcher or None)
            except HiosError as error:
                print(f"{name} is left out: {error}", file=sys.stderr, flush=True)
                continue
            if report.wrong:
                sys.exit(f"{name}: {report.wrong}")
            rows.setdefault(name, []).append(row := row_of(report.result))
            print(f"round {number}, {name}: {row['goodput/s']:.3f}/s within their SLO", file=sys.stderr, flush=True)
    return {name: {key: statistics.median(row[key] for row in own) for key in own[0]} for name, own in rows.items()}


def _over(row: Row, other: Row, key: str) -> float:
    """How much larger a number is than another policy's, as a share of that."""
    return row[key] / other[key] - 1 if other[key] else float("nan")


def goals(load_share: float, rows: Mapping[str, Row], chosen: str, freely: str) -> list[str]:
    """The goals that concern a load, in words.

    Args:
        load_share: the load.
        rows: what was measured, by name.
        chosen: what auto takes under the scenario's launcher.
        freely: what it takes if it may choose the launcher too.
    """
    static = {name: row for name, row in rows.items() if name not in LEARNED_POLICIES and ", " not in name}
    best = max(static, key=lambda name: static[name]["goodput/s"])
    gap = _over(rows.get(chosen, {"goodput/s": float("nan")}), rows[best], "goodput/s")
    lines = [f"auto takes {chosen}: {gap:+.1%} beside {best}, the best without learning (goal: -2 %)"]
    every = max((name for name in rows if name not in LEARNED_POLICIES), key=lambda name: rows[name]["goodput/s"])
    gap = _over(rows.get(freely, {"goodput/s": float("nan")}), rows[every], "goodput/s")
    lines.append(
        f"with launcher auto it takes {freely}: {gap:+.1%} beside {every}, the best without learning (goal: -2 %)"
    )
    if load_share == 0.8:
        baseline = max((n for n in PUBLISHED if n in rows), key=lambda name: rows[name]["goodput/s"])
        for name in dict.fromkeys(n for n in [*LEARNED_POLICIES, freely] if n in rows):
            gain = _over(rows[name], rows[baseline], "goodput/s")
            lines.append(f"{name}: {gain:+.1%} beside {baseline}, the best baseline as published (goal: +10 %)")
    if load_share == 0.3:
        others = [n for n in rows if not n.startswith("one-per-lane") and rows[n]["p50 ms"] > 0]
        fast = min(others, key=lambda n: rows[n]["p50 ms"])
        for name in dict.fromkeys(n for n in [fast, "top-open", "top-open, deadline", chosen, freely] if n in rows):
            gain = _over(rows[name], rows["one-per-lane"], "p50 ms")
            by_model = ", ".join(
                f"{key.removeprefix(OF_MODEL)} {_over(rows[name], rows['one-per-lane'], key):+.1%}"
                for key in rows[name]
                if key.startswith(OF_MODEL)
            )
            lines.append(f"{name}: median latency {gain:+.1%} beside one-per-lane (goal: -10 %); by model {by_model}")
    if load_share > 1:
        for name, other in (
            ("top-open", "one-per-lane"),
            ("top-open, deadline", "one-per-lane, deadline"),
            ("top", "one-per-lane"),
        ):
            if name in rows:
                gap, work = (_over(rows[name], rows[other], key) for key in ("done/s", "work"))
                goal = " (goal: -5 %)" * name.startswith("top-open")
                lines.append(f"{name}: completes {gap:+.1%} tasks and {work:+.1%} work beside {other}{goal}")
    return lines


def main() -> None:
    """Calibrate, train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--duration", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.3, 0.5, 0.8, 1.2])
    parser.add_argument("--policies", nargs="+", default=[])
    parser.add_argument("--size", choices=list(SIZES), default="small")
    options = parser.parse_args()
    scenario = Scenario.read(options.scenario)
    if options.calibration is None:
        calibration = calibrate(scenario, show=lambda text: print(f"measuring {text}", file=sys.stderr))
    else:
        calibration = artifacts.load(options.calibration, CalibrationFile)
    print(calibration_table(calibration), flush=True)
    full = capacity(scenario, calibration)
    with tempfile.TemporaryDirectory() as folder:
        for share in options.loads:
            machine = calibrated(at(options.scenario, share * full, options.duration, 0), calibration)
            began, weights = time.perf_counter(), Path(folder, f"launcher-{share}.safetensors")
            train_launcher(machine, settings_of(options.size, {}, seed=0)).write(weights)
            trained_s = time.perf_counter() - began
            tuned = calibrated(
                at(options.scenario, share * full, options.duration, 0).with_launcher(weights), calibration
            )
            chosen, freely = (
                label(choose(tuned, AUTO, launcher), scenario) for launcher in (scenario.file.launcher, AUTO)
            )
            rates = ", ".join(f"{model.label} {model.rate:.3g}/s" for model in machine.models)
            print(f"\nload {share:g}: {rates}; launcher trained in {trained_s:.0f} s", flush=True)
            rows = measured(
                options.scenario,
                share * full,
                weights,
                options.duration,
                options.rounds,
                options.policies,
                [chosen, freely],
            )
            print(f"{'policy':20} " + " ".join(f"{name:>10}" for name in COLUMNS))
            for name, row in sorted(rows.items(), key=lambda entry: -entry[1]["goodput/s"]):
                print(f"{name:20} " + " ".join(f"{row[key]:10.3f}" for key in COLUMNS))
            print("\n".join(goals(share, rows, chosen, freely)), flush=True)


if __name__ == "__main__":
    main()
