"""Devices that share cores: outputs are right, and every artifact says that they are virtual."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hios
from hios import Graph
from hios.core.schedule import Plan
from hios.errors import PlatformError
from hios.machine.description import usable_cores
from hios.platforms.cpu import devices as cpu
from tests.frontends.small_networks import Files
from tests.runtime.schedules import random_plan, random_streams, write_schedules

ROOT = Path(hios.__file__).resolve().parents[1]
#: The command line on some cores only, as taskset has it.
_ON_CORES = "import os; os.sched_setaffinity(0, {cores}); from hios.cli import main; main()"


def _hios(cores: list[int], *arguments: object) -> str:
    """Run a command on these cores; what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", _ON_CORES.format(cores=set(cores)), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "most_cores"), [(3, 2), (2, 1)])
def test_devices_share_cores(files: Files, graph: Graph, tmp_path: Path, devices: int, most_cores: int) -> None:
    """Stages and streams of more devices than there are cores run, with right outputs, and are marked as virtual."""
    cores = usable_cores()[:most_cores]
    plans: dict[str, Plan] = {
        "stages": random_plan(graph, devices, seed=1),
        "streams": random_streams(graph, devices, 2, seed=2),
    }
    paths = [files.graph, files.weights, *write_schedules(tmp_path, graph, plans)]
    outputs = ["--output", tmp_path / "run.json", "--traces", tmp_path / "traces"]
    settings = ["--virtual", "--program", files.program, "--runs", 2, "--warmup", 0]
    printed = _hios(cores, "execute", *paths, *settings, *outputs)
    run: dict[str, Any] = json.loads((tmp_path / "run.json").read_text())
    assert run["platform"]["virtual"] is True
    assert run["platform"]["cores"] == [[cores[device % len(cores)]] for device in range(devices)]
    assert [result["devices"] for result in run["results"]] == [devices, devices]
    assert {row["device"] for result in run["results"] for row in result["measured"]} == set(range(devices))
    assert max(result["largest_difference"] for result in run["results"]) <= run["tolerance"]
    threads = {reference["threads"] for reference in run["references"]}
    assert threads == {1, len(cores)}
    assert "virtual devices: times say little" in printed
    trace = json.loads((tmp_path / "traces" / "stages.json").read_text())
    assert trace["otherData"]["title"].endswith("stages, virtual devices: times say little")


def test_virtual_devices_are_described() -> None:
    """Devices beyond the cores take them in turn; devices that have cores of their own are not virtual."""
    cores = usable_cores()
    many = cpu.describe(2 * len(cores) + 1, virtual=True)
    assert many.cores == tuple((core,) for core in [*cores, *cores, cores[0]])
    assert many.virtual is True
    assert cpu.describe(len(cores), virtual=True).virtual is None
    for devices in (0, 16 * len(cores) + 1):
        with pytest.raises(PlatformError, match=f"devices: found {devices}; allowed: 1 to {16 * len(cores)}, as "):
            cpu.device_cores(devices, virtual=True)
