"""The command line: one module per command. Heavy imports happen inside the command that needs them."""

from __future__ import annotations

import click

from hios import __version__
from hios.cli import execution, results, serving, stages, study
from hios.cli.error_exit import Group

_COMMANDS = (
    stages.export_command,
    stages.extract_command,
    stages.profile_command,
    stages.schedule_command,
    serving.train_command,
    execution.evaluate_command,
    stages.retarget_command,
    results.verify_command,
    results.show_command,
    results.draw_command,
    execution.execute_command,
    execution.distribute_command,
    stages.partition_command,
    serving.simulate_command,
    serving.load_command,
    results.report_command,
    results.archive_command,
    results.algorithms_command,
    results.figures_command,
    study.study_command,
    results.versions_command,
)


@click.group(cls=Group, commands=_COMMANDS, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="hios")
def main() -> None:
    """Find out where and when each operator of a neural network should run.

    The stages of the pipeline, in order: export, extract, profile, schedule, execute, report.
    """
