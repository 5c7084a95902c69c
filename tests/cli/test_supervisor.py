"""Commands end with the process that $HIOS_ENDS_WITH names, and only with that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import hios
from hios import artifacts
from hios.cli.supervisor import VARIABLE
from tests.workers.processes import eventually, running

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
    """Start a runner whose command takes ten minutes, and wait until it is at work."""
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
