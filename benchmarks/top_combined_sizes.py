"""Figures 18 and 24 of TOP, predicted: throughput over the size of combined blocks, and over copies of a model.

    python benchmarks/top_combined_sizes.py [SCENARIO ...] [--load 8] [--most 6] [--copies 4]

Scenarios are those of examples/top, whose graphs and costs

    snakemake --cores all --configfile examples/top/config.yaml

makes first. Their rates are multiplied by the load, so that no system keeps up. All numbers are simulated with costs
predicted for a GPU; nothing runs on one.

The first table has the policy ``top`` with combined blocks of 1 to ``--most`` neighboring blocks (H). Throughput
counts as saturated at the least H that reaches 95 % of the best. ``search s`` is the time that stages and times of the
pipeline take. The second table has copies of each scenario's only model, which share its tasks: ``sequential`` runs one
task at a time, ``top`` combines the same block of all copies. The paper states no number for it.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from hios.errors import HiosError
from hios.serving.scenario import Scenario
from hios.serving.simulate import simulate
from hios.serving.stage_times import block_stages
from hios.study.published import published
from hios.study.verdicts import Comparison

EXAMPLES = [f"examples/top/{name}.yaml" for name in ("inception_v3", "resnet50", "squeezenet", "mix")]
#: Share of the best throughput from which on it counts as saturated.
SATURATED = 0.95


def changed(scenario: Scenario, **top: Any) -> Scenario:
    """The scenario with other settings of the pipeline."""
    file = msgspec.structs.replace(scenario.file, top=msgspec.structs.replace(scenario.file.top, **top))
    return dataclasses.replace(scenario, file=file)


def tasks_per_s(scenario: Scenario, policy: str) -> float:
    """Tasks that a policy completes in a second."""
    return simulate(scenario, policy).total.completed / (scenario.duration_s * scenario.file.repeats)


def saturation(by_size: Mapping[int, float]) -> int:
    """The least size that reaches nearly the best throughput."""
    best = max(by_size.values())
    return min(size for size, value in by_size.items() if value >= SATURATED * best)


def copies_of(scenario: Scenario, count: int) -> Scenario:
    """So many copies of the only model, which share its tasks, with the same block of all copies combined."""
    (model,) = scenario.models
    labels = [f"{model.label}-{number}" for number in range(count)]
    rate = model.rate / count
    models = tuple(dataclasses.replace(model, label=label, rate=rate) for label in labels)
    combined = tuple(dict.fromkeys(labels, (block,)) for block in range(len(model.blocks)))
    top = msgspec.structs.replace(scenario.file.top, combined=combined, most=None)
    entries = {label: msgspec.structs.replace(model.settings, rate=rate) for label in labels}
    file = msgspec.structs.replace(scenario.file, models=entries, top=top)
    return dataclasses.replace(scenario, file=file, models=models)


def print_sizes(scenarios: Mapping[str, Scenario], most: int) -> None:
    """Figure 18."""
    print("Figure 18: tasks completed in a second by top, predicted")
    print(f"{'scenario':14}{'H':>3}{'tasks/s':>9}{'over H = 1':>12}{'search s':>10}")
    found = {}
    for name, scenario in scenarios.items():
        rows = {}
        for size in range(1, most + 1):
            block_stages.cache_clear()
            began = time.perf_counter()
            given = changed(scenario, combined=(), most=size)
            pipeline_s = search_s(given, began)
            rows[size] = tasks_per_s(given, "top")
            print(f"{name:14}{size:3}{rows[size]:9.1f}{100 * (rows[size] / rows[1] - 1):+11.1f} %{pipeline_s:10.2f}")
        found[name] = saturation(rows)
    for name, size in found.items():
        statement = published("top_fig18")["saturation"]
        compared = Comparison(statement, {"A100": float(size)})
        print(f"{name}: saturates at H = {size}; the paper, on an A100: {statement.numbers['A100']:g}", end="")
        print(f" -> {compared.verdict.value}")


def search_s(scenario: Scenario, began: float) -> float:
    """Seconds since a moment until the pipeline of top is made."""
    from hios.serving.policies import policy

    policy("top").make(scenario)
    return time.perf_counter() - began


def print_copies(scenarios: Mapping[str, Scenario], most: int) -> None:
    """Figure 24."""
    print("\nFigure 24: tasks completed in a second by copies of a model, predicted")
    print(f"{'scenario':14}{'copies':>7}{'sequential':>12}{'top':>9}{'over one copy':>15}")
    for name, scenario in scenarios.items():
        if len(scenario.models) > 1:
            continue
        first = None
        for count in range(1, most + 1):
            given = copies_of(scenario, count)
            plain, top = tasks_per_s(given, "sequential"), tasks_per_s(given, "top")
            first = first or top
            print(f"{name:14}{count:7}{plain:12.1f}{top:9.1f}{100 * (top / first - 1):+13.1f} %")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description="Figures 18 and 24 of TOP, predicted.")
    parser.add_argument("scenarios", nargs="*", default=EXAMPLES)
    parser.add_argument("--load", type=float, default=8.0)
    parser.add_argument("--most", type=int, default=6, help="largest H")
    parser.add_argument("--copies", type=int, default=4)
    options = parser.parse_args()
    try:
        scenarios = {Path(path).stem: Scenario.read(path, load=options.load) for path in options.scenarios}
    except HiosError as error:
        sys.exit(f"{error}\nmake it with: snakemake --cores all --configfile examples/top/config.yaml")
    print_sizes(scenarios, options.most)
    print_copies(scenarios, options.copies)


if __name__ == "__main__":
    main()
