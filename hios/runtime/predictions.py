"""Predicted against measured latencies: the drift of the machine since profiling, and the remaining error."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable

from hios.core import drift
from hios.core.drift import ProfileProbe, RunProbe
from hios.formats.run import Run, SegmentResult
from hios.frontends.models import RUNTIMES
from hios.machine.description import BUSY


def in_words(run: Run) -> str | None:
    """How accurate the predictions of a session were, in one sentence; None if the speed at profiling is unknown."""
    known = [
        (result.drift.value, abs(result.prediction_error), abs(result.error_beyond_drift))
        for result in run.results
        if result.drift is not None and result.error_beyond_drift is not None
    ]
    if not known:
        return None
    factors, whole, beyond = zip(*known, strict=True)
    return (
        f"The machine was {_slower(min(factors), max(factors))} when it was profiled. Predictions are off by "
        f"{statistics.median(whole):.1%} in the median and {max(whole):.1%} at most; beyond that drift by "
        f"{statistics.median(beyond):.1%} and {max(beyond):.1%}."
    )


def _slower(low: float, high: float) -> str:
    """Factors of time as a difference in speed, such as ``5.9 to 6.4% slower than``."""
    low, high = round(100 * (low - 1), 1), round(100 * (high - 1), 1)
    if low == high == 0:
        return "as fast as"
    if low < 0 < high:
        return f"between {-low:.1f}% faster and {high:.1f}% slower than"
    ends = dict.fromkeys(f"{end:.1f}" for end in sorted((abs(low), abs(high))))
    return f"{' to '.join(ends)}% {'slower' if high > 0 else 'faster'} than"


def segments_in_words(run: Run) -> str | None:
    """What ran the segments of all schedules of a session, in one sentence; None if it ran operator by operator."""
    if run.engine != "segments":
        return None
    ran = runtimes_in_words(segment for result in run.results for segment in result.segments or ())
    return f"Devices ran {ran or 'no segments, as no schedule could be cut'}; predictions are of single operators."


def runtimes_in_words(segments: Iterable[SegmentResult]) -> str:
    """How many ran in which runtime, such as ``segments (12 in ONNX Runtime, 2 by operators)``; empty without any."""
    counts = Counter(
        "by operators" if own.runtime == "packed" else f"in {RUNTIMES.get(own.runtime, own.runtime)}"
        for own in segments
    )
    return f"segments ({', '.join(f'{count} {how}' for how, count in counts.most_common())})" if counts else ""


def other_work_in_words(run: Run, name: str = "") -> str | None:
    """A warning that other processes kept the cores busy before a session; None if they did not."""
    busy = run.platform.busy_share
    if busy is None or busy <= BUSY:
        return None
    return (
        f"The cores were busy with other work right before the measurement of {name or run.graph} ({busy:.0%} of "
        "their time): its latencies may be too long and its speedups wrong."
    )


def other_hardware_in_words(run: Run, name: str = "") -> str | None:
    """A warning that schedules ran on hardware other than was profiled; None if they did not."""
    if run.profiled_on is None:
        return None
    return (
        f"The costs of {name or run.graph} were measured on {run.profiled_on}, its schedules ran on "
        f"{run.platform.hardware or 'other hardware'}: its predictions and lower bounds are not of this hardware."
    )


def change_in_words(probe: ProfileProbe | RunProbe | None, what: str) -> str | None:
    """How much the speed of a device changed within a session, such as ``the profile``, if more than is acceptable."""
    if probe is None:
        return None
    change = drift.within(probe.samples)
    if change is None or change.factor <= 1 + drift.MOST_CHANGE:
        return None
    return f"During {what}, {change}."
