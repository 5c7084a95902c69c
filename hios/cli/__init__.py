"""The command line: one module per command. Heavy imports happen inside the command that needs them."""

from __future__ import annotations

import click

from hios import __version__
from hios.cli import (
    algorithms_command,
    archive_command,
    distribute_command,
    draw_command,
    evaluate_command,
    execute_command,
    export_command,
    extract_command,
    figures_command,
    load_command,
    partition_command,
    profile_command,
    report_command,
    retarget_command,
    schedule_command,
    show_command,
    simulate_command,
    study_command,
    train_command,
    verify_command,
    versions_command,
)
from hios.cli.error_exit import Group

_COMMANDS = (
    export_command.command,
    extract_command.command,
    profile_command.command,
    schedule_command.command,
    train_command.command,
    evaluate_command.command,
    retarget_command.command,
    verify_command.command,
    show_command.command,
    draw_command.command,
    execute_command.command,
    distribute_command.command,
    partition_command.command,
    simulate_command.command,
    load_command.command,
    report_command.command,
    archive_command.command,
    algorithms_command.command,
    figures_command.command,
    study_command.command,
    versions_command.command,
)


@click.group(cls=Group, commands=_COMMANDS, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="hios")
def main() -> None:
    """Find out where and when each operator of a neural network should run.

    The stages of the pipeline, in order: export, extract, profile, schedule, execute, report.
    """
