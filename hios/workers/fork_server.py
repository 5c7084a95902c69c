"""Workers that are forked from a process that has imported torch, so that several start in the time of one.

To import torch takes seconds of processor time. A fork server has done nothing else: it has no threads but those that
libraries renew in a fork. It is started as ``python -m hios.workers.fork_server CONTROLLER CORES SOCKET``, with CORES
empty if workers with other cores are forked from it too.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import math
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NoReturn

from hios.workers.process_settings import end_with_parent, set_name

#: Bytes and file descriptors of a message at most.
_BYTES, _DESCRIPTORS = 1 << 16, 64
#: Variables by which OpenMP binds threads to cores, which are those of the process that loads it.
_BINDING = ("OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
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
    bound = len(set(cores)) < len(cores) or any(name in environment for name in _BINDING)
    return _servers.fork((frozenset(environment.items()), tuple(cores) if bound else ()), arguments, descriptors)


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
        #: IDs and exit statuses of workers by number, what runs or is to be started, and what of it is to be killed.
        self._pids, self._codes = dict[int, int](), dict[int, int]()
        self._running, self._doomed = set[int](), set[int]()
        self._used, self._ended = time.monotonic(), False
        with theirs:
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
            number = len(self._running) + len(self._codes)
            self._running.add(number)
            message = pickle.dumps((number, _folder(), arguments, descriptors))
            with contextlib.suppress(BrokenPipeError):  # it has died: the worker's exit status will be its own
                socket.send_fds(self._socket, [message], descriptors)
            return Forked(self, number)

    def pid(self, number: int) -> int:
        """ID of a worker."""
        self._until(lambda: number in self._pids or number in self._codes, None)
        return self._pids.get(number, 0)

    def kill(self, number: int) -> None:
        """Kill a worker, if it runs."""
        with self._lock:
            self._listen()
            self._doom(number)

    def _doom(self, number: int) -> None:
        if number not in self._running:
            return
        self._doomed.add(number)
        if number in self._pids:
            os.kill(self._pids[number], signal.SIGKILL)
        elif self._doomed >= self._running:  # to import torch may take long
            self._process.kill()

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
        """Take in what has arrived."""
        while not self._ended:
            try:
                message = self._socket.recv(_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                message = b""
            if not message:
                self._codes |= dict.fromkeys(self._running, self._end())
                self._running.clear()
                return
            number, pid, code = pickle.loads(message)  # noqa: S301 - from our own process
            self._pids[number] = pid
            if code is not None:
                self._codes[number] = code
                self._running.discard(number)
                self._used = time.monotonic()
            elif number in self._doomed:
                self._doom(number)

    def end_if_idle(self) -> None:
        """End it if it has had no workers for a while."""
        with self._lock:
            self._listen()
            if not self._running and not self._ended and time.monotonic() - self._used > _IDLE_S:
                self._end()

    def _end(self) -> int:
        self._ended = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # to close is not enough where a fork of this process has it too
        self._socket.close()
        return self._process.wait()


class _Servers:
    """The fork servers of this process, by environment and cores.

    A thread starts them that stays, as Linux ends processes with the thread that started them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[frozenset[tuple[str, str]], tuple[int, ...]], ForkServer] = {}
        self._thread: threading.Thread | None = None
        self._requests: SimpleQueue[tuple[Callable[[], ForkServer], SimpleQueue[ForkServer | BaseException]]]
        self._requests = SimpleQueue()

    def fork(
        self, given: tuple[frozenset[tuple[str, str]], tuple[int, ...]], arguments: str, descriptors: Sequence[int]
    ) -> Forked:
        with self._lock:
            if given not in self._known or not self._known[given].runs():
                environment, cores = dict(given[0]), ",".join(map(str, given[1]))
                command = [sys.executable, "-P", "-m", "hios.workers.fork_server", str(os.getpid()), cores]
                self._known[given] = self._started(lambda: ForkServer(command, environment))
            return self._known[given].fork(arguments, [*_standard(), *descriptors])

    def _started(self, make: Callable[[], ForkServer]) -> ForkServer:
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep, name="hios workers", daemon=True)
            self._thread.start()
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
                    limit_s = self._end_idle()
                    self._lock.release()
                continue
            limit_s = _IDLE_S
            try:
                answer.put(make())
            except BaseException as error:  # raised where it is asked for
                answer.put(error)

    def _end_idle(self) -> float | None:
        """End servers that have been without workers for a while; returns seconds until it is to be called again."""
        for server in self._known.values():
            server.end_if_idle()
        self._known = {given: server for given, server in self._known.items() if server.runs()}
        return _IDLE_S if self._known else None


def _renew() -> None:
    """Start anew in a fork of this process, which has no thread but one, and whose fork servers are not its own."""
    global _servers
    _servers = _Servers()


_servers = _Servers()
os.register_at_fork(after_in_child=_renew)


def _folder() -> str:
    """The current folder; the root if it was removed."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return "/"


def _standard() -> list[int]:
    """Standard output and error, if they are open."""
    return [descriptor for descriptor in (1, 2) if Path(f"/proc/self/fd/{descriptor}").exists()]


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
    with contextlib.suppress(ConnectionError):
        _serve(socket.socket(fileno=descriptor))
    os._exit(0)


def _serve(ours: socket.socket) -> None:
    from hios.workers import worker

    own, numbers = os.getpid(), dict[int, int]()
    bell, ringing = socket.socketpair()
    ringing.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ringing.fileno(), warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([ours, bell], [], [])
        if bell in ready:
            bell.recv(_BYTES)
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    code = os.waitstatus_to_exitcode(ended[1])
                    ours.send(pickle.dumps((numbers.pop(ended[0]), ended[0], code)))
        if ours not in ready:
            continue
        message, received, _, _ = socket.recv_fds(ours, _BYTES, _DESCRIPTORS)
        if not message:
            return
        number, folder, given, places = pickle.loads(message)  # noqa: S301 - from our own controller
        if (pid := os.fork()) == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for connection in (ours, bell, ringing):
                    connection.close()
                _move(received, places)
                os.chdir(folder)
                end_with_parent(own)
                set_name("hios worker")
                worker.main(given.split())
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        numbers[pid] = number
        ours.send(pickle.dumps((number, pid, None)))
        for each in received:
            os.close(each)


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
