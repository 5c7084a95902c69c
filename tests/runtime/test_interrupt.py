"""Ctrl-C, which a terminal sends to the controller and its workers alike."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hios
from hios import Graph
from tests.frontends.small_networks import Files
from tests.runtime.schedules import one_by_one, write_schedules
from tests.workers.processes import children, eventually, running

ROOT = Path(hios.__file__).resolve().parents[1]


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_an_early_interrupt_is_quiet(files: Files, graph: Graph, tmp_path: Path, seconds: float) -> None:
    """Interrupted as soon as a worker runs or while it imports torch, execute says so and leaves nothing behind."""
    write_schedules(tmp_path, graph, {"sequential": one_by_one(graph)})
    arguments: list[str | Path] = [files.graph, files.weights, "sequential.json", "--program", files.program]
    with subprocess.Popen(
        [sys.executable, "-m", "hios", "execute", *arguments, "--output", "run.json", "--traces", "traces"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,  # a process group of its own, as a command in a terminal has
    ) as controller:
        assert eventually(lambda: bool(children(controller.pid)))
        workers = children(controller.pid)
        time.sleep(seconds)
        os.killpg(controller.pid, signal.SIGINT)
        printed, _ = controller.communicate(timeout=300)
    assert controller.returncode == 130
    assert printed.strip() == "Aborted"
    assert eventually(lambda: not any(map(running, workers)))
    assert [path.name for path in tmp_path.iterdir()] == ["sequential.json"]
