"""``hios simulate``: several models on one device, simulated."""

from __future__ import annotations

from pathlib import Path

import click

from hios.cli.options import PATH, output_option, refuse_overwriting, serving_options


@click.command("simulate")
@click.argument("scenario", type=PATH)
@click.option(
    "--policy",
    required=True,
    help="sequential, one-per-lane, threads, ios, nimble, opara, hios-lp, pos-strict, pos-relaxed, top, top-open; with "
    "--weights also learned and learned-static; or auto: the best of them on other traces.",
)
@serving_options
@click.option(
    "--calibration",
    type=PATH,
    help="calibration.json of these models on this machine, as `hios load --calibrate` writes it.",
)
@output_option("result.json")
def command(
    scenario: Path,
    policy: str,
    launcher: str | None,
    load: float,
    weights: Path | None,
    calibration: Path | None,
    output: Path,
) -> None:
    """Simulate the tasks of SCENARIO under a policy: nothing runs, and times are those of costs.json."""
    from hios.artifacts import load as load_file
    from hios.artifacts import require_writable, write
    from hios.errors import warn
    from hios.formats.calibration_file import CalibrationFile
    from hios.serving.calibration import calibrated
    from hios.serving.result_table import result_table
    from hios.serving.scenario import Scenario
    from hios.serving.simulate import simulate

    require_writable(output)
    given = Scenario.read(scenario, load=load)
    if weights is not None:
        given = given.with_launcher(weights)
    refuse_overwriting([scenario, *given.files, *([calibration] if calibration else [])], [output])
    if calibration is not None:
        given = calibrated(given, load_file(calibration, CalibrationFile), str(calibration))
    for model in given.models:
        if model.problem.disturbed:
            warn(f"{model.costs.source}: {model.problem.disturbed}; profile again on an idle machine")
    result = simulate(given, policy, launcher=launcher)
    write(output, "result", result)
    click.echo(result_table(result))
