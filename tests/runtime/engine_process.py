"""A process that makes an engine in a thread that ends, and says who its workers are; tests of the engine run it.

Its argument is ``exit``, to end as a program does that forgets the engine, or ``wait``, to wait for a line of input.
"""

from __future__ import annotations

import sys
import threading

from hios.runtime.engine import Engine
from tests.platforms.processes import children
from tests.runtime.small import branches, small_engine


def main() -> None:
    """Print the workers, run the network, and print whether that went well."""
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
