"""Vector clocks of launches: which have finished before another begins, and which waits that requires."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hios.platforms.cuda.launches import Lane, Step


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
