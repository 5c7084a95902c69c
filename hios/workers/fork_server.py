"""Workers that are forked from a process that has imported torch, so that several start in the time of one.

To import torch takes seconds of processor time. A fork server has done nothing else: it has no threads but those that
libraries renew in a fork. It is started as ``python -m hios.workers.fork_server CONTROLLER CORES SOCKET``, with CORES
empty if workers with other cores are forked from it too.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import itertools
import math
import os
import pickle
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, NoReturn

from hios.workers.process_settings import end_with_parent, set_name

#: Bytes and file descriptors of a message at most.
_BYTES, _DESCRIPTORS = 1 << 16, 64
#: Variables that OpenMP applies to the cores that a process has when it loads OpenMP.
_BINDING = ("OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT", "KMP_AFFINITY")
#: Limits of a process that are those of its fork server.
_LIMITS = (resource.RLIMIT_AS, resource.RLIMIT_NOFILE)
#: Seconds that a server without workers stays for the next ones, and between looks whether a worker has ended.
_IDLE_S, _LOOK_S = 10.0, 0.005


def fork(environment: Mapping[str, str], cores: Sequence[int], arguments: str, descriptors: Sequence[int]) -> Forked:
    """Start a worker.

    Args:
        environment: its environment variables.
        cores: its cores, which it pins itself to.
        arguments: those of `hios.workers.worker.main`.
        descriptors: file descriptors that it inherits, under the same numbers; so it does the standard ones.
    """
    bound = len(cores) > 1 or any(name in environment for name in _BINDING)
    given = _Given(
        frozenset(environment.items()), tuple(cores) if bound else (), tuple(map(resource.getrlimit, _LIMITS))
    )
    return _servers.fork(given, arguments, descriptors)


class _Given(NamedTuple):
    """What a fork server is started with."""

    environment: frozenset[tuple[str, str]]
    cores: tuple[int, ...]
    limits: tuple[tuple[int, int], ...]


class Forked:
    """A worker process, with what `subprocess.Popen` offers of one."""

    def __init__(self, server: ForkServer, number: int) -> None:
        self._server, self._number = server, number

    @property
    def pid(self) -> int:
        """Its ID; 0 if it was never started."""
        return self._server.pid(self._number)

    def kill(self) -> None:
        """Kill it, if it runs."""
        self._server.kill(self._number)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; returns its exit status, which is negative if a signal ended it."""
        return self._server.wait(self._number, timeout)


class ForkServer:
    """The controller's end of a fork server."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.RLock()
        self._numbers = itertools.count()
        #: IDs and exit statuses of workers by number, what runs or is to be started, and what of it is to be killed.
        self._pids, self._codes = dict[int, int](), dict[int, int]()
        self._running, self._doomed = set[int](), set[int]()
        self._used, self._ended = time.monotonic(), False
        with theirs:
            for end in (self._socket, theirs):
                end.setblocking(True)  # whatever the default time-out of sockets is
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [*command, str(theirs.fileno())], pass_fds=(theirs.fileno(),), env=environment, stdin=subprocess.DEVNULL
            )

    def runs(self) -> bool:
        """Whether it can be asked for workers."""
        with self._lock:
            self._listen()
            return not self._ended

    def fork(self, arguments: str, descriptors: Sequence[int]) -> Forked:
        """Ask for a worker."""
        with self._lock:
            number = next(self._numbers)
            message = pickle.dumps((number, _folder(), arguments, descriptors))
            self._running.add(number)
            try:
                if not self._ended:
                    socket.send_fds(self._socket, [message], descriptors)
            except ConnectionError:
                pass  # it has died: the worker's exit status will be its own
            except BaseException:
                self._running.discard(number)
                raise
            return Forked(self, number)

    def pid(self, number: int) -> int:
        """ID of a worker."""
        self._until(lambda: number in self._pids or number in self._codes, None)
        return self._pids.get(number, 0)

    def kill(self, number: int) -> None:
        """Kill a worker, if it runs."""
        with self._lock:
            if number in self._running:
                self._doomed.add(number)
            self._listen()

    def wait(self, number: int, timeout_s: float | None) -> int:
        """Wait until a worker has ended; returns its exit status."""
        if not self._until(lambda: number in self._codes, timeout_s):
            raise subprocess.TimeoutExpired("worker", timeout_s or 0.0)
        return self._codes[number]

    def _until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait for messages until a condition holds; several threads may."""
        deadline = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._listen()
                if condition():
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)

    def _listen(self) -> None:
        """Take in what has arrived, and kill what is to be killed."""
        while not self._ended:
            is_over = self._process.poll() is not None  # a fork of this process may keep the socket open
            try:
                message = self._socket.recv(_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                self._ended = is_over
                break
            except ConnectionResetError:
                message = b""
            if message:
                self._take(*pickle.loads(message))  # noqa: S301 - from our own process
            else:
                self._ended = True
        self._running -= self._codes.keys()
        self._doomed &= self._running
        for number in self._doomed & self._pids.keys():
            try:
                os.kill(self._pids[number], signal.SIGKILL)
            except ProcessLookupError:  # it has just ended, of which a message comes
                self._take(number, self._pids[number], -signal.SIGKILL)
        if self._doomed and self._doomed == self._running and not self._pids.keys() & self._doomed:
            self._process.kill()  # it may import torch for long
            self._ended = True
        if self._ended:
            self._end()

    def _take(self, number: int, pid: int, code: int | None) -> None:
        if pid > 0:  # it was started
            self._pids[number] = pid
        if code is not None:
            self._codes[number] = code
            self._used = time.monotonic()

    def end_if_idle(self) -> None:
        """End it if it has had no workers for a while."""
        with self._lock:
            self._listen()
            if not self._running and time.monotonic() - self._used > _IDLE_S:
                self._end()

    def _end(self) -> None:
        """End it, or what is left of it; again where that was interrupted."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # to close is not enough where a fork of this process has it too
        self._socket.close()
        self._codes |= dict.fromkeys(self._running, self._process.wait())
        self._running.clear()


class _Servers:
    """The fork servers of this process, by environment and cores.

    A thread starts them that stays, as Linux ends processes with the thread that started them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[_Given, ForkServer] = {}
        self._thread: threading.Thread | None = None
        self._requests: SimpleQueue[tuple[Callable[[], ForkServer], SimpleQueue[ForkServer | BaseException]]]
        self._requests = SimpleQueue()

    def fork(self, given: _Given, arguments: str, descriptors: Sequence[int]) -> Forked:
        with self._lock:
            self._end_idle()
            if given not in self._known:
                environment, cores = dict(given.environment), ",".join(map(str, given.cores))
                command = [sys.executable, "-P", "-m", "hios.workers.fork_server", str(os.getpid()), cores]
                self._known[given] = self._started(lambda: ForkServer(command, environment))
            return self._known[given].fork(arguments, [*_standard(), *descriptors])

    def _started(self, make: Callable[[], ForkServer]) -> ForkServer:
        if self._thread is None:
            thread = threading.Thread(target=self._keep, name="hios workers", daemon=True)
            thread.start()
            self._thread = thread
        answer = SimpleQueue[ForkServer | BaseException]()
        self._requests.put((make, answer))
        made = answer.get()
        if isinstance(made, BaseException):
            raise made
        return made

    def _keep(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # workers inherit it: Ctrl-C is for the controller
        limit_s: float | None = None
        while True:
            try:
                make, answer = self._requests.get(timeout=limit_s)
            except Empty:
                if self._lock.acquire(blocking=False):  # who holds it may wait for this thread
                    try:
                        self._end_idle()
                        limit_s = _IDLE_S if self._known else None
                    finally:
                        self._lock.release()
                continue
            try:
                answer.put(make())
            except BaseException as error:  # raised where it is asked for
                answer.put(error)
            del make, answer  # a server of which nobody knows ends
            limit_s = _IDLE_S

    def _end_idle(self) -> None:
        """Forget servers that have ended, and end those that have been without workers for a while."""
        for server in self._known.values():
            server.end_if_idle()
        self._known = {given: server for given, server in self._known.items() if server.runs()}


def _renew() -> None:
    """Start anew in a fork of this process, which has no thread but one, and whose fork servers are not its own."""
    global _servers
    _servers = _Servers()


_servers = _Servers()
os.register_at_fork(after_in_child=_renew)


def _folder() -> str:
    """The current folder; empty if it was removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _standard() -> list[int]:
    """Standard output and error, if they are open."""
    found = []
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            os.fstat(descriptor)
            found.append(descriptor)
    return found


def main(arguments: Sequence[str]) -> NoReturn:
    """Fork workers until the controller closes the socket."""
    controller, cores, descriptor = int(arguments[0]), arguments[1], int(arguments[2])
    end_with_parent(controller)
    set_name("hios workers")
    if cores:
        os.sched_setaffinity(0, map(int, cores.split(",")))
    gc.disable()  # it would run hundreds of times while modules are made
    from hios.workers import worker  # noqa: F401 - imports torch

    gc.freeze()  # modules stay, so that no collection needs to look at them
    warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)  # of those threads
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for standard in (1, 2):  # workers have those that the controller has when they start
        os.dup2(nowhere, standard)
    with contextlib.suppress(ConnectionError):
        _serve(socket.socket(fileno=descriptor))
    os._exit(0)


def _serve(ours: socket.socket) -> None:
    numbers = dict[int, int]()
    bell, ringing = socket.socketpair()
    ringing.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ringing.fileno(), warn_on_full_buffer=False)
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    while True:
        ready, _, _ = select.select([ours, bell], [], [])
        if bell in ready:
            bell.recv(_BYTES)
            for pid, code in _ended():
                if (number := numbers.pop(pid, None)) is not None:
                    ours.send(pickle.dumps((number, pid, code)))
        if ours not in ready:
            continue
        message, received, _, _ = socket.recv_fds(ours, _BYTES, _DESCRIPTORS)
        if not message:
            return
        number, folder, arguments, places = pickle.loads(message)  # noqa: S301 - from our own controller
        server = os.getpid()
        try:
            pid = os.fork()
        except OSError:  # too many processes, or no memory
            pid = -1
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for connection in (ours, bell, ringing):
                connection.close()
            _work(server, folder, arguments, received, places)
        numbers[pid] = number
        ours.send(pickle.dumps((number, pid, None if pid > 0 else 1)))
        for descriptor in received:
            os.close(descriptor)


def _ended() -> Iterator[tuple[int, int]]:
    """Processes forked from this one that have ended, and their exit statuses."""
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            yield found[0], os.waitstatus_to_exitcode(found[1])


def _work(server: int, folder: str, arguments: str, received: Sequence[int], places: Sequence[int]) -> NoReturn:
    """What a forked process does, which never returns to the loop that forked it."""
    try:
        from hios.workers import worker

        _move(received, places)
        with contextlib.suppress(OSError):  # otherwise that in which the server was started
            os.chdir(folder)
        end_with_parent(server)
        set_name("hios worker")
        worker.main(arguments.split())
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def _move(descriptors: Sequence[int], places: Sequence[int]) -> None:
    """Give open files the numbers that they have in the controller."""
    beyond = max((*descriptors, *places)) + 1
    above = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, beyond) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for descriptor, place in zip(above, places, strict=True):
        os.dup2(descriptor, place, inheritable=place in (1, 2))
        os.close(descriptor)


if __name__ == "__main__":
    main(sys.argv[1:])
