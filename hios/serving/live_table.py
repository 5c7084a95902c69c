"""How a load goes, as a table in the terminal that is drawn again and again."""

from __future__ import annotations

import sys
import time
from typing import TextIO

from hios.serving.admission import Counts
from hios.serving.load_generator import Progress
from hios.serving.measures import percentile
from hios.serving.server import Server

#: Seconds between two tables at least, as rates are those since the last one; the same where they go into a log.
_LEAST_S, _LOG_S = 0.25, 10.0


class LiveTable:
    """A row a model: rates, queue, latency of the last moment, tasks that were not answered.

    Args:
        stream: a terminal, where the table is drawn in place; else a line every ten seconds says the same in short.
    """

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream, self._terminal = stream, stream.isatty()
        self._before: dict[str, Counts] = {}
        self._at_s = time.perf_counter()
        self._lines = 0

    def show(self, server: Server, progress: Progress) -> None:
        """Draw the table."""
        now, counts = time.perf_counter(), server.counts
        if now - self._at_s < (_LEAST_S if self._terminal else _LOG_S):
            return
        passed, self._at_s = now - self._at_s, now
        rows = [_row(label, own, self._before.get(label, Counts()), passed, progress) for label, own in counts.items()]
        self._before = counts
        clock = f"{max(0.0, progress.passed_s):.0f} of {progress.duration_s:.0f} s"
        lanes = f"{server.lanes_up} of {len(server.cores)} lanes"
        if not self._terminal:
            words = "; ".join(f"{row[0]} {row[2]}/s, {row[3]} waiting, p99 {row[5]} ms" for row in rows)
            self._stream.write(f"{clock}, {lanes}: {words}\n")
        else:
            head = (
                "model",
                "offered/s",
                "answered/s",
                "waiting",
                "in flight",
                "p99 ms",
                "dropped",
                "expired",
                "failed",
            )
            width = max(len(row[0]) for row in [head, *rows])
            lines = [f"{server.policy}: {clock}, {lanes}"]
            lines += [f"{row[0]:<{width}}  " + "  ".join(f"{cell:>10}" for cell in row[1:]) for row in [head, *rows]]
            if self._lines:
                self._stream.write(f"\x1b[{self._lines}F\x1b[J")
            self._stream.write("\n".join(lines) + "\n")
            self._lines = len(lines)
        self._stream.flush()


def _row(label: str, now: Counts, before: Counts, passed_s: float, progress: Progress) -> tuple[str, ...]:
    recent = sorted(progress.latencies_ms.get(label, ()))
    p99 = percentile(recent, 0.99)
    return (
        label,
        f"{(now.offered - before.offered) / passed_s:.1f}",
        f"{(now.completed - before.completed) / passed_s:.1f}",
        str(now.waiting),
        str(now.in_flight),
        "-" if p99 is None else f"{p99:.1f}",
        str(now.dropped),
        str(now.expired),
        str(now.failed),
    )
