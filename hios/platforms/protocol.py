"""What a platform is: its parts, and the functions that the module of each offers.

The entry of a platform in `hios.platforms.PLATFORMS` names the module in its folder for each part:

================ ================== =========================================================================
part             protocol           imported by
================ ================== =========================================================================
``platform``     `PlatformPart`     all commands that name the platform; imports nothing heavy at its top
``measuring``    `MeasuringPart`    ``hios profile``
``predicting``   `PredictingPart`   ``hios profile``, in place of ``measuring`` if nothing can run on it
``executing``    `ExecutingPart`    ``hios execute``; absent if nothing can run on it
``distributing`` `DistributingPart` ``hios distribute``; absent if there are no ``TRANSPORTS``
``reporting``    `ReportingPart`    ``hios report``
================ ================== =========================================================================

Reach them through `hios.platforms` (``find``, ``describe``, ``measuring``, ...), by the platform's name. The module of
``platform`` must import none of those that execute or report, and share no file with them where costs are measured, so
that an edit of them does not measure everything again (`hios.platforms.code_hash`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    import torch

    from hios.core.costs import CostsFile
    from hios.core.graph import Graph
    from hios.files.base import Platform as Description
    from hios.frontends.tolerances import ReducedPrecision
    from hios.platforms.competitor import Competitor
    from hios.platforms.program import ArenaPlan, Buffer, Row
    from hios.platforms.reference import Reference
    from hios.platforms.timer import DeviceTimer
    from hios.workers.pool import WorkerPool
    from hios.workers.worker import Worker


class PlatformPart(Protocol):
    """Part ``platform``: the devices, and what they can do. Its properties are module constants."""

    @property
    def VIRTUAL(self) -> bool:  # noqa: N802 - a constant
        """Whether several devices may share one core or GPU."""

    @property
    def GROUPS_CORES(self) -> bool:  # noqa: N802
        """Whether a device may be a group of cores, so that ``describe`` takes ``cores_per_device``."""

    @property
    def SETTLE_S(self) -> float:  # noqa: N802
        """Pause in seconds after a run with several host threads, before the next one is timed."""

    @property
    def RUNTIMES(self) -> Collection[str]:  # noqa: N802
        """The runtimes that can run a whole model on it, by their names in ``hios.frontends.models.RUNTIMES``."""

    @property
    def TRANSPORTS(self) -> Sequence[str]:  # noqa: N802
        """The transports between ranks, the default first; empty if there are none."""

    @property
    def OPTIMIZES(self) -> bool:  # noqa: N802
        """Whether ``hios.optimize`` supports it."""

    def describe(self, devices: int, *, virtual: bool = False, **options: Any) -> Description:
        """A number of its devices, as artifacts state them; ``options`` have the names in `hios.platforms.PLATFORMS`.

        With ``virtual``, devices may share hardware; the description then has ``virtual`` if they do.

        Raises:
            PlatformError: there are too few devices, or an option has a value that is not allowed.
        """

    def device_limit(self, cores: int, cores_per_device: int = 1) -> tuple[int, str] | None:
        """The most non-virtual devices on a host with this many usable cores, and why; None if there is no limit.

        ``cores_per_device`` are the cores of each device, where devices are groups of cores.
        """


class MeasuringPart(Protocol):
    """Part ``measuring``: costs by measurement."""

    def environment(self, description: Description) -> Mapping[str, object]:
        """The measurement environment: part of the keys under which measurements are cached."""

    def timer(self, graph: Graph, path: str, description: Description, widths: Sequence[int] = ()) -> DeviceTimer:
        """The devices, ready to measure operators of a graph, whose file workers read.

        ``widths`` are numbers of devices that operators are measured on at once; empty if devices are not cores.
        """


class PredictingPart(Protocol):
    """Part ``predicting``: costs without running anything."""

    def costs(self, graph: Graph, description: Description) -> CostsFile:
        """Predicted costs; ``hios.profiling.predict`` adds graph and platform."""

    def files(self, **options: str) -> list[Path]:
        """Files that predictions depend on; ``options`` have the names in `hios.platforms.PLATFORMS`.

        Raises:
            HiosError: an option has a value that is not allowed, or a file breaks its format.
        """


class ExecutingPart(Protocol):
    """Part ``executing``: running schedules on the devices of one node."""

    def most_threads(self, description: Description) -> int:
        """Threads inside operators of a device that has the cores of all devices; 1 if devices are not cores."""

    def workers(
        self,
        graph: Graph,
        plan: ArenaPlan,
        competitors: Mapping[str, Competitor],
        description: Description,
        timeout_s: float,
    ) -> Workers:
        """The workers that run the competitors of a graph, by name; no run may take longer than ``timeout_s``.

        The plan says where inputs, outputs and transferred values are in memory.
        """

    def require_runtime(self, name: str) -> None:
        """Check that a runtime for whole models, one of ``RUNTIMES`` of the platform, is installed.

        Raises:
            PlatformError: it is not; the message says what to install.
        """

    def references(self, description: Description, runtime: str, baselines: Collection[str]) -> list[Reference]:
        """The model itself in other runtimes; their workers come after those of `workers`.

        The first one is the reference for outputs: the program's own runtime, ``eager`` or ``onnxruntime``, which
        always takes part. Of the others, ``baselines`` names the ``RUNTIMES`` that do.
        """


class DistributingPart(Protocol):
    """Part ``distributing``: the device of one rank."""

    def device(self, local_rank: int) -> RankDevice:
        """The device that a rank computes on, by the number of the rank on its host, from 0.

        Raises:
            PlatformError: there is no such device.
        """

    def joined(self, ranks: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[list[int]]]:
        """The devices of all ranks as one description, and the hardware indices that each uses on its host.

        Given is the description of each rank's device, with its ``cores``.
        """


class ReportingPart(Protocol):
    """Part ``reporting``: a description of the devices for the report."""

    def facts(self, description: Description) -> dict[str, str]:
        """Rows for the report: labels and texts."""

    def shared(self, description: Description) -> str:
        """What virtual devices share, such as ``2 cores``."""


class RankDevice(Protocol):
    """The device of a rank.

    Attributes:
        place: where its tensors are.
        reduced: the reduced precision of timed runs, None if it is float32.
        apart: whether operators' times are recorded in a run apart, as recording slows runs down.
    """

    place: torch.device
    reduced: ReducedPrecision | None
    apart: bool

    def exactly(self) -> AbstractContextManager[None]:
        """A context of full float32 precision."""

    def describe(self) -> Mapping[str, Any]:
        """The GPU, by keys of run.json's platform; empty for a core."""

    def worker(self, rank: int, memory: Any) -> Worker:
        """The worker in which the programs of this rank run."""

    def load(self, worker: Worker, graph: str, weights: str, inputs: dict[str, Buffer], timeout_s: float) -> None:
        """Read graph and weights and compile every operator."""

    def load_reference(
        self, worker: Worker, program: str, inputs: list[Buffer], outputs: list[Buffer], trusted: bool
    ) -> None:
        """Load the model itself, which ``hios.platforms.reference.run`` then runs."""

    def begin(self, recording: bool = True) -> int:
        """The start time of a run, in nanoseconds of the monotonic clock."""

    def finish(self, rows: Sequence[Any], deadline: float) -> tuple[int, list[Row]]:
        """Wait until everything started has finished; returns the time, and rows with times in nanoseconds.

        Without ``recording`` there are no rows.

        Raises:
            TimeoutError: the deadline passed, by ``time.monotonic``.
        """


class Workers(Protocol):
    """Workers that run the competitors of a session; they come first in the pool.

    Attributes:
        names: of the workers, for messages.
        cores: of every worker.
        reduced: the reduced precision of timed runs, None if it is float32; known once files are loaded.
        facts: additions to the description of the devices; known once files are loaded.
        probe_version: identifies the work of the platform's probe.
        environment: additional environment variables of workers, by number.
    """

    names: list[str]
    cores: list[list[int]]
    environment: Mapping[int, Mapping[str, str]]
    reduced: ReducedPrecision | None
    facts: Mapping[str, Any]
    probe_version: str

    def join(self, pool: WorkerPool) -> None:
        """Use the workers of a pool."""

    def load(self, graph: str, weights: str) -> None:
        """Load files and prepare every competitor. The inputs are already in their buffers."""

    def check(self, name: str) -> None:
        """Run a competitor once with outputs in full precision."""

    def run_alone(self, name: str) -> None:
        """Run a competitor once in the precision of timed runs, with each launch after the end of the one before."""

    def run(self, name: str) -> float:
        """Run a competitor once; returns milliseconds, for copies the harmonic mean if each is timed."""

    def probe(self, device: int) -> tuple[float, float]:
        """Milliseconds of the probe's convolutions and of its copies on a device (`ProbeSchedule`)."""

    def take_rows(self, name: str) -> None:
        """Keep the rows of a competitor's last run, if every run records them."""

    def peak_memory_bytes(self, name: str) -> int | None:
        """Run a competitor once more, untimed; returns its peak memory, None if it is not known."""

    def finish(self) -> None:
        """After all runs: collect what runs did not record."""
