"""What segments change for lanes: latency and capacity of one server by operators and one by segments.

    python benchmarks/serving_engines.py SCENARIO [--policy one-per-lane] [--rounds 6] [--seconds 1]

Both servers run on the same cores and take turns, so drift of the machine hits both alike; the one that has nothing to
do sleeps. For each model of SCENARIO are printed the median latency of calls one after another, and the calls answered
in a second while two for each lane are under way, each the median of the rounds, with the median of the ratios.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import FIRST_COMPLETED, wait

from torch import Tensor

from hios.frontends.example_inputs import example_inputs
from hios.serving.scenario import Scenario
from hios.serving.server import Server

_ENGINES = ("operators", "segments")


def latency_ms(server: Server, label: str, inputs: list[Tensor], seconds: float) -> float:
    """Median of calls one after another."""
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until or not taken:
        server.infer(label, inputs, timeout_s=600)
        taken.append(time.perf_counter() - began)
    return 1e3 * statistics.median(taken)


def per_second(server: Server, label: str, inputs: list[Tensor], seconds: float) -> float:
    """Calls answered while two for each lane are under way."""
    began, answered = time.perf_counter(), 0
    pending = {server.submit(label, inputs) for _ in range(2 * server.lanes_up)}
    while time.perf_counter() < began + seconds:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        answered += sum(call.exception() is None for call in done)
        pending |= {server.submit(label, inputs) for _ in done}
    taken = time.perf_counter() - began
    wait(pending)
    return answered / taken


def main() -> None:
    """Measure in turns, and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("scenario")
    parser.add_argument("--policy", default="one-per-lane")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement (default: 1)")
    chosen = parser.parse_args()
    given = Scenario.read(chosen.scenario)
    scenarios = [given.with_settings(engine=kind) for kind in _ENGINES]
    with Server(scenarios[0], chosen.policy) as first, Server(scenarios[1], chosen.policy) as second:
        for model in given.models:
            inputs = list(example_inputs(model.problem.graph.inputs, 0))
            for what, measure in (("latency, ms", latency_ms), ("answers/s", per_second)):
                rounds = [
                    [measure(server, model.label, inputs, chosen.seconds) for server in (first, second)]
                    for _ in range(chosen.rounds + 1)
                ][1:]  # the first one warms up
                by_operators, by_segments = map(statistics.median, zip(*rounds, strict=True))
                ratio = statistics.median(own[1] / own[0] for own in rounds)
                print(
                    f"{model.label}, {chosen.policy}: {what} {by_operators:.2f} by operators, {by_segments:.2f} by "
                    f"segments, ratio {ratio:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
