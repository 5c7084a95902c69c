"""The connection of every rank to rank 0, by which all ranks end together.

A rank sends its measurements and, several times a second, what it is doing. A rank that fails sends the reason and
waits to be stopped; when a rank dies, its connection closes. Rank 0 (``hios.runtime.distributed.monitor``) then
prints one line that names the rank at fault and tells all ranks to end. If rank 0 itself dies, rank 1 prints the line.
Ranks end by ``os._exit`` from a thread of this module, since their main thread may never return; the launcher stops
whatever remains.

Why not torch's own tools: ranks do connect through its store, with a time-out (``gloo``), and its elastic agent, or
mpirun, stops the remaining processes. But the store has no key, so anyone who reaches the port can write to it, and it
notices a dead client only by time-outs; ``monitored_barrier`` names late ranks but not what they are doing, exists for
Gloo only, and blocks; and the agent reports a process, not the schedule, operator and stage that docs/distributed.md
promises, also under mpirun.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Never

from hios.errors import PlatformError
from hios.kernels import CompiledOperator
from hios.machine import topology


class ProgressState:
    """What a rank is doing. Written by the threads that run the schedule; read by the one that reports.

    ``waiting`` is what this rank waits for, in words, and the rank that must send it; None while it does not wait.
    """

    def __init__(self) -> None:
        self.doing = "starting"
        self.stages: Mapping[str, int | None] = {}
        self.waiting: tuple[str, int] | None = None
        self._running: dict[str, None] = {}
        self._last = ""

    def text(self) -> str:
        """In words: schedule, stage, operator, and what it waits for."""
        running = next(iter(dict(self._running)), "")
        waiting = self.waiting
        parts = [self.doing]
        if running:
            parts.append(self._place(running))
        elif waiting is not None:
            parts.append(f"waiting for {waiting[0]}")
        elif self._last:
            parts.append(f"behind {self._place(self._last)}")
        return ": ".join(parts)

    def waits_for(self) -> int | None:
        """The rank that this one waits for; None if it is busy."""
        waiting = self.waiting
        return None if waiting is None else waiting[1]

    @contextmanager
    def wait(self, what: str, rank: int) -> Iterator[None]:
        """A context in which this rank waits for another one."""
        self.waiting = what, rank
        yield  # not reset after an error, as it shows where the rank failed
        self.waiting = None

    def enter(self, doing: str, stages: Mapping[str, int | None] | None = None) -> None:
        """Record that something else begins."""
        self.doing, self.stages, self._last = doing, stages or {}, ""

    def watched(self, operator: CompiledOperator, progress: Callable[[], None]) -> CompiledOperator:
        """An operator that records when it runs, and lets messages progress after it.

        ``progress`` is called after the operator if that runs on the thread that calls this method.
        """
        run, name, running, caller = operator.run, operator.id, self._running, threading.get_ident()

        def call(*tensors: Any) -> Any:
            running[name] = None
            try:
                result = run(*tensors)
            finally:
                del running[name]
                self._last = name
            if threading.get_ident() == caller:
                progress()
            return result

        return replace(operator, run=call)

    def _place(self, operator: str) -> str:
        stage = self.stages.get(operator)
        return f"operator {operator}" if stage is None else f"operator {operator}, stage {stage}"


_BOOT = Path("/proc/sys/kernel/random/boot_id")
_NETWORK = Path("/proc/self/ns/net")


@dataclass(frozen=True, slots=True)
class RankPlace:
    """The host of a rank, and the cores that the launcher lets it run on.

    ``boot`` is the ID of the running kernel; ranks with the same one share clock and cores. ``network`` is that of its
    network namespace: containers of one host may have a network each.
    """

    host: str
    boot: str
    cores: tuple[int, ...]
    network: str = ""

    @classmethod
    def here(cls) -> RankPlace:
        """The host and cores of this process."""
        host = socket.gethostname()
        boot = topology.system_text(_BOOT) or host
        network = str(_NETWORK.readlink()) if _NETWORK.is_symlink() else ""
        return cls(host, boot, tuple(sorted(topology.usable_cpus())), network)


def pin(places: Sequence[RankPlace], rank: int, size: int = 1) -> list[int]:
    """Pin this rank to ``size`` cores of its own, unless the launcher has done so; the cores that it may run on now.

    Ranks share cores if there are too few.

    Raises:
        PlatformError: the launcher gave this rank fewer cores.
    """
    here = [number for number, place in enumerate(places) if place.boot == places[rank].boot]
    apart = all(not set(places[one].cores) & set(places[other].cores) for one, other in combinations(here, 2))
    if apart and len(here) > 1:
        given = list(places[rank].cores)
        if len(given) < size:
            raise PlatformError(
                f"rank {rank}: --cores-per-device: found {size}; allowed: at most {len(given)}, the cores that the "
                "launcher gave it"
            )
        return given
    own = topology.shared_groups(topology.read(), len(here), size)[here.index(rank)]
    os.sched_setaffinity(0, own)
    return own


def local_rank(places: Sequence[RankPlace], rank: int) -> int:
    """The index of a rank on its host, from 0."""
    return sum(place.boot == places[rank].boot for place in places[:rank])


def shared(places: Sequence[RankPlace], cores: Sequence[Sequence[int]]) -> bool:
    """Whether ranks share cores (after pinning) or GPUs: devices are then virtual, and times mean little."""
    taken = [(place.boot, core) for place, own in zip(places, cores, strict=True) for core in own]
    return len(set(taken)) < len(taken)


#: Seconds between two messages about what a rank is doing, unless it says so itself.
_BEAT_S = 0.1
#: Seconds that a rank, told by the launcher to end, waits for a better reason: the launcher may be quicker than rank 0.
_GRACE_S = 0.5
#: Seconds that a failed rank waits to be ended.
_ENDING_S = 5.0
#: Kinds of failures: the rank itself failed; the deadline passed while it waited; another rank no longer answers; the
#: launcher ends the rank.
FAILED, LATE, LOST, ENDED = "failed", "late", "lost", "ended"
#: Held from the last line that this process prints to its end, as two of its threads may want to print one.
_LAST_LINE = threading.Lock()


class ControlChannel:
    """This rank's connection to rank 0, which recognizes its ranks by a shared secret (``key``).

    Raises:
        PlatformError: rank 0 cannot be reached.
    """

    def __init__(
        self,
        rank: int,
        places: Sequence[RankPlace],
        state: ProgressState,
        address: tuple[str, int],
        key: bytes,
        timeout_s: float,
    ) -> None:
        self._rank, self._places, self._state = rank, places, state
        try:
            line = socket.create_connection(address, timeout=timeout_s)
            line.sendall(key + rank.to_bytes(4, "big"))
        except OSError as error:
            raise PlatformError(
                f"{who(places, rank)} cannot reach rank 0 at {address[0]} port {address[1]}: {error.strerror or error}"
            ) from error
        line.settimeout(None)
        # A rank that is cut off learns of it as what it sends is not acknowledged, also while its operator hangs.
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, min(max(1, round(1000 * timeout_s)), 2**31 - 1))
        self._line = Connection(line.detach())
        self._sending = threading.Lock()
        self._over = threading.Event()
        self._signals = _signals()
        self._signalled: tuple[int, float] | None = None
        self._launcher = os.getppid()
        self._doing_of_0 = ""
        self._told_s = -math.inf
        threading.Thread(target=self._watch, daemon=True).start()

    def report(self, step: int, data: Any) -> None:
        """Send rank 0 the result of a step."""
        self._send({"is": "report", "step": step, "data": data})

    def beat(self) -> None:
        """Send what this rank is doing."""
        self._told_s = time.monotonic()
        with contextlib.suppress(OSError):  # detected by the listening side
            self._send({"is": "beat", "at": self._state.text(), "for": self._state.waits_for()})

    def fail(self, kind: str, text: str, ending_s: float = _ENDING_S) -> Never:
        """Send why this rank cannot continue, and end with all others.

        The kind is one of ``FAILED``, ``LATE``, ``LOST`` and ``ENDED``, the text one line; ``ending_s`` is how long to
        wait for another thread to end this process.
        """
        self.beat()  # which rank is to blame follows from what each of them waits for
        with contextlib.suppress(OSError):
            self._send({"is": "failure", "kind": kind, "text": text})
        time.sleep(ending_s)
        end(text)

    def finish(self, timeout_s: float) -> None:
        """Return when all ranks have finished."""
        self._send({"is": "done"})
        with self._state.wait("the other ranks to end", 0):
            if not self._over.wait(timeout_s):
                self.fail(LATE, f"the other ranks did not come to their end within {timeout_s:g} s")

    def _send(self, message: Mapping[str, object]) -> None:
        with self._sending:
            self._line.send_bytes(json.dumps(message).encode())

    def _watch(self) -> None:
        while True:
            ready = wait([self._line, self._signals], timeout=max(0.0, self._told_s + _BEAT_S - time.monotonic()))
            if self._signals in ready:
                self._signalled = os.read(self._signals, 1)[0], time.monotonic()
            if self._line in ready and self._listen():
                return
            if self._signalled is None and os.getppid() != self._launcher:
                self._signalled = signal.SIGTERM, time.monotonic()
            self._answer_signal()
            # Not whenever something arrives: rank 0 answers each beat, and the two would never rest during runs.
            if time.monotonic() >= self._told_s + _BEAT_S:
                self.beat()

    def _listen(self) -> bool:
        """Receive a message of rank 0; returns whether the session is over."""
        try:
            message = json.loads(self._line.recv_bytes())
        except (EOFError, OSError):
            if self._rank == 1:
                end(died(self._places, 0, self._doing_of_0))
            time.sleep(_GRACE_S)  # for rank 1
            os._exit(1)
        if message["is"] == "end":
            os._exit(1)
        if message["is"] == "state":
            self._doing_of_0 = message["at"]
        elif message["is"] == "over":
            with self._sending:
                self._line.close()
            self._over.set()
        return self._over.is_set()

    def _answer_signal(self) -> None:
        if self._signalled is None:
            return
        number, when = self._signalled
        if number == signal.SIGINT:
            if self._rank == 0:
                _end("Aborted", 130)
            os._exit(130)
        if time.monotonic() > when + _GRACE_S:
            if self._rank == 0:  # the monitor in this process may already know of a rank that died
                self.fail(ENDED, f"{who(self._places, 0)}: ended by the launcher: {self._state.text()}", _GRACE_S)
            os._exit(128 + signal.SIGTERM)


def who(places: Sequence[RankPlace], rank: int) -> str:
    """A rank in messages."""
    return f"rank {rank} on {places[rank].host}"


def died(places: Sequence[RankPlace], rank: int, doing: str) -> str:
    """The message about a rank that died."""
    return f"{who(places, rank)} died; last seen: {doing or 'starting'}"


def end(line: str) -> Never:
    """Print an error and end this process, whatever its other threads do."""
    _end(f"Error: {line}", 1)


def _end(line: str, code: int) -> Never:
    print_last(line)
    os._exit(code)


def print_last(line: str) -> None:
    """Print the last line of this process; other threads that want to print one wait until the process has ended."""
    _LAST_LINE.acquire()
    # Where nobody reads them any more, the process ends all the same.
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(2, f"{line}\n".encode())


def _signals() -> int:
    """A file descriptor that receives the numbers of SIGINT and SIGTERM, whatever the main thread does."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    signal.set_wakeup_fd(theirs)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    return ours
