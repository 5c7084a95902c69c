"""``hios schedule``: a graph and its costs to a schedule."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click

from hios.cli.options import PATH, devices_option, output_option, partition_option, partitioned, refuse_overwriting
from hios.errors import warn
from hios.report.algorithm_listing import option, parameter_help, parameters
from hios.schedulers import Algorithm, Parameter
from hios.schedulers.plugins import entry_points, find, load, load_all

#: Where the context of a call keeps its options for parameters.
_PARAMETERS = "hios.parameters"


def _parameter(name: str, users: list[tuple[Algorithm, Parameter]]) -> click.Option:
    """The option of a parameter; those of one name have one type, and one that is true or false is a flag."""
    default = users[0][1].default
    names, text = [name, option(users[0][1])], parameter_help(users)
    if isinstance(default, bool):
        # Without flag_value, click 8.2.0 takes a flag that is given for one that is not.
        return click.Option(names, type=bool, is_flag=True, flag_value=True, default=None, help=text)
    return click.Option(names, type=type(default), default=None, help=text)


class _Schedule(click.Command):
    """Every parameter of every algorithm is an option, by its paper's name; help lists these options apart."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Import the algorithm from outside hios that is named first: its parameters are options too."""
        if set(args) & set(self.get_help_option_names(ctx)):
            load_all()
        for name in entry_points():
            if name in args or f"--algorithm={name}" in args:
                load(name)
        for before, word in itertools.pairwise(["", *args]):
            name = word if before == "--algorithm" else word.removeprefix("--algorithm=")
            if ":" in name and (before == "--algorithm" or name != word):
                find(name)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The options of the command, and one for each parameter of the algorithms that are registered."""
        theirs = ctx.meta.get(_PARAMETERS)
        if theirs is None:
            theirs = ctx.meta[_PARAMETERS] = [_parameter(name, users) for name, users in sorted(parameters().items())]
        return [*self.params, *theirs, *([] if (last := self.get_help_option(ctx)) is None else [last])]

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
@click.option(
    "--algorithm", required=True, help="Name of the algorithm (see hios algorithms), or package.module:function."
)
@devices_option
@partition_option
@output_option("schedule.json")
@click.pass_context
def command(
    context: click.Context,
    /,
    graph: Path,
    costs: Path,
    algorithm: str,
    devices: int,
    partition: Path | None,
    output: Path,
    **parameters: Any,
) -> None:
    """Compute where and when each operator of GRAPH runs, given COSTS."""
    from hios.artifacts import require_writable
    from hios.problem import Problem
    from hios.report.schedule_summary import cuts_in_words, gap_in_words, widths_in_words
    from hios.schedulers import schedule as run

    find(algorithm)
    refuse_overwriting([graph, costs, partition], [output])
    devices = (partitioned(context, partition, graph) or (devices,))[0]
    require_writable(output)
    given = {name: value for name, value in parameters.items() if value is not None}
    problem = Problem.read(graph, costs)
    made = run(problem, algorithm, devices, given)
    made.write(output)
    bound, kind = made.lower_bound_ms, ""
    if made.staged_lower_bound_ms:
        bound, kind = made.staged_lower_bound_ms, "staged "
    gap = gap_in_words(made.latency_ms, bound, kind)
    if problem.disturbed:
        warn(f"{costs}: {problem.disturbed}; profile again on an idle machine")
        gap = gap.partition(" (no ")[0] + " by these costs"  # what is said of all schedules would hold for them only
    click.echo(
        f"{output}: predicted latency {made.latency_ms:.4g} ms on {devices} device(s), lower bound {bound:.4g} ms"
        f"{' for staged schedules' if kind else ''}, {gap}"
        + (f"; cuts: {cuts_in_words(made.cuts)}" if made.cuts else "")
        + (f"; several devices: {widths}" if (widths := widths_in_words(made)) else "")
        + (f"; costs {problem.predicted_for}" if problem.predicted_for else "")
    )
