"""A process that makes an engine in a thread that ends, and says who its workers are; tests of the engine run it.

Its argument is ``exit``, to end as a program does that forgets the engine, ``wait``, to wait for a line of input, or
``interrupted``, to make the engine in the main thread, say that this was interrupted and wait for a line of input.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from hios.platforms.cpu.engine import Engine
from hios.workers.pool import WorkerPool
from tests.runtime.small import branches, small_engine
from tests.workers.processes import children

#: Seconds that workers are kept from starting; an interrupt that comes later was kept from the program.
_KEPT_S = 300.0


def main() -> None:
    """Print the workers, run the network, and print whether that went well; or be interrupted."""
    if sys.argv[1] == "interrupted":
        _be_interrupted()
        return
    made: list[Engine] = []
    thread = threading.Thread(target=lambda: made.append(small_engine()))
    thread.start()
    thread.join()
    _say(" ".join(map(str, children())))
    if sys.argv[1] == "wait":
        sys.stdin.readline()
    _say(str(len(made[0].run("both", branches().inputs))))


def _be_interrupted() -> None:
    """Make an engine whose workers are there, but do not count as started before the interrupt."""
    gather, interrupted, late = WorkerPool._gather, threading.Event(), threading.Event()

    def kept(pool: WorkerPool, *arguments: Any) -> dict[int, Any]:
        if not interrupted.wait(_KEPT_S):
            late.set()
        return gather(pool, *arguments)

    WorkerPool._gather = kept  # type: ignore[method-assign, assignment]
    _say("starts")
    try:
        small_engine()
    except KeyboardInterrupt:
        interrupted.set()
    _say("interrupted" if interrupted.is_set() and not late.is_set() else "late")
    sys.stdin.readline()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
