"""Memory that a device keeps."""

from __future__ import annotations

import pytest

from tests.scripts import printed

# A convolution and what follows it on the sizes of SqueezeNet's first operators; the second round counts. Then malloc's
# account of its arenas after four streams made tensors, one <heap> for each arena.
_CODE = """
import ctypes, resource, sys, threading, torch
from hios.workers.stream_threads import Streams
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
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
together = threading.Barrier(4)
def stream():
    together.wait(60)
    torch.ones(1 << 20)
done = Streams().start([stream] * 4)
assert [done.get() for _ in range(4)] == [None] * 4
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"a"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def _pages_and_arenas(mode: str) -> tuple[int, int]:
    """Pages that the second round needed, and arenas of malloc."""
    text = printed("-c", _CODE, mode, MALLOC_ARENA_MAX="")  # one arena, as some set it, would be no default
    return int(text.splitlines()[0]), text.count("<heap ")


@pytest.mark.slow
def test_kept_memory() -> None:
    """Outputs of operators take their pages from what earlier ones let go, and streams have one malloc arena.

    So one stream can reuse what another freed. By default outputs get fresh pages, and each stream has its own arena.
    """
    pages, arenas = _pages_and_arenas("keep")
    plain_pages, plain_arenas = _pages_and_arenas("plain")
    assert pages < 1000 < plain_pages
    assert arenas == 1 < plain_arenas
