"""What a plan consists of: streams, values, and launches with their dependencies."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

#: ("operator", id, item) or ("input", name, 0).
Value = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Lane:
    """A stream of a device; with ``source``, the stream on which values from that device arrive."""

    device: int
    number: int = 0
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """What operators read and produce, by id, and the outputs of the network.

    Attributes:
        reads: of every operator what it reads, inputs of the network too, each value once.
        makes: of every operator its outputs.
        outputs: of the network.
        views: for an output that lies in the memory of others, which arguments and outputs of its operator these are.
    """

    reads: Mapping[str, Sequence[Value]]
    makes: Mapping[str, Sequence[Value]]
    outputs: Sequence[Value]
    views: Mapping[Value, Collection[Value]]


@dataclass(slots=True)
class Step:
    """A launch with its dependencies: earlier launches by position, and values on its device or on the source."""

    lane: Lane
    operators: tuple[str, ...]
    streams: tuple[int, ...]
    stage: int | None
    needs: list[int]
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]
    copied: Value | None = None
