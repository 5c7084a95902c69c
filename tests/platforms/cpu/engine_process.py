"""A process that makes an engine in a thread that ends, and says who its workers are; tests of the engine run it.

Its argument is ``exit``, to end as a program does that forgets the engine, ``wait``, to wait for a line of input, or
``interrupted``, to make the engine in the main thread, say that this was interrupted and wait for a line of input.
"""

from __future__ import annotations

import sys
import threading

from hios.platforms.cpu.engine import Engine
from tests.runtime.small import branches, small_engine
from tests.workers.processes import children


def main() -> None:
    """Print the workers, run the network, and print whether that went well; or be interrupted."""
    if sys.argv[1] == "interrupted":
        _say("starts")
        try:
            small_engine()
            sys.stdin.readline()  # where the interrupt is late
        except KeyboardInterrupt:
            _say("interrupted")
        sys.stdin.readline()
        return
    made: list[Engine] = []
    thread = threading.Thread(target=lambda: made.append(small_engine()))
    thread.start()
    thread.join()
    _say(" ".join(map(str, children())))
    if sys.argv[1] == "wait":
        sys.stdin.readline()
    _say(str(len(made[0].run("both", branches().inputs))))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
