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
    help="sequential, one-per-lane, threads, ios, nimble, opara, hios-lp, pos-strict, pos-relaxed, "
    "pos-strict-per-lane, pos-relaxed-per-lane, top, top-open, shortest-first; with --weights also learned and "
    "learned-static; auto: the best of them on other traces; all: each of them.",
)
@serving_options("all")
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
    """Simulate the tasks of SCENARIO under a policy: nothing runs, and times are those of costs.json.

    With --policy all or --launcher all, the terminal shows a table of all policies and launchers, and --output is a
    folder, with a file POLICY-LAUNCHER.json for each.
    """
    from hios.artifacts import require_writable, write
    from hios.cli.files import scenario_of
    from hios.errors import HiosError, warn
    from hios.serving.policy_grid import ALL, chosen_launchers, chosen_policies, simulate_grid
    from hios.serving.result_table import grid_table, result_table
    from hios.serving.simulate import simulate

    several = ALL in (policy, launcher)
    if not several:
        require_writable(output)
    elif output.exists() and not output.is_dir():
        raise HiosError(f"--output: found the file {output}; required with all: a folder, with a file for each result")
    else:
        require_writable(output / "result.json")
    given = scenario_of(scenario, load, weights, calibration)
    refuse_overwriting([scenario, *given.files, *([calibration] if calibration else [])], [output])
    for model in given.models:
        if model.problem.disturbed:
            warn(f"{model.costs.source}: {model.problem.disturbed}; profile again on an idle machine")
    if several:
        grid = simulate_grid(given, chosen_policies(given, policy), chosen_launchers(given, launcher), tell=_tell)
        files = {output / f"{name}-{used}.json": result for (name, used), result in grid.results.items()}
        refuse_overwriting([scenario, *given.files, *([calibration] if calibration else [])], files)
        for file in files:
            require_writable(file)
        for file, result in files.items():
            write(file, "result", result)
        click.echo(grid_table(grid))
        return
    result = simulate(given, policy, launcher=launcher, tell=_tell)
    write(output, "result", result)
    click.echo(result_table(result))


def _tell(text: str) -> None:
    click.echo(text, err=True)
