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

_HOOKS = ("pytest_xdist_make_scheduler", "pytest_sessionstart", "pytest_handlecrashitem")
_CRASHES = f"""
import os

def test_before():
    pass

def test_crash():
    os.kill(os.getpid(), {int(signal.SIGKILL)})

def test_after():
    pass
"""
_SEGFAULTS = _CRASHES.replace(str(int(signal.SIGKILL)), str(int(signal.SIGSEGV)))
_PASSES = """
import pytest

@pytest.mark.parametrize("number", range(COUNT))
def test_quick(number):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(("crashes", "processes"), [(2, 1), (4, 4)])
def test_a_crash_fails_one_test(crashes: int, processes: int, tmp_path: Path) -> None:
    """The test is named and fails with how it ended, all others run, whichever process has them, and the run ends."""
    command = re.search(r"^TESTS := python (.*)$", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert command is not None
    for number in range(crashes):
        (tmp_path / f"test_crashes_{number}.py").write_text((_CRASHES, _SEGFAULTS)[number % 2], encoding="utf-8")
    for count in range(1, 5):  # a file of one test is what a new process would wait behind
        text = _PASSES.replace("COUNT", str(count))
        (tmp_path / f"test_passes_{count}.py").write_text(text, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(f"from tests.conftest import {', '.join(_HOOKS)}\n")
    (tmp_path / "pytest.ini").touch()
    # pytest-xdist tells the processes that it starts of itself by these variables; the last one names the folder where
    # processes of this run leave where they were
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "HIOS_TESTS_SHARED"))}
    kept["PYTHONPATH"] = str(MAKEFILE.parent)
    done = subprocess.run(
        [sys.executable, *shlex.split(command[1]), "--numprocesses", str(processes), "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=kept,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 1, done.stdout
    for number in range(crashes):
        how = ("SIGKILL", "SIGSEGV")[number % 2]
        assert f"crashed while running 'test_crashes_{number}.py::test_crash': it ended by {how}" in done.stdout
    assert "in test_crash" in done.stdout  # where a process was that Python saw dying
    last = done.stdout.splitlines()[-1]
    assert f"{crashes} failed, {10 + 2 * crashes} passed" in last, done.stdout
