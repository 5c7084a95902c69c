"""The engine's sequential schedule on one device against eager PyTorch with one thread, side by side.

    python benchmarks/engine_overhead.py [MODEL] [RUNS]

Both take turns in one session (see hios.runtime.session), so drift of the machine hits both alike.
"""

from __future__ import annotations

import statistics
import sys

import hios


def main(model: str = "inception_v3", runs: str = "36") -> None:
    """Print both medians, the ratio of the medians, and the median of the ratios of each round."""
    program = hios.export(model)
    graph, weights = hios.extract(program)
    free = hios.Costs(
        {operator.id: 0.0 for operator in graph.operators}, {(e.source, e.target): 0.0 for e in graph.edges}
    )
    schedule = hios.schedule(hios.Problem(graph, free), "sequential")
    run = hios.execute(graph, weights, schedule, program=program, runs=int(runs))
    engine, (eager,) = run.baseline.latency_ms, run.references
    rounds = [a / b for a, b in zip(engine.runs, eager.latency_ms.runs, strict=True)]
    print(f"{model}, {runs} runs, load average at the start {run.platform.load_average}")
    for label, latency in (("engine, sequential, 1 device", engine), (eager.name, eager.latency_ms)):
        print(f"  {label:<30} {latency.median:8.2f} ms  (p20 {latency.p20:.2f}, p80 {latency.p80:.2f})")
    print(f"  ratio of the medians           {engine.median / eager.latency_ms.median:8.3f}")
    print(f"  median ratio of a round        {statistics.median(rounds):8.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
