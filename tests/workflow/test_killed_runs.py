"""The real pipeline, killed in the middle of every stage: the same command again completes it, and nothing is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml

from hios.verify import verify
from tests.workers.processes import eventually
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
#: What has a command or a worker that $HOLDS names wait until it is killed, and write its process ID into $HELD.
_HOLD = """


def _hold(*names):
    import os, sys, time

    if os.environ.get("HOLDS") in (names or sys.argv[1:2]):
        with open(os.environ["HELD"], "w") as file:
            file.write(str(os.getpid()))
        while True:
            time.sleep(1)
"""
#: Lines of hios after which they wait: a command once its first output is written, before that replaces what was there,
#: and a worker in a call.
_PLACES = {
    "hios/files/artifacts.py": ("        yield temporary\n", "        _hold()\n"),
    "hios/workers/worker.py": (
        '    module, _, function = name.partition(":")\n',
        '    _hold(f"worker {worker.number}")\n',
    ),
}
#: Seconds for whatever a run does, however busy the machine is.
_LONG_S = 600.0
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


def _let_wait(folder: Path) -> None:
    """Put `_HOLD` into the hios of a checkout."""
    for name, (line, more) in _PLACES.items():
        before, found, after = (folder / name).read_text(encoding="utf-8").partition(line)
        assert found
        definition, main, end = after.partition('\n\nif __name__ == "__main__":')
        (folder / name).write_text(f"{before}{line}{more}{definition}{_HOLD}{main}{end}", encoding="utf-8")


def _is_held(held: Path, run: subprocess.Popen[bytes]) -> bool:
    """Whether a process waits in its middle, or never will."""
    return (held.is_file() and held.read_text() != "") or run.poll() is not None


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
    _let_wait(folder)
    finished: dict[Path, int] = {}
    log, held = folder.parent / "log", folder.parent / "held"
    for stage, victim, number in KILLS:
        held.unlink(missing_ok=True)
        holds = "worker 0" if victim == "worker" else stage
        with log.open("wb") as printed:
            run = subprocess.Popen(
                [sys.executable, "-m", "snakemake", "--cores", "2"],
                cwd=folder,
                env=real_checkout.environment(HOLDS=holds, HELD=str(held)),
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        here = f"{stage}, {victim}, {number.name}"
        try:
            assert eventually(partial(_is_held, held, run), _LONG_S), here
        except BaseException:
            os.killpg(run.pid, signal.SIGKILL)
            raise
        assert run.poll() is None, f"{here}: {log.read_text()}"
        if victim == "group":
            os.killpg(run.pid, number)
        else:
            os.kill(run.pid if victim == "snakemake" else int(held.read_text()), number)
        assert run.wait(_LONG_S) != 0, here
        text = log.read_text()
        assert "Traceback" not in text, f"{here}: {text}"
        if victim == "worker":
            assert "died by signal SIGKILL" in text, f"{here}: {text}"
        gone = eventually(lambda: not _inside(folder), _LONG_S)
        assert gone, f"{here}: {[_words(process) for process in _inside(folder)]}"
        kept = _finished(folder, stage)
        assert {path: kept.get(path) for path in finished} == finished, here
        finished = kept
    real_checkout.succeed()
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert real_checkout.planned() == {}
    assert [problem for file in verify(folder / "results") for problem in file.problems] == []
