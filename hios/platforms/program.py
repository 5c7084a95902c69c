"""A schedule as one program per device: its stages, streams or wide operators, and the values exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from hios.core.graph import Graph, Operator
from hios.core.problem import positions
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.errors import ScheduleError
from hios.kernels.compiled_operator import External, externals
from hios.kernels.merged import nbytes, value_type
from hios.workers.arena import Layout

#: One operator's run: id, stream, stage (None in stream schedules), start and finish in nanoseconds of the monotonic
#: clock.
Row = tuple[str, int, int | None, int, int]
#: Flags of the arena: abort, start signal, start time, then one "ready" flag per device.
ABORT, START, START_TIME, FIRST_READY = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor in the arena."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Handover:
    """A value that another device needs: its buffer, and the flag that signals its arrival."""

    value: External
    buffer: Buffer
    flag: int


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """What a device does next: wait for values, run operators, and pass values on.

    The ``groups`` run concurrently on streams, each in order; if ``merged``, all of them run as one operator instead.
    ``stage`` is their number in a staged schedule, None in others.

    An operator may take several ``devices``: the first waits until the others are ``free``, runs it on the cores of
    all, and sets the flag ``done``. Each of the others sets its flag of ``free`` and waits for ``done``; consecutive
    operators of the same first device are one step there, which ends with the last of them.

    A segment (`hios.platforms.segments`) has one group, with the stream and stage of each operator in ``places``;
    ``kept`` are those of its values that later steps of the device read.
    """

    groups: tuple[tuple[str, ...], ...]
    devices: tuple[int, ...]
    stage: int | None = None
    arrivals: tuple[Handover, ...] = ()
    departures: tuple[Handover, ...] = ()
    results: tuple[tuple[External, Buffer], ...] = ()
    merged: bool = False
    free: tuple[int, ...] = ()
    done: int = 0
    places: tuple[tuple[int, int | None], ...] = ()
    kept: tuple[External, ...] = ()


@dataclass(frozen=True, slots=True)
class StepProgram:
    """The steps of one device in order: its stages, or operators of which some take several devices or are merged.

    ``devices`` are the numbers of all that take part.
    """

    device: int
    devices: tuple[int, ...]
    steps: tuple[ProgramStep, ...]


@dataclass(frozen=True, slots=True)
class StreamStep:
    """An operator of a stream schedule: wait for values, run, pass values on.

    ``needs`` are values made on other streams or devices, except those that an earlier operator on its stream waits
    for; ``rank`` is its place in the launch order.
    """

    operator: str
    rank: int
    needs: tuple[External, ...]
    departures: tuple[Handover, ...]
    results: tuple[tuple[External, Buffer], ...]


@dataclass(frozen=True, slots=True)
class StreamProgram:
    """All streams of one device, and the values that other devices produce for it.

    ``devices`` are the numbers of all that take part.
    """

    device: int
    devices: tuple[int, ...]
    arrivals: tuple[Handover, ...]
    streams: tuple[tuple[StreamStep, ...], ...]


DeviceProgram = StepProgram | StreamProgram


def is_wide(plan: Plan) -> bool:
    """Whether some operators use several devices at once, or are merged on streams."""
    return isinstance(plan, StreamPlan) and bool(plan.wide or plan.merges)


@dataclass
class ArenaPlan:
    """The offsets of inputs, outputs and transferred values of a graph in the arena.

    Programs run one at a time, so all use the same region for their values.
    """

    graph: Graph
    devices: int
    inputs: dict[str, Buffer] = field(default_factory=dict)
    outputs: list[Buffer] = field(default_factory=list)
    size: int = 0
    flags: int = 0

    def __post_init__(self) -> None:
        layout = Layout()
        for entry in self.graph.inputs:
            size = nbytes(entry.shape, entry.dtype)
            self.inputs[entry.name] = Buffer(layout.add(size), entry.shape, entry.dtype)
        for reference in self.graph.outputs:
            value = reference.external
            if value is None or value[0] != "operator":
                raise ScheduleError(f"graph {self.graph.name}: an output that no operator makes cannot be executed")
            shape, dtype = value_type(self.graph, value)
            self.outputs.append(Buffer(layout.add(nbytes(shape, dtype)), shape, dtype))
        self._values_at = self.size = layout.size
        self._first_flag = self.flags = FIRST_READY + self.devices

    def program(self, plan: Plan) -> list[DeviceProgram]:
        """The programs of the devices that have work, of a plan in the operator numbers of the graph."""
        home = _home(self.graph, plan)
        handovers = self._handovers(home)
        taking_part = tuple(device for device, row in enumerate(plan.devices) if row)
        if isinstance(plan, StagedPlan):
            return [
                StepProgram(device, taking_part, self._stages(plan, device, home, handovers)) for device in taking_part
            ]
        if is_wide(plan):
            return self._wide(plan, taking_part, home, handovers)
        return [
            StreamProgram(device, taking_part, *self._streams(plan, device, home, handovers)) for device in taking_part
        ]

    def copies(self, plan: StagedPlan, count: int) -> list[DeviceProgram]:
        """Programs in which each of ``count`` devices runs the whole single-device plan by itself."""
        (alone,) = self.program(plan)
        assert isinstance(alone, StepProgram)  # noqa: S101 - a staged plan has no other programs
        everyone = tuple(range(count))
        return [
            StepProgram(device, everyone, tuple(replace(step, devices=(device,)) for step in alone.steps))
            for device in everyone
        ]

    def reserve(self) -> None:
        """Grow the arena to hold what crosses devices in any plan, so that other plans may follow."""
        self._handovers({operator.id: number for number, operator in enumerate(self.graph.operators)})

    def _handovers(self, home: dict[str, int]) -> dict[External, Handover]:
        """The values that cross devices; grows the arena to hold them."""
        layout = Layout()
        layout.size = self._values_at
        handovers = {}
        for number, value in enumerate(self._crossing(home)):
            shape, dtype = value_type(self.graph, value)
            buffer = Buffer(layout.add(nbytes(shape, dtype)), shape, dtype)
            handovers[value] = Handover(value, buffer, self._first_flag + number)
        self.size = max(self.size, layout.size)
        self.flags = max(self.flags, self._first_flag + len(handovers))
        return handovers

    def _crossing(self, home: dict[str, int]) -> list[External]:
        crossing: dict[External, None] = {}
        for operator in self.graph.operators:
            for value in externals(operator):
                if value[0] == "operator" and home[value[1]] != home[operator.id]:
                    crossing[value] = None
        return list(crossing)

    def _results(self, operators: set[str]) -> tuple[tuple[External, Buffer], ...]:
        """The outputs of the network that the given operators produce."""
        return tuple(
            (value, buffer)
            for reference, buffer in zip(self.graph.outputs, self.outputs, strict=True)
            if (value := reference.external) is not None and value[1] in operators
        )

    def _exchanged(
        self,
        operators: Sequence[Operator],
        device: int,
        home: dict[str, int],
        handovers: dict[External, Handover],
        arrived: set[External],
    ) -> tuple[tuple[Handover, ...], tuple[Handover, ...], tuple[tuple[External, Buffer], ...]]:
        """What operators of a device wait for, what they pass on, and what the network outputs of it.

        ``arrived``, what earlier operators of the device waited for, is extended.
        """
        needed = dict.fromkeys(
            value
            for operator in operators
            for value in externals(operator)
            if value[0] == "operator" and home[value[1]] != device and value not in arrived
        )
        arrived.update(needed)
        names = {operator.id for operator in operators}
        return (
            tuple(handovers[value] for value in needed),
            tuple(handover for value, handover in handovers.items() if value[1] in names),
            self._results(names),
        )

    def _stages(
        self, plan: StagedPlan, device: int, home: dict[str, int], handovers: dict[External, Handover]
    ) -> tuple[ProgramStep, ...]:
        arrived: set[External] = set()
        steps = []
        for number, stage in enumerate(plan.devices[device]):
            groups = [[self.graph.operators[operator] for operator in group] for group in stage]
            members = [operator for group in groups for operator in group]
            exchanged = self._exchanged(members, device, home, handovers, arrived)
            names = tuple(tuple(operator.id for operator in group) for group in groups)
            steps.append(ProgramStep(names, (device,), number, *exchanged, plan.is_merged(stage)))
        return tuple(steps)

    def _streams(
        self, plan: StreamPlan, device: int, home: dict[str, int], handovers: dict[External, Handover]
    ) -> tuple[tuple[Handover, ...], tuple[tuple[StreamStep, ...], ...]]:
        """The values that arrive at a device, and its streams."""
        rank = positions(plan.launch or self.graph.order)
        arrivals: dict[External, Handover] = {}
        streams = []
        for row in plan.devices[device]:
            own = {self.graph.operators[place].id for place in row}
            waited: set[External] = set()
            steps = []
            for place in row:
                operator = self.graph.operators[place]
                needs = dict.fromkeys(
                    value
                    for value in externals(operator)
                    if value[0] == "operator" and value[1] not in own and value not in waited
                )
                waited.update(needs)
                arrivals |= {value: handovers[value] for value in needs if home[value[1]] != device}
                departures = tuple(handover for value, handover in handovers.items() if value[1] == operator.id)
                results = self._results({operator.id})
                steps.append(StreamStep(operator.id, rank[place], tuple(needs), departures, results))
            streams.append(tuple(steps))
        return tuple(arrivals.values()), tuple(streams)

    def _wide(
        self, plan: StreamPlan, taking_part: tuple[int, ...], home: dict[str, int], handovers: dict[External, Handover]
    ) -> list[DeviceProgram]:
        """Programs of a plan with operators on several devices, or merged, all of whose devices have one stream."""
        for device in taking_part:
            if len(plan.devices[device]) > 1:
                raise ScheduleError(
                    f"device {device}: found {len(plan.devices[device])} streams; allowed: 1, as operators of the "
                    "schedule take several devices at once or are merged"
                )
        members = _merged(plan)
        plan = _without(plan, {operator for own in members.values() for operator in own[1:]})
        flags = count(self._first_flag + len(handovers))
        done = {operator: next(flags) for operator in plan.wide}
        lent = {device: _lent(plan, device) for device in taking_part}
        free: dict[int, list[int]] = {operator: [] for operator in plan.wide}
        steps: dict[int, dict[int, ProgramStep]] = {device: {} for device in taking_part}
        for device, spans in lent.items():
            for span in spans:
                flag, first = next(flags), self.graph.operators[span[0]].id
                steps[device][span[0]] = ProgramStep(((first,),), plan.wide[span[0]], free=(flag,), done=done[span[-1]])
                for operator in span:
                    free[operator].append(flag)
        self.flags = max(self.flags, next(flags))
        for device in taking_part:
            steps[device] |= self._own_steps(plan, device, home, handovers, free, done, members)
        return [
            StepProgram(device, taking_part, tuple(own[place] for place in plan.devices[device][0] if place in own))
            for device, own in steps.items()
        ]

    def _own_steps(
        self,
        plan: StreamPlan,
        device: int,
        home: dict[str, int],
        handovers: dict[External, Handover],
        free: dict[int, list[int]],
        done: dict[int, int],
        members: dict[int, tuple[int, ...]],
    ) -> dict[int, ProgramStep]:
        """The operators whose values a device keeps, by their position in the graph; merges by that of their first."""
        arrived: set[External] = set()
        steps = {}
        for place in plan.devices[device][0]:
            operators = [self.graph.operators[member] for member in members.get(place, (place,))]
            devices = plan.wide.get(place, (device,))
            if devices[0] == device:
                steps[place] = ProgramStep(
                    tuple((operator.id,) for operator in operators),
                    devices,
                    None,
                    *self._exchanged(operators, device, home, handovers, arrived),
                    place in members,
                    tuple(free.get(place, ())),
                    done.get(place, 0),
                )
        return steps


def _merged(plan: StreamPlan) -> dict[int, tuple[int, ...]]:
    """The operators of every merge by the first of them, in the order of their stream."""
    order = {operator: number for streams in plan.devices for row in streams for number, operator in enumerate(row)}
    merges = [tuple(sorted(merge, key=order.__getitem__)) for merge in plan.merges]
    return {merge[0]: merge for merge in merges}


def _without(plan: StreamPlan, left_out: set[int]) -> StreamPlan:
    """The plan without some operators."""
    return StreamPlan(
        tuple(
            tuple(tuple(operator for operator in stream if operator not in left_out) for stream in streams)
            for streams in plan.devices
        ),
        tuple(operator for operator in plan.launch if operator not in left_out),
        {operator: devices for operator, devices in plan.wide.items() if operator not in left_out},
    )


def _lent(plan: StreamPlan, device: int) -> list[list[int]]:
    """Operators for which a device lends its cores; consecutive ones for the same first device form one loan."""
    spans: list[list[int]] = []
    lent_to = device
    for place in plan.devices[device][0]:
        first = plan.wide.get(place, (device,))[0]
        if first != device and first == lent_to:
            spans[-1].append(place)
        elif first != device:
            spans.append([place])
        lent_to = first
    return spans


def _home(graph: Graph, plan: Plan) -> dict[str, int]:
    """The device of every operator; of several, the one that keeps its values."""
    if isinstance(plan, StagedPlan):
        rows = [[operator for stage in row for group in stage for operator in group] for row in plan.devices]
    else:
        rows = [[operator for stream in row for operator in stream] for row in plan.devices]
    home = {graph.operators[operator].id: device for device, row in enumerate(rows) for operator in row}
    if isinstance(plan, StreamPlan):
        home |= {graph.operators[operator].id: devices[0] for operator, devices in plan.wide.items()}
    return home
