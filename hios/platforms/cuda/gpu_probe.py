"""The probe on GPUs, called through the worker pool: convolutions run by torch, and a copy within the GPU.

Its work keeps even the largest GPU busy for longer than the launches take, so it needs no CUDA graph.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import torch
from torch import Tensor

from hios.platforms.cuda.timed_graphs import between, marks_of
from hios.workers.worker import Worker

#: Batch, channels in, channels out, filter, image and groups of each convolution, all of stride 1 with padding.
_CONVOLUTIONS = ((32, 256, 256, 3, 28, 1), (64, 768, 192, 1, 17, 1), (64, 168, 168, 5, 42, 168))
#: Bytes that are copied: more than the largest cache of a GPU.
_COPIED = 256 << 20
#: Passes of one call: the first one runs while the others are launched, and the mean of the others counts.
_WARMUP, _PASSES = 1, 3
#: Calls are repeated until one takes more than this share of the time of the one before it, at most so many times.
_STEADY, _MOST_PASSES = 0.98, 20

#: Version of the probe: times of different versions are not compared.
VERSION = "cuda-1"
#: Floating-point operations of the convolutions, a multiply-add as two.
FLOPS = sum(
    2 * batch * out * (into // groups) * size**2 * image**2 for batch, into, out, size, image, groups in _CONVOLUTIONS
)
#: Bytes that the copy reads and writes.
NBYTES = 2 * _COPIED


class _GpuProbe:
    """The work of the probe on one GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._stream = device, torch.cuda.Stream(device)
        with torch.cuda.stream(self._stream), device:
            generator = torch.Generator(device).manual_seed(0)
            self._convolutions = [_convolution(device, generator, *shape) for shape in _CONVOLUTIONS]
            self._source = torch.ones(_COPIED, dtype=torch.uint8, device=device)
            self._target = torch.ones(_COPIED, dtype=torch.uint8, device=device)

    def means_ms(self) -> tuple[float, float]:
        """Milliseconds of all convolutions, and of the copy: means over the timed passes."""
        marks = marks_of(2 * (_WARMUP + _PASSES) + 1)
        # Trials of algorithms (cudnn.benchmark) could end otherwise in each session.
        cudnn = torch.backends.cudnn
        with (
            torch.cuda.stream(self._stream),
            self._device,
            cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=cudnn.allow_tf32),
        ):
            marks[0].record()
            for after_compute, after_copy in zip(marks[1::2], marks[2::2], strict=True):
                for run in self._convolutions:
                    run()
                after_compute.record()
                self._target.copy_(self._source, non_blocking=True)
                after_copy.record()
        times = between(marks)[2 * _WARMUP :]
        return statistics.fmean(times[::2]), statistics.fmean(times[1::2])


def time_probe(worker: Worker, gpu: int) -> tuple[float, float]:
    """Milliseconds of the probe's convolutions and of its copy on a GPU, each the mean of some passes."""
    probes: dict[int, _GpuProbe] = worker.state.setdefault("probes", {})
    if gpu not in probes:
        probes[gpu] = _GpuProbe(torch.device("cuda", gpu))
    means, before = probes[gpu].means_ms(), math.inf
    for _ in range(_MOST_PASSES):  # a GPU that had nothing to do becomes faster until its clock rates are up
        if means[0] > _STEADY * before:
            break
        before, means = means[0], probes[gpu].means_ms()
    return means


def _convolution(
    device: torch.device,
    generator: torch.Generator,
    batch: int,
    into: int,
    out: int,
    size: int,
    image: int,
    groups: int,
) -> Callable[[], Tensor]:
    weight = torch.randn(out, into // groups, size, size, generator=generator, device=device)
    values = torch.randn(batch, into, image, image, generator=generator, device=device)
    return lambda: torch.nn.functional.conv2d(values, weight, padding=size // 2, groups=groups)
