"""How pytest-xdist gives test files to processes: a test that ends its process fails, and all others still run.

The scheduler of ``--dist loadfile`` (pytest-xdist 3.8) would run that test again in every process that replaces the one
that died, and a new process waits for ever where it is given a single test: it starts one only when it knows the next.
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


def trace(folder: Path, process: str) -> Path:
    """The file in which a process of tests leaves where it was when a signal ended it."""
    return folder / f"{process}.trace"


def ending(node: WorkerController, folder: Path) -> str:
    """How a process of tests ended, and where it was then if it was a signal that Python sees."""
    code = node.gateway._io.popen.wait(60)
    how = f"it ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit status {code}"
    file = trace(folder, node.gateway.id)
    return f"{how}\n{file.read_text(encoding='utf-8') if file.exists() else ''}"


class Files(LoadFileScheduling):  # type: ignore[misc] # pytest-xdist is untyped
    """A file of tests to a process; what a process that died did not run goes to others."""

    def remove_node(self, node: WorkerController) -> str | None:
        """Take a process out, and its crashed test with it; the test, if it died in one."""
        workload = self.assigned_work[node]
        crashed = next((test for tests in workload.values() for test, done in tests.items() if not done), None)
        for file, tests in list(workload.items()):
            if crashed in tests:
                tests[crashed] = True
            if all(tests.values()):
                del workload[file]
        super().remove_node(node)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            return  # it took the place of one that died, and does not know the tests yet; it is given some when it does
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            if self.workqueue:
                self._assign_work_unit(node)
            else:
                node.shutdown()  # it runs what it has, then ends

    def _assign_work_unit(self, node: WorkerController) -> None:
        with contextlib.suppress(OSError):  # it has died, which is told next: what it was given goes to others then
            super()._assign_work_unit(node)
