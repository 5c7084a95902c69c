"""How pytest-xdist gives test files to processes: a test that ends its process fails, and all others still run.

The scheduler of ``--dist loadfile`` (pytest-xdist 3.8) would run that test again in every process that replaces the one
that died, and a new process waits for ever where it is given a single test: it starts one only when it knows the next.
"""

from __future__ import annotations

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


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
        super()._reschedule(node)
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            if self.workqueue:
                self._assign_work_unit(node)
            else:
                node.shutdown()  # it runs what it has, then ends
