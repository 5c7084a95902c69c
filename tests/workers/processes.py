"""Looking at processes through /proc."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def running(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def children(of: int | None = None, *, servers_too: bool = False) -> list[int]:
    """Children of a process and theirs, zombies included, perhaps fork servers; of this one if none is given."""
    pids, parents, servers = [of or os.getpid()], dict[int, int](), set[int]()
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                name, _, rest = (path / "stat").read_text().rpartition(")")
                parents[int(path.name)] = int(rest.split()[1])
                # Zombies have only their names, and those that start only their commands.
                if name.endswith("(hios workers") or b"hios.workers.fork_server" in (path / "cmdline").read_bytes():
                    servers.add(int(path.name))
    for pid in pids:  # which grows meanwhile
        pids += [child for child, parent in parents.items() if parent == pid]
    own = [pid for pid in pids[1:] if pid in servers and parents[pid] not in servers]  # workers are forks of them
    return [pid for pid in pids[1:] if servers_too or pid not in own]


def eventually(condition: Callable[[], bool], limit_s: float = 300.0, every_s: float = 0.02) -> bool:
    """Wait until a condition holds; False if it does not within a time that is long for a busy machine."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


@contextmanager
def killed(process: subprocess.Popen[str]) -> Iterator[list[int]]:
    """The two workers whose numbers a process prints; it is killed when the context ends, and they end with it."""
    with process:
        try:
            assert process.stdout is not None
            workers = [int(worker) for worker in process.stdout.readline().split()]
            assert len(workers) == 2
            assert all(map(running, workers))
            yield workers
        finally:
            process.kill()
    assert eventually(lambda: not any(map(running, workers)))
