"""``hios train``: what is learned on the models of a scenario: stages (algorithm gpg), or a launcher."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hios.cli.options import PATH, output_option, refuse_overwriting

if TYPE_CHECKING:
    from hios.problem import Problem
    from hios.schedulers.policy.training import StageTime
    from hios.serving.launcher.launcher_settings import LauncherSettings
    from hios.serving.scenario import Scenario


@click.command("train")
@click.argument("files", metavar="SCENARIO | GRAPH COSTS [GRAPH COSTS]...", type=PATH, nargs=-1, required=True)
@output_option("policy.safetensors")
@click.option(
    "--learn",
    type=click.Choice(["stages", "launcher"]),
    default="stages",
    show_default=True,
    help="Stages of blocks, for the algorithm gpg; or a launcher of tasks with combined blocks, for a scenario served.",
)
@click.option(
    "--steps", type=click.IntRange(1), help="Training steps; default: 6000 for stages, by --size for a launcher."
)
@click.option(
    "--size",
    type=click.Choice(["small", "default", "paper"]),
    default="default",
    show_default=True,
    help="Amount of training of a launcher.",
)
@click.option("--set", "changes", metavar="NAME=VALUE", multiple=True, help="Another setting of a launcher's training.")
@click.option("--as-printed", is_flag=True, help="Train a launcher by Algorithm 1 of TOP as it is printed.")
@click.option("--load", type=float, default=1.0, show_default=True, help="Factor for the rates of a scenario.")
@click.option(
    "--calibration",
    type=PATH,
    help="calibration.json that `hios load --calibrate` wrote: trains a launcher for this machine.",
)
@click.option(
    "--sub-blocks",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="Largest number of blocks in a combination.",
)
@click.option(
    "--r", type=click.IntRange(1), default=3, show_default=True, help="Largest number of operators in a group."
)
@click.option("--s", type=click.IntRange(1), default=8, show_default=True, help="Largest number of groups in a stage.")
@click.option(
    "--reward",
    type=click.Choice(["relative", "paper"]),
    default="relative",
    show_default=True,
    help="Reward of a stage: minus its share of the sequential time, or exp(-ms).",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random numbers.")
def command(
    files: tuple[Path, ...],
    output: Path,
    learn: str,
    steps: int | None,
    size: str,
    changes: tuple[str, ...],
    as_printed: bool,
    load: float,
    calibration: Path | None,
    sub_blocks: int,
    r: int,
    s: int,
    reward: str,
    seed: int,
) -> None:
    """Train a policy for the algorithm gpg on random combinations of the blocks of some models, or a launcher.

    The models are those of SCENARIO, a scenario.yaml; or each is given by its GRAPH and its COSTS. `hios schedule
    --algorithm gpg --weights policy.safetensors` uses the policy, for these models and others.

    With `--learn launcher`, agents learn in the simulator how fast tasks of SCENARIO leave their queues, and which
    blocks run together. `hios simulate SCENARIO --policy learned --weights policy.safetensors` uses what they learned.
    """
    # The matrices are small: several threads gain little, and lose much where other programs use the cores. And with
    # one thread, sums are added up in the same order on every number of cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from hios.artifacts import require_writable

    if learn == "launcher":
        from hios.cli.files import scenario_of
        from hios.serving.launcher.launcher_settings import AS_PRINTED, settings_of

        if len(files) > 1:
            raise click.UsageError(f"found {len(files)} files; allowed: with --learn launcher, a scenario alone")
        refuse_overwriting([*files, calibration], [output])
        require_writable(output)
        scenario = scenario_of(files[0], load, calibration=calibration)
        own = scenario.folder / scenario.file.top.weights  # training again replaces it
        refuse_overwriting([file for file in scenario.files if file != own], [output])
        printed = AS_PRINTED if as_printed else {}
        launcher_settings = settings_of(size, _changes(changes), **printed, steps=steps, seed=seed)
        _train_launcher(scenario, output, launcher_settings)
        return
    if calibration is not None:
        raise click.UsageError("--calibration: found without --learn launcher; allowed: with it")
    from hios.schedulers.policy.policy_file import write_policy
    from hios.schedulers.policy.training import TrainingSettings, train

    if len(files) > 1 and len(files) % 2:
        raise click.UsageError(
            f"found {len(files)} files; allowed: a scenario alone, or a graph and its costs for each model, in turns"
        )
    refuse_overwriting(files, [output])
    require_writable(output)
    problems, stage_time, read = _problems(files)
    refuse_overwriting(read, [output])
    count = 6000 if steps is None else steps

    def progress(step: int, share: float | None) -> None:
        if share is not None:
            click.echo(f"step {step} of {count}: {share:.4f} of the sequential latency", err=True)

    settings = TrainingSettings(steps=count, seed=seed, most=sub_blocks, r=r, s=s, reward=reward)
    trained = train(problems, settings, progress, stage_time)
    write_policy(output, trained.weights, trained.facts)
    step, share = min(trained.curve, key=lambda point: point[1])
    click.echo(
        f"{output}: {share:.4f} of the sequential latency in the mean of random combinations, after {step} of {count} "
        "steps"
    )


def _changes(texts: Sequence[str]) -> dict[str, str]:
    """Values by name, of texts NAME=VALUE."""
    changes = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--set: found {text}; allowed: NAME=VALUE")
        changes[name] = value
    return changes


def _train_launcher(scenario: Scenario, output: Path, settings: LauncherSettings) -> None:
    """Train a launcher on a scenario, and say what it is good for."""
    from hios.serving.launcher.launcher_training import train_launcher

    def progress(step: int, goodput: float | None) -> None:
        if goodput is not None:
            click.echo(f"step {step} of {settings.steps}: goodput {goodput:.4g} tasks/s", err=True)

    launcher = train_launcher(scenario, settings, progress)
    launcher.write(output)
    for policy, by, goodput, mean_ms in launcher.facts["candidates"]:
        mean = "-" if mean_ms is None else f"{mean_ms:.4g}"
        click.echo(f"{policy}, launcher {by}: goodput {goodput:.4g} tasks/s, mean latency {mean} ms")
    click.echo(f"{output}: on held-out traces the best policy is {launcher.facts['deployed']}")


def _problems(files: Sequence[Path]) -> tuple[dict[str, Problem], StageTime | None, list[Path]]:
    """The models of a scenario by label, with times of stages on its lanes; or of graphs and costs in turns by name.

    The last are all files that they come from.
    """
    from hios.errors import HiosError
    from hios.problem import Problem

    if len(files) == 1:
        from hios.serving.scenario import Scenario
        from hios.serving.top_pipeline import stages_to_learn

        scenario = Scenario.read(files[0])
        own = scenario.folder / scenario.file.top.stage_policy  # training again replaces it
        return *stages_to_learn(scenario), [*files, *(file for file in scenario.files if file != own)]
    problems: dict[str, Problem] = {}
    for graph, costs in zip(files[::2], files[1::2], strict=True):
        problem = Problem.read(graph, costs)
        name = problem.graph.name or str(graph)
        if name in problems:
            raise HiosError(f"{graph}: name: found {name}, as in another graph; allowed: each model once")
        problems[name] = problem
    return problems, None, list(files)
