"""Meeting the other ranks over a transport."""

from __future__ import annotations

from hios import platforms
from hios.errors import PlatformError
from hios.runtime.distributed.transports import Transport


def connect(name: str, platform: str, timeout_s: float) -> Transport:
    """Meet the other ranks.

    Args:
        name: gloo, nccl or mpi.
        platform: what devices are.
        timeout_s: longest time to wait for them.

    Raises:
        PlatformError: this process was not started by the launcher of that transport, the ranks do not meet, or the
            transport is not one of that platform.
    """
    allowed = platforms.find(platform).TRANSPORTS
    if name not in allowed:
        raise PlatformError(f"transport {name}: found platform {platform}; allowed there: {', '.join(allowed)}")
    if name == "nccl":
        from hios.runtime.distributed.nccl import Nccl

        return Nccl(timeout_s)
    if name == "gloo":
        from hios.runtime.distributed.gloo import Gloo

        return Gloo(timeout_s)
    from hios.runtime.distributed.mpi import Mpi

    return Mpi()
