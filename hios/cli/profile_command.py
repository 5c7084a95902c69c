"""``hios profile``: a graph to costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from hios.cli import files
from hios.cli.options import (
    PATH,
    check_costs_options,
    cores_per_device_option,
    costs_options,
    devices_option,
    given_own,
    output_option,
    own_options,
    partition_option,
    partitioned,
    platform_option,
    refuse_overwriting,
    settings_options,
    virtual_option,
)
from hios.errors import HiosError
from hios.formats.settings import Profile
from hios.platforms import PLATFORMS, require_options

if TYPE_CHECKING:
    from hios.formats.costs_file import CostsFile

#: Options of measuring, which predictions take none of.
_MEASURING = (
    "virtual",
    "cores_per_device",
    "partition",
    "repeats",
    "budget",
    "cache",
    "no_cache",
    "stages_of",
    "widths",
)


@click.command("profile")
@click.argument("graph", type=PATH)
@platform_option
@own_options
@virtual_option
@devices_option
@cores_per_device_option
@partition_option
@output_option("costs.json")
@costs_options(
    "Seconds for repeating measurements until medians are known to within 2 %, and for measuring stages; stages that "
    "no time is left for are estimated by the contention model."
)
@settings_options(
    Profile,
    "widths",
    "stages_of",
    texts={
        "widths": "Platform cpu: also measure operators, and convolutions of one value merged into one, on this many "
        "devices at once. Schedules may then run what gains from it on several devices. May be given more than once.",
        "stages_of": "Measure the stages that this algorithm asks for; may be given more than once.",
    },
)
@click.pass_context
def command(
    context: click.Context,
    /,
    graph: Path,
    platform: str,
    virtual: bool,
    devices: int,
    cores_per_device: int | None,
    partition: Path | None,
    output: Path,
    repeats: int,
    budget: float,
    cache: Path | None,
    no_cache: bool,
    stages_of: tuple[str, ...],
    widths: tuple[int, ...],
    **options: str | None,
) -> None:
    """Measure the costs of the operators, stages and transfers of GRAPH, or predict them (platform model)."""
    given = given_own(platform, options)
    if not PLATFORMS[platform].executes:
        _refuse_measuring(context, platform)
        _predict(graph, output, platform, devices, given)
        return
    require_options(platform, {}, virtual=virtual, cores_per_device=cores_per_device)
    check_costs_options(repeats, budget, cache, no_cache)
    refuse_overwriting([graph, partition], [output])
    devices, cores_per_device = partitioned(context, partition, graph) or (devices, cores_per_device)
    from hios.profiling.measurement_cache import default_folder

    folder = None if no_cache else cache or default_folder()
    costs = files.profile(
        graph,
        output,
        devices=devices,
        repeats=repeats,
        stages_of=stages_of,
        budget_s=budget,
        cache=folder,
        platform=platform,
        virtual=virtual,
        cores_per_device=cores_per_device,
        widths=widths,
    )
    _print(output, costs)


def _refuse_measuring(context: click.Context, platform: str) -> None:
    for name in _MEASURING:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = f"--{name.replace('_', '-')}"
            raise HiosError(f"{option}: found with platform {platform}, which measures nothing; allowed: without it")


def _predict(graph: Path, output: Path, platform: str, devices: int, options: Mapping[str, str]) -> None:
    refuse_overwriting([graph], [output])
    _print(output, files.predict(graph, output, platform, devices, options))


def _print(output: Path, costs: CostsFile) -> None:
    from hios.report.cost_summary import profile_details, profile_summary

    for line in profile_details(costs):
        click.echo(line)
    click.echo(f"{output}: {profile_summary(costs)}")
