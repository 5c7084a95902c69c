"""A learned launcher next to a server: a thread that observes queues and lanes, and decides."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence

from hios.serving.admission import Admission
from hios.serving.instances import Instances
from hios.serving.launcher.online_launcher import OnlineLauncher
from hios.serving.pipeline import Pipeline, QueueRules


class LiveLauncher:
    """Thread in which a launcher decides for a server until it is stopped.

    It is what the launcher looks at (`actions.Watched`); time passes by itself.
    """

    def __init__(
        self,
        online: OnlineLauncher,
        queues: Sequence[Admission],
        instances: Instances,
        change: Callable[[Pipeline, Sequence[QueueRules]], None],
    ) -> None:
        self._online, self._queues, self._instances, self._change = online, queues, instances, change
        self._over = threading.Event()
        self._began_s = time.perf_counter()
        self._thread = threading.Thread(target=self._decide, name="hios launcher", daemon=True)
        #: Processor time of the thread so far, seconds.
        self.used_s = 0.0
        #: Why it no longer decides; empty while it does.
        self.lost = ""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. This may be called repeatedly, and before the thread was started."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def made(self) -> int:
        """Decisions so far, the first one included."""
        return self._online.made

    @property
    def now(self) -> float:
        """Seconds since the beginning; infinite once it is over."""
        return math.inf if self._over.is_set() else time.perf_counter() - self._began_s

    def run_to(self, until_s: float) -> None:
        """Wait for a moment, or until it is over."""
        self.used_s = time.thread_time()
        self._over.wait(max(0.0, self._began_s + until_s - time.perf_counter()))

    def lengths(self) -> list[int]:
        """Requests in every queue."""
        return list(map(len, self._queues))

    def progress(self) -> list[bool]:
        """Of every block of all models, whether it holds an instance."""
        return self._instances.progress()

    def waits_s(self) -> float:
        """Mean time since the arrival of the requests that wait; 0 without any."""
        now = time.perf_counter()
        waits = [queue.waits_s(now) for queue in self._queues]
        return sum(total for total, _ in waits) / max(1, sum(count for _, count in waits))

    def change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None:
        """Switch the server to other combined blocks and intervals, unless the load has ended."""
        if not self._over.is_set():
            self._change(pipeline, queues)

    def _decide(self) -> None:
        try:
            self._online.follow(self, self._online.first())
        except Exception as error:  # whatever it is, the server tells it (`Server.lost`)
            self.lost = f"the launcher failed: {error or type(error).__name__}"
