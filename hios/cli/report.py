"""``hios report``: runs as a page and tables."""

from __future__ import annotations

from pathlib import Path

import click

from hios.cli.options import PATH, output_option


@click.command("report")
@click.argument("directories", type=PATH, nargs=-1, required=True)
@output_option("report.html")
@click.option("--tables", type=PATH, required=True, help="Folder for the tables as CSV.")
def command(directories: tuple[Path, ...], output: Path, tables: Path) -> None:
    """Write one page and CSV tables about the runs in DIRECTORIES (graph.json, costs.json, run.json each)."""
    from hios.report import write_report

    write_report(directories, output, tables)
    click.echo(f"{output}: report of {len(directories)} model(s)")
