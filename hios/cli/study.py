"""``hios study``: the sessions that figures of the papers are drawn from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hios.cli.options import output_option
from hios.defaults import SEED
from hios.formats.config_file import SimulationDefaults, SimulationStudy

_BASE, _STUDY = SimulationDefaults(), SimulationStudy()


def _setting_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of a setting of HIOS's simulation, as the configuration has them."""
    for option in reversed(
        (
            click.option("--devices", type=click.IntRange(1, 1024), default=_BASE.devices, show_default=True),
            click.option("--operators", type=click.IntRange(1), default=_BASE.operators, show_default=True),
            click.option("--edges", type=click.IntRange(1), default=_BASE.edges, show_default=True),
            click.option("--layers", type=click.IntRange(3), default=_BASE.layers, show_default=True),
            click.option(
                "--p",
                type=click.FloatRange(0, min_open=True),
                default=_BASE.p,
                show_default=True,
                help="Time of a transfer as a share of that of the operator before.",
            ),
            click.option("--instances", type=click.IntRange(1), default=3, show_default=True, help="Random graphs."),
            click.option("--seed", type=click.IntRange(0), default=SEED, show_default=True, help="Of the first graph."),
            click.option(
                "--alpha",
                type=click.FloatRange(0, 1),
                default=_STUDY.alpha,
                show_default=True,
                help="Share of serialisation of the contention model.",
            ),
        )
    ):
        function = option(function)
    return function


@click.group("study", short_help="Run a session that figures of the papers are drawn from.")
def command() -> None:
    """Run a session that figures of the papers are drawn from; `hios figures` lists these."""


@command.command("simulation")
@output_option("simulation.json")
@_setting_options
@click.option("--window", type=click.IntRange(2), default=_STUDY.window, show_default=True, help="Of hios-lp, hios-mr.")
@click.option(
    "--moves",
    type=click.IntRange(1),
    default=_STUDY.moves,
    show_default=True,
    help="Of each chain of hios-opt, which has no time limit.",
)
def simulation(
    output: Path,
    instances: int,
    seed: int,
    alpha: float,
    window: int,
    moves: int,
    **setting: Any,
) -> None:
    """Every algorithm on random graphs of one setting of HIOS's simulation (section V)."""
    from hios.artifacts import require_writable, write
    from hios.formats.simulation_file import Setting
    from hios.study.simulation import simulate

    require_writable(output)
    seeds = range(seed, seed + instances)
    found = simulate(Setting(**setting), seeds, window=window, alpha=alpha, moves=moves)
    write(output, "simulation", found)
    click.echo(f"{output}: {instances} instance(s) of {found.setting.name}, {found.cpu_s:.1f} s of processor time")


@command.command("ablation")
@output_option("ablation.json")
@_setting_options
@click.option("--generator", required=True, help="Function of hios.study.random_graphs that draws the graphs.")
def ablation(output: Path, instances: int, seed: int, alpha: float, generator: str, **setting: Any) -> None:
    """How much each deviation of the program that HIOS's authors released changes its numbers."""
    from hios.artifacts import require_writable, write
    from hios.errors import HiosError
    from hios.formats.simulation_file import Setting
    from hios.study.random_graphs import GENERATORS
    from hios.study.simulation import ablate

    if generator not in GENERATORS:
        raise HiosError(f"--generator: found {generator}; allowed: {', '.join(GENERATORS)}")
    require_writable(output)
    found = ablate(Setting(**setting), generator, range(seed, seed + instances), alpha=alpha)
    write(output, "ablation", found)
    click.echo(f"{output}: {instances} instance(s), {found.cpu_s:.1f} s of processor time")
