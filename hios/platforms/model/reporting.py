"""GPUs that are not installed here, in words."""

from __future__ import annotations

from hios.files.base import Platform

_UNKNOWN = "not recorded"


def facts(description: Platform) -> dict[str, str]:
    """The number and model of the GPUs, and the link between them."""
    gpu = (description.gpus or (_UNKNOWN,))[0]
    return {
        "GPUs": f"{description.devices or _UNKNOWN} x {gpu} ({description.gpu or _UNKNOWN})",
        **({"Launches of kernels": description.launches} if description.launches else {}),
        "Link between GPUs": description.link or _UNKNOWN,
        "Convolutions of float32": "in TF32" if description.tf32 else "in float32",
    }


def shared(description: Platform) -> str:
    """Nothing, as these GPUs are never virtual."""
    return "nothing"
