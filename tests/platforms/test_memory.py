"""Memory that a device keeps."""

from __future__ import annotations

import subprocess
import sys

# A convolution and what follows it on the sizes of SqueezeNet's first operators; the second round counts.
_CODE = """
import resource, sys, torch
torch.set_num_threads(1)
if sys.argv[1] == "keep":
    from hios.platforms.memory import keep_memory
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


# Streams that take turns in making a tensor of 2048 pages, after a small one; those after the first stream count.
_STREAMS_CODE = """
import resource, sys, threading, torch
from hios.platforms.streams import Streams
if sys.argv[1] == "keep":
    from hios.platforms.memory import keep_memory
    keep_memory()
streams = Streams()
def take_turns(size):
    turns = [threading.Lock() for _ in range(5)]
    for turn in turns[1:]:
        turn.acquire()
    faults = []
    def stream(number):
        with turns[number]:
            x = torch.ones(size)
            del x
            faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
            turns[number + 1].release()
    done = streams.start([lambda number=number: stream(number) for number in range(4)])
    assert [done.get() for _ in range(4)] == [None] * 4
    return faults[-1] - faults[0]
take_turns(1024)
print(take_turns(2048 * 1024))
"""


def _faults(mode: str, code: str = _CODE) -> int:
    found = subprocess.run([sys.executable, "-c", code, mode], check=True, capture_output=True, text=True)
    return int(found.stdout)


def test_kept_memory_needs_no_new_pages() -> None:
    """Outputs of operators take their pages from what earlier ones let go; by default they get fresh ones."""
    assert _faults("keep") < 1000 < _faults("plain")


def test_streams_use_each_others_memory() -> None:
    """A stream takes pages from what another let go; by default every thread gets fresh ones."""
    assert _faults("keep", _STREAMS_CODE) < 1000 < _faults("plain", _STREAMS_CODE)
