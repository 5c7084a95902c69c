"""``hios figures``: the figures and tables of the papers, listed, explained or drawn."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hios.cli.options import PATH


@click.command("figures", short_help="List the figures of the papers, or draw one.")
@click.argument("name", metavar="[ID]", required=False)
@click.argument("files", type=PATH, nargs=-1)
@click.option("--output", type=PATH, help="Folder to draw ID in, as ID.csv, .tex, .svg, .pdf and .json.")
@click.option(
    "--results", type=PATH, default="results", show_default=True, help="Results folder, for the state of each figure."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str | None, files: tuple[Path, ...], output: Path | None, results: Path, as_json: bool) -> None:
    """List the figures and tables of the papers: what each needs, how long it takes to draw, and its state.

    With ID, explain one, its published numbers included. With --output, draw it from FILES of its sessions; the
    pipeline does that with `snakemake ID`, and `snakemake figures` draws all.
    """
    from hios.study import registry
    from hios.study.figure_listing import contents, explained, listing

    if name is None:
        if output is not None:
            raise click.UsageError("--output: found without ID; allowed: with the ID of a figure")
        chosen = registry.figures()
        entries = [contents(figure, results) for figure in chosen]
        click.echo(json.dumps(entries, indent=1) if as_json else listing(chosen, results))
        return
    figure = registry.figure(name)
    if output is None:
        click.echo(json.dumps(contents(figure, results), indent=1) if as_json else explained(figure, results))
        return
    from hios.study.figure_data import FigureData
    from hios.study.figure_files import write_figure

    record = write_figure(figure, FigureData.read(files), output)
    click.echo(f"{output / figure.id}.svg: {record.number}, {len(record.rows)} rows, {record.state}")
