"""What each lane does in a run, and the values that pass between lanes and between blocks.

A run takes one block of one or several models, its sub-blocks, through one lane or several. On several lanes, a value
that another lane reads is copied to a buffer, and a flag says that it is there. One run on several lanes goes on at a
time, so all such runs share the buffers and flags.

An instance, a task that has left its queue, keeps its inputs, what later blocks read, and its outputs in slots. Each
value has so many slots as instances can have it at once (TOP, D6): where blocks have room for ``waiting`` instances and
run ``running`` at once, a value of block p that block q reads last is held by ``running`` instances in p, and by
``waiting + running`` in each block after it up to q. So memory is bounded, whatever arrives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hios.core.graph import Graph
from hios.core.schedule import Plan
from hios.errors import HiosError
from hios.kernels.compiled_operator import External, externals
from hios.kernels.merged import nbytes, value_type
from hios.platforms.program import Buffer, Handover
from hios.serving.pipeline import SubBlock
from hios.workers.arena import Layout


@dataclass(frozen=True, slots=True)
class Slots:
    """Room in the arena for one value of several instances.

    Attributes:
        number: over all values of all models.
        offsets: of each slot.
        made: block that makes the value; -1 for inputs.
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

    Blocks are operator ids in topological order. Before each, as many instances as ``waiting`` says may wait, and
    ``running`` may be in it at once. The layout of the arena grows by the slots, whose numbers begin with ``first``.
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


#: Operators of a lane in order, each with the place of its sub-block in the run.
Order = Sequence[tuple[int, str]]


class Placed(NamedTuple):
    """A value of a sub-block, the number of its `Slots`, and the place at which a run states the slot."""

    part: int
    value: External
    slots: int
    place: int


@dataclass(frozen=True, slots=True)
class LaneStep:
    """An operator: the flags of values that it waits for; where its outputs go, to other lanes and into slots."""

    part: int
    operator: str
    waits: tuple[int, ...] = ()
    departures: tuple[Handover, ...] = ()
    stores: tuple[Placed, ...] = ()


@dataclass(frozen=True, slots=True)
class LaneProgram:
    """What one lane does in a run: its operators in order, and values in slots that they read.

    Sub-blocks of the run have models by number; ``arrivals`` are values that other lanes make, each with the place of
    its sub-block. ``plan`` says which streams of a GPU the steps run on, by their numbers; None: on a core.
    """

    models: tuple[int, ...]
    reads: tuple[Placed, ...]
    arrivals: tuple[tuple[int, Handover], ...]
    steps: tuple[LaneStep, ...]
    plan: Plan | None = None


class Handovers:
    """Buffers and flags of values that change lanes, from an offset and a flag on.

    Attributes:
        size: end of the last buffer of any run.
        flags: number behind the last flag of any run.
    """

    def __init__(self, at: int, first_flag: int) -> None:
        self._at, self._first = at, first_flag
        self.size, self.flags = at, first_flag

    def of(
        self, values: Sequence[tuple[tuple[int, External], tuple[Sequence[int], str]]]
    ) -> dict[tuple[int, External], Handover]:
        """Buffers and flags for the values of one run, by sub-block and value."""
        layout = Layout()
        layout.size = self._at
        made = {}
        for number, (key, (shape, dtype)) in enumerate(values):
            buffer = Buffer(layout.add(nbytes(shape, dtype)), tuple(shape), dtype)
            made[key] = Handover(key[1], buffer, self._first + number)
        self.size, self.flags = max(self.size, layout.size), max(self.flags, self._first + len(made))
        return made

    def reserve(self, models: Sequence[BlockValues], parts: int) -> None:
        """Make room for any run of so many blocks of some models, whatever of their values changes lanes."""
        sizes, counts = [], []
        for own in models:
            for block in own.blocks:
                layout, values = Layout(), _values_inside(own.graph, block)
                for value in values:
                    shape, dtype = value_type(own.graph, value)
                    layout.add(nbytes(shape, dtype))
                sizes.append(layout.size)
                counts.append(len(values))
        self.size = max(self.size, self._at + sum(sorted(sizes)[-parts:]))
        self.flags = max(self.flags, self._first + sum(sorted(counts)[-parts:]))


def _values_inside(graph: Graph, block: Sequence[str]) -> set[External]:
    """Values that operators of a block make and read."""
    made = set(block)
    read = (value for operator in block for value in externals(graph.operators[graph.index[operator]]))
    return {value for value in read if value[0] == "operator" and value[1] in made}


def slots_of(members: Sequence[SubBlock], values: Sequence[BlockValues]) -> list[tuple[int, Slots]]:
    """The slots that a run states, in order: for each sub-block, what it reads and then what it makes."""
    return [
        (part, slots)
        for part, (model, block) in enumerate(members)
        for slots in (*values[model].reads(block), *values[model].writes(block))
    ]


def lane_programs(
    members: Sequence[SubBlock], orders: Sequence[Order], values: Sequence[BlockValues], handovers: Handovers
) -> list[LaneProgram]:
    """The program of every lane of a run.

    The orders together have all operators of all sub-blocks, in an order in which lanes that wait for each other's
    values come to an end.
    """
    lane_of = {key: lane for lane, order in enumerate(orders) for key in order}
    stated = [
        (Placed(part, slots.value, slots.number, place), slots)
        for place, (part, slots) in enumerate(slots_of(members, values))
    ]
    blocks = [block for _, block in members]
    inner = {(placed.part, placed.value): placed for placed, slots in stated if slots.made != blocks[placed.part]}
    made = [placed for placed, slots in stated if slots.made == blocks[placed.part]]

    def read_by(part: int, operator: str) -> Sequence[External]:
        graph = values[members[part][0]].graph
        return externals(graph.operators[graph.index[operator]])

    crossing = dict.fromkeys(
        (part, value)
        for (part, operator), lane in lane_of.items()
        for value in read_by(part, operator)
        if (part, value) not in inner and lane_of[part, value[1]] != lane
    )
    types = [(key, value_type(values[members[key[0]][0]].graph, key[1])) for key in crossing]
    handed = handovers.of(types)

    def program(lane: int, order: Order) -> LaneProgram:
        reads: dict[Placed, None] = {}
        arrivals: dict[tuple[int, Handover], None] = {}
        steps = []
        for part, operator in order:
            waits = []
            for value in read_by(part, operator):
                if (part, value) in inner:
                    reads[inner[part, value]] = None
                elif lane_of[part, value[1]] != lane and (part, handed[part, value]) not in arrivals:
                    arrivals[part, handed[part, value]] = None
                    waits.append(handed[part, value].flag)
            departures = tuple(own for key, own in handed.items() if key[0] == part and key[1][1] == operator)
            stores = tuple(own for own in made if (own.part, own.value[1]) == (part, operator))
            steps.append(LaneStep(part, operator, tuple(waits), departures, stores))
        return LaneProgram(tuple(model for model, _ in members), tuple(reads), tuple(arrivals), tuple(steps))

    return [program(lane, order) for lane, order in enumerate(orders)]
