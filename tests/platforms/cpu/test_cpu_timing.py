"""What is timed: operators with random weights and inputs of the shapes that their graph states."""

from __future__ import annotations

from pathlib import Path

import torch

from hios import Graph
from hios.frontends.example_inputs import example_inputs
from hios.platforms.cpu.timing import load
from hios.workers.arena import Arena
from hios.workers.stream_threads import Streams
from hios.workers.worker import Worker
from tests.operators import operator_from, tensor_from, value_from


def test_weights_and_inputs_that_are_single_numbers(tmp_path: Path) -> None:
    """An operator that scales a value by a weight of no dimensions, as nodes of RandWire do, can be loaded and run."""
    number = {"shape": [], "dtype": "float32"}
    call = {"function": "relax.multiply", "arguments": [{"input": "x"}, {"weight": "w"}], "attributes": {}}
    details = {"calls": [call], "shapes": {"inputs": [[]], "outputs": [[]]}, "dtype": "float32"}
    graph = Graph(
        "numbers",
        (operator_from("scale", "multiply", details),),
        (),
        inputs=(tensor_from({"name": "x", **number}),),
        outputs=(value_from({"operator": "scale"}),),
        weights=(tensor_from({"name": "w", **number}),),
    )
    graph.write(tmp_path / "graph.json")
    (example,) = example_inputs(graph.inputs, seed=0)
    assert example.shape == torch.Size([])
    worker = Worker(0, Arena(1, 64), Streams())
    load(worker, str(tmp_path / "graph.json"), {"scale": 2})
    workloads = worker.state["workloads"]["scale"]
    assert len(workloads) == 2
    workloads[0].run()
