"""Messages by MPI through mpi4py; started by mpirun, or by srun if Slurm supports the MPI."""

from __future__ import annotations

import os
import time
from importlib import metadata
from typing import Any

import torch
from torch import Tensor

from hios.errors import PlatformError, first_line
from hios.runtime.distributed.transports import Channel

#: What launchers tell every process: Open MPI, MPICH and Intel, PMIx, Slurm, MVAPICH, PALS, Flux, IBM.
_BY_LAUNCHERS = (
    *("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_ID", "PMIX_RANK", "SLURM_PROCID", "MV2_COMM_WORLD_RANK", "PALS_RANKID"),
    *("FLUX_TASK_RANK", "JSM_NAMESPACE_RANK"),
)


class _MpiRequest:
    def __init__(self, request: Any, memory: Tensor, broken: type[Exception]) -> None:
        self._request = request
        self._memory = memory  # must stay alive, as MPI holds only its address
        self._broken = broken

    def wait(self, deadline: float) -> None:
        test, clock = self._request.Test, time.monotonic
        try:
            while not test():
                if clock() > deadline:
                    raise TimeoutError
                os.sched_yield()  # ranks may share a core
        except self._broken as error:
            raise ConnectionError(first_line(error)) from error


class Mpi:
    """The ranks of one mpirun: MPI_COMM_WORLD."""

    name = "mpi"
    ordered = False

    def __init__(self) -> None:
        if not any(name in os.environ for name in _BY_LAUNCHERS):  # Open MPI alone would leave shared memory behind
            raise PlatformError(
                "transport mpi: found no launcher; start the ranks with mpirun, such as: mpirun -n 2 python -m hios "
                "distribute ... --transport mpi"
            )
        try:
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            if isinstance(error, ModuleNotFoundError):
                raise  # the command line names the extra
            raise PlatformError(
                f"transport mpi: no MPI library can be loaded ({first_line(error)}); load your cluster's, or pip "
                "install 'hios[mpi]', which brings Open MPI"
            ) from error
        self._mpi, self._world = MPI, MPI.COMM_WORLD
        self.rank = self._world.Get_rank()
        self.size = self._world.Get_size()
        self.tags = int(self._world.Get_attr(MPI.TAG_UB) or 32767) + 1

    def channel(self, deadline: float) -> Channel:
        """Itself: MPI supports tags, and a CUDA-aware MPI accepts GPU addresses."""
        return self

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank."""
        return self._world.allgather(value)

    def send(self, memory: Tensor, destination: int, tag: int) -> _MpiRequest:
        """Start sending bytes."""
        if memory.is_cuda:
            # MPI knows nothing about streams: the bytes must have been computed.
            torch.cuda.current_stream().synchronize()
        return _MpiRequest(self._world.Isend(self._message(memory), destination, tag), memory, self._mpi.Exception)

    def receive(self, memory: Tensor, source: int, tag: int) -> _MpiRequest:
        """Receive the bytes of one message into memory."""
        return _MpiRequest(self._world.Irecv(self._message(memory), source, tag), memory, self._mpi.Exception)

    def _message(self, memory: Tensor) -> Any:
        # By address, since torch exposes its buffers only through NumPy.
        return [self._mpi.memory.fromaddress(memory.data_ptr(), memory.numel()), self._mpi.BYTE]

    def progress(self) -> None:
        """Enter MPI, as large messages advance only while both sides call it."""
        self._world.Iprobe(self._mpi.ANY_SOURCE, self._mpi.ANY_TAG)

    def versions(self) -> dict[str, str]:
        """Versions of the MPI library and of mpi4py."""
        library = self._mpi.Get_library_version().partition(",")[0].strip().rstrip("\0")
        return {"mpi": library, "mpi4py": metadata.version("mpi4py")}

    def close(self) -> None:
        """Nothing, as mpi4py finalizes MPI when Python ends."""
