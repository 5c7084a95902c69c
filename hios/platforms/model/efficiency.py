"""The share of peak values that kernels reach: one set of parameters for all GPUs, networks and operators.

Four are fitted together to the latencies that the papers print; ``benchmarks/model_validation.py --fit`` repeats the
fit and cross-validates it. The sources of the others are stated in comments.
"""

from __future__ import annotations

from dataclasses import dataclass


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

    def shared_bytes(self, terms: int, stages: int) -> int:
        """Shared memory of a block that holds so many terms of the sums at a time, each stage a buffer (float32)."""
        return 4 * stages * terms * (self.m + self.n)


#: What a library can choose from; it takes the fastest.
TILES = (
    Tile(128, 128, 256),
    Tile(128, 64, 128),
    Tile(128, 32, 128),
    Tile(64, 64, 128),
    Tile(64, 32, 128),
    Tile(32, 32, 128),
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How a kernel moves operands from memory to the multipliers.

    Attributes:
        terms: of the sums that a block loads at a time.
        stages: buffers in shared memory.
    """

    terms: int
    stages: int


#: FP32 kernels: SGEMM loads eight terms of the sums at a time, into one of two buffers (Lai, Seznec: CGO 2013).
FP32_PIPELINE = Pipeline(8, 2)
#: Kernels on tensor cores: 32 terms, three buffers filled by asynchronous copies (CUTLASS's usual threadblock shapes).
TENSOR_PIPELINE = Pipeline(32, 3)

#: Microseconds between kernels of a CUDA graph, and of a stream: what 3.4 and 3.8 us a kernel leave of a kernel of
#: 2.9 us (NVIDIA technical blog, "Getting Started with CUDA Graphs", 2019, V100).
GRAPH_LAUNCH_US, STREAM_LAUNCH_US = 0.5, 0.9


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The parameters.

    Attributes:
        start_us: microseconds that a kernel takes without any work. Fitted.
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
    split_terms: int = 256


#: What predictions rest on unless a benchmark tries others.
DEFAULT = Efficiency()
