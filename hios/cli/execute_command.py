"""``hios execute``: schedules on real devices, measured."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from hios.cli import files
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
    virtual_option,
)
from hios.formats.settings import Measuring, Settings
from hios.models import RUNTIMES
from hios.platforms import require_options


@click.command("execute")
@click.argument("graph", type=PATH)
@click.argument("weights", type=PATH)
@click.argument("schedules", type=PATH, nargs=-1, required=True)
@executing_option
@virtual_option
@other_hardware_option
@click.option("--devices", type=int, help="Number of devices; default: the most that any schedule uses.")
@cores_per_device_option
@output_option("run.json")
@click.option(
    "--program",
    type=PATH,
    help="program.pt2 or program.onnx. It runs in eager PyTorch or ONNX Runtime, as the reference for outputs and "
    "latency.",
)
@click.option(
    "--baselines",
    "--baseline",
    multiple=True,
    type=click.Choice(list(RUNTIMES)),
    default=("eager",),
    show_default=True,
    help="Also run the program in this runtime, with the cores of one device and with those of all; may be given more "
    "than once. Eager PyTorch always takes part, as the reference for outputs.",
)
@click.option("--traces", type=PATH, help="Folder for a Chrome/Perfetto trace of every schedule.")
@click.option(
    "--auto",
    type=PATH,
    help="Choose the fastest by measurement, and write its schedule.json: one of the schedules, or the sequential one "
    "with all cores inside operators; the sequential one on one device unless another is faster with 95 % confidence. "
    "Among candidates statistically tied with the fastest, the one with the smallest 80th percentile. Every other run "
    "chooses; run.json states the latency of the choice in the remaining runs. Needs at least 12 runs.",
)
@measuring_options
@trust_option
def command(
    graph: Path,
    weights: Path,
    schedules: tuple[Path, ...],
    devices: int | None,
    output: Path,
    program: Path | None,
    traces: Path | None,
    auto: Path | None,
    trust: bool,
    **settings: Any,
) -> None:
    """Run SCHEDULES of GRAPH on real devices, taking turns in one session, and time them."""
    from hios.schedule import Schedule

    check_settings(Measuring, settings)
    require_options(settings["platform"], {}, cores_per_device=settings["cores_per_device"])
    refuse_overwriting([graph, weights, program, *schedules], [output, auto])
    if devices is None:
        devices = max(Schedule.read(path).devices for path in schedules)
    from hios.runtime.run_table import latency_table

    began = time.monotonic()
    run = files.execute(
        graph,
        weights,
        schedules,
        output,
        Settings(devices=devices, **settings),
        program=program,
        trusted=trust,
        traces=traces,
        chosen=auto,
    )
    off = max(result.largest_difference for result in run.results)
    reference = RUNTIMES.get(run.checked_against or "", "the sequential schedule")
    click.echo(latency_table(run))
    click.echo(
        f"{output}: medians of {run.runs} runs on {devices} device(s) in {time.monotonic() - began:.0f} s; "
        f"outputs differ from {reference} by {off:.2g} at most, allowed {run.tolerance:g}"
        + ("" if run.rounding is None else f", and {run.rounding:.2g}, which rounding explains")
    )
