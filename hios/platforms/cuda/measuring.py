"""Measuring on GPUs: one worker process drives all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from hios.core.costs import BlockResources, CostOverheads
from hios.core.graph import Graph
from hios.files.base import Platform
from hios.kernels.executable import signatures
from hios.machine.topology import usable_cpus
from hios.platforms.cuda import gpu_probe, timing
from hios.platforms.cuda.environment import settings
from hios.platforms.occupancy import mean_share
from hios.platforms.timer import TIMEOUT_S, DeviceTimer, Quantity, Times, whose_turn
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool

#: Milliseconds that chains of a stage are replayed in for one measurement, with a share of capturing them.
_LEAST_MS = 2.0


def environment(description: Platform) -> Mapping[str, object]:
    """GPUs, clocks and software."""
    return settings(description)


def timer(graph: Graph, path: str, description: Platform, widths: Sequence[int] = ()) -> DeviceTimer:
    """One worker for all GPUs."""
    return CudaTimer(graph, path, description)


class CudaTimer(DeviceTimer):
    """Devices that are GPUs."""

    probe_version, probe_flops, probe_bytes = gpu_probe.VERSION, gpu_probe.FLOPS, gpu_probe.NBYTES

    def __init__(self, graph: Graph, path: str, platform: Platform) -> None:
        self._indices = list(platform.gpu_indices or ())
        cores = sorted(usable_cpus())
        pool = WorkerPool([cores], Arena(8, 64), TIMEOUT_S, ["the worker of the GPUs"])
        self._is_traced = True
        pool.describe = lambda number: f"operator {graph.operators[number - 1].id}" if number else ""
        # The copies in a chain fill the caches, so no other operators are needed.
        super().__init__(pool, len(self._indices), around_bytes=0, least_ms=_LEAST_MS)
        try:
            given = {"indices": self._indices, "operators": len(set(signatures(graph).values()))}
            self._uuids: list[str] = self._call(timing.open_gpus, graph=path, **given)
            self._sms, self._room = self._call(timing.room)
        except BaseException:
            pool.close()
            raise

    def ends(self, devices: int) -> Mapping[str, object]:
        """The GPUs of the devices, by UUID."""
        return {"gpus": self._uuids[:devices]}

    def probe(self, device: int) -> tuple[float, float]:
        """Milliseconds of the probe on the GPU of a device."""
        return self._call(gpu_probe.time_probe, gpu=self._indices[device])

    def load(self, operators: Mapping[str, int]) -> None:
        """Prepare copies of operators on every device."""
        self._call(timing.load, operators=dict(operators))

    def load_merges(self, merges: Sequence[Sequence[str]]) -> None:
        """Prepare merges on every device."""
        self._call(timing.load_merges, merges=merges)

    def time(self, device: int, quantities: Sequence[Quantity], rounds: int, warmup: int) -> list[Times]:
        """Milliseconds on a GPU; groups of a stage are streams."""
        given = {"quantities": quantities, "rounds": rounds, "warmup": warmup}
        return self._call(timing.time_rounds, device=device, **given)

    def time_transfers(self, sizes: Sequence[int], rounds: int, turn: int) -> dict[int, list[float]]:
        """Milliseconds of copies between the first two GPUs, which take turns within each chain of them."""
        return self._call(timing.time_transfers, sizes=sizes, rounds=rounds)

    def corun(self, turn: int, devices: int, network: Sequence[str], alone_ms: float) -> float:
        """Inferences on all devices at once over inferences on one of them, taken right after each other."""
        device = whose_turn(turn, self._uuids[:devices])
        return self._call(timing.corun, device=device, devices=devices, network=network)

    def resources(self, operators: Sequence[str]) -> dict[str, BlockResources]:
        """Resources of operators on a GPU; empty if torch.profiler cannot trace kernels."""
        resources_of: dict[str, BlockResources] = self._call(timing.resources, operators=operators)
        self._is_traced = bool(resources_of)
        return resources_of

    def slots(self, asked: BlockResources) -> float | None:
        """Blocks over what the GPU holds at once, on average over the waves; None if no kernel was traced."""
        if asked.blocks is None:
            return None
        return mean_share(asked.blocks, self._sms * max(1, self._room.held(asked)))

    def overheads(self) -> CostOverheads:
        """Measured on the GPU of the first device; t(v) contains the pause before the next kernel, so a launch is 0."""
        sync_ms, stage_ms = self._call(timing.overheads)
        return CostOverheads(0.0, sync_ms, stage_ms)

    def remarks(self) -> list[str]:
        """What could not be captured in a CUDA graph, and whether kernels could be traced."""
        uncaptured: dict[str, str] = self._call(timing.uncaptured)
        remarks = []
        for what, why in islice(uncaptured.items(), 1):
            more = f", nor can {len(uncaptured) - 1} more operators or stages" if len(uncaptured) > 1 else ""
            remarks.append(
                f"{what} cannot run in a CUDA graph ({why}){more}: schedules are then launched anew for each run, "
                "which takes longer"
            )
        if not self._is_traced:
            remarks.append(
                "torch.profiler recorded no kernel, so costs.json has no resources, which opara compares, nor says "
                "what room operators leave, for contention resources; the driver may let administrators alone "
                "trace kernels (NVreg_RestrictProfilingToAdminUsers)"
            )
        return remarks

    def _call(self, function: Any, **arguments: Any) -> Any:
        return self.pool.call(0, function, **arguments)
