"""``hios retarget``: a schedule for the same network with other shapes."""

from __future__ import annotations

from pathlib import Path

import click

from hios.cli.options import PATH, output_option, refuse_overwriting


@click.command("retarget", short_help="Adapt a schedule to the same network with other shapes.")
@click.argument("schedule", type=PATH)
@click.argument("own", metavar="OLD_GRAPH", type=PATH)
@click.argument("graph", type=PATH)
@click.argument("costs", type=PATH)
@output_option("schedule.json")
def command(schedule: Path, own: Path, graph: Path, costs: Path, output: Path) -> None:
    """Adapt SCHEDULE, made for OLD_GRAPH, to GRAPH and COSTS: the same network with another batch or image size.

    The two graphs must have the same operators and edges, and differ only in shapes. The operators keep their devices
    and their order; the times are those of COSTS. So a schedule for one batch size runs with another.
    """
    from hios.artifacts import require_writable
    from hios.graph import Graph
    from hios.problem import Problem
    from hios.retargeting import retarget
    from hios.schedule import Schedule

    refuse_overwriting((schedule, own, graph, costs), (output,))
    require_writable(output)
    moved = retarget(Schedule.read(schedule), Graph.read(own), Problem.read(graph, costs))
    moved.write(output)
    click.echo(f"{output}: {moved.algorithm}, {moved.latency_ms:.6g} ms predicted on {moved.graph}")
