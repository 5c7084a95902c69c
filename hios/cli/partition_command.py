"""``hios partition``: how to divide the cores of this machine into devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hios import defaults
from hios.cli import files
from hios.cli.options import PATH, check_measuring, measuring_options, output_option, refuse_overwriting, virtual_option
from hios.errors import HiosError


@click.command("partition")
@click.argument("graph", type=PATH)
@click.argument("weights", type=PATH)
@output_option("partition.json")
@click.option("--algorithm", default="hios-lp", show_default=True, help="Algorithm for several devices.")
@click.option("--cores", type=int, help="Number of cores to divide; default: all usable physical cores.")
@virtual_option
@click.option(
    "--repeats",
    type=int,
    default=defaults.REPEATS,
    show_default=True,
    help="Minimum number of measurements of each operator and stage.",
)
@click.option(
    "--budget",
    type=float,
    default=defaults.PROFILE_BUDGET_S,
    show_default=True,
    help="Seconds for measuring the costs of each partition.",
)
@click.option("--cache", type=PATH, help="Folder of cached measurements, as in hios profile.")
@click.option("--no-cache", is_flag=True, help="Measure everything anew, and cache nothing.")
@measuring_options
def command(
    graph: Path, weights: Path, output: Path, budget: float, cache: Path | None, no_cache: bool, **settings: Any
) -> None:
    """Find the division of this machine's cores into devices that is fastest for GRAPH.

    Candidates are one device with all cores, two with half of them each, and so on down to one core each. Each is
    predicted from costs measured on such devices; the promising ones then run, taking turns. Put the result into
    config.yaml as devices and cores_per_device.
    """
    check_measuring(settings)
    refuse_overwriting([graph, weights], [output])
    if settings["repeats"] < 1:
        raise HiosError(f"--repeats: found {settings['repeats']}; allowed: at least 1")
    if budget < 0:
        raise HiosError(f"--budget: found {budget:g}; allowed: at least 0")
    from hios.optimizing.partition import PartitionSettings
    from hios.profiling.measurement_cache import default_folder

    folder = None if no_cache else cache or default_folder()
    found = files.partition(graph, weights, output, PartitionSettings(budget_s=budget, cache=folder, **settings))
    for entry in found.partitions:
        latency = "not measured" if entry.latency_ms is None else f"{entry.latency_ms.median:.4g} ms measured"
        mark = " <" if (entry.devices, entry.cores_per_device) == (found.devices, found.cores_per_device) else ""
        click.echo(
            f"{entry.devices:>4} x {entry.cores_per_device:<4} {entry.predicted_ms:.4g} ms predicted, {latency}{mark}"
        )
    virtual = "; virtual devices: times say little" if found.virtual else ""
    click.echo(
        f"{output}: devices: {found.devices}, cores_per_device: {found.cores_per_device}: {found.reason}{virtual}"
    )
