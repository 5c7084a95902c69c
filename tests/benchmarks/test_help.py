"""Scripts of benchmarks/ say what they measure before they measure for minutes."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import pytest

import benchmarks.networks

_FOLDER = Path(benchmarks.networks.__file__).parent
_SCRIPTS = [path for path in sorted(_FOLDER.glob("*.py")) if "__main__" in path.read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", _SCRIPTS, ids=lambda path: path.stem)
def test_help_ends_before_anything_is_measured(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--help` prints how to call a script, and ends it."""
    monkeypatch.syspath_prepend(str(_FOLDER))
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    monkeypatch.setenv("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", "1"))  # some set it, for good otherwise
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    assert not end.value.code
    assert capsys.readouterr().out.startswith(f"usage: {path.name} ")
