"""A parent process for a rank under mpirun.

mpirun drops all output once one of its processes has ended, and with it the line that says which rank died. Therefore,
the process that mpirun started only waits for its child, which does the work, and ends a moment after it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

from hios.workers.process_settings import end_with_parent

#: How long the end of a failed rank is hidden from mpirun: longer than rank 0 takes to print the reason.
_HOLD_S = 1.0


def guard() -> None:
    """Continue in a child process; the parent ends as the child does. Must be called before threads are started."""
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        end_with_parent(parent)
        return

    def forward(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, forward)
    # The child stays a zombie until the parent ends too, so that its process ID is not reused.
    status = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    killed = status is not None and status.si_code != os.CLD_EXITED
    code = 1 if status is None else 128 + status.si_status if killed else status.si_status
    if code:
        time.sleep(_HOLD_S)
    os._exit(code)
