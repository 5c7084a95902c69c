"""Stale locks: a killed Snakemake leaves them in its folder, and would then refuse to run there again."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import tempfile
from pathlib import Path
from typing import TextIO

#: Where Snakemake keeps its locks, and the file that the kernel locks for us.
_LOCKS, _HOLDERS = "locks", "hios.lock"
#: Seconds from the start of a run to its first lock of Snakemake, at most: until then only its name tells of it.
_LONGEST_START_S = 3600.0
#: Open, and so locked, until this process has ended, however it ends.
_held: list[TextIO] = []


def remove_stale(folder: Path, node: str = "", *, submits: bool = False) -> None:
    """Remove the locks of killed runs if no run is alive; from now on this process counts as one, until it ends.

    Every run shares a lock of the kernel, which vanishes with its process: a run that can have it alone is the only
    one. Runs on other nodes may not be seen through a shared file system, and jobs on a cluster outlive their run, so
    each run leaves its name; locks of others than runs on this node are left to Snakemake and its ``--unlock``.

    Args:
        folder: ``.snakemake`` of the working directory; made if it is not there. Nothing is done where it cannot be
            written, or where files cannot be locked.
        node: name of this one; for tests.
        submits: whether jobs of this run may be on a cluster.
    """
    node = node or platform.node()
    name = f"{node} and its cluster" if submits else node
    with contextlib.suppress(OSError):
        folder.mkdir(exist_ok=True)
        file = (folder / _HOLDERS).open("a+", encoding="utf-8")
        _held.append(file)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.seek(0)
            alone = set(file.read().split("\n")) <= {node, ""}
            if alone:
                for lock in (folder / _LOCKS).glob("*.lock"):
                    lock.unlink(missing_ok=True)
            old = False
            with contextlib.suppress(OSError), tempfile.TemporaryFile(dir=folder) as new:
                # The time of a new file is of the same clock, the file server's.
                old = os.fstat(new.fileno()).st_mtime - os.fstat(file.fileno()).st_mtime > _LONGEST_START_S
            if alone or (old and not any((folder / _LOCKS).glob("*.lock"))):  # the earlier process has ended
                file.truncate(0)
        fcntl.flock(file, fcntl.LOCK_SH)
        file.write(f"{name}\n")
        file.flush()
