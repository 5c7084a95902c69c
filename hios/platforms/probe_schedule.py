"""When to time the probe: at both ends of a session, and in between at a small share of the time.

The probe is a fixed piece of work, convolutions and copies, by which the speed of the machine in different sessions,
and at different times of one, is compared (``hios.core.drift``). It never depends on the network that is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from hios.core import drift
from hios.core.drift import ProbeTiming, RunProbe
from hios.errors import warn

#: Largest share of a session that the probe may take between the start and the end.
SHARE = 0.02
#: Timings at the start and at the end: together enough for an interval, however short the session.
_ENDS = 4


class ProbeSchedule:
    """Timings of the probe in one session.

    ``version`` identifies the work of the probe. ``time_on`` times it on a device and returns milliseconds of its
    convolutions and of its copies; devices are timed one after another. The clock is a monotonic one, in seconds.
    """

    def __init__(
        self,
        version: str,
        time_on: Callable[[int], tuple[float, float]],
        devices: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.version = version
        self.samples: list[ProbeTiming] = []
        self._time_on, self._devices, self._clock = time_on, devices, clock
        self._began = clock()
        self._next = 0.0

    def take_at_end(self) -> None:
        """Time the probe several times, at the start or end of a session or of a part of it."""
        for _ in range(_ENDS):
            self._take()

    def take_if_due(self) -> None:
        """Time the probe, unless it has used up its share of the time since the last timing."""
        if self._clock() >= self._next:
            self._take()

    def _take(self) -> None:
        began = self._clock()
        for device in range(self._devices):
            at = self._clock() - self._began
            self.samples.append(ProbeTiming(at, device, *self._time_on(device)))
        now = self._clock()
        self._next = now + (now - began) * (1 / SHARE - 1)

    def record(self) -> RunProbe | None:
        """``probe`` of run.json; None if the probe has not been timed."""
        speed = drift.speed(self.samples)
        return None if speed is None else RunProbe(self.version, speed, tuple(self.samples))

    def warn(self, what: str) -> None:
        """Warn the user if the speed of a device changed by more than ``drift.MOST_CHANGE`` so far.

        ``what`` is the session in words, such as ``profiling squeezenet``.
        """
        change = drift.within(self.samples)
        if change is not None and change.factor > 1 + drift.MOST_CHANGE:
            warn(
                f"while {what}, {change}: times that were taken at different moments do not compare well; repeat it "
                "when nothing else runs on this machine"
            )
