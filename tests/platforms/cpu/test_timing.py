"""What is timed: operators with random weights and inputs of the shapes that their graph states."""

from __future__ import annotations

from pathlib import Path

import torch

from hios import Graph, Operator
from hios.frontends.examples import example_inputs
from hios.platforms.cpu.timing import load
from hios.workers.arena import Arena
from hios.workers.stream_threads import Streams
from hios.workers.worker import Worker


def test_weights_and_inputs_that_are_single_numbers(tmp_path: Path) -> None:
    """An operator that scales a value by a weight of no dimensions, as nodes of RandWire do, can be loaded and run."""
    number = {"shape": [], "dtype": "float32"}
    call = {"function": "relax.multiply", "arguments": [{"input": "x"}, {"weight": "w"}], "attributes": {}}
    details = {"calls": [call], "shapes": {"inputs": [[]], "outputs": [[]]}, "dtype": "float32"}
    graph = Graph(
        "numbers",
        (Operator("scale", "multiply", details),),
        (),
        inputs=({"name": "x", **number},),
        outputs=({"operator": "scale"},),
        weights=({"name": "w", **number},),
    )
    graph.write(tmp_path / "graph.json")
    (value,) = example_inputs(graph.inputs, seed=0)
    assert value.shape == torch.Size([])
    worker = Worker(0, Arena(1, 64), Streams())
    load(worker, str(tmp_path / "graph.json"), {"scale": 2})
    subjects = worker.state["subjects"]["scale"]
    assert len(subjects) == 2
    subjects[0].run()
