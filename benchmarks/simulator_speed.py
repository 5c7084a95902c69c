"""Time of a million simulated block runs, by the simulator compiled and as it is.

    python benchmarks/simulator_speed.py [RUNS]

Three models with the blocks of Inception-v3, ResNet-50 and SqueezeNet at 30, 60 and 120 tasks a second (TOP, table II)
under the policy top, every block a combined block of its own, at 0.8 of the capacity of one lane. Times of blocks are
made up: the simulation takes as long whatever they are. Without numba a tenth is simulated.
"""

from __future__ import annotations

import argparse
import random
import time
from array import array

from hios.serving.pipeline import Pipeline, QueueRules
from hios.serving.scenario import Trace
from hios.serving.simulator import Simulation

#: Blocks and tasks a second.
MODELS = ((13, 30.0), (5, 60.0), (12, 120.0))
LOAD = 0.8
PER_SECOND = sum(blocks * rate for blocks, rate in MODELS)


def tasks(duration_s: float) -> Trace:
    """Poisson arrivals of all models."""
    draw, rows = random.Random(0), []
    for model, (_, rate) in enumerate(MODELS):
        now = draw.expovariate(rate)
        while now < duration_s:
            rows.append((now, model))
            now += draw.expovariate(rate)
    rows.sort()
    return Trace(array("d", (now for now, _ in rows)), array("q", (model for _, model in rows)))


def main() -> None:
    """Print a line for each simulator."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="?", type=int, default=1_000_000, metavar="RUNS")
    runs = parser.parse_args().runs
    combined = tuple(((model, block),) for model, (count, _) in enumerate(MODELS) for block in range(count))
    times = tuple(((0.0,), (LOAD / PER_SECOND,)) for _ in combined)
    pipeline = Pipeline(1, tuple(blocks for blocks, _ in MODELS), combined, times, times, "all")
    queues = [QueueRules(256) for _ in MODELS]
    Simulation(pipeline, queues, tasks(1.0), 1.0, compiled=True).run()
    for name, share in (("compiled", 1.0), ("plain Python", 0.1)):
        duration_s = runs * share / PER_SECOND
        trace = tasks(duration_s)
        began = time.process_time()
        simulation = Simulation(pipeline, queues, trace, duration_s, compiled=name == "compiled")
        simulation.run_to(duration_s)
        done = simulation.runs
        took = time.process_time() - began
        print(f"{name}: {done} block runs in {took:.2f} s of processor time, {took / done * 1e6:.2f} s for a million")


if __name__ == "__main__":
    main()
