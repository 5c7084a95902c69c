"""Messages by torch.distributed with Gloo, which sends over TCP in its own threads; started by torchrun."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from typing import Any

import torch.distributed as torch_distributed
from torch import Tensor

from hios.errors import PlatformError, first_line
from hios.runtime.distributed.transports import Channel

#: What torchrun tells every process.
_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


#: Minimum seconds for ranks to connect, even if the time-out of runs is shorter.
_LEAST_S = 30.0


class GlooRequest:
    """A pending Gloo message."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def wait(self, deadline: float) -> None:
        """Wait until its memory may be reused."""
        left = max(deadline - time.monotonic(), 1e-3)
        try:
            self._work.wait(timedelta(seconds=left))
        except RuntimeError as error:
            # Gloo raises the same error for both; only the text differs.
            if time.monotonic() >= deadline:
                raise TimeoutError from error
            raise ConnectionError(first_line(error)) from error


class Gloo:
    """The ranks of one torchrun."""

    name = "gloo"
    tags = 1 << 31
    ordered = False

    def __init__(self, timeout_s: float) -> None:
        if missing := [name for name in _BY_TORCHRUN if name not in os.environ]:
            raise PlatformError(
                f"transport {self.name}: {missing[0]} is not set; start the ranks with torchrun, such as: torchrun "
                f"--nproc-per-node 2 -m hios distribute ... --transport {self.name}"
            )
        try:
            least = timedelta(seconds=max(timeout_s, _LEAST_S))
            torch_distributed.init_process_group("gloo", timeout=least)
        except (RuntimeError, ValueError) as error:
            raise PlatformError(
                f"transport {self.name}: the ranks cannot connect ({first_line(error)}); make sure that their hosts "
                "reach each other, and select the network with GLOO_SOCKET_IFNAME if there are several"
            ) from error
        self.rank = torch_distributed.get_rank()
        self.size = torch_distributed.get_world_size()

    def channel(self, deadline: float) -> Channel:
        """Itself, as Gloo supports tags."""
        return self

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank."""
        values: list[Any] = [None] * self.size
        torch_distributed.all_gather_object(values, value)
        return values

    def send(self, memory: Tensor, destination: int, tag: int) -> GlooRequest:
        """Start sending bytes."""
        return GlooRequest(torch_distributed.isend(memory, destination, tag=tag))

    def receive(self, memory: Tensor, source: int, tag: int) -> GlooRequest:
        """Receive the bytes of one message into memory."""
        return GlooRequest(torch_distributed.irecv(memory, source, tag=tag))

    def progress(self) -> None:
        """Nothing, as Gloo has its own thread."""

    def versions(self) -> dict[str, str]:
        """Gloo is part of torch."""
        return {}

    def close(self) -> None:
        """Leave the process group."""
        torch_distributed.destroy_process_group()
