"""Transports between ranks: messages with tags, sent and received without blocking.

- Gloo, by torch.distributed, sends over TCP in its own threads; started by torchrun.
- MPI, through mpi4py; started by mpirun, or by srun if Slurm supports the MPI.
- NCCL sends values between GPUs, Gloo all other messages; started by torchrun. NCCL has no tags, and a message occupies
  the stream of its communicator until the other side takes it. So every ordered pair of ranks has a communicator of its
  own, on which values travel in the order in which the sender makes them.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from importlib import metadata
from itertools import permutations
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as torch_distributed
from torch import Tensor

from hios import platforms
from hios.errors import PlatformError, first_line


class Request(Protocol):
    """A pending message."""

    def wait(self, deadline: float) -> None:
        """Wait until the memory of the message may be read (received) or overwritten (sent).

        Raises:
            TimeoutError: the deadline passed, by ``time.monotonic``.
            ConnectionError: the other rank is gone.
        """


class Channel(Protocol):
    """How values of a schedule are sent.

    Attributes:
        ordered: whether messages from one rank to another are identified by their order alone, not by tags. A pending
            receive may then block the sender's later messages, so it is posted only when its value is waited for, and
            after the receives of all values that the sender makes before.
    """

    ordered: bool

    def send(self, memory: Tensor, destination: int, tag: int) -> Request:
        """Start sending bytes, which must not change until the request is waited for."""

    def receive(self, memory: Tensor, source: int, tag: int) -> Request:
        """Receive the bytes of one message into memory."""


class Transport(Channel, Protocol):
    """The ranks that were started together, seen from one of them, with a channel for what is in host memory.

    ``tags`` is how many tags there are, from 0.
    """

    name: str
    rank: int
    size: int
    tags: int

    def channel(self, deadline: float) -> Channel:
        """The channel for values between devices; everything else is sent by the transport itself from host memory.

        All ranks call it at once, and once, when their devices are ready.

        Raises:
            PlatformError: devices cannot reach each other.
            TimeoutError: the deadline passed, by ``time.monotonic``.
        """

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank. Blocks; only used at the start."""

    def progress(self) -> None:
        """Let pending messages advance, if the transport has no thread of its own."""

    def versions(self) -> dict[str, str]:
        """Versions of the underlying software."""

    def close(self) -> None:
        """Leave; called by all ranks."""


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
        # Torch drops parts of a millisecond: the time-out would come before the deadline. With 0 it would never come.
        left_ms = max(1, math.ceil(1000 * (deadline - time.monotonic())))
        try:
            self._work.wait(timedelta(milliseconds=left_ms))
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


#: What launchers tell every process: Open MPI, MPICH and Intel, PMIx, Slurm, MVAPICH, PALS, Flux, IBM.
_BY_LAUNCHERS = (
    *("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_ID", "PMIX_RANK", "SLURM_PROCID", "MV2_COMM_WORLD_RANK", "PALS_RANKID"),
    *("FLUX_TASK_RANK", "JSM_NAMESPACE_RANK"),
)


#: Seconds that Open MPI waits before it aborts, in which rank 0 may print the reason; mpirun may end it before.
_ABORT_DELAY_S = 3


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
        # Over TCP, Open MPI aborts as soon as a connection breaks, before rank 0 can say which rank died.
        os.environ.setdefault("OMPI_MCA_opal_abort_delay", str(_ABORT_DELAY_S))
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
        """Itself: MPI supports tags, and a CUDA-aware MPI accepts GPU addresses.

        Raises:
            PlatformError: devices are GPUs, and the MPI library would read their addresses as its own.
        """
        if torch.cuda.is_initialized() and not is_cuda_aware(self._mpi.__file__):
            raise PlatformError(
                f"transport mpi: {self.versions()['mpi']} is built without CUDA and cannot send values between GPUs; "
                "start the ranks with torchrun and use --transport nccl, or load an MPI that is CUDA-aware"
            )
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


def is_cuda_aware(library: str) -> bool:
    """Whether an MPI library, or what it is linked to, accepts addresses of GPUs; True if it cannot be asked."""
    query = getattr(ctypes.CDLL(library), "MPIX_Query_cuda_support", None)
    return query is None or bool(query())


class _StreamRequest:
    """A pending NCCL message: waiting blocks the current stream, not the host."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def wait(self, deadline: float) -> None:
        """Let later launches wait for the message."""
        self._work.wait()


class Pairs:
    """A process group for every ordered pair of ranks.

    ``deadline`` is that of a first message on every pair, by ``time.monotonic``; another ``backend`` is for tests only.

    Raises:
        PlatformError: ranks cannot reach each other, such as those that share a GPU.
    """

    ordered = True

    def __init__(self, rank: int, size: int, deadline: float, backend: str = "nccl") -> None:
        self._rank = rank
        self._request = _StreamRequest if backend == "nccl" else GlooRequest
        pairs = list(permutations(range(size), 2))
        # NCCL ends a process whose message takes longer, and says less than hios does.
        timeout = timedelta(seconds=2 * max(deadline - time.monotonic(), 1.0))
        self._groups = {
            pair: torch_distributed.new_group(list(pair), timeout=timeout, backend=backend) for pair in pairs
        }
        place = torch.device("cuda", torch.cuda.current_device()) if backend == "nccl" else torch.device("cpu")
        try:
            self._connect(place, deadline)
        except RuntimeError as error:
            raise PlatformError(
                f"transport {backend}: rank {rank} cannot reach another one ({first_line(error)}); NCCL needs a GPU "
                "for every rank"
            ) from error

    def _connect(self, place: torch.device, deadline: float) -> None:
        """A first message on every pair, in one order on all ranks, as both sides block to create a communicator."""
        byte = torch.zeros(1, dtype=torch.uint8, device=place)
        for source, destination in self._groups:
            if self._rank == source:
                self.send(byte, destination, 0).wait(deadline)
            elif self._rank == destination:
                self.receive(byte, source, 0).wait(deadline)
        if place.type == "cuda":
            torch.cuda.synchronize(place)

    def send(self, memory: Tensor, destination: int, tag: int) -> Request:
        """Start sending bytes, after earlier work on the current stream."""
        group = self._groups[self._rank, destination]
        return self._request(torch_distributed.isend(memory, destination, group))

    def receive(self, memory: Tensor, source: int, tag: int) -> Request:
        """Receive the bytes of the next message into memory."""
        group = self._groups[source, self._rank]
        return self._request(torch_distributed.irecv(memory, source, group))


class Nccl(Gloo):
    """The ranks of one torchrun, with a GPU each."""

    name = "nccl"

    def channel(self, deadline: float) -> Channel:
        """A group for every pair; the GPU of this rank becomes the current one."""
        if not torch_distributed.is_nccl_available():
            raise PlatformError(
                "transport nccl: this build of torch has no NCCL; use --transport mpi, or another build"
            )
        return Pairs(self.rank, self.size, deadline)

    def versions(self) -> dict[str, str]:
        """Version of NCCL."""
        return {"nccl": ".".join(map(str, torch.cuda.nccl.version()))}


def rank_inputs(options: Mapping[str, Any], files: Sequence[Path]) -> dict[str, Any]:
    """The options of a rank by name, and the hash of every file by its path on this rank, in order."""
    return {"options": options, "files": [(str(path), _digest(path)) for path in files]}


def difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """How the options or files of another rank differ from ours, in words; empty if they do not."""
    for name, own in ours["options"].items():
        if theirs["options"][name] != own:
            return f"{name.removesuffix('_s')}, {theirs['options'][name]} and {own}"
    pairs = zip(ours["files"], theirs["files"], strict=True)
    return next((f"{path}: its contents" for (path, own), (_, other) in pairs if own != other), "")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def connect(name: str, platform: str, timeout_s: float) -> Transport:
    """Connect to the other ranks by gloo, nccl or mpi.

    Raises:
        PlatformError: this process was not started by the launcher of that transport, the ranks cannot connect, or the
            platform does not support the transport.
    """
    allowed = platforms.find(platform).TRANSPORTS
    if name not in allowed:
        raise PlatformError(f"transport {name}: found platform {platform}; allowed there: {', '.join(allowed)}")
    if name == "nccl":
        return Nccl(timeout_s)
    if name == "gloo":
        return Gloo(timeout_s)

    return Mpi()
