"""``hios``, and ``python -m hios``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it in one line, and before that without a word (`hios.machine.interrupts`)."""
    try:
        from hios.cli import main as run  # takes a third of a second

        run()
    except KeyboardInterrupt:
        sys.stderr.write("Aborted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
