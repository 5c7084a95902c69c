"""Experiments of TOP that train first: GPG (figures 13, 19 and 21) and the launcher (figures 19 and 22)."""

from __future__ import annotations

import dataclasses
import functools
import gc
import math
import random
import statistics
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from hios.core.costs import CostsFile
from hios.core.problem import Problem
from hios.errors import HiosError, suggestion
from hios.files.artifacts import load
from hios.formats.config import TopStudy
from hios.formats.settings import TrainingSettings
from hios.formats.study import (
    CURVE,
    DP,
    GPG,
    GPG_ONE_PASS,
    GPG_STEP,
    LAST_ENDING,
    LAUNCHER_STEP,
    NOT_LEARNED,
    RANDOM_SEARCH,
    Experiment,
    TopPoint,
    TopStudyFile,
)
from hios.machine.statistics import Laps
from hios.schedulers import schedule
from hios.schedulers.gpg import chooser
from hios.schedulers.ios_search import SearchedBlock, block_space
from hios.schedulers.policy.endings import ModelBlock, combined_problem, index_of, model_blocks
from hios.schedulers.policy.network import write_policy
from hios.schedulers.policy.training import train
from hios.serving.scenario import Scenario
from hios.serving.simulate import HELD_OUT
from hios.study.top_experiments import GPU_ONLY, LEAST_STEP_S, SIMULATED, Experimenting, overloaded

if TYPE_CHECKING:
    from hios.serving.launcher.launcher_settings import LauncherSettings
    from hios.serving.launcher.online_launcher import OnlineLauncher

#: Pruning of stages, as in the paper; sub-blocks of a combination up to the paper's H of its server.
R, S, SUB_BLOCKS = 3, 8, (1, 2, 3, 4)
#: Decisions of a launcher that are timed.
_INFERENCES = 101


def transitions(blocks: Sequence[ModelBlock]) -> int:
    """Pairs (S, S') of the combined block, as long as s does not bind: prod(T + N) - prod(N)."""
    spaces = [
        block_space(SearchedBlock.of(b.operators, [[u for u, _ in row] for row in b.problem.predecessors]), R, S)
        for b in blocks
    ]
    states = math.prod(space.states for space in spaces)
    return math.prod(space.transitions + space.states for space in spaces) - states


def gpg(
    scenarios: Mapping[str, Scenario], study: TopStudy, gpu: str, *, train_on: Collection[str] = ()
) -> Iterator[TopPoint]:
    """Figures 13, 19, 21: a policy is trained on the models of all scenarios, then compared with dynamic programming.

    Seconds are those of this machine. Dynamic programming runs where it has at most ``study.transitions`` transitions;
    every combination counts for it and for the others alike, or for none of them. ``latency over sequential, all`` is
    of all combinations.

    ``train_on`` has labels of models to train on, all if empty; the rest, which the policy has not seen, is compared by
    itself. Costs are those of the scenarios, on whatever GPU.

    Raises:
        HiosError: ``train_on`` names a model that no scenario has, or two scenarios have different models of one label.
    """
    problems: dict[str, Problem] = {}
    for scenario in scenarios.values():
        for model in scenario.models:
            if problems.setdefault(model.label, model.problem).time != model.problem.time:
                raise HiosError(
                    f"{scenario.source}: found the model {model.label} with other costs than before; allowed: a label "
                    "for each model"
                )
    for name in train_on:
        if name not in problems:
            raise HiosError(f"--train-on: found {name}{suggestion(name, problems)}; allowed: {', '.join(problems)}")
    seen = {name: problem for name, problem in problems.items() if not train_on or name in train_on}
    unseen = {name: problem for name, problem in problems.items() if name not in seen}
    laps = Laps()
    trained = train(seen, TrainingSettings(steps=study.steps, r=R, s=S), laps=laps)
    yield TopPoint("+".join(seen), len(seen), GPG_STEP, float(study.steps), _step_ms(laps, study.steps))
    for step, share in trained.curve:
        yield TopPoint("+".join(seen), len(seen), CURVE, float(step), {"latency over sequential": share})
    with tempfile.TemporaryDirectory() as folder:
        policy = str(Path(folder) / "policy.safetensors")
        write_policy(policy, trained.weights, trained.facts)
        for models in filter(None, (seen, unseen)):
            blocks = [block for name, problem in models.items() for block in model_blocks(name, problem)]
            for number in SUB_BLOCKS:
                if number <= len(blocks):
                    yield from _compared("+".join(models), len(models), blocks, number, study, policy)


def _compared(
    label: str, models: int, blocks: Sequence[ModelBlock], number: int, study: TopStudy, policy: str
) -> Iterator[TopPoint]:
    """Latency and time of stages for random combinations of a number of blocks, each way timed by itself."""
    chance = random.Random(number)
    drawn = [chance.sample(blocks, number) for _ in range(study.samples)]
    searchable = [transitions(chosen) <= study.transitions for chosen in drawn]
    ways: dict[str, tuple[str, dict[str, float | str]]] = {
        DP: ("ios", {"mode": "parallel", "states": 10**9}),
        GPG: ("gpg", {"weights": policy}),
        GPG_ONE_PASS: ("gpg", {"weights": policy, "passes": 1}),
        NOT_LEARNED: ("gpg", {}),
        LAST_ENDING: ("gpg", {"passes": 1}),
    }
    # Loads code and weights, which is not timed.
    first = combined_problem(drawn[0])
    easiest = combined_problem(min(drawn, key=transitions))
    for way, (algorithm, parameters) in ways.items():
        if way != DP or any(searchable):
            schedule(easiest if way == DP else first, algorithm, parameters=parameters)
    for way, (algorithm, parameters) in ways.items():
        shares, seconds = [], []
        for chosen, taken in zip(drawn, searchable, strict=True):
            if way == DP and not taken:
                continue
            problem = combined_problem(chosen)
            gc.collect()  # what dynamic programming leaves behind would be collected in the time of the next way
            made = schedule(problem, algorithm, parameters=parameters)
            shares.append((made.latency_ms / (sum(problem.time) or 1.0), taken))
            seconds.append((made.scheduling_time_s, taken))
        values = {"combinations": float(sum(searchable)), "combinations drawn": float(len(drawn))}
        if any(searchable):
            values["latency over sequential"] = statistics.mean(share for share, taken in shares if taken)
            values["search ms"] = 1e3 * statistics.mean(time_s for time_s, taken in seconds if taken)
        if way != DP:
            values["latency over sequential, all"] = statistics.mean(share for share, _ in shares)
        if way == GPG_ONE_PASS:
            values |= _choices([combined_problem(chosen) for chosen in drawn], policy)
        if way != DP or any(searchable):
            yield TopPoint(label, models, way, float(number), values)


def _choices(problems: Sequence[Problem], policy: str) -> dict[str, float]:
    """Milliseconds of choosing a stage, with nothing kept from before, and in how many operators neighbors differ."""
    times_ms: list[float] = []
    differences: list[int] = []
    chance = random.Random(len(problems))
    for problem in problems:
        (state,), action = chooser(problem, R, S, policy)
        while state.count:
            began = time.perf_counter()
            ending = state.ending(index_of(action(state), state.count))
            times_ms.append(1e3 * (time.perf_counter() - began))
            if state.count > 1:
                place = chance.randrange(state.count - 1)
                one, other = ({v for group in state.ending(k).stage for v in group} for k in (place, place + 1))
                differences.append(len(one ^ other))
            state = ending.left
    return {
        "stage choice ms": statistics.mean(times_ms),
        "longest stage choice ms": max(times_ms),
        "operators in which neighboring endings differ": statistics.mean(differences or [0]),
    }


def launcher(scenarios: Mapping[str, Scenario], study: TopStudy, gpu: str) -> Iterator[TopPoint]:
    """Figures 19 and 22: learning curves of the launcher, in the simulator; random search and all policies beside them.

    The launcher learns at the rates of the scenario, and where the device is overloaded: at rates that every system
    keeps up with, goodput is what arrives, and its curve is flat. With several seeds, points are means over them, and
    those of what learns also have the least and the largest number.
    """
    from hios.serving.launcher.launcher_settings import settings_of

    settings = settings_of(study.launcher_size, {}, steps=study.launcher_steps)
    for label, scenario in scenarios.items():
        if len(scenario.models) == 1:
            continue
        heavy = overloaded(scenario)
        # As many tasks in a step as at the rates of the scenario.
        factor = sum(model.rate for model in scenario.models) / sum(model.rate for model in heavy.models)
        shorter = dataclasses.replace(settings, step_s=max(LEAST_STEP_S, settings.step_s * min(1.0, factor)))
        for name, given, own in ((label, scenario, settings), (f"{label}, overloaded", heavy, shorter)):
            seeds = [dataclasses.replace(own, seed=seed) for seed in range(study.launcher_seeds)]
            yield from _learned(name, given, seeds)


def _learned(label: str, scenario: Scenario, seeds: Sequence[LauncherSettings]) -> Iterator[TopPoint]:
    """Goodput over the steps of training, on traces that judge; then that of all systems, on held-out traces."""
    from hios.serving.launcher.online_launcher import OnlineLauncher
    from hios.serving.launcher.training import Judge, random_search, train_launcher

    curve: dict[int, list[float]] = {}
    goodputs: dict[str, list[float]] = {}
    laps = Laps()
    for settings in seeds:
        trained = train_launcher(scenario, settings, laps=laps)
        for step, goodput in trained.curve:
            curve.setdefault(step, []).append(goodput)
        ends: dict[str, float] = {}
        for entry in trained.facts["candidates"]:  # best first, if there are several launchers
            ends.setdefault(entry["policy"], entry["goodput_per_s"])
        drawn, _ = random_search(scenario, settings, Judge(scenario, settings))
        ends[RANDOM_SEARCH] = Judge(scenario, settings, HELD_OUT).static(drawn).goodput_per_s
        for system, goodput in ends.items():
            goodputs.setdefault(system, []).append(goodput)
    models, steps = len(scenario.models), float(seeds[0].steps)
    step_ms = _step_ms(laps, len(seeds) * seeds[0].steps) | {
        "inference ms": _inference_ms(OnlineLauncher(scenario, trained))
    }
    yield TopPoint(label, models, LAUNCHER_STEP, steps, step_ms)
    for step, values in curve.items():
        yield TopPoint(label, models, CURVE, float(step), _over_seeds(values))
    for system, values in goodputs.items():
        yield TopPoint(label, models, system, steps, _over_seeds(values))


def _step_ms(laps: Laps, steps: int) -> dict[str, float]:
    """Milliseconds of the parts of a step of training, means; of an update, over the steps that have one."""
    counts = {name: laps.counts[name] if name == "update" else steps for name in laps.seconds}
    return {f"{name} ms": 1e3 * seconds / counts[name] for name, seconds in laps.seconds.items()}


def _inference_ms(launcher: OnlineLauncher) -> float:
    """Milliseconds in which a launcher decides, the median."""
    times_s = []
    for _ in range(_INFERENCES):
        began = time.perf_counter()
        launcher.first()
        times_s.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times_s)


def _over_seeds(goodputs: Sequence[float]) -> dict[str, float]:
    """Mean goodput a second over seeds, and its range where they differ."""
    values = {"goodput per s": statistics.mean(goodputs)}
    if min(goodputs) < max(goodputs):
        values |= {"least goodput per s": min(goodputs), "largest goodput per s": max(goodputs)}
    return values


EXPERIMENTS: dict[str, Experimenting] = {**SIMULATED, "gpg": gpg, "launcher": launcher}


def run(
    experiment: Experiment,
    scenarios: Mapping[str, Scenario],
    study: TopStudy,
    gpu: str = "",
    *,
    train_on: Collection[str] = (),
) -> TopStudyFile:
    """The points of an experiment on scenarios by label; its device is a GPU only if all costs are those of GPUs.

    ``gpu`` is the one that costs of batches, and of folders of graphs, are predicted for; ``train_on`` has the models
    to train on in the experiment gpg, all if empty, and the others are compared as unseen ones.

    Raises:
        HiosError: a scenario lacks what the experiment needs.
    """
    if train_on and experiment != "gpg":
        raise HiosError(f"--train-on: found with experiment {experiment}; allowed: with gpg")
    began = time.process_time()
    carry_out = functools.partial(gpg, train_on=train_on) if experiment == "gpg" else EXPERIMENTS[experiment]
    # What the paper trains for.
    paper = {
        label: dataclasses.replace(own, file=msgspec.structs.replace(own.file, objective="reward"))
        for label, own in scenarios.items()
    }
    points = tuple(carry_out(paper, study, gpu))
    used = [scenario for scenario in scenarios.values() if scenario.gpu or experiment not in GPU_ONLY]
    device: Literal["gpu", "lanes"] = "gpu" if used and all(scenario.gpu for scenario in used) else "lanes"
    return TopStudyFile(experiment, device, points, time.process_time() - began, _gpu_of(experiment, used, gpu))


def _gpu_of(experiment: Experiment, scenarios: Collection[Scenario], gpu: str) -> str | None:
    """The GPU that all points are of; None if they are of cores or of several GPUs."""
    if experiment in GPU_ONLY:  # costs are predicted anew: for this GPU, or for several
        return gpu if experiment == "batches" else None
    gpus: set[str | None] = set()
    for scenario in scenarios:
        if Path(scenario.source).is_dir():  # a folder of graphs, whose costs are predicted
            gpus.add(gpu)
            continue
        for model in scenario.models:
            platform = load(scenario.folder / model.settings.costs, CostsFile).platform
            gpus.add(None if platform is None else platform.gpu or platform.hardware)
    return gpus.pop() if len(gpus) == 1 and all(scenario.gpu for scenario in scenarios) else None
