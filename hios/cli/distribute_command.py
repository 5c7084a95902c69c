"""``hios distribute``: schedules over the ranks of a launcher, measured."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from hios.cli.options import (
    PATH,
    check_settings,
    cores_per_device_option,
    executing_option,
    measuring_options,
    other_hardware_option,
    output_option,
    refuse_overwriting,
    trust_option,
)
from hios.formats.settings import Measuring, Settings
from hios.models import RUNTIMES
from hios.platforms import require_options


@click.command("distribute")
@click.argument("graph", type=PATH)
@click.argument("weights", type=PATH)
@click.argument("schedules", type=PATH, nargs=-1, required=True)
@click.option(
    "--transport",
    type=click.Choice(["gloo", "nccl", "mpi"]),
    required=True,
    help="How values travel. gloo: start with torchrun; nccl: the same, with a GPU for each rank; mpi: start with "
    "mpirun or srun.",
)
@executing_option
@cores_per_device_option
@other_hardware_option
@output_option("run.json")
@click.option(
    "--program",
    type=PATH,
    help="program.pt2 or program.onnx. Rank 0 runs it in eager PyTorch or ONNX Runtime, as the reference for outputs "
    "and latency.",
)
@measuring_options
@trust_option
def command(
    graph: Path,
    weights: Path,
    schedules: tuple[Path, ...],
    transport: str,
    output: Path,
    program: Path | None,
    trust: bool,
    **settings: Any,
) -> None:
    """Run SCHEDULES of GRAPH over several processes, one for each device, on one node or several.

    A launcher starts this command on every rank with the same arguments, for example: torchrun --nproc-per-node 2 -m
    hios distribute graph.json weights.safetensors schedule.json --transport gloo --output run.json
    """
    check_settings(Measuring, settings)
    require_options(settings["platform"], {}, cores_per_device=settings["cores_per_device"])
    refuse_overwriting([graph, weights, program, *schedules], [output])
    if transport == "mpi":
        from hios.runtime.distributed.mpirun_guard import guard

        guard()
    from hios.runtime.distributed.distributed_session import Job
    from hios.runtime.distributed.distributed_session import distribute as run
    from hios.runtime.run_table import latency_table

    began = time.monotonic()
    # The devices are the ranks, whose number is known once they are connected.
    measuring = Settings(devices=0, **settings)
    record = run(Job(graph, weights, schedules, output, transport, measuring, program, trust))
    if record is None:
        return  # rank 0 speaks for all
    off = max(result.largest_difference for result in record.results)
    platform = record.platform
    click.echo(latency_table(record))
    click.echo(
        f"{output}: medians of {record.runs} runs on {platform.devices} rank(s) over "
        f"{platform.transport} in {time.monotonic() - began:.0f} s; outputs differ from "
        f"{RUNTIMES.get(record.checked_against or '', 'the sequential schedule')} by {off:.2g} at most, allowed "
        f"{record.tolerance:g}"
    )
