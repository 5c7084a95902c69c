"""What operators on two devices at once gain on real networks, measured end to end.

    python benchmarks/wide_gain.py [--networks NAME ...] [--folder FOLDER]

Profiles each network with ``--widths 2``, schedules it three times and runs the schedules in one session, where they
take turns: hios-opt with every operator on one device ("narrow": from costs without times on several devices), and
hios-wide and hios-opt with widths and merges. The engine's sequential schedule with both cores inside every operator
takes part as well ("all wide"). Prints the medians, and how many times as fast as the better of narrow and all wide
hios-opt is with widths. Goals: never below 0.99, at least 1.04 on two of six networks. Six networks take about 25
minutes on two cores; exported networks stay in the folder, if one is given, for the next run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from networks import extracted, hios

NETWORKS = ("inception_v3", "squeezenet", "googlenet", "resnet50", "randwire", "nasnet_large")
#: Label of each schedule, its algorithm, and whether operators may take several devices.
SCHEDULES = {"narrow": ("hios-opt", False), "hios-wide": ("hios-wide", True), "hios-opt": ("hios-opt", True)}
ALL_WIDE = "all wide"
#: Least ratio on every network; least ratio to be reached on so many of them.
LEAST, GAIN, NETWORKS_THAT_GAIN = 0.99, 1.04, 2
#: Seconds of a profile and of a search, least repeats of measurements, and runs of every schedule.
BUDGET_S, SEARCH_S, REPEATS, RUNS = 90, 10, 10, 36


def without_widths(costs: dict[str, Any]) -> dict[str, Any]:
    """Costs without times on several devices, of operators and of merges."""

    def narrow(entry: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in entry.items() if key != "wide_ms"}

    return {
        **costs,
        "operators": {name: narrow(entry) for name, entry in costs["operators"].items()},
        "merges": [narrow(entry) for entry in costs.get("merges", [])],
    }


def measured(network: str, folder: Path) -> dict[str, Any]:
    """Profile, schedule and run a network; returns run.json."""
    graph, weights = extracted(network, folder)
    costs = {wide: folder / f"costs-{'wide' if wide else 'narrow'}.json" for wide in (True, False)}
    effort = ("--budget", BUDGET_S, "--repeats", REPEATS, "--no-cache")
    hios("profile", graph, "--devices", 2, "--widths", 2, *effort, "--output", costs[True])
    costs[False].write_text(json.dumps(without_widths(json.loads(costs[True].read_text(encoding="utf-8")))))
    schedules = []
    for label, (algorithm, wide) in SCHEDULES.items():
        schedules.append(folder / f"{label}.json")
        limit = ("--time-limit", SEARCH_S) if algorithm == "hios-opt" else ()
        chosen = ("--algorithm", algorithm, "--devices", 2, *limit)
        hios("schedule", graph, costs[wide], *chosen, "--output", schedules[-1])
    hios("execute", graph, weights, *schedules, "--devices", 2, "--runs", RUNS, "--output", folder / "run.json")
    run: dict[str, Any] = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    return run


def report(network: str, run: dict[str, Any]) -> float:
    """Print the medians; returns the speedup of hios-opt with widths over the better of narrow and all wide."""
    results = {result["label"]: result for result in run["results"]}
    (all_wide_ms,) = (entry["latency_ms"]["median"] for entry in run["references"] if entry["kind"] == "engine")
    print(f"{network}: cores {run['platform'].get('busy_share', 0):.0%} busy with other work before")
    print(f"  {ALL_WIDE:<12}{all_wide_ms:>9.2f} ms")
    for label in SCHEDULES:
        result = results[label]
        print(f"  {label:<12}{result['latency_ms']['median']:>9.2f} ms, predicted {result['predicted_ms']:.2f} ms")
    better_ms = min(all_wide_ms, results["narrow"]["latency_ms"]["median"])
    ratio: float = better_ms / results["hios-opt"]["latency_ms"]["median"]
    print(f"  hios-opt with widths is {ratio:.3f} times as fast as the better of narrow and all wide", flush=True)
    return ratio


def main() -> None:
    """Measure all networks and print how they stand to the goals."""
    parser = argparse.ArgumentParser(description="What operators on two devices at once gain on real networks.")
    parser.add_argument("--networks", nargs="+", default=NETWORKS)
    parser.add_argument("--folder", type=Path, help="where networks, costs and runs stay; default: nowhere")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = given.folder or Path(name)
        ratios = {network: report(network, measured(network, folder / network)) for network in given.networks}
    gain = [network for network, ratio in ratios.items() if ratio >= GAIN]
    least = min(ratios, key=ratios.__getitem__)
    print(
        f"least: {least}, {ratios[least]:.3f} (goal {LEAST}: {'reached' if ratios[least] >= LEAST else 'missed'}); "
        f"at least {GAIN} on {len(gain)} of {len(ratios)} networks "
        f"(goal {NETWORKS_THAT_GAIN}: {'reached' if len(gain) >= NETWORKS_THAT_GAIN else 'missed'})"
    )


if __name__ == "__main__":
    main()
