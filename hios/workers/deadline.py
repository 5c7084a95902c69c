"""Time-outs of waits, without the time for which the waiting process itself was stopped."""

from __future__ import annotations

import select
import time

#: Seconds between two looks at most, and how much later one may come before the process counts as stopped meanwhile.
LOOK_S, _LATE_S = 1.0, 2.0


class Deadline:
    """The end of some seconds, later by the time for which this process was stopped, as by Ctrl-Z.

    That shows in looks that come far too late, so whoever waits looks every `LOOK_S` seconds at least.
    """

    def __init__(self, seconds: float) -> None:
        self._seen = time.monotonic()
        self._end = self._seen + seconds

    def left_s(self) -> float:
        """Look at the time: the seconds that are left, 0 once it is over."""
        now = time.monotonic()
        if (late := now - self._seen - LOOK_S) > _LATE_S:
            self._end += late
        self._seen = now
        return max(0.0, self._end - now)

    def poll(self, awaited: select.poll) -> list[tuple[int, int]]:
        """What is ready of what is awaited; nothing once the time is over."""
        while not (ready := awaited.poll(1000 * min(self.left_s(), LOOK_S))) and self.left_s():
            pass
        return ready
