"""SqueezeNet on small images, profiled once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hios.cli.files import profile
from tests.frontends.small_networks import files, graph, graph_file

__all__ = ["files", "graph", "graph_file"]

#: Devices to profile on: two, or one on a machine with a single core.
DEVICES = min(2, len(os.sched_getaffinity(0)))
REPEATS = 7
#: Seconds for measuring, which do not end a measurement however busy the machine is.
ENOUGH_S = 3600.0


@pytest.fixture(scope="session")
def costs_file(graph_file: Path) -> Path:
    """costs.json, measured with few repeats."""
    path = graph_file.with_name("costs.json")
    profile(graph_file, path, devices=DEVICES, repeats=REPEATS, stages_of=["greedy", "hios-lp"], budget_s=ENOUGH_S)
    return path
