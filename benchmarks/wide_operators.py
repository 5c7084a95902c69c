"""How close schedules with operators on several devices come to a proven bound, on random graphs.

    python benchmarks/wide_operators.py search [--seeds N] [--moves N] [--p P] [--operators N]
    python benchmarks/wide_operators.py variants [--seeds N]

Graphs are those of HIOS's simulation (14 layers, twice as many edges as operators) with devices that an operator fills,
as cores are, and transfers of max(0.1 ms, P * t(u)). Times on 2, 4, 8 and 16 devices are synthetic, by a speed-up
model: Amdahl's law with a serial share uniform in 0 to 0.4, and Downey's model (1997) with an average parallelism
uniform in 1 to 16 and a variance uniform in 0 to 2. Everything is seeded; latencies are predictions.

search prints the latency of hios-opt over the bound that it proves, beside hios-wide, heft (one device an operator) and
every operator at its fastest, in sequence; and how far that bound is above the simple one. variants compares ways of
list scheduling from the literature on moldable tasks with the weights of hios-wide, as latency over the simple bound.
Medians and worst over seeds.
"""

from __future__ import annotations

import argparse
import random
import statistics
from collections.abc import Callable, Iterator

from comparison_problems import hios_simulation

from hios import Costs, Problem, lower_bound_ms, schedule, violations
from hios.core.evaluate import evaluate, latency_ms
from hios.schedulers.hios_wide import WEIGHTS, cpa_widths, hios_wide, list_schedule
from hios.schedulers.opt.annealing import fastest_in_sequence

WIDTHS = (2, 4, 8, 16)
DEVICES = (8, 16)


def amdahl(draw: random.Random) -> Callable[[int], float]:
    """Speed-up by Amdahl's law."""
    serial = draw.uniform(0.0, 0.4)
    return lambda width: 1 / (serial + (1 - serial) / width)


def downey(draw: random.Random) -> Callable[[int], float]:
    """Speed-up by Downey's model of parallel jobs (A model for speedup of parallel programs, 1997)."""
    most, variance = draw.uniform(1.0, 16.0), draw.uniform(0.0, 2.0)

    def low_variance(width: int) -> float:
        if width <= most:
            return most * width / (most + variance / 2 * (width - 1))
        if width <= 2 * most - 1:
            return most * width / (variance * (most - 0.5) + width * (1 - variance / 2))
        return most

    def high_variance(width: int) -> float:
        if width <= most + most * variance - variance:
            return width * most * (variance + 1) / (variance * (width + most - 1) + most)
        return most

    return low_variance if variance <= 1 else high_variance


MODELS = {"amdahl": amdahl, "downey": downey}


def instance(model: str, devices: int, seed: int, p: float, operators: int = 200) -> Problem:
    """A random problem with the times on ``devices``."""
    graph, costs = hios_simulation(operators=operators, edges=2 * operators, seed=seed, p=p)
    draw = random.Random(seed)
    for cost in costs["operators"].values():
        del cost["utilization"]
        speedup = MODELS[model](draw)
        cost["wide_ms"] = {str(width): cost["time_ms"] / max(1.0, speedup(width)) for width in WIDTHS}
    return Problem(graph, Costs.from_json(costs)).on(devices)


def variants(problem: Problem, devices: int) -> Iterator[tuple[str, float]]:
    """Name and latency of every way."""
    narrow = [1] * len(problem)
    yield "one device each", list_schedule(problem, devices, float("inf"), narrow).latency_ms
    yield "MHEFT (weight 0)", list_schedule(problem, devices, 0.0, narrow).latency_ms
    for name, per_level in (("CPA", False), ("MCPA", True)):
        widths = cpa_widths(problem, devices, per_level=per_level)
        yield name, list_schedule(problem, devices, 0.0, widths, fixed=True).latency_ms
    for weight in WEIGHTS:
        yield f"weight {weight:g}", list_schedule(problem, devices, weight, narrow).latency_ms
    yield "hios-wide", latency_ms(evaluate(problem, hios_wide(problem, devices)))


def _over(values: list[float]) -> str:
    return f"{100 * (statistics.median(values) - 1):.1f} / {100 * (max(values) - 1):.1f}"


def compare(seeds: int) -> None:
    """Print how far every way is above the simple bound."""
    print(f"latency above the simple bound, median / worst of {seeds} graphs, %")
    heads = [(model, devices, p) for p in (0.1, 0.8) for model in MODELS for devices in DEVICES]
    columns = []
    for model, devices, p in heads:
        ratios: dict[str, list[float]] = {}
        for seed in range(seeds):
            problem = instance(model, devices, seed, p)
            for name, latency in variants(problem, devices):
                ratios.setdefault(name, []).append(latency / lower_bound_ms(problem, devices))
        columns.append(ratios)
    print(f"{'':<18}" + "".join(f" {f'{model} {devices}, p {p}':>16}" for model, devices, p in heads))
    for name in columns[0]:
        print(f"{name:<18}" + "".join(f" {_over(column[name]):>16}" for column in columns))


def search(seeds: int, moves: int, p: float, operators: int) -> None:
    """Print how far hios-opt and its starts are above the bound that it proves."""
    subject = f"{seeds} graphs of {operators} operators"
    print(f"latency above the proven bound, median / worst of {subject}, %; p {p}, {moves} moves of each chain")
    line = "{:<8} {:>7} {:>14} {:>14} {:>14} {:>14} {:>14}"
    print(line.format("model", "devices", "in sequence", "heft", "hios-wide", "hios-opt", "bound gained"))
    for model in MODELS:
        for devices in DEVICES:
            rows: list[tuple[float, ...]] = []
            for seed in range(seeds):
                problem = instance(model, devices, seed, p, operators)
                best = schedule(problem, "hios-opt", devices, {"time_limit": 1e6, "moves": moves, "seed": seed})
                if wrong := violations(problem, best):
                    raise SystemExit(f"hios-opt: invalid schedule: {wrong[0]}")
                bound = best.lower_bound_ms
                others = [schedule(problem, name, devices).latency_ms for name in ("heft", "hios-wide")]
                sequence = latency_ms(evaluate(problem, fastest_in_sequence(problem, devices)))
                values = (sequence, *others, best.latency_ms)
                rows.append((*(value / bound for value in values), bound / lower_bound_ms(problem, devices)))
            print(line.format(model, devices, *(_over(list(column)) for column in zip(*rows, strict=True))), flush=True)


def main() -> None:
    """Read the command line and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("search", "variants"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--moves", type=int, default=1_000_000)
    parser.add_argument("--p", type=float, default=0.1)
    parser.add_argument("--operators", type=int, default=200)
    given = parser.parse_args()
    if given.what == "search":
        search(given.seeds, given.moves, given.p, given.operators)
    else:
        compare(given.seeds)


if __name__ == "__main__":
    main()
