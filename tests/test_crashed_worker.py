"""How `make test` ends when a test ends its whole process."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"

_CRASHES = f"""
import os

def test_before():
    pass

def test_crash():
    os.kill(os.getpid(), {int(signal.SIGKILL)})

def test_after():
    pass
"""
#: Of this length, some of them are under way or wait when the process dies.
_PASSES = """
import pytest, time

@pytest.mark.parametrize("number", range(3))
def test_quick(number):
    time.sleep(0.1)
"""


@pytest.mark.slow
def test_the_run_ends_and_fails(tmp_path: Path) -> None:
    """The test is named, and the run does not wait for the process that died, nor end in success."""
    command = re.search(r"^TESTS := python (.*)$", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert command is not None
    (tmp_path / "test_crashes.py").write_text(_CRASHES, encoding="utf-8")
    for number in range(4):
        (tmp_path / f"test_passes_{number}.py").write_text(_PASSES, encoding="utf-8")
    (tmp_path / "pytest.ini").touch()
    # pytest-xdist tells the processes that it starts of itself by these variables
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, *shlex.split(command[1]), "--numprocesses", "2", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=kept,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout
    assert "crashed while running 'test_crashes.py::test_crash'" in done.stdout
    assert "worker restarting disabled" in done.stdout
