"""What a command says beside its results."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
from click.testing import CliRunner

from hios.cli import main
from hios.cli.group import Group
from hios.errors import warn


def test_warnings_are_lines() -> None:
    """A warning of hios is one line on standard error, without file and line; the command goes on."""
    group = Group("hios")

    @group.command("try")
    def command() -> None:
        warn("the machine became slower")
        print("done")  # noqa: T201

    found = CliRunner().invoke(group, ["try"])
    assert found.exit_code == 0
    assert found.stdout == "done\n"
    assert found.stderr == "Warning: the machine became slower\n"


def test_warnings_of_others_stay_as_they_are() -> None:
    """Other libraries' warnings are shown as Python does."""
    group = Group("hios")

    @group.command("try")
    def command() -> None:
        warnings.warn("old", DeprecationWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        CliRunner().invoke(group, ["try"])
    assert [str(warning.message) for warning in caught] == ["old"]


@pytest.mark.parametrize("command", ["algorithms", "algorithms hios-lp --help"])
def test_a_reader_that_goes_away_is_no_error(command: str) -> None:
    """`hios algorithms | head` ends without a message."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "hios", *command.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_help_lists_whole_descriptions() -> None:
    """No description of a command is cut."""
    words = " ".join(CliRunner().invoke(main, ["--help"]).stdout.partition("Commands:")[2].split())
    for command in main.commands.values():
        assert command.get_short_help_str(limit=1000) in words
