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
    """Print the latency of SCHEDULE under the cost model, or why it is invalid.

    A schedule is also invalid if it states a different latency, or a lower bound above a latency that is possible.
    """
    from hios.bound_check import judge_bounds
    from hios.evaluate import evaluate as run
    from hios.evaluate import latency_ms
    from hios.problem import Problem
    from hios.report.schedule_summary import widths_in_words
    from hios.schedule import Schedule
    from hios.schedule_check import violations
    from hios.schedulers import schedule as schedule_by

    problem, given = Problem.read(graph, costs), Schedule.read(schedule)
    try:
        latency = latency_ms(run(problem, given.plan(problem.graph)))
    except ScheduleError as error:
        where = "" if str(error).startswith(str(schedule)) else f"{schedule}: invalid: "
        raise HiosError(f"{where}{error}") from None
    if wrong := violations(problem, given):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise HiosError(f"{schedule}: invalid: {wrong[0]}{more}")
    if not math.isclose(latency, given.latency_ms, rel_tol=1e-6, abs_tol=1e-9):
        raise HiosError(
            f"{schedule}: latency_ms: found {given.latency_ms:.6g}; allowed: {latency:.6g}, that of its plan under the "
            "cost model; schedule again, as graph, costs or placements were changed"
        )
    bounds = judge_bounds(problem, given)
    if any(bound.verdict == "unconfirmed" for bound in bounds):  # a quick schedule may be faster than it allows
        bounds = judge_bounds(problem, given, [schedule_by(problem, "heft", given.devices)])
    for bound in bounds:
        if bound.verdict == "wrong":
            raise HiosError(f"{schedule}: {bound}")
    predicted = problem.predicted_for
    widths = widths_in_words(given)
    click.echo(
        f"{latency:.6g} ms{f'; several devices: {widths}' if widths else ''}{f'; {predicted}' if predicted else ''}"
    )
