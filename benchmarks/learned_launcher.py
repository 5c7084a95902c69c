"""The learned launcher of TOP against random search and all policies that need no learning, in the simulator.

    python benchmarks/learned_launcher.py [--scenario FILE] [--models 2|3] [--size small|default|paper] [--seeds N]
                                          [--loads SHARE ...] [--duration S] [--set NAME=VALUE ...] [--as-printed]
                                          [--objective fair|throughput|reward]

Without a scenario: SqueezeNet and Inception-v3 (and ResNet-50) at 4 to 1 (to 2) tasks, with 12, 13 (and 5) blocks, on
two lanes, Poisson arrivals. Times of operators are made up (`synthetic_costs`), so only the seconds depend
on the machine. A load of 1 keeps both lanes busy; a task is in time within five times its sequential time.

For every load, first the learning curves: goodput of the launcher on the traces that judge, over steps, one row for
each seed; beside them what random search finds with as many steps, and the best policy without learning on these
traces. Then goodput and mean latency on held-out traces, of every policy; those of learned launchers as the mean over
the seeds and their range, and what would be deployed; and the best policy with the launcher water-filling.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

os.environ.setdefault("OMP_NUM_THREADS", "1")

import msgspec
from networks import inception_v3, resnet50, squeezenet, synthetic_costs

from hios import Problem
from hios.formats.scenario import ModelOfScenario, Objective, ScenarioFile
from hios.serving.launcher.launcher_settings import AS_PRINTED, SIZES, LauncherSettings, settings_of
from hios.serving.launcher.training import JUDGING, Judge, random_search, train_launcher
from hios.serving.policies import LEARNED, LEARNED_STATIC
from hios.serving.scenario import Scenario, ServedModel, pipeline_blocks
from hios.serving.simulate import compare, outcomes_of

LANES = 2
#: Tasks in time within so many times the sequential time.
SLACK = 5.0
NETWORKS = ((squeezenet, 4), (inception_v3, 1), (resnet50, 2))


def made_up(models: int, load: float, duration_s: float) -> Scenario:
    """Networks of the papers with made-up times, at a share of what the lanes can do."""
    parts = []
    for network, share in NETWORKS[:models]:
        graph = network()
        costs = synthetic_costs(graph)
        # Values are handed over within a machine: a tenth of a millisecond.
        costs = replace(costs, transfers=dict.fromkeys(costs.transfers, 0.1))
        parts.append((graph, costs, share, sum(costs.time_ms.values()) / 1e3))
    unit = load * LANES / sum(share * work for *_, share, work in parts)
    served = []
    for graph, costs, share, work in parts:
        entry = ModelOfScenario(graph="graph.json", costs="costs.json", rate=share * unit, slo_ms=SLACK * work * 1e3)
        blocks = pipeline_blocks(graph)
        ids = tuple(tuple(graph.operators[v].id for v in block) for block in blocks)
        problem = Problem(replace(graph, blocks=ids), costs)
        served.append(ServedModel(graph.name, entry, problem, costs, blocks, share * unit))
    file = ScenarioFile(models={own.label: own.settings for own in served}, duration_s=duration_s, lanes=LANES)
    return Scenario(file, tuple(served), load=load, source="made up")


def changed(scenario: Scenario, **values: Any) -> Scenario:
    """The scenario with other values in its file, those that are given."""
    given = {name: value for name, value in values.items() if value is not None}
    return replace(scenario, file=msgspec.structs.replace(scenario.file, **given))


def curves(
    scenario: Scenario, settings: Sequence[LauncherSettings]
) -> list[tuple[str, dict[str, tuple[float, float]]]]:
    """Train with every seed and print the curves; what was deployed and all candidates, by seed."""
    rows = []
    for own in settings:
        began = time.perf_counter()
        launcher = train_launcher(scenario, own)
        took = time.perf_counter() - began
        _, drawn = random_search(scenario, own, Judge(scenario, own))
        points = " ".join(f"{step}:{value:.2f}" for step, value in launcher.curve)
        judged = launcher.facts["judged"]
        print(
            f"  seed {own.seed}: {points} | kept {judged['learned']:.2f}, static {judged['static']:.2f}, random search "
            f"{drawn.goodput_per_s:.2f} | superblocks {launcher.facts['superblocks']:.0%}, {took:.0f} s",
            flush=True,
        )
        candidates: dict[str, tuple[float, float]] = {}
        for entry in launcher.facts["candidates"]:  # best first, if there are several launchers
            candidates.setdefault(entry["policy"], (entry["goodput_per_s"], entry.get("mean_ms")))
        rows.append((launcher.facts["deployed"], candidates))
    ranking = compare(scenario, lambda name, by, _: outcomes_of(scenario, name, by, JUDGING))
    print(f"  best policy without learning: {ranking[0].policy} {ranking[0].goodput_per_s:.2f}")
    return rows


def table(rows: Sequence[tuple[str, dict[str, tuple[float, float]]]]) -> None:
    """Print goodput and mean latency of all policies on held-out traces."""
    print(f"  {'policy':<16} {'goodput/s':>10} {'mean ms':>9}   held-out traces")
    names = sorted(rows[0][1], key=lambda name: -rows[0][1][name][0])
    for name in names:
        goods = [by_policy[name][0] for _, by_policy in rows]
        means = [by_policy[name][1] for _, by_policy in rows if by_policy[name][1] is not None]
        mean = f"{statistics.mean(means):9.1f}" if means else f"{'-':>9}"
        over = f"   {min(goods):.2f} to {max(goods):.2f}" if name in (LEARNED, LEARNED_STATIC) else ""
        print(f"  {name:<16} {statistics.mean(goods):>10.2f} {mean}{over}")
    print(f"  deployed: {', '.join(chosen for chosen, _ in rows)}", flush=True)


def water_filling(scenario: Scenario) -> None:
    """Print the best policy without learning whose launcher shares the device evenly, on the same traces."""
    ranking = compare(scenario, functools.partial(outcomes_of, scenario), launcher="water-filling")
    print(f"  with launcher water-filling: {ranking[0].policy} {ranking[0].goodput_per_s:.2f}", flush=True)


def main() -> None:
    """Print curves and table of every load."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", type=Path)
    parser.add_argument("--models", type=int, choices=(2, 3), default=2)
    parser.add_argument("--size", choices=list(SIZES), default="default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.3, 0.5, 0.8, 1.2])
    parser.add_argument("--duration", type=float)
    parser.add_argument("--set", dest="changes", action="append", default=[])
    parser.add_argument("--as-printed", action="store_true")
    parser.add_argument("--objective", choices=get_args(Objective))
    options = parser.parse_args()
    changes = dict(text.split("=", 1) for text in options.changes)
    printed = AS_PRINTED if options.as_printed else {}
    settings = [settings_of(options.size, changes, **printed, seed=seed) for seed in range(options.seeds)]
    for load in options.loads:
        if options.scenario is None:
            scenario = made_up(options.models, load, options.duration or 60.0)
        else:
            scenario = changed(Scenario.read(options.scenario, load=load), duration_s=options.duration)
        scenario = changed(scenario, objective=options.objective)
        rates = ", ".join(f"{model.label} {model.rate:.3g}/s" for model in scenario.models)
        print(f"load {load:g}: {rates}", flush=True)
        table(curves(scenario, settings))
        water_filling(scenario)


if __name__ == "__main__":
    main()
