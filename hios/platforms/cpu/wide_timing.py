"""Timing operators on several devices at once, inside workers of the cpu platform, called through the worker pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from hios.platforms.cpu.cpu_timing import time_merge_round, time_operators
from hios.platforms.cpu.thread_team import ThreadTeam
from hios.platforms.device_timer import TIMEOUT_S
from hios.workers.worker import Worker

#: Flags of the arena: the first device is done; from ``FREE`` on, one for every other device: its cores are free.
DONE, FREE = 3, 4

#: Lets operators use the cores of all devices, or of the first alone.
_Take = Callable[[bool], None]


def time_wide(
    worker: Worker,
    cores: Mapping[int, Sequence[int]],
    operators: Sequence[str],
    rounds: int,
    warmup: int,
    epoch: int,
) -> dict[str, list[tuple[float, float]]]:
    """Milliseconds of loaded operators on several devices and on the first of them, in every round after the warm-up.

    The worker of the first device runs the operators; the others step aside as they do in a schedule, all the time.

    Args:
        worker: where they run, or whose cores they use.
        cores: of every device.
        operators: in the order of the network.
        rounds: on all devices and on one, one after the other.
        warmup: rounds of each before.
        epoch: a number that no earlier call used.
    """
    samples: dict[str, list[tuple[float, float]]] = {operator: [] for operator in operators}
    with _several_devices(worker, cores, epoch) as take:
        if take is None:
            return samples
        for number in range(warmup + rounds):
            take(True)
            wide = time_operators(worker, operators, 1, 0)
            take(False)
            narrow = time_operators(worker, operators, 1, 0)
            if number >= warmup:
                for operator, own in samples.items():
                    own.append((wide[operator][0], narrow[operator][0]))
    return samples


def time_wide_merges(
    worker: Worker, cores: Mapping[int, Sequence[int]], merges: Sequence[int], rounds: int, warmup: int, epoch: int
) -> list[list[tuple[float, float]]]:
    """Milliseconds of loaded merges on several devices, with those of their operators on the first of them.

    The operators of a merge run one after another. Everything else is as for `time_wide`.

    Args:
        worker: where they run, or whose cores they use.
        cores: of every device.
        merges: by number.
        rounds: of merges on all devices and of operators on one, one after the other.
        warmup: rounds of each before.
        epoch: a number that no earlier call used.
    """
    samples: list[list[tuple[float, float]]] = [[] for _ in merges]
    with _several_devices(worker, cores, epoch) as take:
        if take is None:
            return samples
        for number in range(warmup + rounds):
            take(True)
            wide = time_merge_round(worker, merges, together=True)
            take(False)
            apart = time_merge_round(worker, merges, together=False)
            if number >= warmup:
                for own, pair in zip(samples, zip(wide, apart, strict=True), strict=True):
                    own.append(pair)
    return samples


@contextmanager
def _several_devices(worker: Worker, cores: Mapping[int, Sequence[int]], epoch: int) -> Iterator[_Take | None]:
    """What lets the worker of the first device use all devices, once the others have stepped aside; None on those.

    The others leave when the first one is done.
    """
    arena = worker.arena
    if worker.number != 0:
        arena.write(FREE + worker.number, epoch)
        yield None
        arena.wait(DONE, epoch, TIMEOUT_S, "the first device to have timed operators", yielding=True)
        return
    for device in range(1, len(cores)):
        arena.wait(FREE + device, epoch, TIMEOUT_S, f"device {device} to step aside")
    team, everything = ThreadTeam.of(worker, cores[0]), tuple(core for own in cores.values() for core in own)

    def take(all_devices: bool) -> None:
        if all_devices:
            team.take(everything)
        else:
            team.release()

    try:
        yield take
    finally:
        team.release()
        arena.write(DONE, epoch)
