"""What a problem costs on a platform: t(v) of operators, t(S) of stages, t(u,v) of transfers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hios import artifacts, drift
from hios.errors import ArtifactError
from hios.graph import Edge

#: A stage in terms of operator ids: groups beside each other, the operators of a group one after another.
#: The order of the groups does not matter, the order within a group does.
StageIds = frozenset[tuple[str, ...]]

#: Share of serialisation in the contention model of the HIOS simulator.
DEFAULT_ALPHA = 0.5

#: What a thread block can have at most (CUDA C++ Programming Guide, technical specifications by compute capability:
#: the same for all desktop and server GPUs since 5.0; shared memory without opting in).
_MOST_SHARED_MEMORY_BYTES, _MOST_REGISTERS, _MOST_THREADS = 48 * 1024, 64 * 1024, 1024


@dataclass(frozen=True, slots=True)
class LinkModel:
    """Transfer time of ``n`` bytes: ``latency_ms + 8 n / (bandwidth_gbps * 1e6)``."""

    latency_ms: float
    bandwidth_gbps: float

    def time_ms(self, size: int) -> float:
        """Time to transfer ``size`` bytes, in milliseconds."""
        return self.latency_ms + 8 * size / (self.bandwidth_gbps * 1e6)


@dataclass(frozen=True, slots=True)
class Resources:
    """What a thread block of an operator asks of a GPU; of several kernels, those of the most demanding one."""

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
        alpha: share of serialisation in the blend.
        graph: name of the graph that was measured; empty where unknown.
        graph_fingerprint: ``Graph.fingerprint`` of that graph; empty where unknown.
        source: file name for messages.
        corun: how many times as long operators take while so many devices work at once, by their number.
        probe: speed of the machine when times were measured; None where unknown.
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
    probe: drift.Probe | None = None

    @classmethod
    def read(cls, path: str | Path) -> Costs:
        """Read costs.json."""
        return cls.from_json(artifacts.read(path, "costs"), source=str(path))

    @classmethod
    def from_json(cls, data: Mapping[str, Any], source: str = "costs") -> Costs:
        """Build costs from the contents of costs.json."""
        transfers = data["transfers"]
        if isinstance(transfers, list):
            ends = [(entry["source"], entry["target"]) for entry in transfers]
            if len(set(ends)) < len(ends):
                position = next(number for number, end in enumerate(ends) if end in ends[:number])
                raise ArtifactError(
                    f"{source}: transfers[{position}]: edge {' -> '.join(ends[position])} stands twice; every edge once"
                )
        stages = [frozenset(tuple(group) for group in entry["groups"]) for entry in data.get("stages", ())]
        if len(set(stages)) < len(stages):
            position = next(number for number, stage in enumerate(stages) if stage in stages[:number])
            raise ArtifactError(f"{source}: stages[{position}]: this stage stands twice; every stage once")
        contention = data.get("contention", {})
        return cls(
            time_ms={key: entry["time_ms"] for key, entry in data["operators"].items()},
            transfers=LinkModel(transfers["latency_ms"], transfers["bandwidth_gbps"])
            if isinstance(transfers, dict)
            else {(entry["source"], entry["target"]): entry["time_ms"] for entry in transfers},
            utilization={
                key: entry["utilization"] for key, entry in data["operators"].items() if "utilization" in entry
            },
            stages={stage: entry["time_ms"] for stage, entry in zip(stages, data.get("stages", ()), strict=True)},
            contention=contention.get("kind", "blend"),
            alpha=contention.get("alpha", DEFAULT_ALPHA),
            graph=data.get("graph", ""),
            source=source,
            merges={frozenset(entry["operators"]): entry["time_ms"] for entry in data.get("merges", ())},
            resources={
                key: Resources(found["shared_memory_bytes"], found["registers"], found["threads"])
                for key, entry in data["operators"].items()
                if (found := entry.get("resources")) is not None
            },
            graph_fingerprint=data.get("graph_fingerprint", ""),
            corun=_corun(data.get("corun", ()), source),
            probe=drift.probe_from_json(data.get("probe")),
        )

    def corun_factor(self, devices: int) -> float:
        """How many times as long operators, stages and merges take in schedules for so many devices.

        Without an entry for the number, that of the next larger one counts, beyond the largest that of the largest.
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


def _corun(entries: Sequence[Mapping[str, Any]], source: str) -> dict[int, float]:
    found = {entry["devices"]: entry["factor"] for entry in entries}
    if len(found) < len(entries):
        raise ArtifactError(f"{source}: corun: a number of devices stands twice; every number once")
    return found
