"""Where the time of a schedule on several devices goes, from the results of a run of the pipeline.

    python benchmarks/where_time_goes.py RESULTS [SCHEDULE ...]

For every network in RESULTS and every schedule named (hios-lp-2 if none): what bounds it (all work shared evenly, the
longest path), what devices did with their time, as measured in its typical run, and what two threads inside operators
give by type of operator, where `auto` chose those and left their times.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hios

SCHEDULES = ("hios-lp-2",)


def lines(folder: Path, schedules: Sequence[str]) -> Iterator[str]:
    """Lines on one network."""
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    problem = hios.Problem.read(folder / "graph.json", folder / "costs.json")
    results = {result["label"]: result for result in run["results"]}
    sequential = run["baseline"]["latency_ms"]["median"]
    work = sum(problem.time)
    yield f"{run['graph']}: sequential on one device {sequential:.1f} ms; t(v) of all operators {work:.1f} ms"
    for label in schedules:
        if label in results:
            yield from _schedule(results[label], problem, folder)
    if (chosen := folder / "auto.json").exists():
        yield from _threads(results["sequential-1"], json.loads(chosen.read_text(encoding="utf-8")), problem.graph)


def _schedule(result: Mapping[str, Any], problem: hios.Problem, folder: Path) -> Iterator[str]:
    devices, latency = result["devices"], result["latency_ms"]["median"]
    factor = hios.Costs.read(folder / "costs.json").corun_factor(devices)
    problem = problem.on(devices)
    path = _longest_path(problem)
    drift = f"; the machine drifted by {result['drift']['value'] - 1:+.1%} in between" if "drift" in result else ""
    yield f"  {result['label']}: {latency:.1f} ms, predicted {result['predicted_ms']:.1f} ms{drift}"
    yield (
        f"    bounds, with a co-run factor of {factor:.3f}: work shared evenly "
        f"{sum(problem.time) / devices:.1f} ms, longest path {path:.1f} ms"
    )
    home = {row["operator"]: row["device"] for row in result["measured"]}
    for device in range(devices):
        rows = [row for row in result["measured"] if row["device"] == device]
        pauses = _pauses(rows)
        busy = max(row["finish_ms"] for row in rows) - sum(pauses)
        expected = sum(problem.time[problem.graph.index[row["operator"]]] for row in rows)
        yield (
            f"    device {device}: {len(rows)} operators, {busy:.1f} ms busy (their t(v) {expected:.1f} ms), "
            f"{latency - busy:.1f} ms not: the longest pauses {', '.join(f'{pause:.2f}' for pause in pauses[:3])} ms"
        )
    crossing = [edge for edge in problem.graph.edges if home[edge.source] != home[edge.target]]
    values = {edge.source: edge.bytes or 0 for edge in crossing}
    yield f"    {len(values)} values transferred, {sum(values.values()) / 1e6:.1f} MB"


def _longest_path(problem: hios.Problem) -> float:
    """Milliseconds of the longest path, transfers left out."""
    finish = [0.0] * len(problem)
    for operator in problem.order:
        begin = max((finish[before] for before, _ in problem.predecessors[operator]), default=0.0)
        finish[operator] = begin + problem.time[operator]
    return max(finish)


def _pauses(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Times in which nothing ran on a device before its last operator had finished, longest first."""
    end, gaps = 0.0, []
    for row in sorted(rows, key=lambda row: row["start_ms"]):
        gaps.append(max(0.0, row["start_ms"] - end))
        end = max(end, row["finish_ms"])
    return sorted(gaps, reverse=True)


def _threads(sequential: Mapping[str, Any], chosen: Mapping[str, Any], graph: hios.Graph) -> Iterator[str]:
    """What threads inside operators give, where the chosen schedule is the sequential one with several cores."""
    if chosen["algorithm"] != "sequential" or "cores" not in chosen.get("notes", {}).get("auto", ""):
        return
    took: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
    for place, rows in enumerate((sequential["measured"], chosen["placements"])):
        for row in rows:
            took[graph.operators[graph.index[row["operator"]]].type][place] += row["finish_ms"] - row["start_ms"]
    for operator in graph.operators:
        took[operator.type][2] += 1
    yield "  threads inside operators, by type: number, ms with one, ms with all, ratio"
    for kind, (one, several, count) in sorted(took.items(), key=lambda entry: -entry[1][0]):
        yield f"    {kind:<24}{count:>5}{one:>9.2f}{several:>9.2f}{one / several:>7.2f}"


def main() -> None:
    """Print the lines of all networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, metavar="RESULTS")
    parser.add_argument("schedules", nargs="*", default=SCHEDULES, metavar="SCHEDULE")
    given = parser.parse_args()
    folders = sorted(path.parent for path in given.results.glob("*/run.json"))
    if not folders:
        sys.exit(f"{given.results}: found no NETWORK/run.json; required: the results of the pipeline")
    for folder in folders:
        print("\n".join(lines(folder, given.schedules)))


if __name__ == "__main__":
    main()
