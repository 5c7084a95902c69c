"""Times and utilizations of kernels on GPUs."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hios.platforms.model.descriptions import Gpu, gpu, gpu_names
from hios.platforms.model.kernel_work import MatrixProduct, Streaming
from hios.platforms.model.roofline import DEFAULT_EFFICIENCY, Efficiency, predict

#: A GPU whose numbers make sums easy: 10 SMs of 64 lanes at 1000 MHz, memory of 100 GB/s.
EASY = Gpu(
    path=Path("easy.yaml"),
    label="easy",
    name="easy",
    compute_capability="7.0",
    sms=10,
    clock_mhz=1000.0,
    fp32_lanes_per_sm=64,
    memory_bandwidth_gbs=100.0,
    threads_per_sm=2048,
    blocks_per_sm=32,
    registers_per_sm=65536,
    shared_memory_per_sm_kb=96,
    links={"pcie": "pcie3"},
)
IDEAL = Efficiency(
    start_us=0.0,
    step_latency_cycles=0.0,
    memory_share=1.0,
    streaming_share=1.0,
    contraction_share=1.0,
    winograd_share=1.0,
    memory_latency_us=0.0,
    launch_us=0.0,
)
_SIZES = st.integers(1, 4096)
_GPUS = st.sampled_from(gpu_names())


def product(m: int, n: int, k: int, dtype: str = "float32") -> MatrixProduct:
    """A product of matrices, as a convolution of single pixels."""
    return MatrixProduct(1, m, n, k, 4 * (m * k + k * n + m * n), (1, 1), True, dtype)


def test_convolution_by_hand() -> None:
    """32 x 32 results of sums over 80, one tile of 32 x 32: ten loads of 8 terms, each 32*32*8/64 = 128 cycles.

    Every larger tile takes longer, as its block alone computes more. At 1000 MHz that is 1.28 us; the memory would need
    4 * (32*80 + 80*32 + 32*32) bytes / 100 GB/s = 0.246 us. An SM holds 7 blocks of 128 threads with 72 registers.
    """
    prediction = predict(product(32, 32, 80), EASY, IDEAL)
    assert prediction.us == pytest.approx(1.28)
    assert prediction.utilization == pytest.approx(1 / (10 * 7))


def test_waiting_for_operands_by_hand() -> None:
    """A block alone on its SM waits 100 cycles for each of ten loads; 7 blocks on an SM hide that."""
    efficiency = replace(IDEAL, step_latency_cycles=100.0, start_us=2.0)
    assert predict(product(32, 32, 80), EASY, efficiency).us == pytest.approx(2.0 + 10 * (100 + 128) / 1000)


def test_streaming_by_hand() -> None:
    """2560 elements in ten blocks, one an SM: 2560 * 8 bytes at 100 GB/s, after 0.5 us for the only wave."""
    efficiency = replace(IDEAL, memory_latency_us=0.5, start_us=1.0)
    prediction = predict(Streaming(2560, 2560, 2560 * 8), EASY, efficiency)
    assert prediction.us == pytest.approx(1.0 + 0.5 + 0.2048)
    assert prediction.utilization == pytest.approx(10 / (10 * 8))


def test_waves_are_steps() -> None:
    """As many tiles as SMs take no longer than one; one more tile takes another round on some SM."""
    assert all(predict(product(32 * tiles, 32, 800), EASY, IDEAL).us == pytest.approx(12.8) for tiles in (1, 2, 10))
    assert predict(product(32 * 11, 32, 800), EASY, IDEAL).us == pytest.approx(25.6)
    assert predict(product(32 * 20, 32, 800), EASY, IDEAL).us == pytest.approx(25.6)


def test_winograd_is_for_three_by_three() -> None:
    """A dense 3x3 convolution needs 16 products where the plain sum has 36; others get nothing."""
    dense = MatrixProduct(1, 4096, 512, 512 * 9, 1, (3, 3), True, "float32")
    plain = replace(dense, dense=False)
    assert predict(dense, EASY, IDEAL).us == pytest.approx(predict(plain, EASY, IDEAL).us * 16 / 36)


def test_large_product_reaches_the_peak() -> None:
    """With everything ideal, a large product takes its operations over the FP32 rate."""
    kernel = product(12800, 1280, 4096)
    assert predict(kernel, EASY, IDEAL).us == pytest.approx(kernel.flops / (EASY.fp32_tflops * 1e6), rel=0.01)


def test_tensor_cores_take_float16() -> None:
    """A large product in float16 is faster than in float32 where there are tensor cores."""
    v100 = gpu("v100-sxm2")
    single, half = (
        predict(product(4096, 4096, 4096, dtype), v100, DEFAULT_EFFICIENCY).us for dtype in ("float32", "float16")
    )
    assert half < single / 3


def test_tensor_cores_know_bfloat16_from_ampere_on() -> None:
    """Those of Volta and Turing do not: such products run on FP32 cores, in the time of float32."""
    assert gpu("v100-sxm2").tensor_lanes("bfloat16", convolution=False) == 0.0
    assert gpu("rtx2080-ti").tensor_lanes("bfloat16", convolution=False) == 0.0
    a100 = gpu("a100-pcie-40gb")
    assert a100.tensor_lanes("bfloat16", convolution=False) == a100.tensor_lanes("float16", convolution=False) > 0


@pytest.mark.parametrize("name", gpu_names())
def test_a_block_of_the_fastest_tile_fits(name: str) -> None:
    """An SM holds one at least, whatever the type: numbers of two bytes take half as much shared memory."""
    for dtype in ("float32", "float16"):
        chosen = predict(product(4096, 4096, 4096, dtype), gpu(name), DEFAULT_EFFICIENCY)
        assert gpu(name).room.held(chosen.resources) >= 1


@pytest.mark.parametrize("kernel", [Streaming(0, 0, 0), product(0, 8, 8), product(8, 8, 0)])
def test_kernels_without_elements_take_a_launch(kernel: Streaming | MatrixProduct) -> None:
    """Of tensors without elements: the time of a kernel that hardly does anything."""
    assert 0 < predict(kernel, gpu("a40"), DEFAULT_EFFICIENCY).us < 10


def test_split_sums_fill_the_gpu() -> None:
    """A product with few results and long sums is split, unlike a convolution."""
    convolution = product(32, 32, 32768)
    matrices = replace(convolution, window=())
    prediction = predict(matrices, EASY, DEFAULT_EFFICIENCY)
    assert prediction.us < predict(convolution, EASY, DEFAULT_EFFICIENCY).us
    assert prediction.utilization > predict(convolution, EASY, DEFAULT_EFFICIENCY).utilization


@given(_GPUS, _SIZES, _SIZES, _SIZES, st.sampled_from(["m", "n", "k", "bytes", "batch"]), st.integers(1, 4))
def test_more_work_takes_no_less(name: str, m: int, n: int, k: int, what: str, factor: int) -> None:
    """Time never falls as operations or bytes grow, and utilization is in (0, 1]."""
    kernel = product(m, n, k)
    larger = replace(kernel, **{what: factor * getattr(kernel, what)})
    prediction, more = (predict(work, gpu(name), DEFAULT_EFFICIENCY) for work in (kernel, larger))
    assert 0 < prediction.us <= more.us * (1 + 1e-12)
    assert math.isfinite(more.us)
    assert 0 < prediction.utilization <= 1
    assert 0 < more.utilization <= 1


@given(_GPUS, st.integers(1, 10**7), st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 4))
def test_streaming_more_takes_no_less(name: str, elements: int, operations: int, size: int, factor: int) -> None:
    """The same of kernels with a thread an element."""
    prediction = predict(Streaming(elements, operations, size), gpu(name), DEFAULT_EFFICIENCY)
    for more in (Streaming(elements, factor * operations, size), Streaming(elements, operations, factor * size)):
        assert 0 < prediction.us <= predict(more, gpu(name), DEFAULT_EFFICIENCY).us
    assert 0 < prediction.utilization <= 1
