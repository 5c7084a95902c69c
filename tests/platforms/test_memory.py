"""Memory that a device keeps."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
import resource, sys, torch
if sys.argv[1] == "keep":
    from hios.platforms.memory import keep_memory
    keep_memory()
def make():
    for _ in range(50):
        together = [torch.ones(2 << 20) for _ in range(6)]
        del together
make()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
make()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _faults(mode: str) -> int:
    found = subprocess.run([sys.executable, "-c", _CODE, mode], check=True, capture_output=True, text=True)
    return int(found.stdout)


def test_kept_memory_needs_no_new_pages() -> None:
    """Tensors of 8 MiB, made and let go six at a time, take their pages from what was freed before."""
    assert _faults("keep") < 1000 < _faults("plain")
