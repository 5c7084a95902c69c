"""Memory that the models of a scenario need on one GPU: how many copies of a model, and which batches, fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hios.graph import Graph
from hios.platforms.model.kernel_work import ELEMENT_BYTES
from hios.serving.policies import policy
from hios.serving.scenario import Scenario


@dataclass(frozen=True)
class Memory:
    """Bytes on one device.

    Attributes:
        weights: of all models; every copy of a model has its own.
        values: inputs, outputs and everything between operators, as `hios load` reserves it.
    """

    weights: int
    values: int

    @property
    def total(self) -> int:
        """Weights and values."""
        return self.weights + self.values

    def copies(self, memory_gb: float) -> float:
        """How many times all of it fits into a memory of so many 10^9 bytes; infinite if that is."""
        return _times(memory_gb * 1e9, self.total)

    def batch(self, memory_gb: float) -> float:
        """The largest batch that fits, if these are the values of a single input: only those grow with it."""
        return _times(memory_gb * 1e9 - self.weights, self.values)


def _times(room: float, size: int) -> float:
    return math.inf if room == math.inf or not size else max(0, math.floor(room / size))


def memory_of(scenario: Scenario, system: str) -> Memory | None:
    """Memory of all models of a scenario under a policy with blocks; None if a graph does not state its shapes.

    Values between blocks have the slots of the policy. Those inside of blocks are counted for the largest blocks that
    may run at once, without reusing memory within a block, and without workspaces of libraries: convolutions that need
    one take more, allocators that reuse memory take less.

    Args:
        scenario: models with graphs.
        system: name of the policy.
    """
    from hios.serving.block_values import BlockValues
    from hios.serving.lane_program import Handovers
    from hios.workers.arena import Layout

    graphs = [model.problem.graph for model in scenario.models]
    if not all(map(_states_shapes, graphs)):
        return None
    pipeline = policy(system).make(scenario)
    layout, values, first = Layout(), [], 0
    for model, graph in zip(scenario.models, graphs, strict=True):
        blocks = [[graph.operators[number].id for number in block] for block in model.blocks]
        made = BlockValues(model.label, graph, blocks, waiting=pipeline.slots, running=1, layout=layout, first=first)
        values.append(made)
        first += len(made.slots)
    handovers = Handovers(layout.size, 0)
    handovers.reserve(values, max(map(len, pipeline.combined)))
    weights = sum(
        math.prod(entry.shape) * ELEMENT_BYTES.get(entry.dtype, 4) for graph in graphs for entry in graph.weights
    )
    return Memory(weights, handovers.size)


def _states_shapes(graph: Graph) -> bool:
    return bool(graph.outputs) and all(operator.output_types and operator.calls for operator in graph.operators)
