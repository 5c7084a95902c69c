"""GPUs in words."""

from __future__ import annotations

from hios.files.base import Platform

_UNKNOWN = "not recorded"


def facts(description: Platform) -> dict[str, str]:
    """Names and kind of the GPUs, the software below torch, and how GPUs reach each other."""
    gpus = description.gpus or ()
    numbers = range(len(gpus)) if description.gpu_indices is None else description.gpu_indices
    texts = []
    for device, (name, gpu) in enumerate(zip(gpus, numbers, strict=False)):
        more = [f"compute capability {version}" for version in (description.compute_capability or ())[device:][:1]]
        more += [f"memory {size:g} GB" for size in (description.memory_gb or ())[device:][:1]]
        texts.append(f"device {device} on GPU {gpu}, {', '.join([name, *more])}")
    software = [
        f"{word} {version}"
        for version, word in ((description.driver, "driver"), (description.cuda, "CUDA"), (description.cudnn, "cuDNN"))
        if version
    ]
    said = {"GPUs": "; ".join(texts) or _UNKNOWN, "Below torch": ", ".join(software) or _UNKNOWN}
    if description.peer_access is not None:
        said["Copies between GPUs"] = "directly" if description.peer_access else "through the memory of the host"
    if description.tf32 is not None:
        said["Convolutions of float32"] = "in TF32" if description.tf32 else "in float32"
    return said


def shared(description: Platform) -> str:
    """How many GPUs virtual devices share."""
    gpus = len(set(description.gpu_indices or ()))
    return f"{gpus} GPU{'' if gpus == 1 else 's'}"
