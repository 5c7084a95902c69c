"""Metrics of a server as text of Prometheus; how a load goes, in a file of them and in a table."""

from __future__ import annotations

import bisect
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from hios.files.artifacts import write_whole
from hios.serving.admission import Counts
from hios.serving.load_generator import Progress
from hios.serving.measures import percentile
from hios.serving.server import Server

#: Upper ends of the buckets of latencies, seconds.
_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: What becomes of tasks.
ENDS = ("completed", "dropped", "expired", "failed")


class Metrics:
    """Counters, gauges and a histogram of latencies by model, as text."""

    def __init__(self) -> None:
        self._buckets: dict[str, list[int]] = {}
        self._sums_s: dict[str, float] = {}

    def add(self, label: str, latencies_ms: Iterable[float]) -> None:
        """Add latencies of completed tasks of a model."""
        counts = self._buckets.setdefault(label, [0] * (len(_BUCKETS_S) + 1))
        for latency in latencies_ms:
            counts[bisect.bisect_left(_BUCKETS_S, latency / 1e3)] += 1
            self._sums_s[label] = self._sums_s.get(label, 0.0) + latency / 1e3

    def text(self, server: Server, offered: Mapping[str, int], ended: Mapping[str, Mapping[str, int]]) -> str:
        """The current values, with the tasks by label that were sent, and by outcome those that ended."""
        return "\n".join(self._lines(server, offered, ended)) + "\n"

    def _lines(
        self, server: Server, offered: Mapping[str, int], ended: Mapping[str, Mapping[str, int]]
    ) -> Iterator[str]:
        counts = server.counts
        yield from _head("hios_tasks_total", "counter", "Tasks that ended, by what became of them.")
        for label in counts:
            own = ended.get(label, {})
            yield from (f'hios_tasks_total{{model="{label}",outcome="{end}"}} {own.get(end, 0)}' for end in ENDS)
        yield from _head("hios_tasks_offered_total", "counter", "Tasks that arrived.")
        yield from (f'hios_tasks_offered_total{{model="{label}"}} {offered.get(label, 0)}' for label in counts)
        yield from _head("hios_tasks_waiting", "gauge", "Tasks in the queue.")
        yield from (f'hios_tasks_waiting{{model="{label}"}} {own.waiting}' for label, own in counts.items())
        yield from _head("hios_tasks_in_flight", "gauge", "Tasks between queue and answer.")
        yield from (f'hios_tasks_in_flight{{model="{label}"}} {own.in_flight}' for label, own in counts.items())
        yield from _head(
            "hios_latency_seconds",
            "histogram",
            "Latency of completed tasks from their arrival, as scheduled in a load.",
        )
        for label, buckets in self._buckets.items():
            yield from self._histogram(label, buckets)
        for name, kind, value, words in (
            ("hios_lanes_busy_seconds_total", "counter", server.busy_s, "Time that lanes were busy, all together."),
            ("hios_control_seconds_total", "counter", server.control_s, "Processor time of launching and dispatch."),
            ("hios_lanes_up", "gauge", server.lanes_up, "Lanes whose worker is ready."),
        ):
            yield from _head(name, kind, words)
            yield f"{name} {float(value)!r}"

    def _histogram(self, label: str, buckets: list[int]) -> Iterator[str]:
        total = 0
        for end, count in zip((*map("{:g}".format, _BUCKETS_S), "+Inf"), buckets, strict=True):
            total += count
            yield f'hios_latency_seconds_bucket{{model="{label}",le="{end}"}} {total}'
        yield f'hios_latency_seconds_sum{{model="{label}"}} {float(self._sums_s.get(label, 0.0))!r}'
        yield f'hios_latency_seconds_count{{model="{label}"}} {total}'


class MetricsFile:
    """The metrics of a load in a file that is replaced atomically.

    Tasks are those that were sent and answered up to the last look, at most half a second before the file is written;
    at the end they are all tasks. Inferences that warm up the lanes are not among them.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._wanted = path, False
        self._server: Server | None = None
        self._metrics = Metrics()
        self._sent: Counter[str] = Counter()
        self._ended: dict[str, Counter[str]] = {}

    def listen(self) -> None:
        """Write at the next update after the process receives SIGUSR1; call this from the main thread."""
        signal.signal(signal.SIGUSR1, self._ask)

    def _ask(self, *_: Any) -> None:
        self._wanted = True

    def show(self, server: Server, progress: Progress) -> None:
        """Add what happened since the last update, and write the file if SIGUSR1 asked for it."""
        self._server = server
        self._sent.update(progress.sent)
        for label, ended in progress.ended.items():
            self._ended.setdefault(label, Counter()).update(ended)
        for label, latencies in progress.latencies_ms.items():
            self._metrics.add(label, latencies)
        if self._wanted:
            self._wanted = False
            self.write()

    def write(self) -> None:
        """Write the current values; nothing before the first update."""
        if self._server is not None:
            write_whole(self._path, self._metrics.text(self._server, self._sent, self._ended))


def _head(name: str, kind: str, words: str) -> Iterator[str]:
    yield f"# HELP {name} {words}"
    yield f"# TYPE {name} {kind}"


#: Seconds between two tables at least, as rates are those since the last one; the same where they go into a log.
_LEAST_S, _LOG_S = 0.25, 10.0


class LiveTable:
    """A row a model: rates, queue, latency of the last moment, tasks that were not answered.

    It is drawn in place in a terminal; else a line every ten seconds says the same in short.
    """

    def __init__(self, stream: TextIO = sys.stderr) -> None:
        self._stream, self._terminal = stream, stream.isatty()
        self._before: dict[str, Counts] = {}
        self._at_s = time.perf_counter()
        self._lines = 0

    def show(self, server: Server, progress: Progress) -> None:
        """Draw the table."""
        now, counts = time.perf_counter(), server.counts
        if not self._before:  # what warmed up the server does not count
            self._before, self._at_s = counts, now
            return
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
