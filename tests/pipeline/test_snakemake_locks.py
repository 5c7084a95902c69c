"""Locks of killed runs of Snakemake, and of runs that are alive."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest

import hios
from hios.pipeline import snakemake_locks

ROOT = Path(hios.__file__).resolve().parents[1]

_RUN = """
import sys
from pathlib import Path
from hios.pipeline.snakemake_locks import remove_stale

remove_stale(Path(sys.argv[1]), sys.argv[2], submits=bool(sys.argv[3]))
(Path(sys.argv[1]) / "locks").mkdir(exist_ok=True)
(Path(sys.argv[1]) / "locks" / "0.output.lock").write_text("graph.json")
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def _run(folder: Path, node: str = "here", *, submits: bool = False) -> Iterator[None]:
    """A run in a process that is killed at the end."""
    command = [sys.executable, "-c", _RUN, str(folder), node, "yes" if submits else ""]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        try:
            yield
        finally:
            process.kill()


def _locks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a run finds there that begins, and ends at once."""
    held: list[TextIO] = []
    monkeypatch.setattr(snakemake_locks, "_held", held)
    snakemake_locks.remove_stale(folder, "here")
    for file in held:
        file.close()
    return [path.name for path in (folder / "locks").glob("*")]


def test_of_a_killed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are gone at the next start, again and again."""
    for _ in range(2):
        with _run(tmp_path):
            pass
        assert (tmp_path / "locks" / "0.output.lock").exists()
        assert _locks(tmp_path, monkeypatch) == []


def test_of_a_run_that_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay, also when the other of two runs has ended."""
    with _run(tmp_path):
        with _run(tmp_path):
            assert _locks(tmp_path, monkeypatch) == ["0.output.lock"]
        assert _locks(tmp_path, monkeypatch) == ["0.output.lock"]
    assert _locks(tmp_path, monkeypatch) == []


@pytest.mark.parametrize(("node", "submits"), [("there", False), ("here", True)])
def test_of_others(node: str, submits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay, as a run on another node or jobs on a cluster may go on, until Snakemake's --unlock removes them."""
    with _run(tmp_path, node, submits=submits):
        pass
    assert _locks(tmp_path, monkeypatch) == ["0.output.lock"]
    assert _locks(tmp_path, monkeypatch) == ["0.output.lock"]
    (tmp_path / "locks" / "0.output.lock").unlink()
    two_hours_ago = time.time() - 7200
    os.utime(tmp_path / "hios.lock", (two_hours_ago, two_hours_ago))
    with _run(tmp_path):
        pass
    assert _locks(tmp_path, monkeypatch) == []


def test_of_another_node_that_has_just_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it makes its plan it has no lock of Snakemake yet; the one that it then takes stays."""
    with _run(tmp_path, "there"):
        pass
    lock = tmp_path / "locks" / "0.output.lock"
    lock.unlink()
    assert _locks(tmp_path, monkeypatch) == []
    lock.touch()
    assert _locks(tmp_path, monkeypatch) == ["0.output.lock"]


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    """Snakemake says so itself, if it wants to write there."""
    (tmp_path / "file").touch()
    snakemake_locks.remove_stale(tmp_path / "file")
