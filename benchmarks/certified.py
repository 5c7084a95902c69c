"""How far hios-opt and the published algorithms are from a proven bound, or from a known optimum.

    python benchmarks/certified.py grid [--seeds N] [--time-limit S]
    python benchmarks/certified.py planted [--seeds N] [--time-limit S]
    python benchmarks/certified.py stg [FOLDER] [--time-limit S] [--open S]

grid is HIOS's simulation (section V-A), one setting varied at a time, with the paper's figures under the table.
planted has instances whose optimum is known by construction. stg is the Standard Task Graph set with 50 tasks; FOLDER
holds the graphs as 50/*.stg and published optima as optima/Case50_M_OPT.csv (file, devices, optimum or interval), and
is by default the one that benchmarks/data/README.md describes; with --open the instances of which only an interval is
published are tried again for that many seconds. Gaps are latency over bound less one, means over instances. Each
search uses two cores.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from comparison_problems import planted, problem, standard_task_graph
from published_data import data_folder

from hios import ALGORITHMS, Schedule
from hios.formats.config import SERIES, SimulationStudy
from hios.formats.study import Setting
from hios.study.published import published
from hios.study.random_graphs import random_layers
from hios.study.sessions import series
from hios.study.simulation import ALGORITHMS as SIMULATED
from hios.study.simulation import drawn, solved

#: Settings and series of the simulation are those of the configuration's defaults.
STUDY = SimulationStudy()
#: Published statements of each series, by the figure that shows it.
FIGURES = dict(zip(SERIES, ("hios_fig7", "hios_fig8", "hios_fig9", "hios_fig10", "hios_fig11"), strict=True))


def staged_bound(schedule: Schedule) -> float:
    """The better of the bounds that hold for staged schedules, in which a device runs one task after another."""
    return max(schedule.lower_bound_ms, schedule.staged_lower_bound_ms)


def percent(value: float) -> str:
    """A share as a percentage."""
    return f"{100 * value:.1f} %"


def grid(seeds: int, limit: float) -> None:
    """Print latencies and gaps for every point of the grid."""
    line = "{:<9} {:>2}" + "".join(f" {{:>{max(6, len(name))}}}" for name in SIMULATED) + " {:>6} {:>8} {:>8} {:>8}"
    met: list[bool] = []
    usual = msgspec.structs.asdict(STUDY.base)
    for what in SERIES:
        print(f"\n{what} (others: {', '.join(f'{k} {v}' for k, v in usual.items() if k != what)}); milliseconds")
        print(line.format(what, "n", *SIMULATED, "lp/seq", "heft gap", "opt gap", "opt/heft"))
        for setting in series(STUDY, what):
            rows, bounds = zip(*(instance(setting, seed, limit) for seed in range(seeds)), strict=True)
            met += [row["hios-opt"] <= min(row.values()) * (1 + 1e-9) for row in rows]
            means = [statistics.mean(row[name] for row in rows) for name in SIMULATED]
            speedup = statistics.mean(row["sequential"] / row["hios-lp"] for row in rows)
            gaps = [
                statistics.mean(row[name] / bound - 1 for row, bound in zip(rows, bounds, strict=True))
                for name in ("heft", "hios-opt")
            ]
            share = statistics.mean(row["hios-opt"] / row["heft"] for row in rows)
            shown = [*(f"{mean:.1f}" for mean in means), f"{speedup:.2f}", *map(percent, gaps), f"{share:.3f}"]
            print(line.format(getattr(setting, what), seeds, *shown), flush=True)
        for entry in published(FIGURES[what]).values():
            print(f"paper: {entry.what}: {entry.text} {entry.unit}")
    print(f"\nhios-opt at least as good as every other algorithm: {sum(met)} of {len(met)} instances")


def instance(setting: Setting, seed: int, limit: float) -> tuple[dict[str, float], float]:
    """Latencies of all algorithms on one random graph, and the bound that hios-opt proves within its time."""
    subject = random_layers(**drawn(setting), seed=seed).problem()
    best = solved(subject, "hios-opt", setting.devices, time_limit=limit)
    row = {name: solved(subject, name, setting.devices).latency_ms for name in ALGORITHMS if name != "hios-opt"}
    return {**row, "hios-opt": best.latency_ms}, best.lower_bound_ms


def plant(seeds: int, limit: float) -> None:
    """Print how far plain HEFT, HIOS-LP and hios-opt are above planted optima."""
    line = "{:<8} {:>10} {:>9} {:>9} {:>9} {:>9}"
    print(line.format("devices", "instances", "heft", "hios-lp", "hios-opt", "worst"))
    for devices in (2, 4, 8, 12):
        above: dict[str, list[float]] = {"heft": [], "hios-lp": [], "hios-opt": []}
        for seed in range(seeds):
            instance, optimum = planted(devices, seed=seed)
            subject = problem(instance)
            for name, values in above.items():
                more = {"time_limit": limit} if name == "hios-opt" else {}
                values.append(solved(subject, name, devices, **more).latency_ms / optimum - 1)
        means = [percent(statistics.mean(values)) for values in above.values()]
        print(line.format(devices, seeds, *means, percent(max(above["hios-opt"]))), flush=True)


def stated_intervals(folder: Path) -> Iterator[tuple[Path, int, int, int]]:
    """File, devices and the published interval of every instance (an optimum is an interval of one)."""
    for devices in (2, 4, 8, 16):
        with (folder / "optima" / f"Case50_{devices}_OPT.csv").open() as file:
            for row in csv.reader(file):
                yield folder / row[0], int(row[1]), int(row[2]), int(row[-1])


def stg(folder: Path, limit: float, again: float) -> None:
    """Print how often and how closely optima are reached, and every published interval that becomes narrower."""
    line = "{:<8} {:>7} {:>9} {:>7} {:>7} {:>10} {:>9} {:>9} {:>9}"
    print(line.format("devices", "closed", "optimal", "share", "proven", "mean ratio", "worst", "mean s", "max s"))
    rows: dict[int, list[tuple[float, bool, float]]] = {2: [], 4: [], 8: [], 16: []}
    open_instances = []
    for path, devices, low, high in stated_intervals(folder):
        if low < high:
            open_instances.append((path, devices, low, high))
            continue
        subject = problem(standard_task_graph(path))
        began = time.perf_counter()
        schedule = solved(subject, "hios-opt", devices, time_limit=limit)
        spent = time.perf_counter() - began
        bound = staged_bound(schedule)
        if schedule.latency_ms < high - 1e-6 or bound > low + 1e-6:
            print(f"{path.name} on {devices}: {bound} to {schedule.latency_ms}, published {high}")
        rows[devices].append((schedule.latency_ms / high, bound >= schedule.latency_ms - 1e-6, spent))
    for devices, found_rows in rows.items():
        _stg_row(line, str(devices), found_rows)
    _stg_row(line, "all", [row for found_rows in rows.values() for row in found_rows])
    if again:
        _open(open_instances, again)


def _stg_row(line: str, name: str, rows: list[tuple[float, bool, float]]) -> None:
    ratios, proofs, times = zip(*rows, strict=True)
    optimal = sum(ratio < 1 + 1e-9 for ratio in ratios)
    print(
        line.format(
            name,
            len(rows),
            optimal,
            percent(optimal / len(rows)),
            sum(proofs),
            f"{statistics.mean(ratios):.5f}",
            f"{max(ratios):.4f}",
            f"{statistics.mean(times):.2f}",
            f"{max(times):.2f}",
        )
    )


def _open(instances: list[tuple[Path, int, int, int]], limit: float) -> None:
    print(f"\n{len(instances)} instances of which an interval is published, {limit:g} s each; for staged schedules")
    narrowed, closed = 0, 0
    for path, devices, low, high in instances:
        schedule = solved(problem(standard_task_graph(path)), "hios-opt", devices, time_limit=limit)
        least, most = max(low, round(staged_bound(schedule))), min(high, round(schedule.latency_ms))
        narrowed += (least, most) != (low, high)
        closed += least == most
        if (least, most) != (low, high):
            now = f"= {most}" if least == most else f"in {least} to {most}"
            print(f"{path.name} on {devices} devices: published {low} to {high}, now {now}", flush=True)
    print(f"narrower: {narrowed}, of these closed: {closed}, of {len(instances)}")


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("grid", "planted", "stg"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--time-limit", type=float)
    parser.add_argument("--open", type=float, default=0.0)
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} at the start")
    if given.what == "stg":
        try:
            folder = given.folder or data_folder("stg")
        except FileNotFoundError as error:
            parser.error(str(error))
        stg(folder, given.time_limit or 2.0, given.open)
    else:
        (grid if given.what == "grid" else plant)(given.seeds, given.time_limit or 10.0)


if __name__ == "__main__":
    main()
