"""Ctrl-C before a command of hios begins ends its process silently, where Python would print a traceback of imports.

`hios` imports this module before any other. It changes nothing if hios is used as a library, in workers, or if
interrupts are ignored, as in a background job of a shell script.
"""

from __future__ import annotations

import signal
import sys

_COMMAND = "hios"


def is_command() -> bool:
    """Whether this process is ``hios ...`` or ``python -m hios ...``, not one that it started to share its work."""
    given = sys.argv[0] if getattr(sys, "argv", None) else ""
    if given == "-m":  # while Python looks for the module
        return ("-m", _COMMAND) in zip(sys.orig_argv, sys.orig_argv[1:], strict=False)
    # A process of multiprocessing is given the arguments of its parent, but was not started with them.
    return given.rpartition("/")[2] == _COMMAND and given in sys.orig_argv


def end_in_silence() -> bool:
    """Let an interrupt end the process if it is a command, which has not begun any work. Returns whether it is."""
    if not is_command() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return False
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return True


def raise_again() -> None:
    """Let an interrupt raise KeyboardInterrupt again, so that unfinished work is cleaned up."""
    if _SILENT:
        signal.signal(signal.SIGINT, signal.default_int_handler)


_SILENT = end_in_silence()
