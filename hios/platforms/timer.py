"""The interface of timing on the devices of a platform; repeating and evaluating are the same for all platforms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from hios.core.costs import BlockResources, CostOverheads
from hios.workers.pool import WorkerPool

#: Groups of operator ids, sorted.
Stage = tuple[tuple[str, ...], ...]
#: Ids of operators that run as one, sorted.
Merge = tuple[str, ...]
#: What is timed: an operator by its id, a stage, or a prepared merge by its number.
Quantity = str | Stage | int
#: Milliseconds in every round: of an operator; of a stage or merge together, and of its operators one after another.
Times = list[tuple[float, ...]]
#: Longest time of one call to a worker in seconds, unless the network needs more, and the time that it needs: a call is
#: a dozen inferences at most, which take longer on a busy machine.
TIMEOUT_S, _INFERENCES = 600.0, 50


class DeviceTimer(ABC):
    """The devices of a platform, ready to measure operators of one graph.

    Operators are named by their ids in the graph. Rounds that warm up come before those that count.

    Args:
        pool: the workers that measure; they end with the timer.
        devices: number of devices.
        around_bytes: bytes of preceding operators in an inference that determine the contents of the caches; 0 if they
            have no influence, None if all operators may.
        least_ms: minimum milliseconds of a measurement, even for a short operator.

    Attributes:
        probe_version: identifies the work of the platform's probe.
        probe_flops: floating-point operations of its convolutions.
        probe_bytes: bytes that its copies read and write.
    """

    probe_version: str
    probe_flops: int
    probe_bytes: int

    def __init__(self, pool: WorkerPool, devices: int, around_bytes: int | None, least_ms: float = 0.0) -> None:
        self.pool = pool
        self.devices = devices
        self.around_bytes = around_bytes
        self.least_ms = least_ms

    def __enter__(self) -> DeviceTimer:
        self.pool.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.__exit__(*error)

    def allow(self, inference_s: float) -> None:
        """Give calls the time that they need if one inference takes these seconds; devices may share cores."""
        self.pool.timeout_s = max(TIMEOUT_S, _INFERENCES * self.devices * inference_s)

    @abstractmethod
    def ends(self, devices: int) -> Mapping[str, object]:
        """The hardware of the first devices, as part of cache keys, since transfers and co-runs depend on it."""

    @abstractmethod
    def probe(self, device: int) -> tuple[float, float]:
        """Milliseconds of the probe's convolutions and of its copies on a device (`ProbeSchedule`)."""

    @abstractmethod
    def load(self, operators: Mapping[str, int]) -> None:
        """Prepare copies of operators on every device, as many of each as run concurrently."""

    @abstractmethod
    def load_merges(self, merges: Sequence[Sequence[str]]) -> None:
        """Prepare merges of operators on every device, replacing earlier ones."""

    @abstractmethod
    def time(self, device: int, quantities: Sequence[Quantity], rounds: int, warmup: int) -> list[Times]:
        """Milliseconds of each quantity, in rounds that go through them in this order.

        A stage or merge and its operators one after another are timed right after each other, so that the machine's
        drift cancels in their ratio.
        """

    @abstractmethod
    def time_transfers(self, sizes: Sequence[int], rounds: int, turn: int) -> dict[int, list[float]]:
        """Milliseconds of transfers between the first two devices, or within the only one, by size in bytes.

        ``turn`` counts calls, to let the devices take turns in sending.
        """

    @abstractmethod
    def corun(self, turn: int, devices: int, network: Sequence[str], alone_ms: float) -> float:
        """How many times as long a network takes on a device while the first ``devices`` devices all run it.

        The network is loaded operators in order; an operator listed again is another copy. Alone it takes about
        ``alone_ms``. ``turn`` counts calls, to let the devices take turns in being timed (`whose_turn`).
        """

    def time_wide(self, width: int, quantities: Sequence[Quantity], rounds: int, warmup: int) -> list[Times]:
        """Milliseconds on the first ``width`` devices at once, each paired with those on the first device alone.

        There the operators of a merge run one after another. Rounds of both kinds take turns. Only if devices are
        cores.
        """
        raise NotImplementedError

    def resources(self, operators: Sequence[str]) -> dict[str, BlockResources]:
        """Resources of operators on a GPU, as costs.json states them; empty on other platforms."""
        return {}

    def slots(self, asked: BlockResources) -> float | None:
        """Share of the device's room that an operator takes by its resources; None where these do not tell."""
        return None

    def overheads(self) -> CostOverheads:
        """What launches, synchronization and stages cost. Only of platforms with the option ``contention``."""
        raise NotImplementedError

    def remarks(self) -> list[str]:
        """Notes about the measurement for the user, one line each."""
        return []


def whose_turn(turn: int, hardware: Sequence[Hashable]) -> int:
    """The device to time while all run: in turn among those that share hardware with the most others.

    ``turn`` counts calls; ``hardware`` is what each device runs on.
    """
    sharing = Counter(hardware)
    timed = [device for device, own in enumerate(hardware) if sharing[own] == max(sharing.values())]
    return timed[turn % len(timed)]
