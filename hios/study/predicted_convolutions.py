"""HIOS's convolution (figures 1 and 2) on GPUs that are not here, as the platform model predicts it."""

from __future__ import annotations

from dataclasses import dataclass

from hios.platforms.model.descriptions import Gpu, Link
from hios.platforms.model.kernel_work import Contraction
from hios.platforms.model.roofline import DEFAULT_EFFICIENCY, predict

_KERNEL = 5
_BYTES = 4


@dataclass(frozen=True, slots=True)
class PredictedConvolution:
    """A convolution on a GPU, and moving its output to another one.

    Attributes:
        alone_ms: of the convolution, with the pause before the next kernel.
        transfer_ms: of its output.
        output_bytes: of its output.
        utilization: share of the GPU that it occupies.
    """

    alone_ms: float
    transfer_ms: float
    output_bytes: int
    utilization: float


def convolution(pixels: int, channels: int, gpu: Gpu, link: Link) -> PredictedConvolution:
    """A convolution 5x5 of stride 1 in float32 on a GPU.

    Args:
        pixels: height and width of the image.
        channels: of image and output.
        gpu: that it runs on.
        link: over which its output is moved.
    """
    size = _BYTES * channels * pixels**2
    terms = channels * _KERNEL**2
    kernels = predict(
        Contraction(1, pixels**2, channels, terms, 2 * size, (_KERNEL, _KERNEL), True, "float32"),
        gpu,
        DEFAULT_EFFICIENCY,
    )
    return PredictedConvolution(
        (kernels.us + DEFAULT_EFFICIENCY.launch_us) / 1e3, link.time_ms(size), size, kernels.utilization
    )
