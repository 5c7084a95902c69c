"""How long the light commands take as processes: hios --help, and hios schedule on 200 operators.

python benchmarks/startup.py
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from comparison_problems import hios_simulation, write

RUNS = 15


def seconds(arguments: list[str]) -> list[float]:
    """Wall-clock seconds of a command, run after run, after one to warm up."""
    times = []
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return sorted(times[1:])


def main() -> None:
    """Print median, 20th and 80th percentile of each command."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as name:
        graph, costs = map(str, write(hios_simulation(), Path(name)))
        target = str(Path(name) / "schedule.json")
        schedule = ["-m", "hios", "schedule", graph, costs, "--devices", "4", "--output", target, "--algorithm"]
        commands = {
            "import hios": ["-c", "import hios"],
            "hios --help": ["-m", "hios", "--help"],
            "hios schedule hios-lp-inter, 200 operators, 4 devices": [*schedule, "hios-lp-inter"],
            "hios schedule hios-lp, 200 operators, 4 devices": [*schedule, "hios-lp"],
        }
        for label, arguments in commands.items():
            times = seconds(arguments)
            p20, _, _, p80 = statistics.quantiles(times, n=5)
            print(f"{label:<55} {statistics.median(times):.3f} s  (p20 {p20:.3f}, p80 {p80:.3f}, {RUNS} runs)")


if __name__ == "__main__":
    main()
