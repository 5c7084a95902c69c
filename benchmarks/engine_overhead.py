"""The engine's sequential schedule on one device against eager PyTorch with one thread, side by side.

    python benchmarks/engine_overhead.py [MODEL] [RUNS]

Both take turns in one session (see hios.runtime.session), so drift of the machine hits both alike.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

from hios import Costs, Problem, schedule
from hios.cli.files import execute, export, extract
from hios.runtime.session import Settings


def main(model: str = "inception_v3", runs: str = "36") -> None:
    """Print both medians, the ratio of the medians, and the median of the ratios of each round."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, weights = folder / "program.pt2", folder / "weights.safetensors"
        export(model, program, {})
        graph = extract(program, folder / "graph.json", weights, model)
        free = Costs(
            {operator.id: 0.0 for operator in graph.operators}, {(e.source, e.target): 0.0 for e in graph.edges}
        )
        schedule(Problem(graph, free), "sequential").write(folder / "sequential.json")
        settings = Settings(devices=1, runs=int(runs))
        target = folder / "run.json"
        execute(folder / "graph.json", weights, [folder / "sequential.json"], target, settings, program=program)
        run = json.loads(target.read_text())
    engine, (eager,) = run["baseline"]["latency_ms"], run["references"]
    rounds = [a / b for a, b in zip(engine["runs"], eager["latency_ms"]["runs"], strict=True)]
    print(f"{model}, {runs} runs, load average at the start {run['platform']['load_average']}")
    for label, latency in (("engine, sequential, 1 device", engine), (eager["name"], eager["latency_ms"])):
        print(f"  {label:<30} {latency['median']:8.2f} ms  (p20 {latency['p20']:.2f}, p80 {latency['p80']:.2f})")
    print(f"  ratio of the medians           {engine['median'] / eager['latency_ms']['median']:8.3f}")
    print(f"  median ratio of a round        {statistics.median(rounds):8.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
