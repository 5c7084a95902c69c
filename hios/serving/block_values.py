"""Values that pass between the blocks of a model: which they are, and slots of the arena that hold them.

An instance, a task that has left its queue, keeps its inputs, what later blocks read, and its outputs in slots. Each
value has so many slots as instances can have it at once (TOP, D6): where blocks have room for ``waiting`` instances and
run ``running`` at once, a value of block p that block q reads last is held by ``running`` instances in p, and by
``waiting + running`` in each block after it up to q. So memory is bounded, whatever arrives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hios.errors import HiosError
from hios.graph import Graph
from hios.kernels.compiled_operator import External, externals
from hios.kernels.tensors import nbytes, value_type
from hios.workers.arena import Layout


@dataclass(frozen=True, slots=True)
class Slots:
    """Room in the arena for one value of several instances.

    Attributes:
        number: over all values of all models.
        value: an input, or an operator's output.
        shape: of the value.
        dtype: of the value.
        offsets: of each slot.
        made: block that makes it; -1 for inputs.
        last: block that reads it last; the number of blocks for outputs, which are kept until the task is answered.
        inside: whether operators read it, so that images lie in the order in memory that operators make.
    """

    number: int
    value: External
    shape: tuple[int, ...]
    dtype: str
    offsets: tuple[int, ...]
    made: int
    last: int
    inside: bool


class BlockValues:
    """A model as blocks that run one after another, and the slots of its values.

    Args:
        label: of the model.
        graph: with calls and shapes.
        blocks: operator ids of every block, in topological order; all operators may be one block.
        waiting: instances that may wait before a block.
        running: instances that may be in a block at once.
        layout: of the arena, which grows.
        first: number of the first slots.

    Attributes:
        slots: of all values.
    """

    def __init__(
        self,
        label: str,
        graph: Graph,
        blocks: Sequence[Sequence[str]],
        *,
        waiting: int,
        running: int,
        layout: Layout,
        first: int,
    ) -> None:
        self.label, self.graph = label, graph
        self.blocks = tuple(map(tuple, blocks))
        self.waiting, self.running = waiting, running
        home = {operator: number for number, block in enumerate(self.blocks) for operator in block}
        if home.keys() != graph.index.keys():
            raise HiosError(f"model {label}: found blocks of {len(home)} operators; required: all {len(graph.index)}")
        self._reads: list[dict[External, None]] = [{} for _ in self.blocks]
        last: dict[External, int] = {("input", entry.name, 0): 0 for entry in graph.inputs}
        for operator in (graph.operators[place] for place in graph.order):
            for value in externals(operator):
                reader = home[operator.id]
                if value[0] == "input" or home[value[1]] != reader:
                    self._reads[reader][value] = None
                    last[value] = max(last.get(value, 0), reader)
        self.slots: list[Slots] = []
        self._layout, self._first = layout, first
        types = {("input", entry.name, 0): (entry.shape, entry.dtype) for entry in graph.inputs}
        self._inner: dict[External, Slots] = {}
        for value, reader in last.items():
            made = -1 if value[0] == "input" else home[value[1]]
            shape, dtype = types[value] if made < 0 else value_type(graph, value)
            self._inner[value] = self._add(value, shape, dtype, made, reader, inside=made >= 0)
        self.inputs = [self._inner["input", entry.name, 0] for entry in graph.inputs]
        self.outputs: list[Slots] = []
        for reference in graph.outputs:
            made_by = reference.external
            if made_by is None or made_by[0] != "operator":
                raise HiosError(f"model {label}: an output that no operator makes cannot be executed")
            shape, dtype = value_type(graph, made_by)
            self.outputs.append(self._add(made_by, shape, dtype, home[made_by[1]], len(self.blocks), inside=False))

    def _add(self, value: External, shape: tuple[int, ...], dtype: str, made: int, last: int, *, inside: bool) -> Slots:
        blocks = min(last, len(self.blocks) - 1) - made
        count = blocks * (self.waiting + self.running) + (self.running if made >= 0 else 0)
        offsets = tuple(self._layout.add(nbytes(shape, dtype)) for _ in range(count))
        added = Slots(self._first + len(self.slots), value, tuple(shape), dtype, offsets, made, last, inside)
        self.slots.append(added)
        return added

    def reads(self, block: int) -> list[Slots]:
        """What a block reads that was made before it, inputs among it."""
        return [self._inner[value] for value in self._reads[block]]

    def writes(self, block: int) -> list[Slots]:
        """What a block makes that later blocks read, and outputs."""
        return [slots for slots in self.slots if slots.made == block]


class FreeSlots:
    """Which slots are free."""

    def __init__(self, values: Mapping[str, BlockValues]) -> None:
        self._free = {slots.number: list(range(len(slots.offsets))) for own in values.values() for slots in own.slots}

    def take(self, slots: Slots) -> int:
        """A free slot; there always is one, by how many there are."""
        return self._free[slots.number].pop()

    def give(self, number: int, slot: int) -> None:
        """Give a slot back."""
        self._free[number].append(slot)

    @property
    def counts(self) -> dict[int, int]:
        """How many slots of each value are free, by the number of the slots."""
        return {number: len(free) for number, free in self._free.items()}
