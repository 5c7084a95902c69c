"""The hardware of a run in words: cores or GPUs, and whether devices share them."""

from __future__ import annotations

from collections.abc import Sequence

from hios.artifacts import Json
from hios.report.captions import counted

_UNKNOWN = "not recorded"


def hardware(platform: Json) -> dict[str, str]:
    """Name and text of every fact of a platform; which facts there are depends on its kind.

    Args:
        platform: as artifacts state it.
    """
    busy = platform.get("busy_share")
    return {
        "Platform": platform["name"],
        "Processor": platform.get("processor") or _UNKNOWN,
        "Devices": f"{platform.get('devices', _UNKNOWN)}{', virtual' if is_virtual(platform) else ''}",
        **(_gpus(platform) if "gpus" in platform else {"Cores": _cores(platform.get("cores", ()))}),
        "Other work on the cores before": _UNKNOWN if busy is None else f"{busy:.0%} of their time",
    }


def is_virtual(platform: Json) -> bool:
    """Whether devices share cores or GPUs."""
    return bool(platform.get("virtual"))


def virtual_text(platform: Json) -> str | None:
    """What to say of devices that share hardware; None where they do not."""
    if not is_virtual(platform):
        return None
    return (
        f"virtual devices: {platform.get('devices', 'several')} of them share {_shared(platform)}, so times say little"
    )


def _shared(platform: Json) -> str:
    if "gpu_indices" in platform:
        return counted(len(set(platform["gpu_indices"])), "GPU")
    cores = {core for own in platform.get("cores", ()) for core in own}
    return counted(len(cores), "core") if cores else "fewer cores"


def _cores(cores: Sequence[Sequence[int]]) -> str:
    texts = [
        f"device {device} on core{'' if len(own) == 1 else 's'} {', '.join(map(str, own))}"
        for device, own in enumerate(cores)
    ]
    return "; ".join(texts) or _UNKNOWN


def _gpus(platform: Json) -> dict[str, str]:
    """Names and kind of the GPUs, the software below torch, and how GPUs reach each other."""
    numbers = platform.get("gpu_indices", range(len(platform["gpus"])))
    texts = []
    for device, (name, gpu) in enumerate(zip(platform["gpus"], numbers, strict=False)):
        more = [
            f"{word} {platform[key][device]}{unit}"
            for key, word, unit in (("compute_capability", "compute capability", ""), ("memory_gb", "memory", " GB"))
            if device < len(platform.get(key, ()))
        ]
        texts.append(f"device {device} on GPU {gpu}, {', '.join([name, *more])}")
    software = [
        f"{word} {platform[key]}"
        for key, word in (("driver", "driver"), ("cuda", "CUDA"), ("cudnn", "cuDNN"))
        if platform.get(key)
    ]
    found = {"GPUs": "; ".join(texts), "Below torch": ", ".join(software) or _UNKNOWN}
    if "peer_access" in platform:
        found["Copies between GPUs"] = "directly" if platform["peer_access"] else "through the memory of the host"
    if "tf32" in platform:
        found["Convolutions of float32"] = "in TF32" if platform["tf32"] else "in float32"
    return found
