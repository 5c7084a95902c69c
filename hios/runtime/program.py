"""A schedule as what each device does: the steps, what they wait for and what they hand over."""

from __future__ import annotations

from dataclasses import dataclass, field

from hios.errors import ScheduleError
from hios.graph import Graph
from hios.kernels.tensors import nbytes, value_type
from hios.kernels.unit import External, external, externals
from hios.platforms.arena import Layout
from hios.schedule import StagedPlan

#: Flags of the arena: abort, start signal, start time, then one "ready" flag a device.
START, START_TIME, FIRST_READY = 1, 2, 3


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor in the arena."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class Handover:
    """A value that another device needs: its buffer and the flag that says it is there."""

    value: External
    buffer: Buffer
    flag: int


@dataclass(frozen=True, slots=True)
class StageProgram:
    """One stage of a device: wait for values, run the groups or all operators merged into one, hand values over."""

    number: int
    arrivals: tuple[Handover, ...]
    groups: tuple[tuple[str, ...], ...]
    departures: tuple[Handover, ...]
    results: tuple[tuple[External, Buffer], ...]
    merged: bool = False


@dataclass(frozen=True, slots=True)
class DeviceProgram:
    """All stages of one device in order; ``devices`` are the numbers of all that take part."""

    device: int
    devices: tuple[int, ...]
    stages: tuple[StageProgram, ...]


@dataclass
class ArenaPlan:
    """Where inputs, outputs and handed-over values of a graph lie in the arena.

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
            shape = tuple(entry["shape"])
            self.inputs[entry["name"]] = Buffer(layout.add(nbytes(shape, entry["dtype"])), shape, entry["dtype"])
        for reference in self.graph.outputs:
            value = external(reference)
            if value is None or value[0] != "operator":
                raise ScheduleError(f"graph {self.graph.name}: an output that no operator makes cannot be executed")
            shape, dtype = value_type(self.graph, value)
            self.outputs.append(Buffer(layout.add(nbytes(shape, dtype)), shape, dtype))
        self._values_at = self.size = layout.size
        self._first_flag = self.flags = FIRST_READY + self.devices

    def program(self, plan: StagedPlan) -> list[DeviceProgram]:
        """Programs of the devices that have work.

        Args:
            plan: a staged plan in the operator numbers of the graph.
        """
        layout = Layout()
        layout.size = self._values_at
        home = {
            self.graph.operators[operator].id: device
            for device, row in enumerate(plan.devices)
            for stage in row
            for group in stage
            for operator in group
        }
        crossing = self._crossing(home)
        handovers = {}
        for number, value in enumerate(crossing):
            shape, dtype = value_type(self.graph, value)
            buffer = Buffer(layout.add(nbytes(shape, dtype)), shape, dtype)
            handovers[value] = Handover(value, buffer, self._first_flag + number)
        self.size = max(self.size, layout.size)
        self.flags = max(self.flags, self._first_flag + len(handovers))
        taking_part = tuple(device for device, row in enumerate(plan.devices) if row)
        return [
            DeviceProgram(device, taking_part, self._stages(plan, device, home, handovers)) for device in taking_part
        ]

    def copies(self, plan: StagedPlan, count: int) -> list[DeviceProgram]:
        """Programs in which each of ``count`` devices runs the whole single-device plan by itself."""
        (alone,) = self.program(plan)
        everyone = tuple(range(count))
        return [DeviceProgram(device, everyone, alone.stages) for device in everyone]

    def _crossing(self, home: dict[str, int]) -> list[External]:
        found: dict[External, None] = {}
        for operator in self.graph.operators:
            for value in externals(operator):
                if value[0] == "operator" and home[value[1]] != home[operator.id]:
                    found[value] = None
        return list(found)

    def _stages(
        self, plan: StagedPlan, device: int, home: dict[str, int], handovers: dict[External, Handover]
    ) -> tuple[StageProgram, ...]:
        arrived: set[External] = set()
        stages = []
        for number, stage in enumerate(plan.devices[device]):
            groups = tuple(tuple(self.graph.operators[operator].id for operator in group) for group in stage)
            members = [self.graph.operators[operator] for group in stage for operator in group]
            needed = dict.fromkeys(
                value
                for operator in members
                for value in externals(operator)
                if value[0] == "operator" and home[value[1]] != device and value not in arrived
            )
            arrived.update(needed)
            names = {operator.id for operator in members}
            stages.append(
                StageProgram(
                    number,
                    tuple(handovers[value] for value in needed),
                    groups,
                    tuple(handover for value, handover in handovers.items() if value[1] in names),
                    tuple(
                        (value, buffer)
                        for reference, buffer in zip(self.graph.outputs, self.outputs, strict=True)
                        if (value := external(reference)) is not None and value[1] in names
                    ),
                    plan.is_merged(stage),
                )
            )
        return tuple(stages)
