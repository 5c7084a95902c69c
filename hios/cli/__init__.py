"""The command line: a module a command. Heavy imports happen inside the command that needs them."""

from __future__ import annotations

import click

from hios import __version__
from hios.cli import (
    algorithms,
    archive,
    distribute,
    draw,
    evaluate,
    execute,
    export,
    extract,
    figures,
    load,
    partition,
    profile,
    report,
    retarget,
    schedule,
    show,
    simulate,
    study,
    train,
    verify,
    versions,
)
from hios.cli.group import Group

_COMMANDS = (
    export.command,
    extract.command,
    profile.command,
    schedule.command,
    train.command,
    evaluate.command,
    retarget.command,
    verify.command,
    show.command,
    draw.command,
    execute.command,
    distribute.command,
    partition.command,
    simulate.command,
    load.command,
    report.command,
    archive.command,
    algorithms.command,
    figures.command,
    study.command,
    versions.command,
)


@click.group(cls=Group, commands=_COMMANDS, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="hios")
def main() -> None:
    """Find out where and when each operator of a neural network should run.

    The stages of the pipeline, in order: export, extract, profile, schedule, execute, report.
    """
