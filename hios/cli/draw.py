"""``hios draw``: a graph as a picture."""

from __future__ import annotations

from pathlib import Path

import click

from hios.cli.options import PATH, refuse_overwriting


@click.command("draw")
@click.argument("graph", type=PATH)
@click.option("--output", type=PATH, help="Picture to write, .svg or .html; default: GRAPH with the suffix .svg.")
def command(graph: Path, output: Path | None) -> None:
    """Draw GRAPH by blocks, coloured by operator type: .svg, or .html to zoom and to follow its lines."""
    from hios.graph import Graph
    from hios.report import write_picture

    found = Graph.read(graph)
    place = graph.with_suffix(".svg") if output is None else output
    refuse_overwriting([graph], [place])
    click.echo(f"{place}: {write_picture(found, place)}")
