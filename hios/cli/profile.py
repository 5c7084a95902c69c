"""``hios profile``: a graph to costs."""

from __future__ import annotations

import math
from pathlib import Path

import click
from click.core import ParameterSource

from hios import defaults
from hios.cli.options import (
    PATH,
    devices_option,
    output_option,
    profile_platform_option,
    refuse_overwriting,
    virtual_option,
)
from hios.errors import HiosError
from hios.models import PREDICTING

#: Options of measuring, which predictions take none of.
_MEASURING = ("virtual", "repeats", "budget", "cache", "no_cache", "stages_of")


@click.command("profile")
@click.argument("graph", type=PATH)
@profile_platform_option
@virtual_option
@devices_option
@output_option("costs.json")
@click.option(
    "--repeats",
    type=int,
    default=defaults.REPEATS,
    show_default=True,
    help="Least number of measurements of every operator and stage.",
)
@click.option(
    "--budget",
    type=float,
    default=defaults.PROFILE_BUDGET_S,
    show_default=True,
    help="Seconds for repeating until medians are certain within 2 %, and for stages; those left out are modelled.",
)
@click.option(
    "--cache",
    type=PATH,
    help="Folder of measurements of other runs and networks, used and added to; default: measurements in $HIOS_CACHE, "
    "else hios/measurements in the user's cache folder.",
)
@click.option("--no-cache", is_flag=True, help="Measure everything, and keep nothing for later.")
@click.option(
    "--stages-of",
    multiple=True,
    default=defaults.STAGES_OF,
    show_default=True,
    help="Measure the stages that this algorithm asks for; may be given several times.",
)
@click.option("--gpu", help="With platform model: name of a GPU (any other name lists them), or a .yaml file.")
@click.option(
    "--link", help="With platform model: what lies between two GPUs, such as nvlink or pcie, or a .yaml file."
)
@click.pass_context
def command(
    context: click.Context,
    graph: Path,
    platform: str,
    virtual: bool,
    devices: int,
    output: Path,
    repeats: int,
    budget: float,
    cache: Path | None,
    no_cache: bool,
    stages_of: tuple[str, ...],
    gpu: str | None,
    link: str | None,
) -> None:
    """Measure what the operators, stages and transfers of GRAPH cost, or predict it (platform model)."""
    if platform == PREDICTING:
        _predict(context, graph, output, gpu, link, devices)
        return
    if (given := "--gpu" if gpu is not None else "--link" if link is not None else "") != "":
        raise HiosError(f"{given}: found with platform {platform}; allowed: with platform {PREDICTING}")
    if repeats < 1:
        raise HiosError(f"--repeats: found {repeats}; allowed: at least 1")
    if not 0 <= budget < math.inf:
        raise HiosError(f"--budget: found {budget:g}; allowed: at least 0, finite")
    if no_cache and cache is not None:
        raise HiosError(f"--no-cache: found beside --cache {cache}; allowed: one of them")
    refuse_overwriting([graph], [output])
    from hios.profiling.cache import default_folder
    from hios.profiling.profile import profile as run
    from hios.report.profiled import profile_in_words

    folder = None if no_cache else cache or default_folder()
    found = run(
        graph,
        output,
        devices=devices,
        repeats=repeats,
        stages_of=stages_of,
        budget_s=budget,
        cache=folder,
        platform=platform,
        virtual=virtual,
    )
    click.echo(f"{output}: {profile_in_words(found)}")


def _predict(
    context: click.Context, graph: Path, output: Path, gpu: str | None, link: str | None, devices: int
) -> None:
    for name in _MEASURING:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = f"--{name.replace('_', '-')}"
            raise HiosError(f"{option}: found with platform {PREDICTING}, which measures nothing; allowed: without it")
    from hios import artifacts
    from hios.graph import Graph
    from hios.platforms.model import descriptions
    from hios.platforms.model.predicting import predicted_costs
    from hios.report.profiled import profile_in_words

    if gpu is None:
        raise HiosError(
            f"--gpu: missing; required with platform {PREDICTING}: one of {', '.join(descriptions.gpu_names())}, or a "
            ".yaml file"
        )
    refuse_overwriting([graph], [output])
    described = descriptions.gpu(gpu)
    costs = predicted_costs(Graph.read(graph), described, descriptions.link(link, described), devices)
    artifacts.write(output, "costs", costs)
    click.echo(f"{output}: {profile_in_words(costs)}")
