"""How long scheduling takes and how much memory, against what it may take and what the papers report.

    python benchmarks/scheduling_speed.py [RANDWIRE]

RANDWIRE is a folder with the graphs of RandWire (see ``networks.randwire``), by default the one that ``make data``
fills; without it that row is skipped. Costs are given, random and seeded; parameters are the defaults. Every row is a
process of its own, without parallelism: its time is the median of up to 9 schedules (fewer where they take long), its
memory the peak of the whole process.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from comparison_problems import hios_simulation, problem
from networks import inception_v3, nasnet_large, randwire, synthetic_costs
from published_data import data_folder

from hios import ALGORITHMS, Graph, Problem, schedule
from hios.study.published import number

RUNS = 9
#: A row begins no further run after so many seconds.
ENOUGH_S = 20.0
#: What a scheduler may take of memory.
MEMORY_MB = 1000


@dataclass(frozen=True)
class Row:
    """An algorithm on an instance, its target, and what a paper reports."""

    algorithm: str
    instance: str
    devices: int
    target_s: float
    published: str = ""


def _by_lios(algorithm: str, network: str) -> str:
    """What LIOS reports of an algorithm, profiling counted."""
    return f"{number(f'lios_tab5.{algorithm}', network):g} s ({algorithm}, by LIOS, table V)"


ROWS = (
    Row("hios-lp", "simulation", 4, 0.020, "11 s (released HIOS simulator, same size)"),
    Row("hios-lp", "nasnet", 2, 0.050),
    Row("hios-lp", "large", 8, 30.0),
    Row("hios-mr", "simulation", 4, 0.100),
    Row("lios", "nasnet", 1, 0.020, _by_lios("lios", "nasnet_large")),
    Row("nimble", "nasnet", 1, 0.100, f"{number('opara_tab1.nimble', 't5'):g} ms (T5, by Opara, table I)"),
    Row(
        "opara", "nasnet", 1, 0.005, f"{number('opara_tab1.opara', 't5'):g} ms (T5, stream allocation, Opara, table I)"
    ),
    Row("ios", "inception", 1, 0.5, _by_lios("ios", "inception_v3")),
    Row("ios", "randwire", 1, 30.0, _by_lios("ios", "randwire")),
    Row("ios", "nasnet", 1, 60.0, _by_lios("ios", "nasnet_large")),
)


def _simulation(operators: int, edges: int, layers: int) -> Problem:
    return problem(hios_simulation(operators=operators, edges=edges, layers=layers))


def _network(graph: Graph) -> Problem:
    return Problem(graph, synthetic_costs(graph))


#: Name in the table and problem of every instance; the argument is the folder of RandWire.
INSTANCES: dict[str, tuple[str, Callable[[str], Problem]]] = {
    "simulation": ("HIOS simulation, 400 edges, 14 layers", lambda _: _simulation(200, 400, 14)),
    "large": ("HIOS simulation, 20000 edges, 100 layers", lambda _: _simulation(10000, 20000, 100)),
    "inception": ("Inception-v3", lambda _: _network(inception_v3())),
    "nasnet": ("NASNet-A large", lambda _: _network(nasnet_large())),
    "randwire": ("RandWire", lambda folder: _network(randwire(Path(folder)))),
}


def measured(row: Row, folder: str) -> tuple[int, int, float, float]:
    """Operators, runs, median time in seconds and peak memory of this process in megabytes."""
    times: list[float] = []
    while len(times) < RUNS and sum(times) < ENOUGH_S:
        instance = INSTANCES[row.instance][1](folder)
        times.append(schedule(instance, row.algorithm, row.devices).scheduling_time_s)
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return len(instance), len(times), statistics.median(times), peak_kb / 1000


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.1f} ms"


def main() -> None:
    """Print a row for every algorithm and instance."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="", metavar="RANDWIRE")
    folder, missing = parser.parse_args().folder, ""
    try:
        folder = folder or str(data_folder("randwire"))
    except FileNotFoundError as error:
        missing = str(error)
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} at the start")
    heads = ("algorithm", "instance", "operators", "devices", "runs", "median", "target", "met", "memory", "published")
    line = "{:<10} {:<41} {:>9} {:>7} {:>4} {:>9} {:>9} {:>4} {:>8}  {}"
    print(line.format(*heads).rstrip())
    for row in ROWS:
        name, _ = INSTANCES[row.instance]
        if row.algorithm not in ALGORITHMS:
            print(f"{row.algorithm:<10} {name:<41} skipped: no algorithm of this name")
        elif row.instance == "randwire" and not folder:
            print(f"{row.algorithm:<10} {name:<41} skipped: {missing}")
        else:
            # A fresh interpreter, so that memory is this row's alone.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
                operators, runs, median, memory = child.submit(measured, row, folder).result()
            met = "yes" if median <= row.target_s and memory < MEMORY_MB else "no"
            times = _seconds(median), _seconds(row.target_s)
            cells = (row.algorithm, name, operators, row.devices, runs, *times, met, f"{memory:.0f} MB", row.published)
            print(line.format(*cells).rstrip(), flush=True)


if __name__ == "__main__":
    main()
