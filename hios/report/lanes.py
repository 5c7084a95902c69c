"""Lanes of a Gantt chart: one for every stream of every device; an operator on several devices is on one of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hios.schedule import Placement

#: Device and stream.
Lane = tuple[int, int]


def lanes_of(row: Placement) -> list[Lane]:
    """The lanes of an operator, first that of the device that keeps its value."""
    return [(device, row.stream) for device in row.held_devices]


def lanes(used: Iterable[Lane], devices: int) -> list[Lane]:
    """Lanes from top to bottom; a device that got no operator keeps an empty lane, so that it shows.

    Args:
        used: device and stream of every operator.
        devices: number of devices of the schedule.
    """
    found = set(used)
    busy = {device for device, _ in found}
    idle = {(device, 0) for device in range(devices) if device not in busy} if found else set()
    return sorted(found | idle)


def lane_names(shown: Sequence[Lane]) -> list[str]:
    """A name for every lane; streams are named where a device has several."""
    devices = [device for device, _ in shown]
    return [
        f"device {device}" if devices.count(device) == 1 else f"device {device}, stream {stream}"
        for device, stream in shown
    ]
