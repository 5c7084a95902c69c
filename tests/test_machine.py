"""What hios says of the machine."""

from __future__ import annotations

import os
import subprocess
import sys

from hios import machine


def test_usable_cores_are_those_of_the_process() -> None:
    """Every core that the process may use is listed once."""
    assert sorted(machine.usable_cores()) == sorted(os.sched_getaffinity(0))


def test_busy_core_is_seen() -> None:
    """A core that another process keeps busy is busy for most of the time."""
    core = machine.usable_cores()[-1]
    code = f"import os\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        share = machine.busy_share([core])
        other.kill()
    assert share > 0.5


def test_processor_has_a_name() -> None:
    """The processor is named for the report."""
    assert machine.processor()
