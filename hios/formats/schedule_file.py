"""schedule.json: a row for each operator."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hios.formats.base import (
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
from hios.formats.probe_record import ProfiledSpeed

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
