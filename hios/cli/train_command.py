"""``hios train``: the models of a scenario, or graphs and costs, to a policy of the algorithm gpg."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hios.cli.options import PATH, output_option, refuse_overwriting

if TYPE_CHECKING:
    from hios.problem import Problem


@click.command("train")
@click.argument("files", metavar="SCENARIO | GRAPH COSTS [GRAPH COSTS]...", type=PATH, nargs=-1, required=True)
@output_option("policy.safetensors")
@click.option("--steps", type=click.IntRange(1), default=6000, show_default=True, help="Steps of learning.")
@click.option(
    "--sub-blocks", type=click.IntRange(1), default=4, show_default=True, help="Most blocks of a combination."
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
    help="Of a stage: minus its share of the sequential time, or exp(-milliseconds).",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of the random numbers.")
def command(
    files: tuple[Path, ...], output: Path, steps: int, sub_blocks: int, r: int, s: int, reward: str, seed: int
) -> None:
    """Train a policy for the algorithm gpg on random combinations of the blocks of some models.

    The models are those of SCENARIO, a scenario.yaml; or each is given by its GRAPH and its COSTS. `hios schedule
    --algorithm gpg --weights policy.safetensors` uses the policy, for these models and others.
    """
    # The matrices are small: several threads gain little, and lose much where other programs use the cores. And with
    # one thread, sums are added up in the same order on every number of cores.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

    from hios.artifacts import require_writable
    from hios.schedulers.policy.policy_file import write_policy
    from hios.schedulers.policy.training import Settings, train

    if len(files) > 1 and len(files) % 2:
        raise click.UsageError(
            f"found {len(files)} files; allowed: a scenario alone, or a graph and its costs for each model, in turns"
        )
    refuse_overwriting(files, [output])
    require_writable(output)

    def progress(step: int, share: float | None) -> None:
        if share is not None:
            click.echo(f"step {step} of {steps}: {share:.4f} of the sequential latency", err=True)

    settings = Settings(steps=steps, seed=seed, most=sub_blocks, r=r, s=s, reward=reward)
    trained = train(_problems(files), settings, progress)
    write_policy(output, trained.weights, trained.facts)
    step, share = min(trained.curve, key=lambda point: point[1])
    click.echo(
        f"{output}: {share:.4f} of the sequential latency in the mean of random combinations, after {step} of {steps} "
        "steps"
    )


def _problems(files: Sequence[Path]) -> dict[str, Problem]:
    """The models of a scenario by label, or of graphs and costs in turns by name."""
    from hios.errors import HiosError
    from hios.problem import Problem

    if len(files) == 1:
        from hios.serving.scenario import Scenario

        return {model.label: model.problem for model in Scenario.read(files[0]).models}
    found: dict[str, Problem] = {}
    for graph, costs in zip(files[::2], files[1::2], strict=True):
        problem = Problem.read(graph, costs)
        name = problem.graph.name or str(graph)
        if name in found:
            raise HiosError(f"{graph}: name: found {name}, as in another graph; allowed: each model once")
        found[name] = problem
    return found
