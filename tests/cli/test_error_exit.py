"""What goes wrong around hios: a clear line, a status, nothing lost; warnings, and ending as $HIOS_ENDS_WITH says."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hios.cli import main
from hios.cli.error_exit import VARIABLE, Group, _naming_options
from hios.errors import ArtifactError, warn
from hios.profiling.cache import Cache
from tests.problems import problem, write_files
from tests.scripts import ROOT, python
from tests.verify.results import write_network
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
    reading, writing = os.pipe()
    os.close(reading)  # before the command begins, however soon it prints
    try:
        done = subprocess.run(
            [sys.executable, "-u", "-m", "hios", *command.split()], stdout=writing, stderr=subprocess.PIPE, check=False
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_help_lists_whole_descriptions() -> None:
    """Every command is in one section, and no description is cut."""
    words = " ".join(CliRunner().invoke(main, ["--help"]).stdout.partition("Your model:")[2].split())
    for name, command in main.commands.items():
        assert words.count(f"{name} {command.get_short_help_str(limit=1000)}") == 1


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
    write_files(problem({"a": 1.0}, {}), folder)
    command = f"{sys.executable} -m hios schedule graph.json costs.json --algorithm slow_algorithm:slow --output s.json"
    runner = subprocess.Popen(
        [sys.executable, "-c", _RUNNER, VARIABLE, command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        start_new_session=True,
    )
    assert eventually(lambda: (folder / "process").is_file() and (folder / "process").read_text() != "")
    return runner


def test_killed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the runner is killed and can end nothing, the command ends, says why and leaves no file."""
    monkeypatch.delenv(VARIABLE, raising=False)  # it names another process where a pipeline runs the tests
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


_MODELS = """
import torch

class Raises(torch.nn.Module):
    def forward(self, x):
        raise ValueError("this network\\ncannot run")

def raises():
    return Raises(), (torch.ones(1, 4),)
"""


#: Interrupts its own process, as Ctrl-C would, while hios schedules.
_INTERRUPTED_ALGORITHM = """
import signal
from hios.schedulers import register

@register("interrupted", paper="", summary="", several_devices=False)
def interrupted(problem, devices):
    signal.raise_signal(signal.SIGINT)
"""
#: Runs hios as a program, and interrupts it while it imports a module.
_INTERRUPTED_IMPORT = """
import runpy, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["hios", "algorithms"]
runpy.run_module("hios", run_name="__main__", alter_sys=True)
"""

#: As sitecustomize.py: interrupts its own process at an import, once.
_INTERRUPTED_START = """
import signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""


def _hios(*arguments: object, folder: Path = ROOT) -> tuple[int, str]:
    """Status and stderr of a command in a process of its own."""
    done = python("-m", "hios", *arguments, folder=folder)
    return done.returncode, done.stderr


def _one_line(stderr: str) -> str:
    assert stderr.startswith("Error: "), stderr
    assert len(stderr.splitlines()) == 1, stderr
    return stderr


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.parametrize(
    ("given", "message", "expected"),
    [
        (["--load", "0"], "load: found 0; allowed: more", "--load: found 0; allowed: more"),
        (["--load", "0"], "platform cpu: load: found 0", "platform cpu: --load: found 0"),
        (["--set", "load=0"], "load: found 0", "load: found 0"),
        (["--results", "results"], "results: found no result", "results: found no result"),
        (["a.json"], "a.json: load: found 0", "a.json: load: found 0"),
    ],
)
def test_settings_are_called_as_options(given: list[str], message: str, expected: str) -> None:
    """Where a setting was given by an option; files and settings of the same name are not."""
    command = click.Command("run", params=[click.Option(["--load"]), click.Option(["--results"])])
    assert _naming_options(message, command, given) == expected


@pytest.fixture
def network(tmp_path: Path) -> Path:
    """Graph, costs and schedules of a network."""
    return write_network(tmp_path / "net", 3)


def test_a_full_disk(disk: Path, tmp_path: Path) -> None:
    """The command says that the disk is full; what was there stays, and no part of the new file."""
    write_files(problem({f"operator-{number}": 1.0 for number in range(1000)}, {}), tmp_path)
    (disk / "schedule.json").write_text("the one before")
    command = ["schedule", tmp_path / "graph.json", tmp_path / "costs.json", "--algorithm", "sequential"]
    status, stderr = _hios(*command, "--output", disk / "schedule.json")
    assert status == 1
    assert "No space left on device" in _one_line(stderr)
    assert [path.name for path in disk.iterdir()] == ["schedule.json"]
    assert (disk / "schedule.json").read_text() == "the one before"


def test_a_read_only_results_folder(disk: Path, network: Path) -> None:
    """Refused before the work for it begins."""
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    status, stderr = _hios(
        *("schedule", network / "graph.json", network / "costs.json"),
        *("--algorithm", "hios-lp", "--devices", 2, "--output", disk / "new" / "schedule.json"),
    )
    assert status == 1
    assert "cannot be written" in _one_line(stderr)


def test_a_read_only_cache(disk: Path) -> None:
    """Refused before anything is measured, with a way round."""
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(ArtifactError, match="cannot be written"):
        Cache(disk / "measurements", {})


def test_a_model_whose_forward_raises(tmp_path: Path) -> None:
    """Its message in one line, and no program."""
    (tmp_path / "faulty.py").write_text(_MODELS, encoding="utf-8")
    status, stderr = _hios("export", "faulty:raises", "--output", "program.pt2", folder=tmp_path)
    assert status == 1
    assert "this network" in _one_line(stderr)
    assert not (tmp_path / "program.pt2").exists()


def test_ctrl_c_while_scheduling(network: Path, tmp_path: Path) -> None:
    """One line, the status of an interrupted program, and no schedule."""
    (tmp_path / "own.py").write_text(_INTERRUPTED_ALGORITHM, encoding="utf-8")
    status, stderr = _hios(
        *("schedule", network / "graph.json", network / "costs.json"),
        *("--algorithm", "own:interrupted", "--output", "schedule.json"),
        folder=tmp_path,
    )
    assert (status, stderr.strip()) == (130, "Aborted")
    assert not (tmp_path / "schedule.json").exists()


@pytest.mark.parametrize("module", ["hios.cli", "hios.cli.stages", "hios.cli.error_exit"])
def test_ctrl_c_while_a_command_is_loaded(module: str) -> None:
    """So it is before the command begins."""
    done = python("-c", _INTERRUPTED_IMPORT.format(module=module))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Aborted\n")


def _interrupted_at(module: str, command: list[str], folder: Path, *, ignored: bool = False) -> tuple[int, str]:
    """Status and output of a command that is interrupted as Python begins to import a module."""
    (folder / "sitecustomize.py").write_text(_INTERRUPTED_START.format(module=module), encoding="utf-8")
    script = folder / "hios"
    script.write_text("import sys\nfrom hios.__main__ import main\nsys.exit(main())\n", encoding="utf-8")
    arguments = [str(script) if (number, part) == (0, "hios") else part for number, part in enumerate(command)]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else signal.getsignal(signal.SIGINT)
    try:  # a process inherits that interrupts are ignored
        done = python(*arguments, PYTHONPATH=f"{folder}{os.pathsep}{ROOT}")
    finally:
        signal.signal(signal.SIGINT, before)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("module", ["hios.core.graph", "hios.schedulers", "hios.cli.error_exit"])
@pytest.mark.parametrize("command", [["hios", "algorithms"], ["-m", "hios", "algorithms"]])
def test_ctrl_c_while_hios_is_loaded(command: list[str], module: str, tmp_path: Path) -> None:
    """There is no traceback; the program ends as one that was interrupted."""
    assert _interrupted_at(module, command, tmp_path) == (-signal.SIGINT, "")


def test_interrupts_that_are_ignored_stay_so(tmp_path: Path) -> None:
    """A command in the background of a shell script, where interrupts are ignored, is not ended."""
    status, printed = _interrupted_at("hios.core.graph", ["hios", "algorithms"], tmp_path, ignored=True)
    assert status == 0
    assert "hios-lp" in printed


def test_the_library_leaves_interrupts_alone(tmp_path: Path) -> None:
    """A program that imports hios sees KeyboardInterrupt."""
    status, printed = _interrupted_at("hios.core.graph", ["-c", "import hios"], tmp_path)
    assert "KeyboardInterrupt" in printed
    assert status == -signal.SIGINT


def test_no_duration_is_taken_from_a_clock_that_jumps() -> None:
    """Durations and deadlines are of monotonic clocks: the time of day may be set while hios runs."""
    for path in sorted((ROOT / "hios").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "time":
                assert node.attr not in ("time", "time_ns"), f"{path}:{node.lineno}"
