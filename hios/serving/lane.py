"""A lane: a worker process pinned to its cores, started again when it dies, driven through shared memory."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hios.errors import HiosError
from hios.platforms.cpu import thread_team
from hios.platforms.cpu.segment_runtimes import BUDGET_S
from hios.serving import lane_worker
from hios.serving.lane_program import LaneProgram, Slots
from hios.serving.lane_worker import ANSWER_WORDS, MORE, STOP, LaneWiring, Whole
from hios.workers.arena import Arena, Layout
from hios.workers.pool import WorkerPool
from hios.workers.ring import Bell, Ring
from hios.workers.worker import reason

#: A worker answers so often, though it has nothing to say: a call has a time-out.
_SERVE_S = 600.0
#: Longest time of loading all models, unless that of a run is longer; seconds.
_LOADING_S = 120.0
#: Longest time of converting all models for another runtime, beyond `BUDGET_S` of each.
_CONVERTING_S = 900.0
#: Starts in a row that may fail before a lane is given up, and the pause between them.
_MOST_STARTS, _PAUSE_S = 3, 0.5
#: Seconds that a lane may take to end what it runs.
ENDING_S = 5.0
#: Flags of a lane: head and tail of its two rings.
FLAGS = 4


class Answer(NamedTuple):
    """Report of a lane on a run: a bit for each part that failed, why the first did, and ``time.perf_counter_ns``."""

    run: int
    aborted: bool
    failed: int
    began_ns: int
    ended_ns: int
    why: str


@dataclass(frozen=True, slots=True)
class LaneEvent:
    """Whether a lane is ready, down (about to be restarted) or lost for good, and the reason."""

    lane: int
    kind: Literal["ready", "down", "lost"]
    why: str = ""


class LaneProcess:
    """Supervisor of one worker process, which is pinned to its cores; operators use a thread on each.

    A thread of its own starts the process, and is in a call of that worker as long as it lives: so it learns at once
    when it dies.

    The layout of the arena grows by its rings, whose `FLAGS` begin with ``first_flag``; an order has ``words`` numbers
    at most. ``shared`` cores are those of other lanes, which sleep while it works.
    """

    def __init__(
        self, number: int, cores: Sequence[int], layout: Layout, first_flag: int, words: int, *, shared: bool = False
    ) -> None:
        self.number, self.cores = number, list(cores)
        self._name = "all lanes" if shared else f"lane {number}"
        self._rings = (
            (layout.add(Ring.nbytes(words)), words, first_flag, first_flag + 1),
            (layout.add(Ring.nbytes(ANSWER_WORDS)), ANSWER_WORDS, first_flag + 2, first_flag + 3),
        )
        self._bell = Bell()
        #: Replaced as a whole, as several threads read it; and the number from which on the worker does not know them.
        self._programs: Mapping[int, LaneProgram] = {}
        self._unknown = 0
        self._cleared = threading.Event()
        self._stopping = threading.Event()
        #: Process number of the worker; 0 while there is none.
        self.pid = 0
        self._thread: threading.Thread | None = None

    def connect(
        self,
        arena: Arena,
        server: Bell,
        models: Sequence[tuple[str, str, str]],
        programs: Mapping[int, LaneProgram],
        slots: Sequence[Slots],
        *,
        timeout_s: float,
        describe: Callable[[int], str],
        whole: Whole | None = None,
        segments: bool = False,
    ) -> None:
        """Create the lane's side of the shared memory, and note what every worker is given.

        Models are files of graph, weights and program, of which ``whole`` makes what runs it, or, with ``segments``,
        the fastest runtime of each segment. The server's bell is rung for every answer; ``timeout_s`` is the longest
        wait for a value of another lane, and ``describe`` gives the text of a mark.
        """
        self._orders, self._answers = (Ring(arena, *ring) for ring in self._rings)
        self._wiring = LaneWiring(
            arena.descriptor, arena.flags_count, arena.size, *self._rings, self._bell.descriptor, server.descriptor
        )
        self._loading = {
            "models": models,
            "timeout_s": timeout_s,
            "whole": whole,
            "cores": self.cores,
            "segments": segments,
        }
        self._converting_s = _CONVERTING_S + len(models) * BUDGET_S
        self._programs, self._slots = programs, slots
        self._timeout_s, self._describe = timeout_s, describe

    def start(self, event: Callable[[LaneEvent], None]) -> None:
        """Start the first worker; ``event`` is called, from another thread, when it is ready, and when it ends."""
        self._event = event
        self._thread = threading.Thread(target=self._keep, name=f"hios lane {self.number}", daemon=True)
        self._thread.start()

    def extend(self, programs: Mapping[int, LaneProgram]) -> None:
        """Add programs, with numbers above those so far, before one of them is sent; from any one thread."""
        self._programs = {**self._programs, **programs}

    def send(self, run: int, program: int, slots: Sequence[int]) -> None:
        """Run a program; new programs are sent to the worker first."""
        if program >= self._unknown:
            known = _end(self._programs)
            self._orders.put((0, MORE))
            self._unknown = known
        self._orders.put((run, program, *slots))
        self._bell.ring()

    def answer(self) -> Answer | None:
        """The next answer; None if there is none yet."""
        message = self._answers.get()
        if message is None:
            return None
        run, state, failed, began, ended, *text = message
        why = lane_worker.text_of(text) if text[0] else ""
        return Answer(run, state != lane_worker.DONE, failed, began, ended, why)

    def clear(self) -> None:
        """Discard the orders of a dead worker, once all its answers are read, and allow a restart."""
        self._orders.clear()
        self._cleared.set()

    def stop(self) -> None:
        """Stop the worker after its current run, without a restart."""
        self._stopping.set()
        self._cleared.set()
        if self.pid:
            with contextlib.suppress(HiosError):  # its ring is full: it is killed in a while
                self.send(0, STOP, ())

    def join(self, limit_s: float = ENDING_S) -> None:
        """Wait until the worker has exited, and kill it after a time limit."""
        if self._thread is None:
            return
        self._thread.join(limit_s)
        if self._thread.is_alive():
            self.kill()
            self._thread.join()

    def kill(self) -> None:
        """Kill the worker, for example because it hangs; another one is started."""
        with contextlib.suppress(ProcessLookupError):
            if pid := self.pid:
                os.kill(pid, signal.SIGKILL)

    def _keep(self) -> None:
        """Keep a worker running; whatever else ends this, the lane is lost."""
        try:
            self._keep_started()
        except Exception as error:  # whatever it is, callers must not wait for ever
            self.pid = 0
            why = f"{self._name} failed: {type(error).__name__}: {reason(error)}"
            self._event(LaneEvent(self.number, "lost", why))

    def _keep_started(self) -> None:
        failures, begun = 0, False
        while not self._stopping.is_set():
            ready = False
            try:
                with self._started() as pool:
                    (self.pid,) = pool.process_ids
                    if self._stopping.is_set():  # before there was a worker that could be told
                        return
                    known = self._prepare(pool)
                    begun, ready, failures = True, True, 0
                    self._event(LaneEvent(self.number, "ready"))
                    longest_s = 2 * _SERVE_S + self._timeout_s  # the worker looks at the time between two runs
                    while (
                        not self._stopping.is_set()
                        and pool.call_each(lane_worker.serve, {0: {"limit_s": _SERVE_S}}, longest_s)[0]
                    ):
                        known = self._prepare_more(pool, known)
                return
            except (HiosError, OSError) as error:  # OSError: no worker can be started, as with too many open files
                self.pid = 0
                why = str(error) if isinstance(error, HiosError) else f"{self._name}: {error}"
                failures += not ready
                lost = failures >= _MOST_STARTS or not begun
                self._cleared.clear()
                self._event(LaneEvent(self.number, "lost" if lost else "down", why))
                if lost:
                    return
                if not self._stopping.is_set():
                    self._cleared.wait()
                if not ready:
                    self._stopping.wait(_PAUSE_S)

    def _started(self) -> WorkerPool:
        # Not for another runtime, whose threads would inherit the one core to which the main thread is pinned.
        has_team = len(self.cores) > 1 and self._loading["whole"] is None
        pool = WorkerPool(
            [self.cores],
            Arena(1, 0),  # its own: a lane that dies is no reason for others to abort
            self._timeout_s,
            [self._name],
            {0: thread_team.environment(alone=True, pinned=self.cores)} if has_team else {},
            descriptors=(self._wiring.descriptor, self._wiring.own, self._wiring.server),
        )
        pool.describe = self._describe
        return pool

    def _prepare(self, pool: WorkerPool) -> int:
        """Make a new worker ready; returns the number from which on it does not know programs."""
        programs = self._programs
        given = {"wiring": self._wiring, **self._loading}
        converts = self._loading["whole"] is not None or self._loading["segments"]
        longest_s = max(self._timeout_s, self._converting_s if converts else _LOADING_S)
        pool.call_each(lane_worker.load, {0: given}, longest_s)
        pool.call_each(lane_worker.prepare, {0: {"slots": self._slots, "programs": programs}}, longest_s)
        self._unknown = _end(programs)
        return self._unknown

    def _prepare_more(self, pool: WorkerPool, known: int) -> int:
        """Send the worker the programs from a number on, if there are any; returns the same as `_prepare`."""
        programs = self._programs
        more = {number: program for number, program in programs.items() if number >= known}
        if more:
            pool.call(0, lane_worker.prepare_more, programs=more)
        return _end(programs)


def _end(programs: Mapping[int, LaneProgram]) -> int:
    """The number after the last one."""
    return max(programs, default=-1) + 1
