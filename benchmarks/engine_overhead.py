"""What the engine costs beyond the operators and segments that it runs.

    python benchmarks/engine_overhead.py [MODEL] [RUNS] [--engine operators|segments]

By operators, the sequential schedule on one device and eager PyTorch with one thread take turns in one session (see
hios.runtime.session), so drift of the machine hits both alike.

By segments, schedules of hios-lp for two devices run. Printed are the predicted and the measured latency, and what the
measured one is beyond the sum of its longest chain of segments, as they took in the same run; the goal is 30 us, and 10
us for each segment. Then the costs that the run measured are fed back, and give the next schedule, until the prediction
is within 3 %, for three rounds at most. MODEL may also be a network of many_branches.py.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from many_branches import NETWORKS, Branches
from msgspec.structs import replace

import hios
from hios.core.costs import TransferCost
from hios.core.feedback import CLOSE, fed_back
from hios.frontends.program import Program

_ROUNDS = 3
_GOAL_US, _EACH_US = 30, 10


def _program(model: str) -> Program:
    """Of a network of many_branches.py, or of hios."""
    if model not in NETWORKS:
        return hios.export(model)
    torch.manual_seed(0)
    layers, shape = NETWORKS[model]
    return Program(torch.export.export(Branches(layers).eval(), (torch.randn(shape),)), name=model)


def by_operators(model: str, runs: int) -> None:
    """Print both medians, the ratio of the medians, and the median of the ratios of each round."""
    program = _program(model)
    graph, weights = hios.extract(program)
    free = hios.Costs(
        {operator.id: 0.0 for operator in graph.operators}, {(e.source, e.target): 0.0 for e in graph.edges}
    )
    schedule = hios.schedule(hios.Problem(graph, free), "sequential")
    run = hios.execute(graph, weights, schedule, program=program, runs=runs)
    engine, (eager,) = run.baseline.latency_ms, run.references
    rounds = [a / b for a, b in zip(engine.runs, eager.latency_ms.runs, strict=True)]
    print(f"{model}, {runs} runs, load average at the start {run.platform.load_average}")
    for label, latency in (("engine, sequential, 1 device", engine), (eager.name, eager.latency_ms)):
        print(f"  {label:<30} {latency.median:8.2f} ms  (p20 {latency.p20:.2f}, p80 {latency.p80:.2f})")
    print(f"  ratio of the medians           {engine.median / eager.latency_ms.median:8.3f}")
    print(f"  median ratio of a round        {statistics.median(rounds):8.3f}")


def by_segments(model: str, runs: int) -> None:
    """Print predictions, latencies and what they are beyond the longest chain, as costs are fed back."""
    program = _program(model)
    graph, weights = hios.extract(program)
    costs = hios.profile(graph, devices=2, repeats=3, stages_of=(), budget_s=10)
    for number in range(1 + _ROUNDS):
        schedule = hios.schedule(hios.Problem(graph, costs), "hios-lp", 2)
        run = hios.execute(graph, weights, schedule, program=program, runs=runs, engine="segments", timeout_s=600)
        (result,) = run.results
        costs = fed_back(costs, graph, [result.measured])
        instant = tuple(TransferCost(source=edge.source, target=edge.target, time_ms=0.0) for edge in graph.edges)
        problem = hios.Problem(graph, replace(costs, transfers=instant))
        chain_ms = max(row.finish_ms for row in hios.evaluate(problem, schedule.plan(graph)))
        typical = min(result.latency_ms.runs, key=lambda latency: abs(latency - result.latency_ms.median))
        count, error = len(result.segments or ()), result.prediction_error
        beyond_us, allowed_us = 1e3 * (typical - chain_ms), _GOAL_US + _EACH_US * count
        print(
            f"{model}, round {number}: predicted {result.predicted_ms:.3f} ms, measured {typical:.3f} ms (median of "
            f"{runs} runs; p20 {result.latency_ms.p20:.3f}), error {error:+.1%}; {count} segments, longest chain "
            f"{chain_ms:.3f} ms, {beyond_us:.0f} us beyond it (goal {allowed_us} us); load average "
            f"{run.platform.load_average}",
            flush=True,
        )
        if abs(error) <= CLOSE:
            break


def main() -> None:
    """Measure one of both."""
    parser = argparse.ArgumentParser(
        description="What the engine costs beyond the operators and segments that it runs."
    )
    parser.add_argument("model", nargs="?", default="inception_v3", help="of hios, or of many_branches.py")
    parser.add_argument("runs", nargs="?", type=int, default=36, help="runs of each schedule (default: 36)")
    parser.add_argument("--engine", choices=("operators", "segments"), default="operators", help="what devices run")
    given = parser.parse_args()
    (by_segments if given.engine == "segments" else by_operators)(given.model, given.runs)


if __name__ == "__main__":
    main()
