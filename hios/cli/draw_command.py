"""``hios draw``: a graph as a picture."""

from __future__ import annotations

from pathlib import Path

import click

from hios.cli.options import PATH, refuse_overwriting


@click.command("draw")
@click.argument("graph", type=PATH)
@click.option("--output", type=PATH, help="Picture to write, .svg or .html; default: GRAPH with the suffix .svg.")
def command(graph: Path, output: Path | None) -> None:
    """Draw GRAPH block by block, colored by operator type.

    An .html page can be zoomed, and highlights the edges of an operator.
    """
    from hios.graph import Graph
    from hios.report import write_picture

    network = Graph.read(graph)
    place = graph.with_suffix(".svg") if output is None else output
    refuse_overwriting([graph], [place])
    click.echo(f"{place}: {write_picture(network, place)}")
