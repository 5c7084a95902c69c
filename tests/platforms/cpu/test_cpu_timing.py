"""What is timed: operators with random weights and inputs of the shapes that their graph states."""

from __future__ import annotations

from pathlib import Path

import torch

from hios.frontends.example_inputs import example_inputs
from hios.platforms.cpu.timing import load
from hios.workers.arena import Arena
from hios.workers.stream_threads import Streams
from hios.workers.worker import Worker
from tests.platforms.model.gpu_graphs import one_operator


def test_weights_and_inputs_that_are_single_numbers(tmp_path: Path) -> None:
    """An operator that scales a value by a weight of no dimensions, as nodes of RandWire do, can be loaded and run."""
    graph = one_operator("relax.multiply", [[]], [], weights=[[]])
    graph.write(tmp_path / "graph.json")
    (example,) = example_inputs(graph.inputs, seed=0)
    assert example.shape == torch.Size([])
    worker = Worker(0, Arena(1, 64), Streams())
    load(worker, str(tmp_path / "graph.json"), {"v": 2})
    workloads = worker.state["workloads"]["v"]
    assert len(workloads) == 2
    workloads[0].run()
