"""TOP on a GPU of the paper, simulated with predicted costs, at saturation; and the goals for it.

    python benchmarks/top_goals.py FOLDER [--gpu NAME] [--load SHARE] [--seeds N] [--most H] [--objectives NAME ...]
                                   [--size small|default|paper] [--steps N] [--stage-steps N] [--tasks N]

FOLDER holds MODEL/graph.json of Inception-v3, ResNet-50 and SqueezeNet, as `hios extract` writes them. Their tasks
arrive periodically in the proportions 1 to 2 to 4 and together need ``--load`` times the GPU's time by work. With every
seed TOP is trained anew (launcher and stages), for each objective that the training keeps the best by; the other
policies, and its ablations with the first seed and objective, stand beside it, without a launcher of their own.

Printed is first what the objective ``fair`` aims at: the models' fair shares of the work, of which each gets an equal
part. Then means over the seeds so far, whenever something has been trained: completed tasks a second of all and of
each model, work done, Jain's index and the variance of the queues; of TOP also the least and the most. After every seed
follow the goals: more tasks a second than every policy for one model at a time, and than rounds, also than strict ones
could complete on an infinitely fast device, so that the margin over them is not their limit alone; a variance below
T = 2e5, and a Jain's index of 0.95.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import msgspec

from hios.files.text_tables import aligned
from hios.formats.config import TopStudy
from hios.formats.serving_result import ResultFile
from hios.formats.study import NEITHER, TOP
from hios.serving.measures import jain, variance
from hios.serving.scenario import Scenario
from hios.serving.simulate import simulate
from hios.serving.stage_times import fair_rates, least_work_s, least_works_s
from hios.serving.strict_rounds import strict_rounds_per_s
from hios.study.top_experiments import ABLATIONS, TopItself, at_rates, scenario_of_graphs

SHARES = {"inception_v3": 1, "resnet50": 2, "squeezenet": 4}
#: Policies for one model at a time, then rounds.
SINGLE, ROUNDS = ("sequential", "ios", "nimble", "opara"), ("pos-strict", "pos-relaxed")
#: Longest queue, in tasks: a variance of 2e5 is a backlog of 949 tasks in one of three.
QUEUE = 2000
MOST_VARIANCE, LEAST_JAIN = 2e5, 0.95


def saturated(folder: Path, gpu: str, load: float, tasks: int, most: int) -> Scenario:
    """The three networks at rates that need so many times the GPU's time, for so many tasks."""
    scenario = scenario_of_graphs(folder, gpu)
    work = sum(SHARES[model.label] * least_work_s(model, gpu=True) for model in scenario.models)
    rates = [SHARES[model.label] * load / work for model in scenario.models]
    given = at_rates(scenario, rates, tasks / sum(rates), launcher="open").with_top(most=most)
    models = tuple(
        dataclasses.replace(own, settings=msgspec.structs.replace(own.settings, queue=QUEUE)) for own in given.models
    )
    return dataclasses.replace(given, models=models)


def numbers(result: ResultFile) -> dict[str, float]:
    """What is printed of a result."""
    time_s = result.duration_s * result.repeats
    return {
        "tasks/s": result.done_per_s,
        **{f"{label}/s": own.completed / time_s for label, own in result.models.items()},
        "work %": 100 * result.work_share,
        "Jain": result.jain,
        "variance": result.queue_variance,
    }


def table(rows: dict[str, list[dict[str, float]]]) -> None:
    """Print means, and of what was trained the least and the most."""
    columns = list(next(iter(rows.values()))[0])
    lines = [("", *columns)]
    for name, found in rows.items():
        lines.append((name, *(f"{statistics.mean(row[key] for row in found):.4g}" for key in columns)))
        if len(found) > 1:
            ends = ((min(own), max(own)) for own in ([row[key] for row in found] for key in columns))
            lines.append(("", *(f"{least:.4g} to {most:.4g}" for least, most in ends)))
    print("\n".join(aligned(lines, "<>")), flush=True)


def aim(scenario: Scenario, rows: dict[str, list[dict[str, float]]]) -> None:
    """Print what the objective ``fair`` asks for: equal parts of the models' fair shares, with the work of `ios`."""
    rates = [model.rate for model in scenario.models]
    fair = fair_rates(scenario, rates)
    done = rows["ios"][0]["work %"] / 100
    part = done / sum(rate * work for rate, work in zip(fair, least_works_s(scenario), strict=True))
    served = [part * own / rate for own, rate in zip(fair, rates, strict=True)]
    shares = ", ".join(f"{model.label} {own:.0%}" for model, own in zip(scenario.models, served, strict=True))
    growth = [rate * (1 - own) for rate, own in zip(rates, served, strict=True)]
    spread = variance(growth) * scenario.duration_s**2 / 3  # its mean while queues grow steadily
    print(
        f"the aim of fair, with the work that ios does: {part * sum(fair):.4g} tasks/s; of its tasks each model gets "
        f"{shares}; Jain's index {jain(served):.3f}, variance {spread:.3g}",
        flush=True,
    )


def goals(name: str, rows: dict[str, list[dict[str, float]]], scenario: Scenario) -> None:
    """Print which goals TOP meets with every seed so far."""
    own, (strict, relaxed) = rows[name], (rows[policy][0]["tasks/s"] for policy in ROUNDS)
    least = min(row["tasks/s"] for row in own)
    best = max(SINGLE, key=lambda policy: rows[policy][0]["tasks/s"])
    limit = strict_rounds_per_s([model.rate for model in scenario.models])
    variance, jain = max(row["variance"] for row in own), min(row["Jain"] for row in own)
    single = rows[best][0]["tasks/s"]
    checks = (
        (least > single, f"{least:.4g} tasks/s at least, {least / single - 1:+.1%} beside {best}, the best for one"),
        (
            least > max(limit, strict, relaxed),
            f"{least / relaxed - 1:+.1%} over relaxed rounds, {least / strict - 1:+.1%} over strict ones, "
            f"{least / limit - 1:+.1%} over {limit:.4g}, which strict ones cannot pass",
        ),
        (variance < MOST_VARIANCE, f"variance {variance:.3g} at most (goal: below {MOST_VARIANCE:g})"),
        (jain >= LEAST_JAIN, f"Jain's index {jain:.3f} at least (goal: {LEAST_JAIN})"),
    )
    for met, text in checks:
        print(f"{name}, seeds {len(own)}: {'met' if met else 'MISSED'}: {text}", flush=True)


def main() -> None:
    """Train, simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", default="a100-pcie-40gb")
    parser.add_argument("--load", type=float, default=1.5)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--most", type=int, default=4)
    parser.add_argument("--objectives", nargs="+", default=["reward", "fair"])
    parser.add_argument("--size", choices=("small", "default", "paper"), default="small")
    parser.add_argument("--steps", type=int, help="default: those of the size")
    parser.add_argument("--stage-steps", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=6000)
    given = parser.parse_args()
    scenario = saturated(given.folder, given.gpu, given.load, given.tasks, given.most)
    rates = ", ".join(f"{model.label} {model.rate:.4g}/s" for model in scenario.models)
    print(f"{given.gpu}, load {given.load:g}: {rates}, for {scenario.duration_s:.3g} s; H = {given.most}", flush=True)
    rows = {policy: [numbers(simulate(scenario, policy))] for policy in (*SINGLE, *ROUNDS)}
    table(rows)
    aim(scenario, rows)
    study = TopStudy(steps=given.stage_steps, launcher_size=given.size, launcher_steps=given.steps)
    names = {objective: f"{TOP}, kept by {objective}" for objective in given.objectives}
    for seed in range(given.seeds):
        began = time.process_time()
        with TopItself(study, seed) as itself:
            for objective, name in names.items():
                own = dataclasses.replace(scenario, file=msgspec.structs.replace(scenario.file, objective=objective))
                for system in (TOP, *(() if NEITHER in rows else ABLATIONS)):
                    (found,) = itself.results(own, (system,)).values()
                    rows.setdefault(name if system == TOP else system, []).append(numbers(found))
                    print(f"seed {seed}: {time.process_time() - began:.0f} s of processor time", flush=True)
                    table(rows)
        for name in names.values():
            goals(name, rows, scenario)


if __name__ == "__main__":
    main()
