"""The platform model: a device is a GPU that is not installed here, known from its description."""

from __future__ import annotations

from hios.errors import PlatformError
from hios.formats.base import Platform
from hios.platforms.model import descriptions
from hios.platforms.model.descriptions import Gpu, Link

VIRTUAL = False
GROUPS_CORES = False
SETTLE_S = 0.0
RUNTIMES: tuple[str, ...] = ()
TRANSPORTS: tuple[str, ...] = ()
OPTIMIZES = False

#: Maximum number of devices, as in schedules.
_MOST_DEVICES = 1024


def describe(devices: int, *, virtual: bool = False, **options: str) -> Platform:
    """The platform as artifacts state it.

    Args:
        devices: how many.
        virtual: never, as there is nothing to share.
        options: ``gpu``, the GPU that every device is, a name or a .yaml file; ``link``, the link between each two of
            them, the first in the GPU's description if absent.

    Raises:
        PlatformError: a number of devices that no schedule can have, or no such GPU or link.
        ArtifactError: a description breaks its format.
    """
    if "gpu" not in options:
        raise PlatformError(
            f"--gpu: missing; required with platform model: one of {', '.join(descriptions.gpu_names())}, or a "
            ".yaml file"
        )
    gpu = descriptions.gpu(options["gpu"])
    return described(gpu, descriptions.link(options.get("link"), gpu), devices)


def described(gpu: Gpu, link: Link, devices: int) -> Platform:
    """The platform of a number of GPUs and the link between them.

    Raises:
        PlatformError: a number of devices that no schedule can have.
    """
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
