"""Commands of hios, called in this process."""

from __future__ import annotations

from click.testing import CliRunner, Result

from hios.cli import main


def invoke(*arguments: object) -> Result:
    """What a command did; paths and numbers are given as they are."""
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def succeed(*arguments: object) -> Result:
    """The same, for a command that has to succeed."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments: object, workers: bool = False) -> str:
    """The one line that a command prints when it refuses; progress bars may stand before it if workers ran."""
    result = invoke(*arguments)
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit)  # nothing else got out
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    if not workers:
        assert len(lines) == 1, result.stderr
    assert lines[-1].startswith("Error: ")
    return lines[-1].removeprefix("Error: ")
