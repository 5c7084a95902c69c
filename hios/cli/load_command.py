"""``hios load``: several models on one device, for real."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hios.cli.options import (
    PATH,
    check_settings,
    output_option,
    refuse_overwriting,
    serving_options,
    settings_options,
    trust_option,
)
from hios.formats.settings import Measuring

if TYPE_CHECKING:
    from hios.serving.scenario import Scenario


@click.command("load")
@click.argument("scenario", type=PATH)
@click.option(
    "--policy",
    help="Any policy of hios simulate, or auto: the best one in the simulator on other traces. Give --calibration, so "
    "that the simulator predicts this machine. Not needed with --calibrate.",
)
@click.option(
    "--calibrate",
    is_flag=True,
    help="Measure for about a minute what the simulator needs to predict this machine, and write calibration.json, "
    "which `hios simulate`, `hios load --policy auto` and `hios train` take.",
)
@serving_options()
@output_option("result.json")
@click.option("--trace", type=PATH, help="Chrome/Perfetto trace to write: what ran on which lane, and each request.")
@click.option(
    "--metrics",
    type=PATH,
    help="File for counters and latencies in the text format of Prometheus, written at the end and on SIGUSR1.",
)
@click.option(
    "--virtual",
    is_flag=True,
    help="Let lanes share cores if there are too few. Only for trying things out, as times then mean little.",
)
@settings_options(
    Measuring,
    "tolerance",
    "timeout_s",
    texts={
        "tolerance": "Allowed difference of outputs.",
        "timeout_s": "Longest time of one run of a block, in seconds; a lane that takes longer is started again.",
    },
)
@trust_option
def command(
    scenario: Path,
    policy: str | None,
    calibrate: bool,
    launcher: str | None,
    load: float,
    weights: Path | None,
    calibration: Path | None,
    output: Path,
    trace: Path | None,
    metrics: Path | None,
    virtual: bool,
    tolerance: float,
    timeout_s: float,
    trust: bool,
) -> None:
    """Run the tasks of SCENARIO in workers on this machine's cores, and measure latencies and losses."""
    from hios.artifacts import require_writable, write
    from hios.cli.files import scenario_of
    from hios.errors import warn

    check_settings(Measuring, {"tolerance": tolerance, "timeout_s": timeout_s})
    refuse_overwriting([scenario, calibration], [output, trace, metrics])
    for path in (output, trace, metrics):
        if path is not None:
            require_writable(path)
    if calibrate and calibration is not None:
        raise click.UsageError("--calibration: found with --calibrate; allowed: one of them.")
    if calibration is not None and policy is not None and "auto" not in (policy, launcher or _launcher_of(scenario)):
        raise click.UsageError(
            f"--calibration: found with --policy {policy}; allowed: with --policy auto or --launcher auto, which it "
            "helps to choose."
        )
    given = scenario_of(scenario, load, weights, calibration)
    refuse_overwriting(given.files, [output, trace, metrics])
    if calibrate:
        beside = {"--policy": policy, "--trace": trace, "--metrics": metrics}
        _calibrate(given, beside, output, virtual=virtual, timeout_s=timeout_s)
        return
    if policy is None:
        raise click.UsageError("Missing option '--policy'; required unless --calibrate is given.")
    for model in given.models:
        if model.program is None:
            warn(
                f"{given.source}: models.{model.label}.program: missing; outputs are only compared with those of a "
                "single inference by hios itself"
            )
    from hios.serving.live_table import LiveTable
    from hios.serving.load_session import load as run
    from hios.serving.result_table import result_table

    show, written = LiveTable().show, None
    if metrics is not None:
        from hios.serving.metrics_file import MetricsFile

        written = MetricsFile(metrics)
        written.listen()
    try:
        loaded = run(
            given,
            policy,
            launcher=launcher,
            virtual=virtual,
            tolerance=tolerance,
            timeout_s=timeout_s,
            trusted=trust,
            show=show if written is None else _both(show, written.show),
            trace=trace,
            tell=lambda text: click.echo(text, err=True),
        )
    finally:
        if written is not None:
            written.write()
    write(output, "result", loaded.result)
    click.echo(result_table(loaded.result))
    click.echo(
        f"control (launcher, dispatch, results): {loaded.result.control_share or 0:.1%} of the time that lanes "
        f"were busy; load generator: {loaded.generator_share:.1%}; values between blocks: {loaded.memory_mb:.1f} MB"
    )
    if loaded.wrong:
        click.echo(f"first failure: {loaded.wrong}", err=True)


def _launcher_of(scenario: Path) -> str:
    """The launcher that a scenario states."""
    from hios.serving.scenario import Scenario

    return Scenario.read(scenario).file.launcher


def _both(first: Callable[..., None], second: Callable[..., None]) -> Callable[..., None]:
    def show(*arguments: Any) -> None:
        second(*arguments)
        first(*arguments)

    return show


def _calibrate(
    scenario: Scenario, beside: Mapping[str, object], output: Path, *, virtual: bool, timeout_s: float
) -> None:
    for name, value in beside.items():
        if value is not None:
            raise click.UsageError(f"{name}: found with --calibrate; allowed: one of them.")
    from hios.artifacts import write
    from hios.serving.calibrating import calibrate
    from hios.serving.result_table import calibration_table

    measured = calibrate(
        scenario, virtual=virtual, timeout_s=timeout_s, show=lambda text: click.echo(f"measuring {text}", err=True)
    )
    write(output, "calibration", measured)
    click.echo(calibration_table(measured))
