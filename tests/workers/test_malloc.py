"""Memory that a device keeps."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A convolution and what follows it on the sizes of SqueezeNet's first operators; the second round counts.
_CODE = """
import resource, sys, torch
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    from hios.workers.process_settings import keep_memory
    keep_memory()
image, weight = torch.randn(1, 3, 224, 224), torch.randn(96, 3, 7, 7)
held = []
def infer():
    for _ in range(20):
        x = torch.relu_(torch.conv2d(image, weight, None, 2))
        y = torch.max_pool2d(x, 3, 2)
        del x
        held[:] = [torch.relu(y)]
        del y
with torch.inference_mode():
    infer()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    infer()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


# malloc's account of its arenas after four streams made tensors, one <heap> for each arena.
_STREAMS_CODE = """
import ctypes, sys, threading, torch
from hios.workers.stream_threads import Streams
if sys.argv[1] == "keep":
    from hios.workers.process_settings import keep_memory
    keep_memory()
together = threading.Barrier(4)
def stream():
    together.wait(60)
    torch.ones(1 << 20)
done = Streams().start([stream] * 4)
assert [done.get() for _ in range(4)] == [None] * 4
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def _printed(code: str, mode: str) -> str:
    return subprocess.run([sys.executable, "-c", code, mode], check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_kept_memory_needs_no_new_pages() -> None:
    """Outputs of operators take their pages from what earlier ones let go; by default they get fresh ones."""
    assert int(_printed(_CODE, "keep")) < 1000 < int(_printed(_CODE, "plain"))


@pytest.mark.slow
def test_streams_share_an_arena() -> None:
    """Streams allocate from one malloc arena, so that one can reuse what another freed; by default each has its own."""
    assert _printed(_STREAMS_CODE, "keep").count("<heap ") == 1 < _printed(_STREAMS_CODE, "plain").count("<heap ")
