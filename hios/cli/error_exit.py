"""How commands end: an error is one line and an exit status, and a step of the pipeline ends with its Snakemake.

A Snakemake that is killed cannot end its steps: they would go on running next to those of the next start.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from hios.cli.options import option_of
from hios.errors import HiosError, HiosWarning, naming_extras
from hios.machine.interrupts import raise_again


class Group(click.Group):
    """The group of all commands, which help lists by section.

    A `HiosError` becomes one line and exit status 1, wrong usage exit status 2.
    """

    def __init__(
        self, *arguments: Any, sections: Mapping[str, Sequence[click.Command]] | None = None, **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self._sections = {} if sections is None else sections
        for command in itertools.chain.from_iterable(self._sections.values()):
            self.add_command(command)

    def main(self, *arguments: Any, **keywords: Any) -> Any:
        """Run a command line; what click raises ends the process."""
        raise_again()
        end_with_supervisor()
        try:
            return super().main(*arguments, **{**keywords, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(2)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx is not None else "hios"
            click.echo(f"Error: {error.format_message()} (see {command} --help)", err=True)
            sys.exit(2)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except BrokenPipeError as error:  # of help, which is printed before a command is invoked
            _end_with_the_reader(error)
            raise
        except click.Abort:
            click.echo("Aborted", err=True)
            sys.exit(130)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section, with their whole first sentences; click cuts them to one line."""
        widest = max(map(len, self.commands))
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{command.name:{widest}}", command.get_short_help_str(limit=1000)) for command in commands]
                )

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; what hios and the system raise becomes a message, and so do warnings of hios."""
        given = list(ctx.args)
        try:
            with _warnings_as_lines(), naming_extras("this command"):
                return super().invoke(ctx)
        except HiosError as error:
            message = _naming_options(str(error), self.commands[str(ctx.invoked_subcommand)], given)
            raise click.ClickException(message) from error
        except OSError as error:
            _end_with_the_reader(error)
            where = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{where}{error.strerror or error}") from error


def _naming_options(message: str, command: click.Command, given: Sequence[str]) -> str:
    """A message whose setting, by which it begins, is called as the option of a command that gives it.

    Unless the command was given that word in another way, such as a file of this name or ``--set NAME=VALUE``.
    """
    others = {text.partition("=")[0] for text in given}
    if isinstance(command, click.Group):
        command = next((command.commands[text] for text in given if text in command.commands), command)
    known = {option for parameter in command.params for option in parameter.opts}

    def option(match: re.Match[str]) -> str:
        name = option_of(match[2])
        return f"{match[1]}{name if name in known and match[2] not in others else match[2]}: "

    return re.sub(r"^(platform \w+: |)(\w+): (?=found )", option, message)


def _end_with_the_reader(error: OSError) -> None:
    """End silently if the output is no longer read, as in ``hios verify results | head``."""
    if not isinstance(error, BrokenPipeError):
        return
    output = select.poll()
    output.register(sys.stdout, 0)
    if output.poll(0):  # otherwise it was another pipe, such as one to a worker
        # Python flushes once more when it ends, which has to succeed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


@contextlib.contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Show warnings of hios without file and line, which mean nothing on the command line."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, HiosWarning):
                click.echo(f"Warning: {message}", err=True)
            else:
                shown(message, category, *place, **more)

        warnings.showwarning = show
        yield


#: Environment variable with Snakemake's process ID; workflow/rules/common.smk sets it for the commands of the rules.
VARIABLE = "HIOS_ENDS_WITH"

#: Seconds for an interrupted command to end its workers and remove unfinished files.
_GRACE_S = 5.0
_INTERRUPTED = 130


def end_with_supervisor() -> None:
    """Interrupt this process once the one that ``$HIOS_ENDS_WITH`` names has ended, if that started it.

    The process ID counts only if it is an ancestor: a job may inherit the environment of another machine or container.
    """
    text = os.environ.get(VARIABLE, "")
    if not text.isdecimal() or len(text) > 9 or not hasattr(os, "pidfd_open"):
        return
    if int(text) not in _ancestors():
        return
    try:
        descriptor = os.pidfd_open(int(text))
    except OSError:  # it has already ended, so there is no process left to watch
        return
    threading.Thread(target=_end_after, args=(descriptor,), name="supervisor", daemon=True).start()


def _end_after(descriptor: int) -> None:
    ended = select.poll()
    ended.register(descriptor, select.POLLIN)
    ended.poll()
    click.echo("Snakemake has ended; so does this step", err=True)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_GRACE_S)
    os._exit(_INTERRUPTED)  # it ignores interrupts, or is deep in a library


def _ancestors() -> set[int]:
    """Process IDs of the parent, its parent and so on."""
    ancestors: set[int] = set()
    process = os.getppid()
    while process > 0 and process not in ancestors:
        ancestors.add(process)
        try:
            status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            break
        process = int(status.rpartition(")")[2].split()[1])  # the name in parentheses may contain any characters
    return ancestors
