"""What a platform is: modules in its folder that offer what stands here.

============== ======================= ===============================================================
module         protocol                imported by
============== ======================= ===============================================================
``platform``   `Platform`              all commands that name the platform; imports nothing heavy at its top
``measuring``  `Measuring`             ``hios profile``
``predicting`` `Predicting`            ``hios profile``, in the place of ``measuring`` where nothing can be run
``executing``  `Executing`             ``hios execute``; absent where nothing can be run
``distributing`` `Distributing`        ``hios distribute``; absent where ``platform`` names no transports
``reporting``  `Reporting`             ``hios report``
============== ======================= ===============================================================

They are reached through `hios.platforms` (``find``, ``describe``, ``measuring``, ...), by the platform's name.
``platform`` must import none of the others: so an edit of what executes measures nothing again (`hios.sources`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from hios.formats.base import Platform as Description
    from hios.formats.costs_file import CostsFile
    from hios.graph import Graph
    from hios.platforms.bench import Bench
    from hios.platforms.competitor import Competitor
    from hios.platforms.device_program import ArenaPlan, Buffer, Row
    from hios.platforms.reference import Reference
    from hios.tolerances import ReducedPrecision
    from hios.workers.arena import Arena
    from hios.workers.pool import WorkerPool
    from hios.workers.worker import Worker


class Platform(Protocol):
    """Module ``platform``: what there is, and what may be asked of it. Its properties are constants of the module."""

    @property
    def VIRTUAL(self) -> bool:  # noqa: N802 - a constant
        """Whether several devices may share one core or GPU."""

    @property
    def GROUPS_CORES(self) -> bool:  # noqa: N802
        """Whether a device may be a group of cores, so that ``describe`` takes ``cores_per_device``."""

    @property
    def SETTLE_S(self) -> float:  # noqa: N802
        """Pause in seconds after something that used several threads of the host, before another one is timed."""

    @property
    def RUNTIMES(self) -> Collection[str]:  # noqa: N802
        """What can run a model itself on it, by names of ``hios.models.RUNTIMES``."""

    @property
    def TRANSPORTS(self) -> Sequence[str]:  # noqa: N802
        """What can move values between ranks, the usual one first; empty where none can."""

    @property
    def OPTIMIZES(self) -> bool:  # noqa: N802
        """Whether ``hios.optimize`` can use it."""

    def describe(self, devices: int, *, virtual: bool = False, **options: Any) -> Description:
        """Its devices, as artifacts state them.

        Args:
            devices: how many there are to be.
            virtual: whether devices may share hardware; the description then has ``virtual`` if they do.
            options: of the platform, by the names in ``hios.platforms.PLATFORMS``.

        Raises:
            PlatformError: there are not so many devices, or an option is not what it may be.
        """

    def device_limit(self, cores: int, cores_per_device: int = 1) -> tuple[int, str] | None:
        """The most devices that are not virtual on a host with so many usable cores, and why; None where any number is.

        Args:
            cores: of the host.
            cores_per_device: cores of each device, where devices are groups of cores.
        """


class Measuring(Protocol):
    """Module ``measuring``: costs by measurement."""

    def environment(self, description: Description) -> Mapping[str, object]:
        """The measurement environment, such as clocks and versions: part of the keys of kept measurements."""

    def bench(self, graph: Graph, path: str, description: Description, widths: Sequence[int] = ()) -> Bench:
        """The devices, ready to measure operators of a graph.

        Args:
            graph: the graph.
            path: its file, for workers to read.
            description: of the devices.
            widths: numbers of devices that operators are measured on at once; none where devices are no cores.
        """


class Predicting(Protocol):
    """Module ``predicting``: costs without running anything."""

    def costs(self, graph: Graph, description: Description) -> CostsFile:
        """Costs, but for graph and platform, which ``hios.profiling.predict`` adds."""

    def files(self, **options: str) -> list[Path]:
        """Files that predictions depend on.

        Args:
            options: of the platform, by the names in ``hios.platforms.PLATFORMS``.

        Raises:
            HiosError: an option is not what it may be, or a file breaks its format.
        """


class Executing(Protocol):
    """Module ``executing``: what runs schedules on the devices of a node."""

    def most_threads(self, description: Description) -> int:
        """Threads inside operators of a device that has all cores of the others; 1 where devices are no cores."""

    def arena(self, plan: ArenaPlan, description: Description) -> Arena:
        """Memory that the workers and this process share."""

    def workers(
        self,
        graph: Graph,
        plan: ArenaPlan,
        competitors: Mapping[str, Competitor],
        description: Description,
        timeout_s: float,
    ) -> Workers:
        """What runs the competitors.

        Args:
            graph: what is run.
            plan: where inputs, outputs and handed-over values lie.
            competitors: by name.
            description: of the devices.
            timeout_s: longest time of one run.
        """

    def require_runtime(self, name: str) -> None:
        """See that what runs a model itself is installed.

        Args:
            name: one of ``RUNTIMES`` of the platform.

        Raises:
            PlatformError: it is not; the message says what to install.
        """

    def references(self, description: Description, runtime: str, baselines: Collection[str]) -> list[Reference]:
        """The model itself in other runtimes, whose workers come after those of `workers`.

        The first one is what outputs are compared with: the program's own runtime, which always takes part.

        Args:
            description: of the devices.
            runtime: of the program, ``eager`` or ``onnxruntime``.
            baselines: names of ``RUNTIMES`` that take part.
        """


class Distributing(Protocol):
    """Module ``distributing``: the device of one rank of many."""

    def device(self, local_rank: int) -> RankDevice:
        """What a rank computes on.

        Args:
            local_rank: which rank of its host it is, from 0.

        Raises:
            PlatformError: there is no such device.
        """

    def joined(self, ranks: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[list[int]]]:
        """The devices of all ranks as one description, and which hardware of its host each uses, by number.

        Args:
            ranks: what each rank says of its device, with its ``cores``.
        """


class Reporting(Protocol):
    """Module ``reporting``: the devices in words."""

    def facts(self, description: Description) -> dict[str, str]:
        """What the report says of the devices: names and texts."""

    def shared(self, description: Description) -> str:
        """What virtual devices share, such as ``2 cores``."""


class RankDevice(Protocol):
    """A rank's device.

    Attributes:
        place: where its tensors are.
    """

    place: torch.device

    def describe(self) -> Mapping[str, Any]:
        """The GPU, by keys of run.json's platform; nothing of a core."""

    def worker(self, rank: int, memory: Any) -> Worker:
        """What programs of this rank run in."""

    def load(self, worker: Worker, graph: str, weights: str, inputs: dict[str, Buffer], timeout_s: float) -> None:
        """Read graph and weights and compile every operator."""

    def load_reference(
        self, worker: Worker, program: str, inputs: list[Buffer], outputs: list[Buffer], trusted: bool
    ) -> None:
        """Load the model itself, to be run by ``hios.platforms.reference.run``."""

    def begin(self) -> int:
        """The time at which a run begins, nanoseconds of the monotonic clock."""

    def finish(self, rows: Sequence[Any], deadline: float) -> tuple[int, list[Row]]:
        """Wait until all that was started has finished; returns the time, and rows with times in nanoseconds.

        Raises:
            TimeoutError: the deadline passed, by ``time.monotonic``.
        """
        ...


class Workers(Protocol):
    """Workers that run the competitors of a session; they come first in the pool.

    Attributes:
        names: of the workers, for messages.
        cores: of every worker.
        reduced: how timed runs are less precise than float32, None where they are not; known when they are loaded.
        probe_version: tells what the probe of the platform does from what others do.
        environment: environment variables that workers have beside those of this process, by number.
    """

    names: list[str]
    cores: list[list[int]]
    environment: Mapping[int, Mapping[str, str]]
    reduced: ReducedPrecision | None
    probe_version: str

    def join(self, pool: WorkerPool) -> None:
        """Use the workers of a pool."""

    def load(self, graph: str, weights: str) -> None:
        """Load files, and make every competitor ready. Inputs are in their buffers."""

    def check(self, name: str) -> None:
        """Run a competitor once, with outputs of full precision."""

    def run(self, name: str) -> float:
        """Run a competitor once; returns milliseconds. Of copies it is the harmonic mean, if each is timed."""

    def probe(self, device: int) -> tuple[float, float]:
        """Milliseconds of the probe's convolutions and of its copies on a device (`ProbeSchedule`)."""

    def take_rows(self, name: str) -> None:
        """Keep the rows of a competitor's last run, where every run has them."""

    def finish(self) -> dict[str, Any]:
        """After all runs: find out what they did not tell; returns what to add to the description of the devices."""
