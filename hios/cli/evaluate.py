"""``hios evaluate``: a schedule under the cost model."""

from __future__ import annotations

import math
from pathlib import Path

import click

from hios.cli.options import PATH
from hios.errors import HiosError, ScheduleError


@click.command("evaluate")
@click.argument("graph", type=PATH)
@click.argument("costs", type=PATH)
@click.argument("schedule", type=PATH)
def command(graph: Path, costs: Path, schedule: Path) -> None:
    """Print the latency of SCHEDULE under the cost model, or why it is invalid."""
    from hios.check import violations
    from hios.evaluate import evaluate as run
    from hios.evaluate import latency_ms
    from hios.problem import Problem
    from hios.schedule import Schedule

    problem, found = Problem.read(graph, costs), Schedule.read(schedule)
    try:
        latency = latency_ms(run(problem, found.plan(problem.graph)))
    except ScheduleError as error:
        where = "" if str(error).startswith(str(schedule)) else f"{schedule}: invalid: "
        raise HiosError(f"{where}{error}") from None
    if wrong := violations(problem, found):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise HiosError(f"{schedule}: invalid: {wrong[0]}{more}")
    stated = (
        ""
        if math.isclose(latency, found.latency_ms, rel_tol=1e-6)
        else f" ({schedule} states {found.latency_ms:.6g} ms)"
    )
    predicted = problem.predicted_for
    click.echo(f"{latency:.6g} ms{stated}{f'; {predicted}' if predicted else ''}")
