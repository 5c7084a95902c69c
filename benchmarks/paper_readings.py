"""What two readings of the HIOS paper are worth: Line 12 of Algorithm 1, and Line 11 of Algorithm 2.

    python benchmarks/paper_readings.py [--seeds N]

Line 12 of Algorithm 1 places operators "at the earliest available start time": after those placed before, or also in
idle gaps between them (hios schedule --fill-gaps). Line 11 of Algorithm 2 keeps every grouping without a cycle in G,
whether it lowers the latency or not; hios keeps one only if it does. Instances are those of HIOS's simulation (section
V-A), with 200 operators in 14 layers as there and with 40 in 7, and twice as many edges. Nothing is timed: the figures
are the same on every machine.
"""

from __future__ import annotations

import argparse
import statistics

from comparison_problems import Instance, hios_simulation, problem

from hios import HiosError, Problem
from hios.core.evaluate import staged_times
from hios.core.problem import Stage, priority_order
from hios.core.schedule import StagedPlan
from hios.schedulers.hios_lp import map_longest_paths
from hios.schedulers.parallelize import parallelize

#: Operators, and layers that they stand in.
SIZES = ((40, 7), (200, 14))
DEVICES = (2, 4, 8)
WINDOW = 2


def latency(subject: Problem, rows: list[list[Stage]]) -> float | None:
    """Latency of stages at their earliest start, in milliseconds; None where they form a cycle."""
    try:
        return max(finish for _, finish, _, _ in staged_times(subject, StagedPlan(tuple(map(tuple, rows)))))
    except HiosError:
        return None


def by_the_printed_line_11(subject: Problem, plan: StagedPlan, window: int) -> StagedPlan:
    """Algorithm 2 with Line 11 as printed: groupings stay in G from window to window, improved or not.

    An operator that the schedule Q has grouped starts no window, as in Fig. 5. A window that takes in operators which G
    has grouped with others is merged with those.
    """
    sequences = [[operator for stage in row for group in stage for operator in group] for row in plan.devices]
    grouped = [list(row) for row in plan.devices]  # G
    best = [list(row) for row in plan.devices]  # Q
    least = possible_latency(subject, plan)
    for operator in priority_order(subject):
        device = next(number for number, sequence in enumerate(sequences) if operator in sequence)
        if not any(stage == ((operator,),) for stage in best[device]):
            continue
        place = sequences[device].index(operator)
        for size in range(2, window + 1):
            members = set(sequences[device][place : place + size])
            touched = [k for k, stage in enumerate(grouped[device]) if members & {v for group in stage for v in group}]
            if len(members) < size or len(touched) < 2:
                continue
            merged = tuple(group for k in touched for group in grouped[device][k])
            candidate = list(grouped)
            candidate[device] = [*grouped[device][: touched[0]], merged, *grouped[device][touched[-1] + 1 :]]
            latency_ms = latency(subject, candidate)
            if latency_ms is None:
                continue
            grouped = candidate
            if latency_ms < least:
                least, best = latency_ms, candidate
    return StagedPlan(tuple(map(tuple, best)))


def main() -> None:
    """Print a line for each reading and number of devices."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=30, help="instances for each number of devices (30)")
    seeds = parser.parse_args().seeds
    print(f"{seeds} instances a line; ratios are means of latency over latency\n")
    print(f"{'reading':<44} {'operators':>9} {'devices':>7} {'plans that differ':>18} {'latency ratio':>14}")
    for operators, layers in SIZES:
        for devices in DEVICES:
            compared = [
                readings(hios_simulation(operators=operators, layers=layers, edges=2 * operators, seed=seed), devices)
                for seed in range(seeds)
            ]
            for reading in compared[0]:
                pairs = [latencies[reading] for latencies in compared]
                differing = f"{sum(ours != other for ours, other, _ in pairs)} of {len(pairs)}"
                ratio = statistics.mean(ratio for _, _, ratio in pairs)
                print(f"{reading:<44} {operators:>9} {devices:>7} {differing:>18} {ratio:>14.4f}")


def readings(instance: Instance, devices: int) -> dict[str, tuple[StagedPlan, StagedPlan, float]]:
    """By reading the plan of hios, the other plan, and the latency of this over that of the first."""
    subject = problem(instance).on(devices)
    plain = map_longest_paths(subject, devices)
    gaps = map_longest_paths(subject, devices, fill_gaps=True)
    kept = parallelize(subject, plain, WINDOW)
    pairs = {
        "Algorithm 1, Line 12: fill gaps over not": (plain, gaps),
        "both algorithms: fill gaps over not": (kept, parallelize(subject, gaps, WINDOW)),
        "Algorithm 2, Line 11: printed over hios": (kept, by_the_printed_line_11(subject, plain, WINDOW)),
    }
    return {
        reading: (ours, other, possible_latency(subject, other) / possible_latency(subject, ours))
        for reading, (ours, other) in pairs.items()
    }


def possible_latency(subject: Problem, plan: StagedPlan) -> float:
    """Latency of a plan that can run, in milliseconds."""
    latency_ms = latency(subject, [list(row) for row in plan.devices])
    if latency_ms is None:
        raise SystemExit("found a plan that deadlocks")
    return latency_ms


if __name__ == "__main__":
    main()
