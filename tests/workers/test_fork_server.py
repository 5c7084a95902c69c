"""Workers that are forked from processes that have imported torch."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from hios.errors import PlatformError
from hios.machine.description import usable_cores
from hios.workers import fork_server
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool
from tests.workers import tasks
from tests.workers.processes import eventually, running

ROOT = Path(__file__).resolve().parents[2]
CORE = usable_cores()[0]


@pytest.fixture(autouse=True)
def own_servers(monkeypatch: pytest.MonkeyPatch) -> fork_server._Servers:
    """Servers of the test alone, as those of others may end meanwhile."""
    made = fork_server._Servers()
    monkeypatch.setattr(fork_server, "_servers", made)
    return made


def _pool(cores: list[int] | None = None, workers: int = 1) -> WorkerPool:
    return WorkerPool([cores or [CORE]] * workers, Arena(8, 0), 300.0)


def _started(pool: WorkerPool) -> tuple[int, int]:
    """The process that forked the first worker, and that worker."""
    found = pool.call(0, tasks.who)
    return found["parent"], found["pid"]


def test_workers_and_pools_share_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as they have the same environment, and OpenMP, once loaded, binds no threads to cores."""
    with _pool(workers=2) as first, _pool() as second:
        own, _ = _started(first)
        assert {found["parent"] for found in first.call_each(tasks.who, {0: {}, 1: {}}).values()} == {own}
        assert _started(second)[0] == own
    with _pool() as third:
        assert _started(third)[0] == own
    with _pool([CORE, CORE]) as crowded:
        assert _started(crowded)[0] != own
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    with _pool() as bound:
        assert _started(bound)[0] != own


def test_workers_start_as_if_they_were_started_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the folder in which this process now is, and with what is now its output."""
    with _pool():
        pass
    with capfd.disabled():
        monkeypatch.chdir(tmp_path)
        log = os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY)
        kept = os.dup(1)
        os.dup2(log, 1)
        try:
            pool = _pool()
        finally:
            os.dup2(kept, 1)
        with pool:
            pool.call(0, tasks.say_where)
        os.close(log)
        os.close(kept)
    assert (tmp_path / "log").read_text() == f"{tmp_path}\n"


def test_a_server_ends_when_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while without workers, not before; the next pool has another one."""
    monkeypatch.setattr(fork_server, "_IDLE_S", 0.1)
    with _pool() as pool:
        server, _ = _started(pool)
        time.sleep(0.3)
        assert running(server)
    assert eventually(lambda: not running(server))
    with _pool() as pool:
        assert _started(pool)[0] != server


def test_a_server_that_dies_takes_its_workers_along() -> None:
    """They are named like any that die; the next pool has another server."""
    with _pool() as pool:
        server, worker = _started(pool)
        os.kill(server, signal.SIGKILL)
        assert eventually(lambda: not running(worker))
        with pytest.raises(
            PlatformError, match=r"^device 0 died by signal SIGKILL \(who\); the machine may be out of m"
        ):
            pool.call(0, tasks.who)
    with _pool() as pool:
        idle, _ = _started(pool)
        assert idle != server
    os.kill(idle, signal.SIGKILL)
    assert eventually(lambda: not running(idle))
    with _pool() as pool:
        assert _started(pool)[0] not in (server, idle)


def test_a_server_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its exit status is that of the workers that it was to fork."""
    (tmp_path / "torch.py").write_text("raise SystemExit(7)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PlatformError, match=r"^device 0 died with exit status 7 \(starting\)"):
        _pool()


def test_servers_outlive_threads() -> None:
    """Linux would end a process with the thread that started it."""
    pools = list[WorkerPool]()
    thread = threading.Thread(target=lambda: pools.append(_pool()))
    thread.start()
    thread.join()
    with pools[0] as pool:
        assert pool.call(0, tasks.echo, value=1) == 1


def test_settings_of_the_program_do_not_matter() -> None:
    """Such as the default time-out of sockets, and signals that the thread that starts a server blocks."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    socket.setdefaulttimeout(0.001)
    try:
        with _pool(workers=2) as pool:
            assert pool.call(1, tasks.echo, value=1) == 1
    finally:
        socket.setdefaulttimeout(None)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


#: A server whose only worker has ended before the server says that it has started.
_QUICK = """
import os, pickle, socket, sys
ours = socket.socket(fileno=int(sys.argv[1]))
number, *_ = pickle.loads(ours.recv(1 << 16))
worker = os.fork() or os._exit(3)
os.waitpid(worker, 0)
for code in (None, 3):
    ours.send(pickle.dumps((number, worker, code)))
"""


def test_a_worker_that_has_ended_is_not_killed() -> None:
    """Another process may have its ID by then."""
    server = fork_server.ForkServer([sys.executable, "-c", _QUICK], os.environ)
    started = server.fork("", (1,))
    server._process.wait()
    started.kill()
    assert started.wait(300.0) == 3


_FORKED = """
import os
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool
from tests.workers import tasks

def parent():
    with WorkerPool([[{core}]], Arena(8, 0), 300.0) as pool:
        return pool.call(0, tasks.who)["parent"]

before = parent()
if (child := os.fork()) == 0:
    os._exit(parent() == before)
assert os.waitpid(child, 0)[1] == 0
assert parent() == before
"""


def test_a_fork_of_the_process_has_servers_of_its_own() -> None:
    """Those of the process that it was forked from end without it."""
    command = [sys.executable, "-W", "error::DeprecationWarning", "-c", _FORKED.format(core=CORE)]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=600)
