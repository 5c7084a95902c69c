"""``hios report``: runs as a page and tables."""

from __future__ import annotations

from pathlib import Path

import click

from hios.cli.options import PATH, output_option


@click.command("report")
@click.argument("directories", type=PATH, nargs=-1, required=True)
@output_option("report.html")
@click.option("--tables", type=PATH, required=True, help="Folder for the tables as CSV.")
@click.option(
    "--schedule",
    "schedules",
    multiple=True,
    help="With predicted costs: label of a schedule to show, schedules/LABEL.json; default: all. May be given several "
    "times.",
)
def command(directories: tuple[Path, ...], output: Path, tables: Path, schedules: tuple[str, ...]) -> None:
    """Write one page and CSV tables about the runs in DIRECTORIES (graph.json, costs.json, run.json each).

    Where costs are predicted (platform model), the page is about the schedules in schedules/ instead.
    """
    from hios.report import write_report

    write_report(directories, output, tables, schedules)
    click.echo(f"{output}: report of {len(directories)} model(s)")
