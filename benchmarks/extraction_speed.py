"""How long and in how much memory a network becomes a graph: hios export and hios extract as processes.

python benchmarks/extraction_speed.py [MODEL ...]

Sizes are those of the papers. Time is wall-clock, from the start of the process to its end with the files written;
memory is the peak of the process. Models are taken in turns, RUNS times each, and medians printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hios import Graph

MODELS = (
    "ios_sample",
    "inception_v3",
    "squeezenet",
    "nasnet_large",
    "nasnet_mobile",
    "randwire",
    "resnet50",
    "resnet34",
    "googlenet",
    "bert",
    "t5",
)
RUNS = 3
STAGES = ("export", "extract")


def measure(*arguments: str) -> tuple[float, float]:
    """Wall-clock seconds and peak memory in megabytes of a command of hios."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "hios", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"hios {' '.join(arguments)} failed")
    return time.perf_counter() - began, usage.ru_maxrss / 1000


def main() -> None:
    """Print counts, seconds and megabytes of each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    models = parser.parse_args().models
    measurements: dict[tuple[str, str], list[tuple[float, float]]] = {(m, s): [] for m in models for s in STAGES}
    graphs: dict[str, Graph] = {}
    with tempfile.TemporaryDirectory() as name:
        program, output, weights = (str(Path(name) / f) for f in ("program.pt2", "graph.json", "weights.safetensors"))
        for _ in range(RUNS):
            for model in models:
                measurements[model, "export"].append(measure("export", model, "--output", program))
                measurements[model, "extract"].append(
                    measure("extract", program, "--output", output, "--weights", weights)
                )
                graphs[model] = Graph.read(output)
    heads = ("operators", "edges", "blocks", "export s", "extract s", "together s", "peak MB")
    print(f"{'network':<14}{'units':<14}" + "".join(f"{head:>11}" for head in heads))
    for model in models:
        seconds = {stage: statistics.median(time for time, _ in measurements[model, stage]) for stage in STAGES}
        together = statistics.median(
            sum(times)
            for times in zip(*([time for time, _ in measurements[model, stage]] for stage in STAGES), strict=True)
        )
        peak = max(memory for stage in STAGES for _, memory in measurements[model, stage])
        graph = graphs[model]
        counts = "".join(f"{len(part):>11}" for part in (graph.operators, graph.edges, graph.blocks))
        times = f"{seconds['export']:>11.1f}{seconds['extract']:>11.1f}{together:>11.1f}"
        print(f"{model:<14}{graph.units or '':<14}{counts}{times}{peak:>11.0f}")


if __name__ == "__main__":
    main()
