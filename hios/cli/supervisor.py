"""A step of the pipeline ends when the Snakemake that runs it does, however that ends.

Snakemake that is killed alone cannot end its steps; they would run on beside those of the next start.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from pathlib import Path

import click

#: Process number of Snakemake, which workflow/rules/common.smk sets for the commands of the rules.
VARIABLE = "HIOS_ENDS_WITH"

#: Seconds for an interrupted command to end its workers and remove unfinished files.
_GRACE_S = 5.0
_INTERRUPTED = 130


def end_with_supervisor() -> None:
    """Interrupt this process once the one that ``$HIOS_ENDS_WITH`` names has ended, if that started it.

    The number counts only among the ancestors: it may be one of another machine or container, whose environment a job
    inherits.
    """
    text = os.environ.get(VARIABLE, "")
    if not text.isdecimal() or len(text) > 9 or not hasattr(os, "pidfd_open"):
        return
    if int(text) not in _ancestors():
        return
    try:
        descriptor = os.pidfd_open(int(text))
    except OSError:  # it has ended meanwhile; without it nobody is left to watch for
        return
    threading.Thread(target=_end_after, args=(descriptor,), name="supervisor", daemon=True).start()


def _end_after(descriptor: int) -> None:
    ended = select.poll()
    ended.register(descriptor, select.POLLIN)
    ended.poll()
    click.echo("Snakemake has ended; so does this step", err=True)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(_GRACE_S)
    os._exit(_INTERRUPTED)  # it ignores interrupts, or is deep in a library


def _ancestors() -> set[int]:
    """Process numbers of the parent, its parent and so on."""
    found: set[int] = set()
    process = os.getppid()
    while process > 0 and process not in found:
        found.add(process)
        try:
            status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            break
        process = int(status.rpartition(")")[2].split()[1])  # the name in parentheses may contain any characters
    return found
