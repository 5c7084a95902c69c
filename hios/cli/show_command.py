"""``hios show``: a schedule as a picture of time."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import click

from hios import artifacts
from hios.cli.options import PATH, refuse_overwriting
from hios.errors import ArtifactError, HiosError


@click.command("show")
@click.argument("schedule", type=PATH)
@click.option("--graph", type=PATH, help="graph.json, to color the bars by operator type.")
@click.option(
    "--html", type=PATH, help="Write an HTML page instead: one file that opens offline, with zoom and details on hover."
)
@click.option("--width", type=int, help="Width of the drawing in columns; default: that of the terminal.")
@click.option(
    "--parts", type=int, help="Number of rows that the time axis is split into; default: as many as the labels need."
)
@click.option("--ascii", "plain", is_flag=True, help="Draw with ASCII characters only.")
def command(
    schedule: Path, graph: Path | None, html: Path | None, width: int | None, parts: int | None, plain: bool
) -> None:
    """Draw SCHEDULE: a row for each stream of a device, a bar for each operator."""
    from hios.graph import Graph
    from hios.report import write_schedule
    from hios.report.schedule_summary import operator_types
    from hios.report.terminal import draw, look
    from hios.schedule import Schedule

    refuse_overwriting([schedule, graph], [html])
    try:
        shown = Schedule.read(schedule)
    except ArtifactError as error:
        if schedule.is_file() and artifacts.kind_in(artifacts.read_json(schedule)) == "graph":
            raise HiosError(f"{error}, as hios schedule writes it; hios draw {schedule} draws the graph") from error
        raise
    shown.check_table()
    end = max(row.finish_ms for row in shown.placements)
    if not math.isclose(end, shown.latency_ms, rel_tol=1e-6, abs_tol=1e-9):
        raise HiosError(f"{schedule}: latency_ms: found {shown.latency_ms:g}; allowed: {end:g}, the last finish_ms")
    types = {} if graph is None else operator_types(shown, Graph.read(graph))
    if html is None:
        click.echo(draw(shown, look(sys.stdout, width=width, parts=parts, plain=plain), types))
    else:
        write_schedule(shown, html, types)
        click.echo(f"{html}: {len(shown.placements)} operators on {shown.devices} device(s)")
