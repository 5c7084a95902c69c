"""costs.json: measured times, how they were measured, and models for what was not measured."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hios.formats.base import (
    END,
    AboveZero,
    Count,
    Fingerprint,
    FormatVersion,
    NonNegative,
    OperatorId,
    OrAbsent,
    Platform,
    Positive,
    Record,
    Share,
    ShareAboveZero,
    Text,
    Timestamp,
    Versions,
    doc,
)
from hios.formats.probe_record import ProfileProbe

_Bound = Annotated[NonNegative, doc("Lower, then upper bound.")]
#: A number of devices as a key: 2 to 1024, written as JSON has keys.
_Width = Annotated[
    str,
    Meta(pattern=f"^([2-9]|[1-9][0-9]{{1,2}}|10[01][0-9]|102[0-4]){END}"),
    doc("Number of devices, 2 to 1024."),
]


class _Timed(Record, frozen=True, kw_only=True):
    """How often something was measured, and how far its times spread."""

    p20_ms: OrAbsent[NonNegative] = None
    """20th percentile of the repeats, milliseconds."""
    p80_ms: OrAbsent[NonNegative] = None
    """80th percentile of the repeats, milliseconds."""
    interval_ms: OrAbsent[tuple[_Bound, _Bound]] = None
    """Bounds between which the true median lies with a probability of 95 %, from order statistics, milliseconds."""
    repeats: OrAbsent[Positive] = None
    """How often it was measured, outliers included."""


class BlockResources(Record, frozen=True):
    """What one thread block of the operator's most demanding kernel needs of a GPU (Opara).

    The most demanding kernel is the one whose blocks take the largest share of the shared memory, registers or threads
    that a block can have. An operator that launches no kernel has 0, 0 and 1.
    """

    shared_memory_bytes: Count
    """Shared memory of a block."""
    registers: Count
    """Registers of a block, summed over its threads."""
    threads: Positive
    """Threads of a block."""
    blocks: OrAbsent[Positive] = None
    """Number of blocks of that kernel; an operator with few blocks leaves room on the GPU for others. Informative: no
    algorithm uses it. Absent if the operator launches no kernel."""
    occupancy: OrAbsent[Share] = None
    """Estimated occupancy of that kernel, by torch.profiler: the share of the warps that the GPU can hold. Informative,
    to see why a stage gains or not: no algorithm uses it."""


class OperatorCost(_Timed, frozen=True, kw_only=True):
    """Cost of one operator."""

    time_ms: NonNegative
    """t(v): execution time alone on a device, milliseconds."""
    utilization: OrAbsent[ShareAboveZero] = None
    """Share of the device that the operator keeps busy; default 1."""
    resources: OrAbsent[BlockResources] = None
    wide_ms: dict[_Width, Annotated[NonNegative, doc("t(v, k), milliseconds.")]] = msgspec.field(default_factory=dict)
    """t(v, k): execution time on k devices at once, by k (2 to 1024). An operator may take one device, or one of the
    numbers of devices listed here."""


class TransferCost(_Timed, frozen=True, kw_only=True):
    """Transfer of one edge."""

    source: Text
    """Id of the producer."""
    target: Text
    """Id of the consumer."""
    time_ms: NonNegative
    """t(u,v), milliseconds."""


class LinkModel(Record, frozen=True):
    """Transfer time of ``n`` bytes: ``latency_ms + 8 n / (bandwidth_gbps * 1e6)``."""

    latency_ms: NonNegative
    """Time of an empty transfer, milliseconds."""
    bandwidth_gbps: AboveZero
    """Bandwidth in gigabits (10^9 bits) per second."""

    def time_ms(self, size: int) -> float:
        """Time to transfer ``size`` bytes, in milliseconds."""
        return self.latency_ms + 8 * size / (self.bandwidth_gbps * 1e6)


class LinkError(Record, frozen=True):
    """Relative errors on the transfers that the model was fitted to."""

    median: NonNegative
    """Median."""
    largest: NonNegative
    """Largest."""
    sizes: Annotated[int, Meta(ge=2)]
    """Number of sizes."""


class Link(Record, frozen=True):
    """Latency and bandwidth between two devices.

    Fitted to measured transfers of 1 KB and more, by least squares of relative errors. It describes the link; t(u,v) is
    stated by `transfers`.
    """

    latency_ms: NonNegative
    """Latency, milliseconds."""
    bandwidth_gbps: AboveZero
    """Bandwidth in gigabits (10^9 bits) per second."""
    error: OrAbsent[LinkError] = None


class StageCost(_Timed, frozen=True, kw_only=True):
    """One stage."""

    groups: Annotated[
        tuple[Annotated[tuple[OperatorId, ...], Meta(min_length=1), doc("Operators that run one after another.")], ...],
        Meta(min_length=1),
    ]
    """The groups that run side by side."""
    time_ms: NonNegative
    """t(S), milliseconds."""


class MergeCost(_Timed, frozen=True, kw_only=True):
    """One merge."""

    operators: Annotated[tuple[OperatorId, ...], Meta(min_length=2, extra_json_schema={"uniqueItems": True})]
    """The operators that are merged, in any order."""
    time_ms: NonNegative
    """Time of the merged operator alone on a device, milliseconds."""
    wide_ms: dict[_Width, Annotated[NonNegative, doc("Time on k devices, milliseconds.")]] = msgspec.field(
        default_factory=dict
    )
    """Time of the merged operator on k devices at once, by k (2 to 1024). It may take one device, or one of the numbers
    of devices listed here."""

    def __post_init__(self) -> None:
        if len(set(self.operators)) < len(self.operators):
            raise ValueError("operators of a merge differ from each other")


class ContentionError(Record, frozen=True):
    """Relative errors of the model on measured stages that it was not fitted to."""

    median: NonNegative
    """Median."""
    p90: NonNegative
    """90th percentile."""
    stages: Positive
    """Number of stages."""


class ContentionModel(Record, frozen=True):
    """How operators slow each other on one device where no stage was measured; default blend with alpha 0.5.

    Fitted to measured stages, together with the utilizations, if that predicts other stages better than the sum of the
    operators' times does.
    """

    kind: Literal["blend", "none"]
    """blend: a*sum(t) + (1-a)*max(sum(t*u), longest group); none: the longest group."""
    alpha: OrAbsent[Share] = None
    """Share of serialization in the blend."""
    error: OrAbsent[ContentionError] = None


class CorunFactor(Record, frozen=True):
    """One number of devices."""

    devices: Annotated[int, Meta(ge=2, le=1024)]
    """Number M of devices, without duplicates."""
    factor: Annotated[float, Meta(ge=1)]
    """Median time of all operators while M devices run them at once, over the median time on one device alone; 1 if the
    median is below 1."""
    interval: OrAbsent[tuple[_Bound, _Bound]] = None
    """Bounds between which the true median lies with a probability of 95 %."""
    repeats: OrAbsent[Positive] = None
    """How often it was measured."""
    beside_other_work: OrAbsent[bool] = None
    """True if other work kept the cores busy during the measurement; the factor then includes the effect of that work.
    Absent otherwise."""


class ProfileSummary(Record, frozen=True):
    """How the measurement went.

    Entries from the cache were measured in other sessions, so not all times of this file come from one session.
    """

    seconds: NonNegative
    """How long it took, seconds."""
    budget_s: NonNegative
    """Time budget beyond the minimum number of repeats, seconds."""
    repeats: Positive
    """Minimum number of measurements."""
    precision: AboveZero
    """Relative width of a median's interval at which its measurement ends."""
    measured: Count
    """Number of entries measured in this session; operators, stages and merges of equal signature count as one."""
    imprecise: Count
    """Number of entries whose interval stayed wider than that."""
    modelled: Count
    """Number of stages and merges that algorithms or widths asked for, but that the budget left to the models."""
    cached: Count
    """Number of entries taken from the cache."""
    cached_from: OrAbsent[Timestamp] = None
    """When the oldest of these was measured, UTC."""
    cached_until: OrAbsent[Timestamp] = None
    """When the newest of these was measured, UTC."""
    kept: OrAbsent[bool] = None
    """Whether measurements were added to the cache; they are not if other work kept the cores busy. Absent without a
    cache."""
    drift: OrAbsent[AboveZero] = None
    """Time of cached operators, measured again, over their time in the cache. If it is too far from 1, all of them are
    measured again."""


def _empty() -> tuple[()]:
    """A default that is written to files nevertheless: msgspec omits only defaults that it knows to be empty."""
    return ()


class CostsFile(Record, frozen=True):
    """What operators, stages and transfers cost on a platform: t(v), t(S), t(u,v).

    Examples:
        >>> import hios
        >>> graph = hios.Graph("one", (hios.Operator("a", "conv", flops=2_000_000, bytes=4096),), ())
        >>> costs = hios.profile(graph, platform="model", options={"gpu": "a40"})
        >>> costs.platform.predicted, sorted(costs.operators)
        (True, ['a'])
    """

    operators: dict[str, OperatorCost]
    """Cost of every operator, by id."""
    transfers: tuple[TransferCost, ...] | LinkModel
    """t(u,v) between two devices: a list with an entry for every edge, or a link model that needs edge bytes."""
    stages: tuple[StageCost, ...] = msgspec.field(default_factory=_empty)
    """Measured t(S) of stages with several groups."""
    merges: tuple[MergeCost, ...] = msgspec.field(default_factory=_empty)
    """Measured times of operators that run merged into one (IOS)."""
    contention: OrAbsent[ContentionModel] = None
    corun: tuple[CorunFactor, ...] = ()
    """Co-run factors: how many times as long operators take while other devices are busy too, since devices share
    memory and caches. In a schedule for M devices, times of operators, stages and merges, measured or modeled, are
    multiplied by the factor for M; transfer times are not. If there is no entry for M, the factor of the next larger
    number is used, or that of the largest number. If absent, times are not multiplied."""
    link: OrAbsent[Link] = None
    graph: Text = ""
    """Name of the graph."""
    graph_fingerprint: Fingerprint = ""
    """Fingerprint of the graph that was measured. It distinguishes graphs of the same name, such as those of two image
    sizes. Absent in files written by hand."""
    platform: OrAbsent[Platform] = None
    versions: OrAbsent[Versions] = None
    profile: OrAbsent[ProfileSummary] = None
    probe: OrAbsent[ProfileProbe] = None
    format_version: FormatVersion = 1
