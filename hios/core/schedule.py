"""The solution of a scheduling problem: a plan (where and in what order) and a schedule (with times).

schedule.json has a row for each operator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hios.core.drift import ProfiledSpeed
from hios.core.graph import Graph
from hios.core.merging import MERGEABLE, convolutions, merged_kernel
from hios.core.problem import Stage
from hios.errors import ScheduleError, shown
from hios.files import artifacts
from hios.files.base import (
    Count,
    DeviceCount,
    Fingerprint,
    FormatVersion,
    NonNegative,
    OperatorId,
    OrAbsent,
    Positive,
    Record,
    Text,
    doc,
)

#: Value of a parameter of an algorithm.
Parameter = bool | int | float | str | None


class Placement(Record, frozen=True):
    """Where and when one operator runs.

    Examples:
        >>> import hios
        >>> row = hios.Placement("conv", device=1, stream=0, stage=2, start_ms=1.5, finish_ms=4.0)
        >>> row.finish_ms - row.start_ms, row.held_devices
        (2.5, (1,))
    """

    operator: OperatorId
    device: Annotated[int, Meta(ge=0, le=1023)]
    """Device, from 0; of several, the one that keeps the value."""
    stream: Annotated[int, Meta(ge=0, le=65535)]
    """Stream of the device, from 0; in a staged schedule the group within the stage."""
    stage: Annotated[int, Meta(ge=0)] | None
    """Stage of the device, from 0; null in stream schedules."""
    start_ms: NonNegative
    """Start, milliseconds after the inference began."""
    finish_ms: NonNegative
    """Finish, milliseconds after the inference began."""
    devices: Annotated[
        tuple[Annotated[int, Meta(ge=0, le=1023), doc("Device, from 0.")], ...],
        Meta(min_length=2, extra_json_schema={"uniqueItems": True}),
    ] = ()
    """All devices of a wide operator, which takes several at once; the first is `device`. Absent for one device. Stream
    schedules only, on devices whose only stream is 0."""

    def __post_init__(self) -> None:
        if self.devices and len(set(self.devices)) < len(self.devices):
            raise ValueError("devices of an operator differ from each other")

    @property
    def held_devices(self) -> tuple[int, ...]:
        """The devices that the operator holds while it runs, ``device`` first."""
        return self.devices or (self.device,)


class ScheduleFile(Record, frozen=True):
    """Where and when every operator runs, under the cost model."""

    algorithm: Text
    """Name of the algorithm in the registry."""
    parameters: dict[str, Annotated[Parameter, doc("Value of a parameter.")]]
    """Parameters of the algorithm, by the names of its paper."""
    devices: DeviceCount
    """Number of devices that the schedule is for."""
    latency_ms: NonNegative
    """Predicted latency: the last finish, milliseconds."""
    lower_bound_ms: NonNegative
    """No schedule can be faster under these costs, milliseconds."""
    scheduling_time_s: NonNegative
    """Time the algorithm took, seconds."""
    placements: Annotated[tuple[Placement, ...], Meta(min_length=1)]
    """One row per operator, in launch order."""
    graph: Text = ""
    """Name of the graph."""
    merges: tuple[
        Annotated[
            tuple[OperatorId, ...],
            Meta(min_length=2, extra_json_schema={"uniqueItems": True}),
            doc("One merge, by operators."),
        ],
        ...,
    ] = ()
    """Operators that run merged into one (IOS). In a staged schedule a merge is a whole stage, and each of its rows has
    a stream of its own. In a stream schedule the rows of a merge are consecutive and have the same devices, stream and
    times, on devices whose only stream is 0."""
    notes: dict[str, Annotated[str, doc("One note.")]] = msgspec.field(default_factory=dict)
    """Notes on how the result was obtained, in words, by topic."""
    graph_fingerprint: Fingerprint = ""
    """Fingerprint of the graph that was scheduled. It distinguishes graphs of the same name, such as those of two image
    sizes. Absent in files written by hand."""
    staged_lower_bound_ms: NonNegative = 0.0
    """No staged schedule can be faster under these costs, milliseconds; present only if it is above lower_bound_ms."""
    cuts: Count = 0
    """Number of places where the search cut the graph to limit its time (parameter states of ios). Above 0, the
    schedule is the best of those in which no stage crosses a cut, and a better one may exist."""
    probe: OrAbsent[ProfiledSpeed] = None
    cores_per_device: OrAbsent[Positive] = None
    """Cores of each device that the costs were measured with; the schedule runs only on such devices. Absent if devices
    are not cores, or if the costs do not state it."""
    hardware: OrAbsent[Text] = None
    """Kind of hardware that the costs were measured on: the processor or the GPUs. Absent if nothing was measured, or
    if the costs do not state it."""
    allocation_time_s: OrAbsent[NonNegative] = None
    """Time that stream allocation alone took, seconds; for algorithms that allocate streams (nimble, opara)."""
    format_version: FormatVersion = 1

    def __post_init__(self) -> None:
        if any(len(set(merge)) < len(merge) for merge in self.merges):
            raise ValueError("operators of a merge differ from each other")


@dataclass(frozen=True, slots=True)
class StagedPlan:
    """Stages in execution order for every device (IOS, HIOS); stages of different devices are not synchronized.

    ``merges`` holds the operators of each stage that runs merged into one operator (IOS): such a stage has every
    operator in a group of its own.

    Examples:
        Operators 1 and 2 concurrently between 0 and 3, on one device: a device is a tuple of stages, a stage a
        tuple of groups, a group a tuple of operators.

        >>> import hios
        >>> plan = hios.StagedPlan(((((0,),), ((1,), (2,)), ((3,),)),))
        >>> [len(stage) for stage in plan.devices[0]]
        [1, 2, 1]
    """

    devices: tuple[tuple[Stage, ...], ...]
    merges: frozenset[frozenset[int]] = frozenset()

    def is_merged(self, stage: Stage) -> bool:
        """Whether the operators of a stage run merged into one."""
        if not self.merges:
            return False
        return all(len(group) == 1 for group in stage) and frozenset(group[0] for group in stage) in self.merges


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """Operators in order for every stream of every device (LIOS, Nimble, Opara).

    ``launch`` is the order in which operators are launched, over all devices and streams.

    ``wide`` has the devices of every operator that takes several at once, first the one that keeps its value. Such an
    operator is in the stream of each of its devices, and these have one stream each: it holds them as a whole.

    ``merges`` holds operators that run merged into one. They follow one another in streams and in ``launch``, have the
    same devices, in ``wide`` too, and these have one stream each.

    Examples:
        The same on two streams of one device: a device is a tuple of streams, a stream a tuple of operators.

        >>> import hios
        >>> plan = hios.StreamPlan((((0, 1, 3), (2,)),), launch=(0, 1, 2, 3))
        >>> len(plan.devices), len(plan.devices[0])
        (1, 2)
    """

    devices: tuple[tuple[tuple[int, ...], ...], ...]
    launch: tuple[int, ...] = ()
    wide: Mapping[int, tuple[int, ...]] = field(default_factory=dict, hash=False)
    merges: frozenset[frozenset[int]] = frozenset()


Plan = StagedPlan | StreamPlan


@dataclass(frozen=True, slots=True)
class Solution:
    """What an algorithm returns if it has more to report than its plan.

    ``lower_bound_ms`` is a bound that it proved, ``staged_lower_bound_ms`` one that holds for staged schedules only
    and is tighter; ``notes`` tell the reader of schedule.json how the result was obtained; ``cuts`` is that of
    `Schedule`; ``allocation_time_s`` is how long stream allocation took, if the launch order is found separately.
    Algorithms that have none of these return the plan alone.

    Examples:
        >>> import hios
        >>> plan = hios.StreamPlan((((0, 1),),), launch=(0, 1))
        >>> hios.Solution(plan, lower_bound_ms=2.5, notes={"search": "exhaustive"}).lower_bound_ms
        2.5
    """

    plan: Plan
    lower_bound_ms: float = 0.0
    notes: Mapping[str, str] = field(default_factory=dict)
    staged_lower_bound_ms: float = 0.0
    cuts: int = 0
    allocation_time_s: float | None = None


@dataclass(frozen=True)
class Schedule:
    """A plan with its times under the cost model: the contents of schedule.json.

    ``latency_ms`` is the last finish, ``lower_bound_ms`` holds for every schedule of the same problem. A bound that
    says more and holds for staged schedules only is ``staged_lower_bound_ms``; 0 if there is none. ``cuts`` is the
    number of places at which a search for the best schedule cut the graph to keep its time within limits (``states``
    of IOS): with more than 0, the schedule is the best of those in which no stage crosses a cut, not of all. ``probe``
    is the speed of the machine when its costs were measured, ``cores_per_device`` how many cores a device had then,
    and ``hardware`` of what kind it was; None if unknown. ``allocation_time_s`` is the part of ``scheduling_time_s``
    that stream allocation took; None of algorithms that do not state it.

    Examples:
        >>> import hios
        >>> graph = hios.Graph("pair", (hios.Operator("a", "conv"), hios.Operator("b", "conv")), (hios.Edge("a", "b"),))
        >>> problem = hios.Problem(graph, hios.Costs({"a": 1.0, "b": 2.0}, {("a", "b"): 0.5}))
        >>> schedule = hios.schedule(problem, "heft", devices=2)
        >>> schedule.algorithm, schedule.latency_ms, [row.device for row in schedule.placements]
        ('heft', 3.0, [0, 0])
        >>> schedule.plan(graph)
        StagedPlan(devices=((((0,),), ((1,),)), ()), merges=frozenset())
    """

    algorithm: str
    parameters: Mapping[str, Parameter]
    devices: int
    latency_ms: float
    lower_bound_ms: float
    scheduling_time_s: float
    placements: tuple[Placement, ...]
    graph: str = ""
    merges: tuple[tuple[str, ...], ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    graph_fingerprint: str = ""
    staged_lower_bound_ms: float = 0.0
    cuts: int = 0
    probe: ProfiledSpeed | None = None
    cores_per_device: int | None = None
    hardware: str | None = None
    allocation_time_s: float | None = None
    source: str = field(default="schedule", compare=False)

    @classmethod
    def read(cls, path: str | Path) -> Schedule:
        """Read schedule.json."""
        return cls.of(artifacts.load(path, ScheduleFile), source=str(path))

    @classmethod
    def from_json(cls, data: Any, source: str = "schedule") -> Schedule:
        """Build a schedule from the contents of schedule.json."""
        return cls.of(artifacts.parsed(data, ScheduleFile, source), source)

    @classmethod
    def of(cls, file: ScheduleFile, source: str = "schedule") -> Schedule:
        """The schedule that a file holds."""
        return cls(**artifacts.contents(file), source=source)

    def to_file(self) -> ScheduleFile:
        """The contents of schedule.json as an object."""
        own = {name: value for name, value in vars(self).items() if name in ScheduleFile.__struct_fields__}
        return ScheduleFile(**{**own, "parameters": dict(self.parameters), "notes": dict(self.notes)})

    def to_json(self) -> artifacts.Json:
        """The contents of schedule.json."""
        return artifacts.plain(self.to_file())

    def write(self, path: str | Path) -> None:
        """Write schedule.json."""
        artifacts.write(path, "schedule", self.to_file())

    def plan(self, graph: Graph) -> Plan:
        """The plan behind the placements, in the operator numbers of ``graph``.

        Rows are in launch order, so the rows of a stream are in its order; so are those that hold a device.

        Raises:
            ScheduleError: it is a schedule of another graph, an operator is missing, unknown or placed twice, a device
                is out of range, stages and streams are mixed, a merge is not a stage of concurrent operators
                that can be merged, or such operators one after another on a stream, or an operator takes several
                devices where that is not allowed (`check_table`).
        """
        self._check_rows(graph)
        number = graph.index
        staged = self.placements[0].stage is not None
        streams: dict[tuple[int, int], list[int]] = defaultdict(list)
        groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for row in self.placements:
            for device in row.held_devices:
                streams[device, row.stream].append(number[row.operator])
            if row.stage is not None:
                groups[row.device, row.stage, row.stream].append(number[row.operator])
        if staged:
            stages: list[dict[int, list[tuple[int, ...]]]] = [defaultdict(list) for _ in range(self.devices)]
            for (device, stage, _), group in sorted(groups.items()):
                stages[device][stage].append(tuple(group))
            rows = tuple(tuple(tuple(g) for _, g in sorted(device.items())) for device in stages)
            return StagedPlan(rows, self._checked_merges(graph, (stage for row in rows for stage in row)))
        by_device: list[list[tuple[int, ...]]] = [[] for _ in range(self.devices)]
        for (device, _), stream in sorted(streams.items()):
            by_device[device].append(tuple(stream))
        launch = tuple(number[row.operator] for row in self.placements)
        wide = {number[row.operator]: row.devices for row in self.placements if row.devices}
        return StreamPlan(tuple(tuple(device) for device in by_device), launch, wide, self._checked_merges(graph))

    def _checked_merges(self, graph: Graph, stages: Iterable[Stage] | None = None) -> frozenset[frozenset[int]]:
        """The merges by operator number; ``stages`` are those of a staged schedule, None in one of streams."""
        if not self.merges:
            return frozenset()
        known = convolutions(graph)
        staged = None if stages is None else {frozenset(stage) for stage in stages}
        place = {row.operator: number for number, row in enumerate(self.placements)}
        merges, merged = set[frozenset[int]](), set[int]()
        for position, merge in enumerate(self.merges):
            places = sorted(place[operator] for operator in merge if operator in place)
            lanes = {_lane(self.placements[number]) for number in places}
            operators = frozenset(graph.index[operator] for operator in merge if operator in place)
            wrong = ""
            if staged is not None:
                if len(operators) < len(merge) or frozenset((operator,) for operator in operators) not in staged:
                    wrong = "which is not a stage with every operator on a stream of its own"
            elif len(places) < len(merge) or places[-1] - places[0] >= len(merge) or len(lanes) > 1:
                wrong = "whose rows do not follow one another with the same devices and stream"
            elif not merged.isdisjoint(operators):
                wrong = "of which an operator is in another merge"
            if not wrong and merged_kernel([known[operator] for operator in operators]) is None:
                wrong = "which cannot run as one operator"
            if wrong:
                kind = "consecutive rows" if staged is None else "stages"
                raise ScheduleError(
                    f"{self.source}: merges[{position}]: found {_names(merge)}, {wrong}; allowed: {kind} of {MERGEABLE}"
                )
            merges.add(operators)
            merged |= operators
        return frozenset(merges)

    def _check_rows(self, graph: Graph) -> None:
        if self.graph_fingerprint not in ("", graph.fingerprint):
            raise ScheduleError(
                f"{self.source}: graph_fingerprint: found {self.graph_fingerprint}; allowed: {graph.fingerprint}, that "
                f"of {graph.source}: this is a schedule of another graph, such as of another image size; schedule "
                "this one"
            )
        for position, row in enumerate(self.placements):
            if row.operator not in graph.index:
                raise ScheduleError(
                    f"{self.source}: placements[{position}].operator: found {_names([row.operator])}, which is not "
                    f"an operator of graph {_names([graph.name])}"
                )
        self.check_table()
        seen = {row.operator for row in self.placements}
        if missing := [operator for operator in graph.index if operator not in seen]:
            raise ScheduleError(
                f"{self.source}: placements: operator {_names(missing[:1])} is missing"
                + (f" (and {len(missing) - 1} more)" if len(missing) > 1 else "")
            )

    def check_table(self) -> None:
        """Refuse rows that contradict each other, whatever the graph.

        Raises:
            ScheduleError: an operator is placed twice, a device is out of range, stages and streams are mixed, or an
                operator takes several devices of which the first is another than its ``device``, in a staged schedule
                or together with several streams.
        """
        seen: set[str] = set()
        staged = self.placements[0].stage is not None
        for position, row in enumerate(self.placements):
            field_name = f"{self.source}: placements[{position}]"
            if row.operator in seen:
                raise ScheduleError(
                    f"{field_name}.operator: {_names([row.operator])} is placed twice; every operator is placed once"
                )
            if row.device >= self.devices:
                raise ScheduleError(f"{field_name}.device: found {row.device}; allowed: 0 to {self.devices - 1}")
            if (row.stage is not None) != staged:
                raise ScheduleError(
                    f"{field_name}.stage: some rows have a stage and some have none; a schedule is one or the other"
                )
            if row.devices:
                self._check_wide(row, field_name)
            seen.add(row.operator)
        self._check_single_streams()

    def _check_wide(self, row: Placement, field_name: str) -> None:
        """Refuse devices of an operator that takes several which contradict its row."""
        if row.stage is not None:
            raise ScheduleError(
                f"{field_name}.devices: found {_listed(row.devices)} in a staged schedule; allowed: one device, as a "
                "stage runs on one (operators on several devices: stage null)"
            )
        if row.devices[0] != row.device:
            raise ScheduleError(
                f"{field_name}.devices: found {_listed(row.devices)}; allowed: {row.device} first, as in device"
            )
        if max(row.devices) >= self.devices:
            raise ScheduleError(f"{field_name}.devices: found {max(row.devices)}; allowed: 0 to {self.devices - 1}")

    def _check_single_streams(self) -> None:
        """Refuse streams other than stream 0 on devices that an operator takes together with others, or merged."""
        merged = {operator for merge in self.merges for operator in merge}
        for wide in (True, False):
            rows = [row for row in self.placements if (row.devices if wide else row.operator in merged)]
            held = {device for row in rows for device in row.held_devices if row.stage is None}
            for position, row in enumerate(self.placements if held else ()):
                if row.stream != 0 and not held.isdisjoint(row.held_devices):
                    why = "an operator takes this device together with others" if wide else "merged operators run on it"
                    raise ScheduleError(
                        f"{self.source}: placements[{position}].stream: found {row.stream} on device {row.device}; "
                        f"allowed: 0, as {why}, and must have it alone"
                    )


def merged_rows(rows: Iterable[Placement]) -> list[tuple[Placement, ...]]:
    """Rows in order, those of one merged operator of a stream schedule together: a bar of a chart, a slice of a trace.

    These follow one another with equal devices, stream and times. No others do, but for operators that take no time.

    Examples:
        >>> from hios import Placement
        >>> times = {"a": 0.0, "b": 1.0, "c": 1.0}
        >>> rows = [Placement(name, 0, 0, None, start, start + 1.0) for name, start in times.items()]
        >>> [[row.operator for row in group] for group in merged_rows(rows)]
        [['a'], ['b', 'c']]
    """

    def key(numbered: tuple[int, Placement]) -> object:
        number, row = numbered
        may_be_merged = row.stage is None and row.finish_ms > row.start_ms
        return (_lane(row), row.start_ms, row.finish_ms) if may_be_merged else number

    return [tuple(row for _, row in group) for _, group in groupby(enumerate(rows), key)]


def _lane(row: Placement) -> tuple[tuple[int, ...], int]:
    return row.held_devices, row.stream


def _listed(devices: Iterable[int]) -> str:
    return f"[{', '.join(map(str, devices))}]"


def _names(operators: Iterable[str]) -> str:
    return ", ".join(shown(operator, quoted=False) for operator in operators)
