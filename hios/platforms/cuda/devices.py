"""The platform cuda: a device is a GPU, and one worker process drives all of them."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hios.errors import PlatformError
from hios.files.base import Platform
from hios.machine import description, topology

#: As on platform cpu, for ONNX Runtime, which runs on cores here.
SETTLE_S = 0.03
VIRTUAL = True
GROUPS_CORES = False
RUNTIMES = ("eager", "compile", "cudagraph", "compile-reduce-overhead", "compile-max-autotune", "tensorrt")
TRANSPORTS = ("nccl", "mpi")
OPTIMIZES = False

_DRIVER = Path("/proc/driver/nvidia/version")
_DRIVER_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_GB = 1e9


def gpu_indices(devices: int, *, virtual: bool = False) -> list[int]:
    """The GPU index of every device in torch; queries torch.

    Virtual devices may share GPUs: device i has GPU i modulo the number of GPUs.

    Raises:
        PlatformError: torch is built without CUDA, there is no GPU, fewer than one device, or more devices than GPUs
            that are not virtual.
    """
    import torch

    return indices(devices, _gpu_count(torch.__version__, torch.version.cuda, torch.cuda.device_count()), virtual)


def indices(devices: int, gpus: int, virtual: bool) -> list[int]:
    """The GPU index of every device among ``gpus``; `gpu_indices` lists the errors."""
    if devices < 1 or (devices > gpus and not virtual):
        raise PlatformError(
            f"platform cuda: devices: found {devices}; allowed: 1 to {gpus}, the GPUs that torch finds, and more with "
            "--virtual, which lets devices share them"
        )
    return [device % gpus for device in range(devices)]


def _gpu_count(version: str, cuda: str | None, gpus: int) -> int:
    """How many GPUs there are, at least one."""
    if cuda is None:
        raise PlatformError(
            f"platform cuda: found torch {version}, which is built without CUDA; install a build of torch with CUDA, "
            "or use --platform cpu"
        )
    if gpus < 1:
        raise PlatformError(
            f"platform cuda: torch {version} (CUDA {cuda}) finds no GPU; nvidia-smi shows what the driver sees, and "
            "CUDA_VISIBLE_DEVICES may hide GPUs; or use --platform cpu"
        )
    return gpus


def describe(devices: int, *, virtual: bool = False, **_: Any) -> Platform:
    """The platform as artifacts state it; takes half a second to see what else keeps the host's cores busy.

    It has ``virtual`` if devices share GPUs.

    Raises:
        PlatformError: as of `gpu_indices`.
    """
    import torch

    gpus = gpu_indices(devices, virtual=virtual)
    properties = [torch.cuda.get_device_properties(gpu) for gpu in gpus]
    used = sorted(set(gpus))
    pairs = [(one, other) for one in used for other in used if one != other]
    return Platform(
        name="cuda",
        devices=devices,
        gpus=tuple(known.name for known in properties),
        gpu_indices=tuple(gpus),
        compute_capability=tuple(f"{known.major}.{known.minor}" for known in properties),
        memory_gb=tuple(round(known.total_memory / _GB, 1) for known in properties),
        driver=driver_version(topology.system_text(_DRIVER)),
        cuda=str(torch.version.cuda),
        cudnn=str(torch.backends.cudnn.version()),
        processor=description.processor(),
        governor=description.governor(topology.usable_cpus()),
        load_average=round(os.getloadavg()[0], 2),
        busy_share=description.busy_share(topology.usable_cpus()),
        peer_access=all(torch.cuda.can_device_access_peer(*pair) for pair in pairs) if pairs else None,
        virtual=True if len(used) < devices else None,
    )


def uuids(indices: Sequence[int]) -> list[str]:
    """What tells GPUs apart on any host and in any process, by their indices in torch here; queries torch."""
    import torch

    return [str(torch.cuda.get_device_properties(index).uuid) for index in indices]


def driver_version(text: str) -> str:
    """Version of the driver, from the text of /proc/driver/nvidia/version; empty if missing, as in some containers."""
    match = _DRIVER_VERSION.search(text)
    return match[1] if match else f"unknown, on {platform.system()} {platform.release()}"


def device_limit(cores: int, cores_per_device: int = 1) -> None:
    """None: the GPUs are counted where they are used, which may be another host."""
