"""How fast schedules run on two cores, as ratios within one run of the pipeline, beside the goals of the project.

    python benchmarks/cpu_speed.py [RESULTS]

Runs the pipeline on cpu_speed.yaml (a quarter of an hour on an idle machine), or reads what an earlier run left in
RESULTS. Every ratio is of two medians of one session, in which all took turns. Goals: hios-lp on 2 devices over the
sequential schedule on one reaches a share of what independent copies of the network reach; it is faster than the best
of eager PyTorch with 2 threads and ONNX Runtime; predictions are right.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

CONFIG = Path(__file__).with_suffix(".yaml")
RESULTS = "results-cpu-speed"
ALGORITHM = "hios-lp-2"
#: Least share of the ceiling, by network.
SHARES = {"inception_v3": 0.68, "nasnet_large": 0.75, "randwire": 0.75}
#: Least speedup over the best other runtime, and largest median error of predictions beyond drift of the machine.
OVER_BEST, ERROR = 1.05, 0.10


def report(run: dict[str, Any]) -> list[float]:
    """Print the ratios of one network; returns the errors of all its predictions."""
    name, busy, (ceiling,) = run["graph"], run["platform"]["busy_share"], run["ceilings"]
    results = {result["label"]: result for result in run["results"]}
    ours, chosen = results[ALGORITHM], run["chosen"]
    latency, share = ours["latency_ms"]["median"], ours["share_of_ceiling"]
    others = {entry["name"]: entry["latency_ms"]["median"] for entry in run["references"] if entry["kind"] != "engine"}
    best = min(others, key=others.__getitem__)
    over = others[best] / latency
    print(f"{name}: cores {busy:.0%} busy with other work before")
    print(f"  ceiling: two independent copies are {ceiling['throughput_ratio']:.2f} times one")
    print(f"  {ALGORITHM}: {latency:.1f} ms, {ours['speedup']:.2f} times as fast as sequential on one device")
    print(f"    {share:.2f} of the ceiling{_goal(share, SHARES.get(name))}")
    print(f"    {over:.2f} times as fast as {best}, {others[best]:.1f} ms{_goal(over, OVER_BEST)}")
    chosen_ms = chosen["latency_ms"]["median"]
    print(f"  auto: {chosen['label']}, {chosen_ms:.1f} ms, {others[best] / chosen_ms:.2f} times as fast as {best}")
    for entry in run["references"]:
        print(f"    {entry['name']:<36}{entry['latency_ms']['median']:>9.2f} ms")
    for label, result in results.items():
        print(
            f"    {label:<36}{result['latency_ms']['median']:>9.2f} ms, predicted {result['predicted_ms']:>8.2f} ms "
            f"({result['prediction_error']:+.1%}{_beyond(result)})"
        )
    return [abs(result.get("error_beyond_drift", result["prediction_error"])) for result in results.values()]


def _beyond(result: dict[str, Any]) -> str:
    """Drift of the machine since it was profiled, and the error beyond it, where run.json has them."""
    if "drift" not in result:
        return ""
    return f"; drift {result['drift']['value'] - 1:+.1%}, error beyond it {result['error_beyond_drift']:+.1%}"


def _goal(ratio: float, goal: float | None) -> str:
    if goal is None:
        return ""
    return f" (goal {goal:g}: {'reached' if ratio >= goal else 'missed'})"


def main() -> None:
    """Run the pipeline unless results are given, and print all ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", default="", metavar="RESULTS")
    results = parser.parse_args().results
    if not results:
        subprocess.run(["snakemake", "--cores", "all", "--configfile", str(CONFIG)], check=True)  # noqa: S607
    runs = sorted(Path(results or RESULTS).glob("*/run.json"))
    if not runs:
        sys.exit(f"{results}: found no NETWORK/run.json; required: the results of a run with {CONFIG.name}")
    errors = [error for path in runs for error in report(json.loads(path.read_text(encoding="utf-8")))]
    median = statistics.median(errors)
    print(
        f"prediction error beyond drift over {len(runs)} networks and all algorithms: median {median:.1%} "
        f"(goal {ERROR:.0%}: {'reached' if median <= ERROR else 'missed'}), largest {max(errors):.1%}"
    )


if __name__ == "__main__":
    main()
