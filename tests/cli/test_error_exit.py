"""What all commands have in common: warnings as lines, and ending with the process that $HIOS_ENDS_WITH names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner

import hios
from hios.cli import main
from hios.cli.error_exit import VARIABLE, Group
from hios.errors import warn
from hios.files import artifacts
from tests.workers.processes import eventually, running


def test_warnings_are_lines() -> None:
    """A warning of hios is one line on standard error, without file and line; the command goes on."""
    group = Group("hios")

    @group.command("try")
    def command() -> None:
        warn("the machine became slower")
        print("done")  # noqa: T201

    result = CliRunner().invoke(group, ["try"])
    assert result.exit_code == 0
    assert result.stdout == "done\n"
    assert result.stderr == "Warning: the machine became slower\n"


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
    """Every command is in one section, and no description is cut."""
    words = " ".join(CliRunner().invoke(main, ["--help"]).stdout.partition("Your model:")[2].split())
    for name, command in main.commands.items():
        assert words.count(f"{name} {command.get_short_help_str(limit=1000)}") == 1


ROOT = Path(hios.__file__).resolve().parents[1]

#: An algorithm that says which process it is and then takes ten minutes.
_ALGORITHM = """
import os, time
from pathlib import Path
import hios

@hios.register("slow", paper="none", summary="takes ten minutes", several_devices=False)
def slow(problem, devices):
    Path("process").write_text(str(os.getpid()))
    time.sleep(600)
"""
#: As Snakemake does it: this process starts a shell, and that the command.
_RUNNER = """
import os, subprocess, sys
os.environ.setdefault(sys.argv[1], str(os.getpid()))
subprocess.run(["bash", "-c", sys.argv[2] + " 2>&1 | tee log"])
"""


def _start(folder: Path, **environment: str) -> subprocess.Popen[bytes]:
    """Start a process whose command takes ten minutes, and wait until the command has begun."""
    (folder / "slow_algorithm.py").write_text(textwrap.dedent(_ALGORITHM), encoding="utf-8")
    graph = {"name": "net", "operators": [{"id": "a", "type": "t"}], "edges": []}
    artifacts.write(folder / "graph.json", "graph", graph)
    artifacts.write(folder / "costs.json", "costs", {"operators": {"a": {"time_ms": 1}}, "transfers": []})
    command = f"{sys.executable} -m hios schedule graph.json costs.json --algorithm slow_algorithm:slow --output s.json"
    runner = subprocess.Popen(
        [sys.executable, "-c", _RUNNER, VARIABLE, command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        start_new_session=True,
    )
    assert eventually(lambda: (folder / "process").is_file() and (folder / "process").read_text() != "")
    return runner


def test_killed_alone(tmp_path: Path) -> None:
    """Where the runner is killed and can end nothing, the command ends, says why and leaves no file."""
    with _start(tmp_path) as runner:
        step = int((tmp_path / "process").read_text())
        runner.kill()
        assert eventually(lambda: not running(step))
    said = ["Snakemake has ended; so does this step", "Aborted"]
    assert eventually(lambda: (tmp_path / "log").read_text().split("\n\n") == [said[0], f"{said[1]}\n"])
    assert not (tmp_path / "s.json").exists()


@pytest.mark.parametrize("other", ["1x", "999999999", ""])
def test_others_do_not_count(tmp_path: Path, other: str) -> None:
    """A number that is no ancestor's, such as one of another machine, ends nothing."""
    with _start(tmp_path, **{VARIABLE: other}) as runner:
        step = int((tmp_path / "process").read_text())
        assert running(step)
        os.killpg(runner.pid, signal.SIGKILL)
