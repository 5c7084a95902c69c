"""Names for charts: operators' names short enough for bars, and the rows of Gantt charts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from hios.schedule import Placement

#: Device and stream.
Lane = tuple[int, int]


def lanes_of(row: Placement) -> list[Lane]:
    """The lanes of an operator: one of each of its devices, first that which keeps its value."""
    return [(device, row.stream) for device in row.held_devices]


def lanes(used: Iterable[Lane], devices: int) -> list[Lane]:
    """Lanes from top to bottom; a device that got no operator keeps an empty lane, so that it shows."""
    lanes_used = set(used)
    busy = {device for device, _ in lanes_used}
    idle = {(device, 0) for device in range(devices) if device not in busy} if lanes_used else set()
    return sorted(lanes_used | idle)


def lane_names(shown: Sequence[Lane]) -> list[str]:
    """A name for every lane; streams are named where a device has several."""
    devices = [device for device, _ in shown]
    return [
        f"device {device}" if devices.count(device) == 1 else f"device {device}, stream {stream}"
        for device, stream in shown
    ]


def short_names(operators: Sequence[str]) -> dict[str, str]:
    """Operators without those parts of their dotted names that most names have and that tell none of them apart."""
    parts = {operator: operator.split(".") for operator in operators}
    count = Counter(part for split in parts.values() for part in set(split))
    for part in [part for part in sorted(count) if 2 * count[part] > len(parts)]:
        without = {operator: [piece for piece in split if piece != part] for operator, split in parts.items()}
        if all(without.values()) and len({tuple(split) for split in without.values()}) == len(without):
            parts = without
    return {operator: ".".join(split) for operator, split in parts.items()}


def shortened(name: str, columns: int, cut: str) -> str:
    """The name in at most so many columns: whole, cut in its middle, or little more than the number at its end."""
    if len(name) <= columns:
        return name
    digits = re.search(r"\d*$", name)
    number = digits.group() if digits else ""
    if len(number) > columns or (columns < 3 and len(number) < len(name) - 1):
        return ""
    if len(number) > columns - 2:
        return f"{name[: columns - len(number)]}{number}"
    tail = max((columns - 1) // 2, len(number))
    return f"{name[: columns - 1 - tail]}{cut}{name[len(name) - tail :]}"
