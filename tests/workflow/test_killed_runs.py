"""The real pipeline, killed in the middle of every stage: the same command again completes it, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

from hios.verify import verify
from tests.workers.processes import children, eventually
from tests.workflow.conftest import Checkout
from tests.workflow.networks import OWN_NETWORK

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two devices need two cores"),
]

CONFIG = {
    "models": OWN_NETWORK,
    "devices": [1, 2],
    "algorithms": {"sequential": {}, "hios-lp": {}},
    "profile": {"repeats": 3, "budget": 0, "cache": False},
    "execute": {"runs": 3, "warmup": 1},
    "study": {"sessions": []},
}
#: What each stage leaves.
ARTIFACTS = {
    "export": ["program.pt2"],
    "extract": ["graph.json", "weights.safetensors"],
    "profile": ["costs.json"],
    "schedule": ["schedules/*.json"],
    "execute": ["run.json"],
    "report": ["../report.html"],
}
#: Stage, who is killed in its middle, and how. Snakemake alone can end nobody; the group is all that a terminal runs.
KILLS = [
    ("export", "group", signal.SIGKILL),
    ("extract", "snakemake", signal.SIGKILL),
    ("profile", "worker", signal.SIGKILL),
    ("profile", "command", signal.SIGKILL),
    ("profile", "group", signal.SIGINT),
    ("schedule", "group", signal.SIGKILL),
    ("execute", "worker", signal.SIGKILL),
    ("execute", "command", signal.SIGKILL),
    ("execute", "snakemake", signal.SIGKILL),
    ("execute", "group", signal.SIGTERM),
    ("report", "group", signal.SIGKILL),
]


def _words(process: int) -> list[str]:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")
    return []


def _inside(folder: Path) -> list[int]:
    """Processes whose current folder is this one."""
    pids = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                if (path / "cwd").readlink() == folder:
                    pids.append(int(path.name))
    return pids


def _commands(folder: Path, stage: str) -> list[int]:
    """Processes of ``python -m hios STAGE`` there."""
    return [process for process in _inside(folder) if _words(process)[1:4] == ["-m", "hios", stage]]


def _workers(folder: Path, stage: str) -> list[int]:
    return [
        child
        for command in _commands(folder, stage)
        for child in children(command)
        if "hios.workers.worker" in " ".join(_words(child))
    ]


def _at_work(find: Callable[[Path, str], list[int]], folder: Path, stage: str, run: subprocess.Popen[bytes]) -> bool:
    """Whether those that are to be killed are there, or never will be."""
    return bool(find(folder, stage)) or run.poll() is not None


def _finished(folder: Path, stage: str) -> dict[Path, int]:
    """When each artifact of the stages before one was written."""
    before = list(ARTIFACTS).index(stage)
    patterns = [pattern for patterns in list(ARTIFACTS.values())[:before] for pattern in patterns]
    files = [file for pattern in patterns for file in (folder / "results" / "net").glob(pattern)]
    assert len(files) >= len(patterns), files
    return {file: file.stat().st_mtime_ns for file in files}


def test_each_stage(real_checkout: Checkout) -> None:
    """No kill leaves a process or a traceback behind, every run goes on where the one before was."""
    folder = real_checkout.path
    real_checkout.add_own_network()
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG), encoding="utf-8")
    finished: dict[Path, int] = {}
    for stage, victim, number in KILLS:
        log = folder.parent / "log"
        with log.open("wb") as printed:
            run = subprocess.Popen(
                [sys.executable, "-m", "snakemake", "--cores", "2"],
                cwd=folder,
                env=real_checkout.environment(),
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        here = f"{stage}, {victim}, {number.name}"
        find = _workers if victim == "worker" else _commands
        assert eventually(partial(_at_work, find, folder, stage, run)), here
        assert run.poll() is None, f"{here}: {log.read_text()}"
        if victim == "group":
            os.killpg(run.pid, number)
        else:
            os.kill(run.pid if victim == "snakemake" else find(folder, stage)[-1], number)
        assert run.wait(300) != 0, here
        text = log.read_text()
        assert "Traceback" not in text, f"{here}: {text}"
        if victim == "worker":
            assert "died by signal SIGKILL" in text, f"{here}: {text}"
        assert eventually(lambda: not _inside(folder)), f"{here}: {[_words(process) for process in _inside(folder)]}"
        kept = _finished(folder, stage)
        assert {path: kept.get(path) for path in finished} == finished, here
        finished = kept
    real_checkout.succeed()
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert real_checkout.planned() == {}
    assert [problem for file in verify(folder / "results") for problem in file.problems] == []
