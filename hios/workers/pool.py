"""Worker processes, one per device: calls of functions inside them, and their peak memory as Linux counts it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

from hios.errors import HiosError, PlatformError
from hios.machine.description import private_bytes
from hios.workers import channel, fork_server, pipe_messages
from hios.workers.arena import Arena
from hios.workers.deadline import Deadline
from hios.workers.fork_server import Forked
from hios.workers.ring import Bell, bytes_of, words_of
from hios.workers.worker import Worker

#: Seconds that a worker may take to import torch and report.
_START_TIMEOUT_S = 300.0
#: Seconds that a worker whose connection is gone may take to end.
_DYING_S = 30.0
#: Variables that workers do not get: cores for OpenMP, none of which may be theirs, and what changes with every test.
_LEFT_OUT = ("GOMP_CPU_AFFINITY", "OMP_PLACES", "PYTEST_CURRENT_TEST")


class WorkerPool:
    """Processes pinned to cores, sharing an arena.

    Workers are forked from a process of their own (`hios.workers.fork_server`), not by multiprocessing, which would
    run the user's main script again. They use the import paths of this process, except for its current folder. They end
    with this process, however it ends. Only one thread at a time may call them.

    Args:
        cores: cores of every worker; a worker uses as many threads inside an operator as it has cores.
        arena: memory to share.
        timeout_s: longest time that one call may take, without that for which this process was stopped.
        names: of the workers, for messages; ``device 0`` and so on if left out.
        environment: additional environment variables of some workers, by number.
        descriptors: file descriptors that workers inherit besides that of the arena, under the same numbers.

    Attributes:
        timeout_s: the same; it may be changed between calls.
        describe: turns a number that a worker recorded (``Worker.mark``) into words, for messages on workers that die
            or hang.
    """

    def __init__(
        self,
        cores: Sequence[Sequence[int]],
        arena: Arena,
        timeout_s: float,
        names: Sequence[str] = (),
        environment: Mapping[int, Mapping[str, str]] = MappingProxyType({}),
        descriptors: Sequence[int] = (),
    ) -> None:
        self._arena = arena
        self.timeout_s = timeout_s
        self._descriptors = tuple(descriptors)
        self._names = [*names, *(f"device {number}" for number in range(len(names), len(cores)))]
        self.describe: Callable[[int], str] = lambda _: ""
        #: Short messages, and a flag for each worker, in which it records what it is doing.
        self._markers = channel.shared(len(cores))
        self._rings = [channel.rings(self._markers, number, len(cores)) for number in range(len(cores))]
        #: What wakes this process, and each worker.
        self._bell, self._bells = Bell(), [Bell() for _ in cores]
        self._processes: list[Forked] = []
        self._connections: list[Connection] = []
        #: Poll objects of the same, for sending.
        self._outgoing: list[select.poll] = []
        try:
            for number, own in enumerate(cores):
                self._start(number, list(own), environment.get(number, {}))
            started = dict.fromkeys(range(len(cores)), "starting")
            self._gather(started, Deadline(_START_TIMEOUT_S), _START_TIMEOUT_S)
        except BaseException:
            self._abort()
            raise

    def _start(self, number: int, cores: list[int], more: Mapping[str, str]) -> None:
        ours, theirs = multiprocessing.Pipe()
        bells = self._bells[number].descriptor, self._bell.descriptor
        inherited = (theirs.fileno(), self._arena.descriptor, self._markers.descriptor, *bells, *self._descriptors)
        arguments = [
            number,
            theirs.fileno(),
            self._arena.descriptor,
            self._arena.flags_count,
            self._arena.size,
            self._markers.descriptor,
            len(self._bells),
            int(self._arena.shares_cores),
            *bells,
            ",".join(map(str, cores)),
        ]
        own = {"OMP_NUM_THREADS": str(len(cores)), "PYTHONPATH": os.pathsep.join(import_folders())}
        others = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
        environment = {**others, **own, **more}
        self._processes.append(fork_server.fork(environment, cores, " ".join(map(str, arguments)), inherited))
        theirs.close()
        self._connections.append(ours)
        self._outgoing.append(select.poll())
        self._outgoing[-1].register(ours, select.POLLOUT)

    @property
    def process_ids(self) -> list[int]:
        """Process number of every worker."""
        return [process.pid for process in self._processes]

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._abort()  # their results are no longer needed

    def call(self, worker: int, function: Callable[..., Any], **arguments: Any) -> Any:
        """Call ``function(worker, **arguments)`` inside one worker and return its result."""
        return self.call_each(function, {worker: arguments})[worker]

    def call_each(
        self,
        function: Callable[..., Any],
        arguments: Mapping[int, Mapping[str, Any]],
        timeout_s: float | None = None,
    ) -> dict[int, Any]:
        """Call a function inside several workers concurrently, each with its own arguments.

        Args:
            function: a module-level function; its first argument is the worker it runs in.
            arguments: keyword arguments by worker number.
            timeout_s: longest time of this call; that of the pool if None.

        Raises:
            PlatformError: a worker died, hung beyond the time-out, or ran out of memory; all are ended.
            HiosError: what the function raised.
        """
        name, limit_s = f"{function.__module__}:{function.__qualname__}", timeout_s or self.timeout_s
        deadline = Deadline(limit_s)
        for worker, keywords in arguments.items():
            self._markers.write(worker, 0)
            try:
                sent = self._send(worker, (name, dict(keywords)), deadline)
            except OSError:
                self._fail(worker, function.__name__)
            if not sent:
                self._hang(worker, function.__name__, limit_s)
        return self._gather(dict.fromkeys(arguments, function.__name__), deadline, limit_s)

    def _send(self, worker: int, message: Any, deadline: Deadline) -> bool:
        """Send a message; returns whether the worker received it in time; a stopped one receives what fits its pipe."""
        text = pickle.dumps(message)
        if len(text) <= channel.SHORT:
            self._rings[worker][0].put(words_of(text))
            self._bells[worker].ring()
            return True
        connection = self._connections[worker]
        for part in pipe_messages.parts(text):
            if not deadline.poll(self._outgoing[worker]):
                return False
            connection.send_bytes(part)
        return True

    def _gather(self, pending: dict[int, str], deadline: Deadline, limit_s: float) -> dict[int, Any]:
        order = list(pending)
        inboxes = {worker: pipe_messages.Inbox() for worker in order}
        results: dict[int, Any] = {}
        failure: HiosError | None = None
        answering, workers = select.poll(), {self._connections[worker].fileno(): worker for worker in order}
        for descriptor in (*workers, self._bell.descriptor):
            answering.register(descriptor, select.POLLIN)
        while pending:
            ready = deadline.poll(answering)
            if not ready:
                worker, what = next(iter(pending.items()))
                self._hang(worker, what, limit_s, failure)
            self._bell.sleep(0.0)  # it may have been heard
            # One that has answered may have ended since.
            answers = [
                (worker, pickle.loads(bytes_of(words)))  # noqa: S301 - from our own processes
                for worker in pending
                if (words := self._rings[worker][1].get()) is not None
            ]
            for worker in (workers[descriptor] for descriptor, _ in ready if descriptor in workers):
                if any(worker == answered for answered, _ in answers):
                    continue
                try:
                    if inboxes[worker].add(self._connections[worker].recv_bytes()):
                        answers.append((worker, inboxes[worker].message()))
                except (EOFError, OSError):
                    self._fail(worker, pending[worker])
            for worker, (succeeded, value) in answers:
                del pending[worker]
                answering.unregister(self._connections[worker])
                if succeeded:
                    results[worker] = value
                elif failure is None:
                    # The others may wait for this worker: tell them, then collect their answers.
                    failure = value if isinstance(value, HiosError) else HiosError(f"{self._names[worker]}: {value}")
                    self._arena.write(0, 1)
        if failure is not None:
            self._abort()
            raise failure
        return {worker: results[worker] for worker in order}

    def _where(self, worker: int) -> str:
        """The last operator that a worker recorded, as part of a message."""
        operator = self.describe(self._markers.read(worker))
        return f", last at {operator}" if operator else ""

    def _hang(self, worker: int, what: str, limit_s: float, failure: HiosError | None = None) -> NoReturn:
        """Stop all workers; ``failure`` is the error of another worker, perhaps a time-out in waiting for this one."""
        said = "" if failure is None else f"{failure}; "
        hung = f"{self._names[worker]} did not answer within {limit_s:g} s ({what}){self._where(worker)}"
        self._abort()
        raise PlatformError(f"{said}{hung}; the run was ended")

    def _fail(self, worker: int, what: str) -> NoReturn:
        """Stop all workers, and report how one died or that it does not respond."""
        where, code = self._where(worker), None
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._processes[worker].wait(timeout=_DYING_S)
        finally:
            self._abort()
        hint = "; the machine may be out of memory" if code == -signal.SIGKILL else ""
        raise PlatformError(f"{self._names[worker]} {_how(code)} ({what}){where}{hint}; the run was ended")

    def _abort(self) -> None:
        self._arena.write(0, 1)
        for process in self._processes:
            process.kill()
        self.close()

    def release(self, workers: Collection[int]) -> None:
        """Stop some workers, which must not be called any more."""
        for worker in workers:
            self._connections[worker].close()
        for worker in workers:
            _wait(self._processes[worker])

    def close(self) -> None:
        """Stop all workers and wait for them."""
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            _wait(process)
        self._connections.clear()
        self._processes.clear()


def _wait(process: Forked) -> None:
    """Wait briefly for a worker whose connection is closed."""
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _how(code: int | None) -> str:
    """How a process ended; None if it closed its pipe but is still running."""
    if code is None:
        return "closed its connection"
    if code >= 0:
        return f"died with exit status {code}"
    try:
        return f"died by signal {signal.Signals(-code).name}"
    except ValueError:  # Python has no names for real-time signals
        return f"died by signal {-code}"


def import_folders() -> list[str]:
    """The folders that workers import from, including that of hios."""
    own = str(Path(__file__).parents[2])
    # An empty entry means the current folder, and Python ignores entries that are not strings.
    folders = [folder for folder in sys.path if folder and isinstance(folder, str)]
    return folders if own in folders else [own, *folders]


#: Written to /proc/PID/clear_refs, it makes the peak of a process what it has now (proc_pid_clear_refs(5)).
_RESET = "5"


def give_back(worker: Worker) -> None:
    """Give freed memory back to the system, which malloc keeps otherwise; called inside a worker."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_bytes(pool: WorkerPool, workers: Collection[int], run: Callable[[], object]) -> int | None:
    """Private memory of workers before a run plus their largest growth during it, in bytes.

    Weights and compiled operators are included; memory released by earlier runs is not. None if the system does not
    report it.
    """
    pool.call_each(give_back, {worker: {} for worker in workers})
    ids = [pool.process_ids[worker] for worker in workers]
    own = [private_bytes(process) for process in ids]
    before = [_status(process, "VmRSS") for process in ids]
    if not all(own) or not all(map(_reset, ids)):
        return None
    run()
    peaks = [_status(process, "VmHWM") for process in ids]
    return sum(bytes_ + max(0, peak - now) for bytes_, peak, now in zip(own, peaks, before, strict=True))


def _reset(process: int) -> bool:
    try:
        Path(f"/proc/{process}/clear_refs").write_text(_RESET, encoding="ascii")
    except OSError:
        return False
    return True


def _status(process: int, field: str) -> int:
    """A field of /proc/PID/status in bytes."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)
