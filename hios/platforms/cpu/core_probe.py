"""The probe on cores, called through the worker pool: convolutions as the engine runs them, and a copy through memory.

Shapes are those of three kinds of convolutions in Inception-v3 and NASNet-A large. Their filters and images stay in a
core's own cache, so that they show its clock; the copy is larger than most caches, and shows memory that cores share.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.kernels.onednn import as_made, is_packable, packed_convolution
from hios.workers.process_settings import keep_memory
from hios.workers.worker import Worker

#: Channels in, channels out, filter, image and groups of each convolution, all of stride 1 with padding.
_CONVOLUTIONS = ((64, 96, 3, 35, 1), (768, 192, 1, 17, 1), (168, 168, 5, 42, 168))
#: Bytes that are copied: more than a core's own cache holds.
_COPIED = 16 << 20
#: Passes of one call. The first one does not count: caches contain other data, and the core may have been idle. The
#: result is the mean of the others, not the median: occasional interruptions are part of a core's speed.
_WARMUP, _PASSES = 1, 3

#: Version of the probe: times of different versions are not compared.
VERSION = "cpu-1"
#: Floating-point operations of the convolutions, a multiply-add as two.
FLOPS = sum(2 * out * (into // groups) * size**2 * image**2 for into, out, size, image, groups in _CONVOLUTIONS)
#: Bytes that the copy reads and writes.
NBYTES = 2 * _COPIED


class _CoreProbe:
    """The work, ready to run: weights and values are the same everywhere."""

    def __init__(self) -> None:
        keep_memory()  # as in measuring and executing
        generator = torch.Generator().manual_seed(0)
        self._convolutions = [_convolution(*shape, generator) for shape in _CONVOLUTIONS]
        self._source = torch.ones(_COPIED, dtype=torch.uint8)
        self._target = torch.ones(_COPIED, dtype=torch.uint8)
        self.pass_ms()  # filters are packed at the first run

    def pass_ms(self) -> tuple[float, float]:
        """Milliseconds of all convolutions, and of the copy."""
        began = time.perf_counter_ns()
        for run in self._convolutions:
            run()
        between = time.perf_counter_ns()
        self._target.copy_(self._source)
        return (between - began) / 1e6, (time.perf_counter_ns() - between) / 1e6


def time_probe(worker: Worker) -> tuple[float, float]:
    """Milliseconds of the probe's convolutions and of its copy, each the mean of some passes."""
    if "probe" not in worker.state:
        worker.state["probe"] = _CoreProbe()
    probe: _CoreProbe = worker.state["probe"]
    passes = [probe.pass_ms() for _ in range(_WARMUP + _PASSES)][_WARMUP:]
    return statistics.fmean(compute for compute, _ in passes), statistics.fmean(copy for _, copy in passes)


def _convolution(
    into: int, out: int, size: int, image: int, groups: int, generator: torch.Generator
) -> Callable[[], Tensor]:
    """A convolution with ReLU of one image, prepared as the engine prepares those of a network."""
    weight = torch.randn(out, into // groups, size, size, generator=generator)
    bias = torch.randn(out, generator=generator)
    values = as_made(torch.randn(1, into, image, image, generator=generator))
    if not is_packable(weight):  # torch without oneDNN
        return lambda: F.relu(F.conv2d(values, weight, bias, padding=size // 2, groups=groups))
    attributes = {"strides": (1, 1), "dilation": (1, 1), "padding": (size // 2,) * 4, "groups": groups}
    packed = packed_convolution(attributes, weight, bias, "relax.nn.relu")
    return lambda: packed(values)
