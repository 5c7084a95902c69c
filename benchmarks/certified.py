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

from instances import hios_simulation, planted, problem, standard_task_graph
from published_data import data_folder

from hios import ALGORITHMS, Problem, Schedule, schedule, violations

#: The published settings of the simulation, and what is varied of them.
SETTINGS = {"devices": 4, "operators": 200, "edges": 400, "p": 0.8, "layers": 14}
SERIES: dict[str, tuple[float, ...]] = {
    "devices": (2, 4, 6, 8, 10, 12),
    "edges": (400, 450, 500, 550, 600),
    "p": (0.4, 0.6, 0.8, 1.0, 1.2),
    "layers": (6, 10, 14, 18, 22),
    "operators": (100, 200, 300, 400),
}
PUBLISHED = {
    "devices": "hios-lp 1.4 to 3.8 over sequential, 1.3 to 3.5 over ios; hios-mr at most 1.5 over sequential",
    "edges": "hios-lp 2.06 down to 1.64 over sequential, 1.86 to 1.48 over ios",
    "p": "hios-lp 2.23 down to 1.78 over sequential, 2.01 to 1.60 over ios",
    "layers": "hios-lp 174 to 233 ms, sequential 411, ios 371, hios-mr 305 ms",
    "operators": "hios-lp 2.01 to 2.12 over sequential, 1.81 to 1.91 over ios, 1.51 to 1.54 over hios-mr; groups cut "
    "hios-lp-inter by 5.7 to 7.7 %, hios-mr-inter by 13.3 to 14.6 %",
}
SHOWN = ("sequential", "ios", "hios-mr-inter", "hios-mr", "hios-lp-inter", "hios-lp", "heft", "hios-opt")


def solved(subject: Problem, name: str, devices: int, **parameters: float) -> Schedule:
    """The schedule of an algorithm, checked independently; on one device where it can use no more."""
    found = schedule(subject, name, devices if ALGORITHMS[name].several_devices else 1, parameters)
    if wrong := violations(subject, found):
        raise SystemExit(f"{name}: invalid schedule: {wrong[0]}")
    return found


def staged_bound(found: Schedule) -> float:
    """The better of the bounds that hold for staged schedules, in which a device runs one task after another."""
    return max(found.lower_bound_ms, found.staged_lower_bound_ms)


def percent(value: float) -> str:
    """A share as a percentage."""
    return f"{100 * value:.1f} %"


def grid(seeds: int, limit: float) -> None:
    """Print latencies and gaps for every point of the grid."""
    line = "{:<9} {:>2}" + "".join(f" {{:>{max(6, len(name))}}}" for name in SHOWN) + " {:>6} {:>8} {:>8} {:>8}"
    met = []
    for what, values in SERIES.items():
        print(f"\n{what} (others: {', '.join(f'{k} {v}' for k, v in SETTINGS.items() if k != what)}); milliseconds")
        heads = (*SHOWN, "lp/seq", "heft gap", "opt gap", "opt/heft")
        print(line.format(what, "n", *heads))
        for value in values:
            setting = {**SETTINGS, what: value}
            if what == "operators":
                setting["edges"] = 2 * value
            devices = int(setting.pop("devices"))
            rows, bounds = [], []
            for seed in range(seeds):
                subject = problem(hios_simulation(seed=seed, **setting))
                found = solved(subject, "hios-opt", devices, time_limit=limit)
                rows.append(
                    {name: solved(subject, name, devices).latency_ms for name in ALGORITHMS if name != "hios-opt"}
                )
                met.append(found.latency_ms <= min(rows[-1].values()) * (1 + 1e-9))
                rows[-1]["hios-opt"] = found.latency_ms
                bounds.append(found.lower_bound_ms)
            means = [statistics.mean(row[name] for row in rows) for name in SHOWN]
            speedup = statistics.mean(row["sequential"] / row["hios-lp"] for row in rows)
            gaps = [
                statistics.mean(row[name] / bound - 1 for row, bound in zip(rows, bounds, strict=True))
                for name in ("heft", "hios-opt")
            ]
            share = statistics.mean(row["hios-opt"] / row["heft"] for row in rows)
            print(
                line.format(
                    value,
                    seeds,
                    *(f"{mean:.1f}" for mean in means),
                    f"{speedup:.2f}",
                    *map(percent, gaps),
                    f"{share:.3f}",
                ),
                flush=True,
            )
        print(f"paper: {PUBLISHED[what]}")
    print(f"\nhios-opt at least as good as every other algorithm: {sum(met)} of {len(met)} instances")


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


def published(folder: Path) -> Iterator[tuple[Path, int, int, int]]:
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
    for path, devices, low, high in published(folder):
        if low < high:
            open_instances.append((path, devices, low, high))
            continue
        subject = problem(standard_task_graph(path))
        began = time.perf_counter()
        found = solved(subject, "hios-opt", devices, time_limit=limit)
        spent = time.perf_counter() - began
        bound = staged_bound(found)
        if found.latency_ms < high - 1e-6 or bound > low + 1e-6:
            print(f"{path.name} on {devices}: {bound} to {found.latency_ms}, published {high}")
        rows[devices].append((found.latency_ms / high, bound >= found.latency_ms - 1e-6, spent))
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
        found = solved(problem(standard_task_graph(path)), "hios-opt", devices, time_limit=limit)
        least, most = max(low, round(staged_bound(found))), min(high, round(found.latency_ms))
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
