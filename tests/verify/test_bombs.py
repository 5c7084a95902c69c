"""No small file makes a reader take gigabytes: it is refused in one line, in a process that could not have them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("part", ["light", pytest.param("programs", marks=pytest.mark.slow)])
def test_bombs(part: str) -> None:
    """Each of tests/verify/bombs.py, apart from pytest and its threads, as it forks."""
    if part == "programs":
        pytest.importorskip("torch")
        pytest.importorskip("onnx", reason="needs the extra onnx")
    done = subprocess.run(
        [sys.executable, "-m", "tests.verify.bombs", part], cwd=ROOT, capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(lines) > 5
    assert not [line for line in lines if line.startswith("WRONG")]
