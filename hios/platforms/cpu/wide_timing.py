"""Timing operators on several devices at once, inside workers of the cpu platform, called through the worker pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hios.platforms.cpu.cpu_timing import time_operators
from hios.platforms.cpu.thread_team import ThreadTeam
from hios.platforms.device_timer import TIMEOUT_S
from hios.workers.worker import Worker

#: Flags of the arena: the first device is done; and of every other device from here on, that it has stepped aside.
DONE, FREE = 3, 4


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
        epoch: a number that no call had before.
    """
    arena = worker.arena
    if worker.number != 0:
        arena.write(FREE + worker.number, epoch)
        arena.wait(DONE, epoch, TIMEOUT_S, "the first device to have timed operators", yielding=True)
        return {}
    for device in range(1, len(cores)):
        arena.wait(FREE + device, epoch, TIMEOUT_S, f"device {device} to step aside")
    team, everything = ThreadTeam.of(worker, cores[0]), tuple(core for own in cores.values() for core in own)
    samples: dict[str, list[tuple[float, float]]] = {operator: [] for operator in operators}
    try:
        for number in range(warmup + rounds):
            team.take(everything)
            wide = time_operators(worker, operators, 1, 0)
            team.release()
            narrow = time_operators(worker, operators, 1, 0)
            if number >= warmup:
                for operator, own in samples.items():
                    own.append((wide[operator][0], narrow[operator][0]))
    finally:
        team.release()
        arena.write(DONE, epoch)
    return samples
