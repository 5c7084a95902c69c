"""What a plan consists of: streams, values, launches with their dependencies, and the waits that these require."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
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


class VectorClocks:
    """For every stream, how many of its launches are known to have finished before each launch.

    Attributes:
        place: number of every launch on its stream, from 1.
        before: clock with which every launch begins.
        waits: for every launch, the earlier ones that it has to wait for.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.lanes = [step.lane for step in steps]
        self.place: list[int] = []
        self.before: list[dict[Lane, int]] = []
        self.waits: list[tuple[int, ...]] = []
        after: list[dict[Lane, int]] = []
        last: dict[Lane, int] = {}
        for number, step in enumerate(steps):
            clock = dict(after[last[step.lane]]) if step.lane in last else {}
            waits = []
            # The latest first, as it may imply the others but not vice versa.
            for other in sorted(set(step.needs), reverse=True):
                if clock.get(self.lanes[other], 0) < self.place[other]:
                    waits.append(other)
                    for lane, count in after[other].items():
                        clock[lane] = max(clock.get(lane, 0), count)
            self.before.append(clock)
            self.place.append(clock.get(step.lane, 0) + 1)
            after.append({**clock, step.lane: self.place[number]})
            self.waits.append(tuple(sorted(waits)))
            last[step.lane] = number

    def begins_after(self, launch: int, others: Iterable[int]) -> bool:
        """Whether a launch begins after others have finished."""
        clock = self.before[launch]
        return all(clock.get(self.lanes[other], 0) >= self.place[other] for other in others)
