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


def _faults(mode: str) -> int:
    found = subprocess.run([sys.executable, "-c", _CODE, mode], check=True, capture_output=True, text=True)
    return int(found.stdout)


def test_kept_memory_needs_no_new_pages() -> None:
    """Outputs of operators take their pages from what earlier ones let go; by default they get fresh ones."""
    assert _faults("keep") < 1000 < _faults("plain")
