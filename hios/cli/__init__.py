"""The command line. Heavy imports happen inside the command that needs them.

stages      from a model to a schedule
execution   schedules on devices, over ranks, and under the cost model
results     what was written: report, tables, figures, archives, checks
serving     several models on one device
study       sessions of the papers' figures
options     options that several commands have, and their refusals
files       a stage on files: read, call, write
error_exit  how a command ends on an error
"""

from __future__ import annotations

import click

from hios import __version__
from hios.cli import execution, results, serving, stages, study
from hios.cli.error_exit import Group

#: Commands by what they are for, in the order in which help lists them.
_COMMANDS = {
    "Your model": (
        stages.export_command,
        stages.extract_command,
        stages.profile_command,
        stages.schedule_command,
        execution.execute_command,
        results.report_command,
        execution.distribute_command,
        stages.partition_command,
    ),
    "Schedules and graphs": (
        results.algorithms_command,
        results.show_command,
        results.draw_command,
        execution.evaluate_command,
        stages.retarget_command,
    ),
    "Several models": (
        serving.simulate_command,
        serving.load_command,
        serving.serve_command,
        serving.train_command,
    ),
    "Papers": (results.figures_command, study.study_command),
    "Files": (results.verify_command, results.archive_command, results.versions_command),
}


@click.group(cls=Group, sections=_COMMANDS, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="hios")
def main() -> None:
    """Find out where and when each operator of a neural network should run.

    The stages of the pipeline, in order: export, extract, profile, schedule, execute, report.
    """
