"""Random scheduling problems as the papers' simulations draw them."""

from __future__ import annotations

import random
from pathlib import Path

from hios import Edge, Graph, Operator, artifacts


def hios_simulation(
    folder: Path, *, operators: int = 200, layers: int = 14, edges: int = 400, p: float = 0.8, seed: int = 0
) -> tuple[Path, Path]:
    """Write graph.json and costs.json of one instance of HIOS section V-A.

    Times are uniform in 0.1 to 4 ms, utilizations uniform in 0.6 to 1, a transfer takes max(0.1 ms, p * t(u)).
    Operators are spread evenly over layers; every operator but those of the first layer has a predecessor in the
    layer before, further edges join any two layers.
    """
    draw = random.Random(seed)
    layer = sorted(number * layers // operators for number in range(operators))
    members = [[number for number in range(operators) if layer[number] == rank] for rank in range(layers)]
    chosen = {(draw.choice(members[layer[target] - 1]), target) for target in range(operators) if layer[target] > 0}
    while len(chosen) < edges:
        source, target = sorted(draw.sample(range(operators), 2))
        if layer[source] < layer[target]:
            chosen.add((source, target))
    times = [draw.uniform(0.1, 4.0) for _ in range(operators)]
    graph = Graph(
        f"hios-simulation-{seed}",
        tuple(Operator(f"v{number}", "task") for number in range(operators)),
        tuple(Edge(f"v{source}", f"v{target}") for source, target in sorted(chosen)),
    )
    graph.write(folder / "graph.json")
    costs = {
        "operators": {
            f"v{number}": {"time_ms": times[number], "utilization": draw.uniform(0.6, 1.0)}
            for number in range(operators)
        },
        "transfers": [
            {"source": f"v{source}", "target": f"v{target}", "time_ms": max(0.1, p * times[source])}
            for source, target in sorted(chosen)
        ],
        "contention": {"kind": "blend", "alpha": 0.5},
    }
    artifacts.write(folder / "costs.json", "costs", costs)
    return folder / "graph.json", folder / "costs.json"
