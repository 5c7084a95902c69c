"""GPUs in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_UNKNOWN = "not recorded"


def facts(description: Mapping[str, Any]) -> dict[str, str]:
    """Names and kind of the GPUs, the software below torch, and how GPUs reach each other."""
    names = description.get("gpus", ())
    numbers = description.get("gpu_indices", range(len(names)))
    texts = []
    for device, (name, gpu) in enumerate(zip(names, numbers, strict=False)):
        more = [
            f"{word} {description[key][device]}{unit}"
            for key, word, unit in (("compute_capability", "compute capability", ""), ("memory_gb", "memory", " GB"))
            if device < len(description.get(key, ()))
        ]
        texts.append(f"device {device} on GPU {gpu}, {', '.join([name, *more])}")
    software = [
        f"{word} {description[key]}"
        for key, word in (("driver", "driver"), ("cuda", "CUDA"), ("cudnn", "cuDNN"))
        if description.get(key)
    ]
    said = {"GPUs": "; ".join(texts) or _UNKNOWN, "Below torch": ", ".join(software) or _UNKNOWN}
    if "peer_access" in description:
        said["Copies between GPUs"] = "directly" if description["peer_access"] else "through the memory of the host"
    if "tf32" in description:
        said["Convolutions of float32"] = "in TF32" if description["tf32"] else "in float32"
    return said


def shared(description: Mapping[str, Any]) -> str:
    """How many GPUs virtual devices share."""
    gpus = len(set(description.get("gpu_indices", ())))
    return f"{gpus} GPU{'' if gpus == 1 else 's'}"
