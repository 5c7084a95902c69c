"""Time and utilization of a kernel on a GPU: a roofline with wave quantization over its multiprocessors (SMs).

A kernel is a grid of thread blocks. An SM holds as many blocks as its threads, registers, shared memory and block
slots allow; the others wait, so blocks come in waves, and the last wave leaves SMs idle. A block that sums over k loads
some terms at a time and waits for them; other blocks of its SM compute meanwhile. All SMs together are not faster than
the memory (Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from hios.core.costs import BlockResources
from hios.platforms.model.descriptions import BLOCK_REGISTERS, BLOCK_THREADS, Gpu
from hios.platforms.model.kernel_work import Kernel, MatrixProduct, Streaming
from hios.platforms.occupancy import mean_share


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of a matrix product that one thread block computes: m x n results.

    The tiles are those in the names of cuDNN's and cuBLAS's kernels, such as volta_scudnn_128x64_relu. A thread keeps
    its results in registers and needs some 64 more for operands and addresses.
    """

    m: int
    n: int
    threads: int

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        return self.m * self.n // self.threads + 64

    def shared_bytes(self, terms: int, stages: int, dtype: str) -> int:
        """Shared memory of a block that holds so many terms of the sums at a time, each stage a buffer."""
        return (2 if dtype in _HALF else 4) * stages * terms * (self.m + self.n)


#: Types of two bytes.
_HALF = ("float16", "bfloat16")
#: What a library can choose from; it takes the fastest.
TILES = (
    Tile(128, 128, 256),
    Tile(128, 64, 128),
    Tile(128, 32, 128),
    Tile(64, 64, 128),
    Tile(64, 32, 128),
    Tile(32, 32, 128),
)


#: Terms of the sums that a block loads at a time, and buffers for them in shared memory. FP32 kernels: SGEMM loads
#: eight terms into one of two buffers (Lai, Seznec: CGO 2013).
FP32_PIPELINE = (8, 2)
#: Kernels on tensor cores: 32 terms, three buffers filled by asynchronous copies (CUTLASS's usual threadblock shapes).
TENSOR_PIPELINE = (32, 3)

#: Microseconds between kernels of a CUDA graph, and of a stream: what 3.4 and 3.8 us a kernel leave of a kernel of
#: 2.9 us (NVIDIA technical blog, "Getting Started with CUDA Graphs", 2019, V100).
GRAPH_LAUNCH_US, STREAM_LAUNCH_US = 0.5, 0.9
#: By the option ``launches``.
LAUNCH_US = {"graph": GRAPH_LAUNCH_US, "streams": STREAM_LAUNCH_US}


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The parameters.

    Attributes:
        start_us: microseconds that an empty kernel takes. Fitted.
        step_latency_cycles: clock cycles from asking for the next terms of a sum to having them in registers, which a
            block spends waiting unless other blocks of its SM compute meanwhile. Fitted.
        memory_share: bytes a second over the datasheet's, without counting what caches keep. Fitted.
        streaming_share: operations a second of depthwise filters and pooling over the peak. Fitted.
        contraction_share: multiply-adds a second over the peak, for an SM with enough blocks: what large products
            reach in cuBLAS and cuDNN. Assumed.
        winograd_share: speed of Winograd's algorithm over what its fewer products allow: 1.8 of 2.25 times. Assumed;
            Lavin and Gray (arXiv:1509.09308, section 7) measure 1.5 to 2.
        memory_latency_us: microseconds that a dependent access to memory takes (Jia et al., arXiv:1804.06826,
            section 3: some 400 to 1000 cycles).
        launch_us: microseconds between kernels.
        stage_us: microseconds of every group of a stage beyond the first: its start, and waiting for it. Fitted.
        sync_us: microseconds from a kernel to one on another stream that waits for it. Fitted.
        memory_pressure: memory bandwidth that a kernel takes from others, over what its bytes would take at
            ``memory_share``: side by side, kernels find less in caches. Fitted.
        split_terms: terms of a sum that a product of matrices leaves to each block at least when sums are split.
    """

    start_us: float = 2.5
    step_latency_cycles: float = 655.0
    memory_share: float = 0.37
    streaming_share: float = 0.026
    contraction_share: float = 0.9
    winograd_share: float = 0.8
    memory_latency_us: float = 0.6
    launch_us: float = GRAPH_LAUNCH_US
    stage_us: float = 13.0
    sync_us: float = 8.6
    memory_pressure: float = 1.85
    split_terms: int = 256


#: The parameters of predictions, unless a benchmark tries others.
DEFAULT_EFFICIENCY = Efficiency()


#: Products in Winograd's algorithm F(2x2, 3x3) over those in the plain sum (Lavin, Gray: arXiv:1509.09308, 4.1).
_WINOGRAD = 16 / 36
#: Parts that the sums of a product of matrices are split into (split-K of cuBLAS; cuDNN's convolutions have none).
_PARTS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The predicted time of a kernel, and the share of the GPU it occupies.

    Attributes:
        us: microseconds, without the pause before the next kernel.
        utilization: its blocks over what the GPU holds at once, in (0, 1].
        resources: what one of its blocks needs.
        slots_us, compute_us, memory_us: microseconds of the whole GPU's room for blocks, arithmetic and memory
            bandwidth that it takes. Kernels start one after another, so a start takes all of the room.
    """

    us: float
    utilization: float
    resources: BlockResources
    slots_us: float
    compute_us: float
    memory_us: float


def predict(kernel: Kernel, gpu: Gpu, efficiency: Efficiency) -> Prediction:
    """The fastest way in which a GPU can run a kernel."""
    if isinstance(kernel, Streaming):
        return _streaming(kernel, gpu, efficiency)
    return min(_ways(kernel, gpu, efficiency), key=lambda way: way.us)


def _streaming(kernel: Streaming, gpu: Gpu, efficiency: Efficiency) -> Prediction:
    blocks = max(1, math.ceil(kernel.elements / BLOCK_THREADS))
    asked = BlockResources(0, BLOCK_REGISTERS, BLOCK_THREADS)
    held = gpu.sms * gpu.room.held(asked)
    busy = min(1.0, blocks / gpu.sms)
    rate = gpu.fp32_tflops * 1e6 * efficiency.streaming_share * busy
    waiting = math.ceil(blocks / held) * efficiency.memory_latency_us
    memory_us = _memory_us(kernel.bytes, gpu, efficiency)
    running_us = waiting + max(memory_us, kernel.operations / rate)
    return Prediction(
        efficiency.start_us + running_us,
        min(1.0, blocks / held),
        asked,
        efficiency.start_us + running_us * mean_share(blocks, held),
        kernel.operations / rate * busy,
        memory_us,
    )


def _ways(kernel: MatrixProduct, gpu: Gpu, efficiency: Efficiency) -> Iterator[Prediction]:
    """A contraction on FP32 and tensor cores, with every tile, direct and by the Winograd algorithm."""
    parts = (1,) if kernel.window else _PARTS
    lanes = float(gpu.fp32_lanes_per_sm)
    plain = [(FP32_PIPELINE, lanes, kernel.k, 1.0)]
    if kernel.dense and kernel.window == (3, 3):
        plain.append((FP32_PIPELINE, lanes, round(kernel.k * _WINOGRAD), efficiency.winograd_share))
    tensor = gpu.tensor_lanes(kernel.dtype, convolution=bool(kernel.window))
    ways = [*plain, *([(TENSOR_PIPELINE, tensor, kernel.k, 1.0)] if tensor else [])]
    for (loaded, buffers), lanes, terms, share in ways:
        for tile in TILES:
            cycles = tile.m * tile.n * loaded / (lanes * efficiency.contraction_share * share)
            for number in parts:
                if number == 1 or terms >= number * efficiency.split_terms:
                    loads = math.ceil(math.ceil(terms / number) / loaded)
                    shared_bytes = tile.shared_bytes(loaded, buffers, kernel.dtype)
                    yield _tiled(kernel, loads, number, tile, shared_bytes, cycles, gpu, efficiency)


def _tiled(
    kernel: MatrixProduct,
    loads: int,
    parts: int,
    tile: Tile,
    shared_bytes: int,
    step_cycles: float,
    gpu: Gpu,
    efficiency: Efficiency,
) -> Prediction:
    """A contraction in tiles.

    A block loads terms of its sums ``loads`` times, for each of which its SM computes ``step_cycles``. Every sum is
    split into ``parts``, which a second kernel adds up where there are several.
    """
    asked = BlockResources(shared_bytes, tile.registers * tile.threads, tile.threads)
    resident = max(1, gpu.room.held(asked))
    blocks = max(1, parts * kernel.batch * math.ceil(kernel.m / tile.m) * math.ceil(kernel.n / tile.n))
    waves, rest = divmod(math.ceil(blocks / gpu.sms), resident)
    cycles = sum(
        count * max(efficiency.step_latency_cycles + step_cycles, held * step_cycles)
        for count, held in ((waves, resident), (1, rest))
        if held
    )
    compute_us = loads * cycles / gpu.clock_mhz
    added = 0 if parts == 1 else 4 * kernel.batch * kernel.m * kernel.n * (parts + 1)
    memory_us = _memory_us(kernel.bytes + added, gpu, efficiency)
    start_us, running_us = efficiency.start_us * min(parts, 2), max(compute_us, memory_us)
    return Prediction(
        start_us + running_us,
        min(1.0, blocks / (gpu.sms * resident)),
        asked,
        start_us + running_us * mean_share(blocks, gpu.sms * resident),
        blocks * loads * step_cycles / (gpu.sms * gpu.clock_mhz),
        memory_us,
    )


def _memory_us(size: int, gpu: Gpu, efficiency: Efficiency) -> float:
    return size / (gpu.memory_bandwidth_gbs * efficiency.memory_share * 1e3)
