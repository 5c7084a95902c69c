"""The hardware of a run in words: cores or GPUs, and whether devices share them."""

from __future__ import annotations

from collections.abc import Sequence

from hios.formats.base import Platform
from hios.report.captions import counted

_UNKNOWN = "not recorded"


def hardware(platform: Platform) -> dict[str, str]:
    """Name and text of every fact of a platform; which facts there are depends on its kind.

    Args:
        platform: as artifacts state it.
    """
    busy = platform.busy_share
    return {
        "Platform": platform.name,
        "Processor": platform.processor or _UNKNOWN,
        "Devices": f"{platform.devices or _UNKNOWN}{', virtual' if is_virtual(platform) else ''}",
        **(_gpus(platform) if platform.gpus is not None else {"Cores": _cores(platform.cores or ())}),
        "Other work on the cores before": _UNKNOWN if busy is None else f"{busy:.0%} of their time",
    }


def predicted_hardware(platform: Platform) -> list[tuple[str, str]]:
    """Name and text of every fact of a platform that predicts."""
    gpu = (platform.gpus or (_UNKNOWN,))[0]
    return [
        ("Platform", f"{platform.name}: predicted, nothing was measured or run"),
        ("GPUs", f"{platform.devices or _UNKNOWN} x {gpu} ({platform.gpu or _UNKNOWN})"),
        ("Link between GPUs", platform.link or _UNKNOWN),
        ("Convolutions of float32", "in TF32" if platform.tf32 else "in float32"),
    ]


def is_virtual(platform: Platform) -> bool:
    """Whether devices share cores or GPUs."""
    return bool(platform.virtual)


def virtual_text(platform: Platform) -> str | None:
    """What to say of devices that share hardware; None where they do not."""
    if not is_virtual(platform):
        return None
    return f"virtual devices: {platform.devices or 'several'} of them share {_shared(platform)}, so times say little"


def _shared(platform: Platform) -> str:
    if platform.gpu_indices is not None:
        return counted(len(set(platform.gpu_indices)), "GPU")
    cores = {core for own in platform.cores or () for core in own}
    return counted(len(cores), "core") if cores else "fewer cores"


def _cores(cores: Sequence[Sequence[int]]) -> str:
    texts = [
        f"device {device} on core{'' if len(own) == 1 else 's'} {', '.join(map(str, own))}"
        for device, own in enumerate(cores)
    ]
    return "; ".join(texts) or _UNKNOWN


def _gpus(platform: Platform) -> dict[str, str]:
    """Names and kind of the GPUs, the software below torch, and how GPUs reach each other."""
    gpus = platform.gpus or ()
    numbers = range(len(gpus)) if platform.gpu_indices is None else platform.gpu_indices
    texts = []
    for device, (name, gpu) in enumerate(zip(gpus, numbers, strict=False)):
        more = [f"compute capability {version}" for version in (platform.compute_capability or ())[device:][:1]]
        more += [f"memory {size:g} GB" for size in (platform.memory_gb or ())[device:][:1]]
        texts.append(f"device {device} on GPU {gpu}, {', '.join([name, *more])}")
    software = [
        f"{word} {version}"
        for version, word in ((platform.driver, "driver"), (platform.cuda, "CUDA"), (platform.cudnn, "cuDNN"))
        if version
    ]
    found = {"GPUs": "; ".join(texts), "Below torch": ", ".join(software) or _UNKNOWN}
    if platform.peer_access is not None:
        found["Copies between GPUs"] = "directly" if platform.peer_access else "through the memory of the host"
    if platform.tf32 is not None:
        found["Convolutions of float32"] = "in TF32" if platform.tf32 else "in float32"
    return found
