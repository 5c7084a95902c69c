"""``hios partition``: how to divide the cores of this machine into devices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from hios.cli import files
from hios.cli.options import (
    PATH,
    check_costs_options,
    check_settings,
    costs_options,
    measuring_options,
    output_option,
    refuse_overwriting,
    settings_options,
)
from hios.formats.settings import Measuring, PartitionSettings


@click.command("partition")
@click.argument("graph", type=PATH)
@click.argument("weights", type=PATH)
@output_option("partition.json")
@settings_options(PartitionSettings, "algorithm", "cores", "virtual")
@costs_options("Seconds for measuring the costs of each partition.")
@measuring_options
def command(
    graph: Path, weights: Path, output: Path, budget: float, cache: Path | None, no_cache: bool, **settings: Any
) -> None:
    """Find the fastest partition of this machine's cores into devices for GRAPH.

    Candidates are one device with all cores, two with half of them each, and so on down to one core each. Each is
    predicted from costs measured on such devices; the promising ones then run in turns. Put the result into
    config.yaml as devices and cores_per_device.
    """
    check_settings(Measuring, settings)
    check_costs_options(settings["repeats"], budget, cache, no_cache)
    refuse_overwriting([graph, weights], [output])
    from hios.profiling.measurement_cache import default_folder

    folder = None if no_cache else cache or default_folder()
    result = files.partition(graph, weights, output, PartitionSettings(budget_s=budget, cache=folder, **settings))
    for entry in result.partitions:
        latency = "not measured" if entry.latency_ms is None else f"{entry.latency_ms.median:.4g} ms measured"
        mark = " <" if (entry.devices, entry.cores_per_device) == (result.devices, result.cores_per_device) else ""
        click.echo(
            f"{entry.devices:>4} x {entry.cores_per_device:<4} {entry.predicted_ms:.4g} ms predicted, {latency}{mark}"
        )
    virtual = "; virtual devices: times say little" if result.virtual else ""
    chosen = f"devices: {result.devices}, cores_per_device: {result.cores_per_device}"
    click.echo(f"{output}: {chosen}: {result.reason}{virtual}")
