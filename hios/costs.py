"""What a problem costs on a platform: t(v) of operators, t(S) of stages, t(u,v) of transfers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hios import artifacts
from hios.errors import ArtifactError, shown
from hios.formats.base import Platform
from hios.formats.costs_file import CostsFile, LinkModel
from hios.formats.probe_record import ProfiledSpeed
from hios.graph import Edge
from hios.machine import BUSY

__all__ = [
    "DEFAULT_ALPHA",
    "Costs",
    "CostsFile",
    "LinkModel",
    "Resources",
    "StageIds",
    "measured_beside_other_work",
    "predicted_for",
]

#: A stage in terms of operator ids: groups that run concurrently, the operators of a group one after another.
#: The order of the groups does not matter, the order within a group does.
StageIds = frozenset[tuple[str, ...]]

#: Share of serialization in the contention model of the HIOS simulator.
DEFAULT_ALPHA = 0.5

#: What a thread block can have at most (CUDA C++ Programming Guide, technical specifications by compute capability:
#: the same for all desktop and server GPUs since 5.0; shared memory without opting in).
_MOST_SHARED_MEMORY_BYTES, _MOST_REGISTERS, _MOST_THREADS = 48 * 1024, 64 * 1024, 1024


@dataclass(frozen=True, slots=True)
class Resources:
    """What a thread block of an operator needs of a GPU; for several kernels, the most demanding one counts."""

    shared_memory_bytes: int
    registers: int
    threads: int

    @property
    def share(self) -> float:
        """The largest share that a block takes of the shared memory, registers or threads that a block can have."""
        return max(
            self.shared_memory_bytes / _MOST_SHARED_MEMORY_BYTES,
            self.registers / _MOST_REGISTERS,
            self.threads / _MOST_THREADS,
        )


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
        contention: ``blend`` or ``none``, for stages that were not measured.
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
    resources: Mapping[str, Resources] = field(default_factory=dict)
    graph_fingerprint: str = ""
    corun: Mapping[int, float] = field(default_factory=dict)
    probe: ProfiledSpeed | None = None
    predicted_for: str = ""
    cores_per_device: int | None = None
    wide_ms: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    disturbed: str = ""
    hardware: str | None = None
    merge_wide_ms: Mapping[frozenset[str], Mapping[int, float]] = field(default_factory=dict)

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
        """What scheduling uses of a file.

        Raises:
            ArtifactError: a duplicate edge, stage or number of devices.
        """
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
                operator: Resources(asked.shared_memory_bytes, asked.registers, asked.threads)
                for operator, cost in file.operators.items()
                if (asked := cost.resources) is not None
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
        )

    def corun_factor(self, devices: int) -> float:
        """How many times as long operators, stages and merges take in schedules for so many devices.

        If the number has no entry, the entry of the next larger number is used, or that of the largest.
        """
        if devices == 1 or not self.corun:
            return 1.0
        return self.corun[min((number for number in self.corun if number >= devices), default=max(self.corun))]

    def operator_ms(self, operator: str) -> float:
        """t(v).

        Raises:
            ArtifactError: the operator has no cost.
        """
        try:
            return self.time_ms[operator]
        except KeyError:
            raise ArtifactError(
                f"{self.source}: operators: no entry for operator {operator} of the graph; "
                "required: time_ms for every operator"
            ) from None

    def transfer_ms(self, edge: Edge) -> float:
        """t(u,v) of an edge between two devices.

        Raises:
            ArtifactError: the edge has no transfer time, or a link model meets an edge without bytes.
        """
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
    if len({entry.devices for entry in file.corun}) < len(file.corun):
        yield "corun: duplicate number of devices; every number once"
