"""What a problem costs on a platform: t(v) of operators, t(S) of stages, t(u,v) of transfers.

costs.json has measured times, how they were measured, and models for what was not measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from hios.core.drift import ProfiledSpeed, ProfileProbe
from hios.core.graph import Edge
from hios.errors import ArtifactError, shown
from hios.files import artifacts
from hios.files.base import (
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
from hios.machine.description import BUSY

#: A stage in terms of operator ids: groups that run concurrently, the operators of a group one after another.
#: The order of the groups does not matter, the order within a group does.
StageIds = frozenset[tuple[str, ...]]

#: Share of serialization in the contention model of the HIOS simulator.
DEFAULT_ALPHA = 0.5

#: What a thread block can have at most (CUDA C++ Programming Guide, technical specifications by compute capability:
#: the same for all desktop and server GPUs since 5.0; shared memory without opting in).
_MOST_SHARED_MEMORY_BYTES, _MOST_REGISTERS, _MOST_THREADS = 48 * 1024, 64 * 1024, 1024

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
    """Number of blocks of that kernel; an operator with few blocks leaves room on the GPU for others, so `slots` of
    the demand follow from it. Absent if the operator launches no kernel."""
    occupancy: OrAbsent[Share] = None
    """Estimated occupancy of that kernel, by torch.profiler: the share of the warps that the GPU can hold. Informative,
    to see why a stage gains or not: no algorithm uses it."""

    @property
    def share(self) -> float:
        """The largest share that a block takes of the shared memory, registers or threads that a block can have."""
        return max(
            self.shared_memory_bytes / _MOST_SHARED_MEMORY_BYTES,
            self.registers / _MOST_REGISTERS,
            self.threads / _MOST_THREADS,
        )


#: The least that an operator takes of any resource: a share must be above 0.
_LEAST_SHARE = 1e-6


class Demand(Record, frozen=True):
    """What an operator takes of a device while it runs there alone, as shares of what the device has."""

    slots: ShareAboveZero
    """Room for its thread blocks or threads: blocks over what a GPU holds at once."""
    compute: ShareAboveZero
    """Arithmetic: operations per second over the most that the device reaches."""
    memory: ShareAboveZero
    """Memory bandwidth: bytes per second over the most that the device reaches."""

    @classmethod
    def over(cls, time: float, slots: float, compute: float, memory: float) -> Demand:
        """Demand of an operator that takes a time, in which it would keep each resource busy for so much of it."""
        return cls(*(min(1.0, max(_LEAST_SHARE, used / time)) if time else 1.0 for used in (slots, compute, memory)))


class OperatorCost(_Timed, frozen=True, kw_only=True):
    """Cost of one operator."""

    time_ms: NonNegative
    """t(v): execution time alone on a device, milliseconds."""
    utilization: OrAbsent[ShareAboveZero] = None
    """Share of the device that the operator keeps busy; default 1."""
    demand: OrAbsent[Demand] = None
    """Used with contention "resources"; if absent, the utilization stands for all three shares."""
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


class LinkSpeed(Record, frozen=True):
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


ContentionKind = Literal["blend", "none", "resources"]


class ContentionModel(Record, frozen=True):
    """How operators slow each other on one device where no stage was measured; default blend with alpha 0.5.

    Fitted to measured stages, together with the utilizations, if that predicts other stages better than the sum of the
    operators' times does.
    """

    kind: ContentionKind
    """blend: a*sum(t) + (1-a)*max(sum(t*u), longest group); none: the longest group; resources: operators share slots,
    arithmetic and memory bandwidth by max-min fairness, earlier launches first where slots are full."""
    alpha: OrAbsent[Share] = None
    """Share of serialization in the blend."""
    error: OrAbsent[ContentionError] = None


class CostOverheads(Record, frozen=True):
    """What running operators costs beyond their own times. Measured t(S) and merges include it, t(v) does not."""

    launch_ms: NonNegative = 0.0
    """Start of an operator, milliseconds; operators with a t(v) of 0 start nothing."""
    sync_ms: NonNegative = 0.0
    """Milliseconds from the finish of an operator until one on another stream or device may take its value, beyond
    t(u,v)."""
    stage_ms: NonNegative = 0.0
    """Milliseconds for every group of a stage beyond the first: it starts apart, and the stage waits for it."""


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
    overheads: OrAbsent[CostOverheads] = None
    corun: tuple[CorunFactor, ...] = ()
    """Co-run factors: how many times as long operators take while other devices are busy too, since devices share
    memory and caches. In a schedule for M devices, times of operators, stages and merges, measured or modeled, are
    multiplied by the factor for M; transfer times are not. If there is no entry for M, the factor of the next larger
    number is used, or that of the largest number. If absent, times are not multiplied."""
    link: OrAbsent[LinkSpeed] = None
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


def predicted_for(platform: Platform | None) -> str | None:
    """The GPUs that times are predicted for, in words; None if times were measured, or if that is not stated."""
    if platform is None or not platform.predicted:
        return None
    gpu = platform.gpus[0] if platform.gpus else platform.gpu or "a GPU"
    return f"predicted for {platform.devices or 1} x {gpu}, link {platform.link or 'unknown'}; nothing was measured"


def measured_beside_other_work(platform: Platform | None) -> str | None:
    """The share of the cores' time that other work took when costs were measured, in words; None if it was small."""
    busy = None if platform is None else platform.busy_share
    if busy is None or busy <= BUSY:
        return None
    return f"measured while other work took {busy:.0%} of the cores' time: times and bounds may be wrong"


@dataclass(frozen=True)
class Costs:
    """The contents of costs.json that scheduling uses. All times in milliseconds.

    Args:
        time_ms: t(v) by operator id.
        transfers: t(u,v) by (source, target), or a link model that needs the edges' bytes.
        utilization: share of a device that an operator keeps busy, in (0, 1]; 1 where absent.
        stages: measured t(S) by stage.
        merges: measured times of operators merged into one (IOS), by the operators.
        resources: resource demands by operator id, where a GPU profile gave them (Opara).
        contention: ``blend``, ``none`` or ``resources``, for stages that were not measured.
        alpha: share of serialization in the blend.
        graph: name of the graph that was measured; empty if unknown.
        graph_fingerprint: ``Graph.fingerprint`` of that graph; empty if unknown.
        source: file name for messages.
        corun: how many times as long operators take while so many devices work at once, by their number.
        probe: speed of the machine when times were measured; None if unknown.
        predicted_for: the GPUs that times are predicted for, in words; empty if they were measured.
        cores_per_device: cores of each device that times were measured on; None if devices are not cores, or it is not
            stated.
        wide_ms: t(v, k) by operator id and number of devices k of at least 2, for the numbers that are allowed.
        merge_wide_ms: the same of operators merged into one, by the operators.
        demand: shares of slots, arithmetic and memory bandwidth by operator id, for ``resources``.
        overheads: what launches, synchronization and stages take.
        disturbed: in words, that other processes kept the cores busy during the measurement; empty if they did not.
        hardware: kind of hardware that times were measured on; None if unknown.

    Examples:
        >>> import hios
        >>> costs = hios.Costs(time_ms={"a": 1.0, "b": 2.0}, transfers={("a", "b"): 0.5}, corun={2: 1.1})
        >>> costs.operator_ms("b"), costs.corun_factor(1), costs.corun_factor(2)
        (2.0, 1.0, 1.1)
    """

    time_ms: Mapping[str, float]
    transfers: Mapping[tuple[str, str], float] | LinkModel
    utilization: Mapping[str, float] = field(default_factory=dict)
    stages: Mapping[StageIds, float] = field(default_factory=dict)
    contention: str = "blend"
    alpha: float = DEFAULT_ALPHA
    graph: str = ""
    source: str = "costs"
    merges: Mapping[frozenset[str], float] = field(default_factory=dict)
    resources: Mapping[str, BlockResources] = field(default_factory=dict)
    graph_fingerprint: str = ""
    corun: Mapping[int, float] = field(default_factory=dict)
    probe: ProfiledSpeed | None = None
    predicted_for: str = ""
    cores_per_device: int | None = None
    wide_ms: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    disturbed: str = ""
    hardware: str | None = None
    merge_wide_ms: Mapping[frozenset[str], Mapping[int, float]] = field(default_factory=dict)
    demand: Mapping[str, Demand] = field(default_factory=dict)
    overheads: CostOverheads = field(default_factory=CostOverheads)

    def __post_init__(self) -> None:
        if self.contention not in get_args(ContentionKind):
            raise ArtifactError(
                f"{self.source}: contention: found {self.contention}; allowed: {', '.join(get_args(ContentionKind))}"
            )
        transfers = {} if isinstance(self.transfers, LinkModel) else self.transfers
        wide = {f"{name} on {width}": ms for name, row in self.wide_ms.items() for width, ms in row.items()}
        merge_wide = {
            f"{_named(merge)} on {width}": ms for merge, row in self.merge_wide_ms.items() for width, ms in row.items()
        }
        times: list[tuple[str, Mapping[Any, float]]] = [
            ("operators", self.time_ms),
            ("transfers", transfers),
            ("stages", self.stages),
            ("merges", self.merges),
            ("wide_ms", wide),
            ("merge_wide_ms", merge_wide),
        ]
        for where, of in times:
            for key, time in of.items():
                if not 0 <= time < math.inf:
                    name = f"{where}: {_named(key)}"
                    raise ArtifactError(
                        f"{self.source}: {name}: found {time} ms; allowed: a finite number of at least 0"
                    )
        for stage in self.stages:
            if _repeats(stage):
                raise ArtifactError(f"{self.source}: stages: {_named(stage)}: {_TWICE}")
        if not 0 <= self.alpha <= 1:
            raise ArtifactError(f"{self.source}: alpha: found {self.alpha}; allowed: 0 to 1")
        for devices, factor in self.corun.items():
            if not 1 <= factor < math.inf:
                raise ArtifactError(
                    f"{self.source}: corun: {devices} devices: found {factor}; allowed: a finite number of at least 1"
                )
        for operator, share in self.utilization.items():
            if not 0 < share <= 1:
                raise ArtifactError(
                    f"{self.source}: operators.{operator}.utilization: found {share}; allowed: above 0, at most 1"
                )

    @classmethod
    def read(cls, path: str | Path) -> Costs:
        """Read costs.json."""
        return cls.of(artifacts.load(path, CostsFile), source=str(path))

    @classmethod
    def from_json(cls, data: Any, source: str = "costs") -> Costs:
        """Build costs from the contents of costs.json."""
        return cls.of(artifacts.parsed(data, CostsFile, source), source)

    @classmethod
    def of(cls, file: CostsFile, source: str = "costs") -> Costs:
        """What scheduling uses of a file; an error if an edge, stage or number of devices is in it twice."""
        for defect in defects(file):
            raise ArtifactError(f"{source}: {defect}")
        contention = file.contention
        return cls(
            time_ms={operator: cost.time_ms for operator, cost in file.operators.items()},
            transfers=file.transfers
            if isinstance(file.transfers, LinkModel)
            else {(transfer.source, transfer.target): transfer.time_ms for transfer in file.transfers},
            utilization={
                operator: cost.utilization for operator, cost in file.operators.items() if cost.utilization is not None
            },
            stages={frozenset(stage.groups): stage.time_ms for stage in file.stages},
            contention="blend" if contention is None else contention.kind,
            alpha=DEFAULT_ALPHA if contention is None or contention.alpha is None else contention.alpha,
            graph=file.graph,
            source=source,
            merges={frozenset(merge.operators): merge.time_ms for merge in file.merges},
            resources={
                operator: cost.resources for operator, cost in file.operators.items() if cost.resources is not None
            },
            graph_fingerprint=file.graph_fingerprint,
            corun={entry.devices: entry.factor for entry in file.corun},
            probe=None
            if file.probe is None
            else ProfiledSpeed(file.probe.version, file.probe.speed, file.probe.copy_share),
            predicted_for=predicted_for(file.platform) or "",
            cores_per_device=None if file.platform is None else file.platform.cores_per_device,
            wide_ms={
                operator: {int(width): time for width, time in cost.wide_ms.items()}
                for operator, cost in file.operators.items()
                if cost.wide_ms
            },
            disturbed=measured_beside_other_work(file.platform) or "",
            hardware=None if file.platform is None else file.platform.hardware,
            merge_wide_ms={
                frozenset(merge.operators): {int(width): time for width, time in merge.wide_ms.items()}
                for merge in file.merges
                if merge.wide_ms
            },
            demand={operator: cost.demand for operator, cost in file.operators.items() if cost.demand is not None},
            overheads=file.overheads or CostOverheads(),
        )

    def corun_factor(self, devices: int) -> float:
        """How many times as long operators, stages and merges take in schedules for so many devices.

        If the number has no entry, the entry of the next larger number is used, or that of the largest.
        """
        if devices == 1 or not self.corun:
            return 1.0
        return self.corun[min((number for number in self.corun if number >= devices), default=max(self.corun))]

    def operator_ms(self, operator: str) -> float:
        """t(v); an error if the operator has no cost."""
        try:
            return self.time_ms[operator]
        except KeyError:
            raise ArtifactError(
                f"{self.source}: operators: no entry for operator {operator} of the graph; "
                "required: time_ms for every operator"
            ) from None

    def transfer_ms(self, edge: Edge) -> float:
        """t(u,v) of an edge between two devices; an error if it has no time, or a link model no bytes of it."""
        if isinstance(self.transfers, LinkModel):
            if edge.bytes is None:
                raise ArtifactError(
                    f"{self.source}: transfers: the link model needs bytes of edge {edge.source} -> {edge.target}, "
                    "which the graph does not state"
                )
            return self.transfers.time_ms(edge.bytes)
        try:
            return self.transfers[edge.source, edge.target]
        except KeyError:
            raise ArtifactError(
                f"{self.source}: transfers: no entry for edge {edge.source} -> {edge.target} of the graph; "
                "required: time_ms for every edge"
            ) from None


_TWICE = "an operator is in it twice; allowed: once"


def _repeats(groups: Collection[tuple[str, ...]]) -> bool:
    """Whether a stage has an operator twice."""
    return len({operator for group in groups for operator in group}) < sum(map(len, groups))


def _named(key: str | tuple[str, ...] | frozenset[Any]) -> str:
    """An operator, an edge or group, a merge or a stage in words."""
    if isinstance(key, str):
        return key
    if isinstance(key, tuple):
        return " -> ".join(key)
    return ", ".join(sorted(map(_named, key)))


def defects(file: CostsFile) -> Iterator[str]:
    """Entries that are given twice, so that one of the times would be lost."""
    edges: set[tuple[str, str]] = set()
    for position, transfer in enumerate(() if isinstance(file.transfers, LinkModel) else file.transfers):
        ends = (transfer.source, transfer.target)
        if ends in edges:
            edge = " -> ".join(shown(end, quoted=False) for end in ends)
            yield f"transfers[{position}]: duplicate edge {edge}; every edge once"
        edges.add(ends)
    stages: set[StageIds] = set()
    for position, stage in enumerate(file.stages):
        if frozenset(stage.groups) in stages:
            yield f"stages[{position}]: duplicate stage; every stage once"
        stages.add(frozenset(stage.groups))
        if _repeats(stage.groups):
            yield f"stages[{position}]: {_TWICE}"
    merges: set[frozenset[str]] = set()
    for position, merge in enumerate(file.merges):
        if frozenset(merge.operators) in merges:
            yield f"merges[{position}]: duplicate merge; every merge once"
        merges.add(frozenset(merge.operators))
    if len({entry.devices for entry in file.corun}) < len(file.corun):
        yield "corun: duplicate number of devices; every number once"
