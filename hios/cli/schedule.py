"""``hios schedule``: a graph and its costs to a schedule."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hios.cli.options import PATH, devices_option, output_option, refuse_overwriting
from hios.report.algorithms import option, parameter_help, parameters


def _algorithm_parameters(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option for every parameter of every algorithm, by its paper's name."""
    for _, users in sorted(parameters().items(), reverse=True):
        parameter = users[0][1]  # parameters of one name have one type
        flag = isinstance(parameter.default, bool)
        kind, text = type(parameter.default), parameter_help(users)
        command = click.option(option(parameter), type=kind, is_flag=flag, default=None, help=text)(command)
    return command


class _Schedule(click.Command):
    """Its help lists parameters of algorithms apart from the options that every algorithm takes."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Parameters of algorithms": []}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                theirs = parameter.name in parameters()
                sections["Parameters of algorithms" if theirs else "Options"].append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


@click.command("schedule", cls=_Schedule)
@click.argument("graph", type=PATH)
@click.argument("costs", type=PATH)
@click.option("--algorithm", required=True, help="Name of the algorithm; see hios algorithms.")
@devices_option
@output_option("schedule.json")
@_algorithm_parameters
def command(graph: Path, costs: Path, algorithm: str, devices: int, output: Path, **parameters: Any) -> None:
    """Compute where and when each operator of GRAPH runs, given COSTS."""
    from hios.artifacts import require_writable
    from hios.problem import Problem
    from hios.report.summary import cuts_in_words, gap_in_words
    from hios.schedulers import find
    from hios.schedulers import schedule as run

    find(algorithm)
    refuse_overwriting([graph, costs], [output])
    require_writable(output)
    given = {name: value for name, value in parameters.items() if value is not None}
    found = run(Problem.read(graph, costs), algorithm, devices, given)
    found.write(output)
    bound, kind = found.lower_bound_ms, ""
    if found.staged_lower_bound_ms:
        bound, kind = found.staged_lower_bound_ms, "staged "
    click.echo(
        f"{output}: predicted latency {found.latency_ms:.4g} ms on {devices} device(s), lower bound {bound:.4g} ms"
        f"{' for staged schedules' if kind else ''}, {gap_in_words(found.latency_ms, bound, kind)}"
        + (f"; cuts: {cuts_in_words(found.cuts)}" if found.cuts else "")
    )
