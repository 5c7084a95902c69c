"""Optimizing a model in another process, beside the one that uses it.

Exporting replaces the parameters of a model for a while, so a thread could not do it while the model is called.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch

from hios.errors import HiosError, first_line, warn
from hios.files.artifacts import write_whole
from hios.optimizing.report import Report
from hios.workers.pool import import_folders
from hios.workers.process_settings import end_with_parent

#: Looking for garbage as often as by default would take a tenth of the time until something is found.
_WORK = "import gc, sys; gc.set_threshold(500_000); from hios.optimizing.optimize import work; work(sys.argv[1])"
_REQUEST, _FOUND, _SEEN = "request.pt", "found.json", "seen.json"
#: Seconds between two looks for what was found.
_LOOK_S = 0.2


class Found(msgspec.Struct):
    """What the process found, with the warnings that it would have issued."""

    report: Report
    warnings: list[str]


class Background:
    """A process that optimizes a model, and the thread that waits for it; both end with this process.

    They share a folder within the given one, or among temporary files, which only this user can read. It is locked
    while this process lives; those of processes that were killed are deleted.
    """

    def __init__(self, within: Path | None) -> None:
        if within is not None:
            within.mkdir(parents=True, exist_ok=True)
        among = Path(tempfile.gettempdir()) if within is None else within
        prefix = "hios-background-" if within is None else "background-"
        for path in among.glob(f"{prefix}*"):
            _delete_if_left(path)
        self.folder, lock = _locked_folder(among, prefix)
        self._lock: int | None = lock
        atexit.register(self._leave, os.getpid())
        self._closed = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None

    def start(self, request: Sequence[Any], found: Callable[[Found], None], failed: Callable[[str], None]) -> None:
        """Start the process with a request; ``found`` or ``failed`` is called in another thread, ``found`` repeatedly.

        Raises:
            HiosError: the request cannot be sent to another process.
        """
        try:
            torch.save(tuple(request), self.folder / _REQUEST)
        except Exception as error:  # classes raise what they want
            raise HiosError(f"it cannot be sent to another process: {first_line(error)}; allowed: wait=True") from error
        self._told = found, failed
        self._thread = threading.Thread(target=self._keep, name="hios background", daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        """Watch the process; what is called then, which holds the model, is forgotten."""
        try:
            self._watch(*self._told)
        finally:
            del self._told
            self.discard()

    def _watch(self, found: Callable[[Found], None], failed: Callable[[str], None]) -> None:
        try:
            with subprocess.Popen(  # noqa: S603 - our own code
                [sys.executable, "-P", "-c", _WORK, str(self.folder)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(import_folders())},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            ) as self._process:
                if self._closed.is_set():
                    self._process.kill()
                ended, final, printed = False, False, ""
                while not ended:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        _, printed = self._process.communicate(timeout=_LOOK_S)
                        ended = True
                    if self._closed.is_set():
                        return
                    final = self._look(found) or final  # once more after its end
            if not final:
                code = self._process.returncode
                lines = printed.strip().splitlines() if code else []
                failed((lines or [f"the process ended with status {code}, before its choice was final"])[-1])
        except Exception as error:  # it would be lost with the thread
            if not self._closed.is_set():  # at the end of the process much fails
                failed(first_line(error))

    def _look(self, found: Callable[[Found], None]) -> bool:
        """Take what was found since the last look; whether that was the final choice."""
        seen = self.folder / _SEEN
        try:
            (self.folder / _FOUND).replace(seen)  # so that what is reported meanwhile stays for the next look
        except FileNotFoundError:
            return False
        what = msgspec.json.decode(seen.read_bytes(), type=Found)
        try:
            found(what)
        except Exception as error:
            if self._closed.is_set() or not what.report.pending:
                raise
            warn(f"{what.report.model}: an early choice, {what.report.chosen}, is left out: {first_line(error)}")
        return not what.report.pending

    def end(self) -> None:
        """Stop the process and its child processes, and leave what runs the model."""
        self._closed.set()
        if self._process is not None:
            self._process.kill()

    def discard(self) -> None:
        """Delete the folder, and do nothing more at the end of the process."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        atexit.unregister(self._leave)

    def _leave(self, process: int) -> None:
        """At the end of a process; forks leave what belongs to the first.

        Afterwards Python stops threads wherever they are, which aborts the process if that is in native code.
        """
        if os.getpid() == process:
            self.end()
            try:
                if self._thread is not None:
                    self._thread.join()
            finally:
                self.discard()


def _locked_folder(within: Path, prefix: str) -> tuple[Path, int]:
    """A new folder, and a lock of it, which ends with this process however it ends."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=within))  # for this user alone
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:  # another process took it for one that is left
            continue
        with contextlib.suppress(OSError):  # a file system without locks, where nothing counts as left
            fcntl.flock(lock, fcntl.LOCK_SH)
        if folder.exists():
            return folder, lock
        os.close(lock)


def _delete_if_left(folder: Path) -> None:
    """Delete a folder that no living process has locked."""
    with contextlib.suppress(OSError):  # locked, gone, or of another user
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def received(folder: Path) -> tuple[Any, ...]:
    """The request, in the process, which gives way to others and ends with the one that waits for it."""
    end_with_parent(os.getppid())
    os.nice(10)
    request: tuple[Any, ...] = torch.load(folder / _REQUEST, weights_only=False)
    return request


def report(folder: Path, found: Found) -> None:
    """Say what was found, in place of what was found before and not seen."""
    write_whole(folder / _FOUND, msgspec.json.encode(found))
