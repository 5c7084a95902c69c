"""Figure 13 of TOP: stages of combined blocks by GPG against those of IOS's dynamic programming, on predicted costs.

    python benchmarks/top_figure_13.py FOLDER [--gpu NAME] [--steps N] [--seed N] [--samples N] [--most TRANSITIONS]

FOLDER keeps the graphs of SqueezeNet, Inception-v3, ResNet-50 and GoogLeNet (224 x 224, extracted first where they are
missing, half a minute each) and the policy, which is trained on the first two. Costs are predicted for a GPU, by
default the paper's A100, so latencies are the same on every machine; seconds are not. Combinations of 1 to 4 blocks
are drawn at random, of the networks that the policy was trained on and of the two others. Dynamic programming (``ios``
without merges) runs where it has at most so many transitions (S, S'), by the product formula.

Columns: mean latency over that of dynamic programming, where that ran, and over the sequential one; mean time.
``gpg`` is with its defaults and the policy, ``1 pass`` the paper's single pass, ``not learned`` gpg without weights,
which is a random search of equal size, ``1 pass, not learned`` one that always takes the last ending, and
``1 pass, untrained`` one of the network before training. Each is timed after a first call that is not counted.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hios
from hios import Graph, Problem, schedule
from hios.problem import Stage
from hios.schedulers.gpg import chooser
from hios.schedulers.policy.combining import ModelBlock, combined_problem, model_blocks
from hios.schedulers.policy.network import initial_weights
from hios.schedulers.policy.passes import index_of
from hios.schedulers.policy.policy_file import write_policy
from hios.schedulers.policy.training import Settings, train
from hios.study.top_learning import SUB_BLOCKS, R, S, transitions

SEEN, UNSEEN = ("squeezenet", "inception_v3"), ("resnet50", "googlenet")
IMAGE_SIZE = 224
#: What choosing a stage may take.
CHOICE_MS = 5.0


def problems(folder: Path, gpu: str) -> dict[str, Problem]:
    """The networks with their predicted costs."""
    found = {}
    for network in (*SEEN, *UNSEEN):
        place = folder / network
        if not (place / "graph.json").exists():
            print(f"extracting {network}", file=sys.stderr)
            place.mkdir(parents=True, exist_ok=True)
            command = [sys.executable, "-m", "hios"]
            program, graph, weights = place / "program.pt2", place / "graph.json", place / "weights.safetensors"
            size = ["--image-size", str(IMAGE_SIZE)]
            subprocess.run([*command, "export", network, *size, "--output", str(program)], check=True)
            files = ["--output", str(graph), "--weights", str(weights)]
            subprocess.run([*command, "extract", str(program), "--name", network, *files], check=True)
        graph_read = Graph.read(place / "graph.json")
        found[network] = Problem(graph_read, hios.profile(graph_read, platform="model", options={"gpu": gpu}))
    return found


@dataclass
class Row:
    """Latencies and times of one way to schedule, by combination."""

    latency: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def run(self, problem: Problem, algorithm: str, **parameters: float | str) -> None:
        """Schedule a combination."""
        found = schedule(problem, algorithm, parameters=parameters)
        self.latency.append(found.latency_ms)
        self.seconds.append(found.scheduling_time_s)

    def skip(self) -> None:
        """Leave a combination out."""
        self.latency.append(math.nan)
        self.seconds.append(math.nan)


def compared(
    blocks: Sequence[ModelBlock], count: int, samples: int, most: int, policies: Mapping[str, Path], seed: int
) -> None:
    """Print the rows of one number of sub-blocks."""
    chance = random.Random(seed * 100 + count)
    names = ("sequential", "ios", "gpg", "1 pass", "not learned", "1 pass, not learned", "1 pass, untrained")
    rows = {name: Row() for name in names}
    for _ in range(samples):
        chosen = chance.sample(blocks, min(count, len(blocks)))
        problem = combined_problem(chosen)
        rows["sequential"].run(problem, "sequential")
        if transitions(chosen) <= most:
            rows["ios"].run(problem, "ios", mode="parallel", states=10**9)
        else:
            rows["ios"].skip()
        trained, untrained = str(policies["trained"]), str(policies["untrained"])
        rows["gpg"].run(problem, "gpg", weights=trained)
        rows["1 pass"].run(problem, "gpg", weights=trained, passes=1)
        rows["not learned"].run(problem, "gpg")
        rows["1 pass, not learned"].run(problem, "gpg", passes=1)
        rows["1 pass, untrained"].run(problem, "gpg", weights=untrained, passes=1)
    with_dp = [number for number, latency in enumerate(rows["ios"].latency) if not math.isnan(latency)]
    for name in names[1:] if with_dp else names[2:]:
        _print_row(name, count, rows, with_dp)


def _print_row(name: str, count: int, rows: Mapping[str, Row], with_dp: Sequence[int]) -> None:
    row = rows[name]
    every = with_dp if name == "ios" else range(len(row.latency))
    over_dp = [row.latency[k] / rows["ios"].latency[k] for k in with_dp]
    over_sequential = [row.latency[k] / rows["sequential"].latency[k] for k in every]
    faster = sum(rows["ios"].seconds[k] for k in with_dp) / sum(row.seconds[k] for k in with_dp) if with_dp else 0.0
    median = statistics.median(rows["ios"].seconds[k] / row.seconds[k] for k in with_dp) if with_dp else 0.0
    print(
        f"{count:>10}  {name:<20} {len(every):>5} {len(with_dp):>5}"
        f" {statistics.mean(over_dp) if with_dp else math.nan:>8.4f} {statistics.mean(over_sequential):>8.4f}"
        f" {max(over_sequential):>8.4f} {1e3 * statistics.mean(row.seconds[k] for k in every):>10.1f}"
        f" {faster:>8.1f} {median:>8.1f}",
        flush=True,
    )


def choices(blocks: Sequence[ModelBlock], policy: Path, samples: int, seed: int) -> None:
    """Print how long choosing a stage takes, and in how many operators neighboring endings differ."""
    print("\nchoosing a stage: embedding of the leaves, mu, counting and finding the ending; nothing kept from before")
    print("sub-blocks  steps  most endings  mean ms   max ms  target ms  operators in which neighbors differ")
    for count in SUB_BLOCKS:
        chance = random.Random(seed * 100 + count)
        times: list[float] = []
        differences: list[int] = []
        most = 0
        for _ in range(samples):
            problem = combined_problem(chance.sample(blocks, count))
            (state,), action = chooser(problem, R, S, str(policy))
            while state.count:
                most = max(most, state.count)
                began = time.perf_counter()
                ending = state.ending(index_of(action(state), state.count))
                times.append(time.perf_counter() - began)
                if state.count > 1:
                    place = chance.randrange(state.count - 1)
                    near = [set(_operators(state.ending(k).stage)) for k in (place, place + 1)]
                    differences.append(len(near[0] ^ near[1]))
                state = ending.left
        print(
            f"{count:>10} {len(times):>6} {most:>13} {1e3 * statistics.mean(times):>8.3f} {1e3 * max(times):>8.3f}"
            f" {CHOICE_MS:>10.1f} {statistics.mean(differences):>8.2f}"
        )


def _operators(stage: Stage) -> list[int]:
    return [v for group in stage for v in group]


def main() -> None:
    """Train, and print a table for the networks that were trained on and one for those that were not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", default="a100-pcie-40gb")
    parser.add_argument("--steps", type=int, default=Settings.steps)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=int, default=20)
    parser.add_argument("--most", type=int, default=1_000_000)
    given = parser.parse_args()
    found = problems(given.folder, given.gpu)
    print(
        f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f} at the start; costs predicted for {given.gpu}"
    )
    policies = {name: given.folder / f"{name}.safetensors" for name in ("trained", "untrained")}
    settings = Settings(steps=given.steps, seed=given.seed)
    began = time.perf_counter()
    trained = train({name: found[name] for name in SEEN}, settings)
    print(f"trained on {', '.join(SEEN)}: {given.steps} steps in {time.perf_counter() - began:.0f} s (target 300 s)")
    print("share of the sequential latency:", ", ".join(f"{step}: {share:.4f}" for step, share in trained.curve))
    write_policy(policies["trained"], trained.weights, trained.facts)
    write_policy(policies["untrained"], initial_weights(given.seed), {})
    warm = combined_problem(model_blocks(SEEN[0], found[SEEN[0]])[:2])
    for weights in ("", *map(str, policies.values())):
        schedule(warm, "gpg", parameters={"weights": weights})
    for networks in (SEEN, UNSEEN):
        print(f"\nblocks of {' and '.join(networks)}{'' if networks is SEEN else ', which the policy has not seen'}")
        print("sub-blocks  way                      n    dp  over dp over seq  largest    mean ms  dp/mean dp/median")
        blocks = [block for name in networks for block in model_blocks(name, found[name])]
        for count in SUB_BLOCKS:
            compared(blocks, count, given.samples, given.most, policies, given.seed)
    seen = [block for name in SEEN for block in model_blocks(name, found[name])]
    choices(seen, policies["trained"], given.samples, given.seed)


if __name__ == "__main__":
    main()
