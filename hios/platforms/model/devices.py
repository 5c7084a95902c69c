"""The platform model: a device is a GPU known only from its description, from which t(v), u(v) and t(u,v) follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msgspec import structs

from hios.core.costs import (
    DEFAULT_ALPHA,
    ContentionModel,
    CostOverheads,
    CostsFile,
    Demand,
    OperatorCost,
    TransferCost,
)
from hios.core.graph import Graph
from hios.core.sums import add_up
from hios.errors import PlatformError, UnsupportedError
from hios.files.base import Platform
from hios.platforms.model import descriptions
from hios.platforms.model.descriptions import Gpu, GpuLink
from hios.platforms.model.kernel_work import kernels
from hios.platforms.model.roofline import DEFAULT_EFFICIENCY, LAUNCH_US, Efficiency, Prediction, predict

VIRTUAL = False
GROUPS_CORES = False
SETTLE_S = 0.0
RUNTIMES: tuple[str, ...] = ()
TRANSPORTS: tuple[str, ...] = ()
OPTIMIZES = False

#: Maximum number of devices, as in schedules.
_MOST_DEVICES = 1024
#: How kernels are launched where nothing is said, as in files of earlier versions.
_LAUNCHES = "graph"


def describe(devices: int, *, virtual: bool = False, **options: str) -> Platform:
    """The platform as artifacts state it.

    Options are ``gpu``, the GPU that every device is, a name or a .yaml file; ``link``, the link between each two of
    them, the first in the GPU's description if absent; and ``launches``, graph or streams, graph if absent.

    Raises:
        PlatformError: a number of devices that no schedule can have, or no such GPU, link or way of launching.
        ArtifactError: a description breaks its format.
    """
    if "gpu" not in options:
        raise PlatformError(
            f"--gpu: missing; required with platform model: one of {', '.join(descriptions.gpu_names())}, or a "
            ".yaml file"
        )
    launches = options.get("launches", _LAUNCHES)
    if launches not in LAUNCH_US:
        raise PlatformError(f"--launches: found {launches}; allowed: {', '.join(LAUNCH_US)}")
    gpu = descriptions.gpu(options["gpu"])
    platform = described(gpu, descriptions.link(options.get("link"), gpu), devices)
    return platform if launches == _LAUNCHES else structs.replace(platform, launches=launches)


def described(gpu: Gpu, link: GpuLink, devices: int) -> Platform:
    """The platform of a number of GPUs and their link; a `PlatformError` if no schedule can have so many."""
    if not 1 <= devices <= _MOST_DEVICES:
        raise PlatformError(f"platform model: devices: found {devices}; allowed: 1 to {_MOST_DEVICES}")
    return Platform(
        name="model",
        predicted=True,
        devices=devices,
        gpu=gpu.label,
        link=link.label,
        gpus=(gpu.name,) * devices,
        compute_capability=(gpu.compute_capability,) * devices,
        tf32=gpu.has_tf32,
    )


def device_limit(cores: int, cores_per_device: int = 1) -> None:
    """None: there is no limit."""


def costs(graph: Graph, description: Platform) -> CostsFile:
    """Predicted costs on the GPUs of a description (`hios.platforms.model.devices.describe`)."""
    gpu = descriptions.gpu(description.gpu or "")
    link, shared = descriptions.link(description.link, gpu), description.contention == "resources"
    overheads: dict[str, Any] = {"launch_us": LAUNCH_US[description.launches or _LAUNCHES], **gpu.overheads}
    own = replace(DEFAULT_EFFICIENCY, **overheads)
    return predicted_costs(graph, gpu, link, description.devices or 1, own, shared=shared)


def files(**options: str) -> list[Path]:
    """The description files of a GPU and of the link, by the options of `describe`.

    Raises:
        HiosError: an unknown GPU or link, or a file that breaks its format.
    """
    gpu = descriptions.gpu(options["gpu"])
    return [gpu.path, descriptions.link(options.get("link"), gpu).path]


def predicted_costs(
    graph: Graph,
    gpu: Gpu,
    link: GpuLink,
    devices: int,
    efficiency: Efficiency = DEFAULT_EFFICIENCY,
    *,
    shared: bool = False,
) -> CostsFile:
    """The contents of costs.json for GPUs that are not installed here.

    An operator takes the times of its kernels and a pause after each; its utilization is the mean of theirs, weighted
    by time. Operators that only give another view of a value take no time. Stages are not predicted: scheduling takes
    t(S) from the contention model. If ``shared``, operators have demands of slots, arithmetic and memory bandwidth,
    contention is that of resources, and there are overheads; t(v) is the same with them. The graph has calls and
    shapes, as ``hios extract`` writes it, or ``flops`` and ``bytes`` of every operator.

    Raises:
        PlatformError: a number of devices that no schedule can have.
        UnsupportedError: an operator's work is unknown, or an edge states no bytes.
    """
    return CostsFile(
        graph=graph.name,
        graph_fingerprint=graph.fingerprint,
        platform=described(gpu, link, devices),
        operators={
            operator: _operator([predict(kernel, gpu, efficiency) for kernel in own], efficiency, shared=shared)
            for operator, own in kernels(graph).items()
        },
        transfers=_transfers(graph, link),
        contention=ContentionModel(kind="resources") if shared else ContentionModel(kind="blend", alpha=DEFAULT_ALPHA),
        overheads=_overheads(efficiency) if shared else None,
    )


def _overheads(efficiency: Efficiency) -> CostOverheads:
    return CostOverheads(efficiency.launch_us / 1e3, efficiency.sync_us / 1e3, efficiency.stage_us / 1e3)


def _operator(predictions: Sequence[Prediction], efficiency: Efficiency, *, shared: bool) -> OperatorCost:
    if not predictions:
        return OperatorCost(time_ms=0.0)
    total_us = add_up(prediction.us for prediction in predictions)
    # The pause after the last kernel is that of the launch, which overheads have.
    pauses = len(predictions) - shared
    time_us = total_us + efficiency.launch_us * pauses
    return OperatorCost(
        time_ms=time_us / 1e3,
        utilization=add_up(prediction.us * prediction.utilization for prediction in predictions) / total_us,
        demand=_demand(predictions, time_us, efficiency) if shared else None,
        resources=max((prediction.resources for prediction in predictions), key=lambda asked: asked.share),
    )


def _demand(predictions: Sequence[Prediction], time_us: float, efficiency: Efficiency) -> Demand:
    return Demand.over(
        time_us,
        add_up(prediction.slots_us for prediction in predictions),
        add_up(prediction.compute_us for prediction in predictions),
        add_up(prediction.memory_us for prediction in predictions) * efficiency.memory_pressure,
    )


def _transfers(graph: Graph, link: GpuLink) -> tuple[TransferCost, ...]:
    sizes: dict[tuple[str, str], int] = {}
    for edge in graph.edges:
        if edge.bytes is None:
            raise UnsupportedError(
                f"{graph.source}: edge {edge.source} -> {edge.target}: states no bytes; required for predictions: "
                "bytes of every edge, as `hios extract` writes them"
            )
        sizes[edge.source, edge.target] = max(sizes.get((edge.source, edge.target), 0), edge.bytes)
    return tuple(
        TransferCost(source=source, target=target, time_ms=link.time_ms(size))
        for (source, target), size in sizes.items()
    )
