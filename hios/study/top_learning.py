"""Experiments of TOP that train first: GPG (figures 13 and 21) and the launcher (figure 22)."""

from __future__ import annotations

import math
import random
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from hios.artifacts import load
from hios.formats.config_file import TopStudy
from hios.formats.costs_file import CostsFile
from hios.formats.top_study_file import CURVE, DP, GPG, GPG_ONE_PASS, Experiment, TopPoint, TopStudyFile
from hios.problem import Problem
from hios.schedulers import schedule
from hios.schedulers.ios_space import Block, block_space
from hios.schedulers.policy.combining import ModelBlock, combined_problem, model_blocks
from hios.schedulers.policy.policy_file import write_policy
from hios.schedulers.policy.training import Settings, train
from hios.serving.scenario import Scenario
from hios.study.top_experiments import SIMULATED, Experimenting

#: Pruning of stages, as in the paper; sub-blocks of a combination up to the paper's H of its server.
R, S, SUB_BLOCKS = 3, 8, (1, 2, 3, 4)


def transitions(blocks: Sequence[ModelBlock]) -> int:
    """Pairs (S, S') of the combined block, as long as s does not bind: prod(T + N) - prod(N)."""
    spaces = [
        block_space(Block.of(b.operators, [[u for u, _ in row] for row in b.problem.predecessors]), R, S)
        for b in blocks
    ]
    states = math.prod(space.states for space in spaces)
    return math.prod(space.transitions + space.states for space in spaces) - states


def gpg(scenarios: Mapping[str, Scenario], study: TopStudy, gpu: str) -> Iterator[TopPoint]:
    """Figures 13 and 21: a policy is trained on the models of all scenarios, then compared with dynamic programming.

    Seconds are those of this machine. Dynamic programming runs where it has at most ``study.transitions`` transitions;
    every combination counts for it and for GPG alike, or for neither.
    """
    problems: dict[str, Problem] = {}
    for scenario in scenarios.values():
        problems |= {model.label: model.problem for model in scenario.models}
    label, count = "+".join(problems), len(problems)
    trained = train(problems, Settings(steps=study.steps, r=R, s=S))
    for step, share in trained.curve:
        yield TopPoint(label, count, CURVE, float(step), {"latency over sequential": share})
    blocks = [block for name, problem in problems.items() for block in model_blocks(name, problem)]
    with tempfile.TemporaryDirectory() as folder:
        policy = str(Path(folder) / "policy.safetensors")
        write_policy(policy, trained.weights, trained.facts)
        for number in SUB_BLOCKS:
            if number <= len(blocks):
                yield from _compared(label, count, blocks, number, study, policy)


def _compared(
    label: str, models: int, blocks: Sequence[ModelBlock], number: int, study: TopStudy, policy: str
) -> Iterator[TopPoint]:
    """Latency and time of stages for random combinations of a number of blocks."""
    chance = random.Random(number)
    drawn = [chance.sample(blocks, number) for _ in range(study.samples)]
    taken = [chosen for chosen in drawn if transitions(chosen) <= study.transitions]
    found: dict[str, list[tuple[float, float]]] = {DP: [], GPG: [], GPG_ONE_PASS: []}
    for chosen in taken:
        problem = combined_problem(chosen)
        alone = sum(problem.time) or 1.0
        ways: dict[str, tuple[str, dict[str, float | str]]] = {
            DP: ("ios", {"mode": "parallel", "states": 10**9}),
            GPG: ("gpg", {"weights": policy}),
            GPG_ONE_PASS: ("gpg", {"weights": policy, "passes": 1}),
        }
        for way, (algorithm, parameters) in ways.items():
            made = schedule(problem, algorithm, parameters=parameters)
            found[way].append((made.latency_ms / alone, made.scheduling_time_s))
    for way, entries in found.items():
        if entries:
            values = {
                "latency over sequential": statistics.mean(share for share, _ in entries),
                "search ms": 1e3 * statistics.mean(seconds for _, seconds in entries),
                "combinations": float(len(entries)),
                "combinations drawn": float(len(drawn)),
            }
            yield TopPoint(label, models, way, float(number), values)


def launcher(scenarios: Mapping[str, Scenario], study: TopStudy, gpu: str) -> Iterator[TopPoint]:
    """Figure 22: learning curves of the launcher, in the simulator; the best policy without learning beside them."""
    from hios.serving.launcher.launcher_settings import settings_of
    from hios.serving.launcher.launcher_training import train_launcher

    for label, scenario in scenarios.items():
        if len(scenario.models) == 1:
            continue
        trained = train_launcher(scenario, settings_of("small", {}, steps=study.launcher_steps))
        for step, goodput in trained.curve:
            yield TopPoint(label, len(scenario.models), CURVE, float(step), {"goodput per s": goodput})
        for name, goodput, _ in trained.facts["candidates"]:
            values = {"goodput per s": goodput}
            yield TopPoint(label, len(scenario.models), name, float(trained.settings.steps), values)


EXPERIMENTS: dict[str, Experimenting] = {**SIMULATED, "gpg": gpg, "launcher": launcher}


def run(experiment: Experiment, scenarios: Mapping[str, Scenario], study: TopStudy, gpu: str = "") -> TopStudyFile:
    """Carry out an experiment.

    Args:
        experiment: its name.
        scenarios: by label.
        study: what is varied.
        gpu: GPU that costs of batches are predicted for, one of `hios profile --gpu`.

    Raises:
        HiosError: a scenario lacks what the experiment needs.
    """
    began = time.process_time()
    points = tuple(EXPERIMENTS[experiment](scenarios, study, gpu))
    device: Literal["gpu", "lanes"] = "gpu" if any(scenario.gpu for scenario in scenarios.values()) else "lanes"
    return TopStudyFile(experiment, device, points, time.process_time() - began, _gpu_of(scenarios.values()))


def _gpu_of(scenarios: Collection[Scenario]) -> str | None:
    """The GPU that all costs are of; None if they are of cores or of several GPUs."""
    gpus = set()
    for scenario in scenarios:
        for model in scenario.models:
            platform = load(scenario.folder / model.settings.costs, CostsFile).platform
            gpus.add(None if platform is None else platform.gpu or platform.hardware)
    return gpus.pop() if len(gpus) == 1 and all(scenario.gpu for scenario in scenarios) else None
