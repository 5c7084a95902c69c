"""``hios extract``: a program to a graph."""

from __future__ import annotations

from pathlib import Path

import click

from hios.cli import files
from hios.cli.options import PATH, output_option, refuse_overwriting, trust_option
from hios.graph import UNITS


@click.command("extract")
@click.argument("program", type=PATH)
@output_option("graph.json")
@click.option("--weights", type=PATH, required=True, help="weights.safetensors to write.")
@click.option("--name", help="Name of the graph; default: that of the program's folder.")
@click.option(
    "--units",
    type=click.Choice(UNITS),
    help="What counts as one operator. conv-relu: a convolution with the ReLU after it; relu-sepconv: also a ReLU with "
    "the separable or plain convolution after it and the sum before it; operator: every Relax operator by itself. "
    "Default: what the model declares, else conv-relu.",
)
@click.option(
    "--below",
    multiple=True,
    metavar="NAME=NUMBER",
    help="The values of an integer input, such as tokens, are less than this; random inputs for comparison and timing "
    "are drawn accordingly. Default: what the model declares, else 2. May be given more than once.",
)
@trust_option
def command(
    program: Path,
    output: Path,
    weights: Path,
    name: str | None,
    units: str | None,
    below: tuple[str, ...],
    trust: bool,
) -> None:
    """Extract the optimized graph of PROGRAM (.pt2 or .onnx) through TVM Relax."""
    from hios.config_options import parsed_limits

    refuse_overwriting([program], [output, weights])
    limits = parsed_limits(below)
    graph = files.extract(
        program, output, weights, name or program.resolve().parent.name, units=units, below=limits, trusted=trust
    )
    click.echo(
        f"{output}: {len(graph.operators)} operators, {len(graph.edges)} edges, {len(graph.blocks)} blocks, units "
        f"{graph.units}"
    )
