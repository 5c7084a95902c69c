"""Precision of float32: full while outputs are compared, and what timed runs in TF32 are held to."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from hios.frontends.tolerances import TF32_TOLERANCE, scaled
from hios.platforms.cuda import precision
from hios.platforms.cuda.precision import exactly, uses_tf32
from tests.platforms.torch_precision import float32_precision


def test_full_precision_ends_with_the_block() -> None:
    """Within, neither convolutions nor matrix products may use TF32; afterwards all is as it was, errors or not."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32
    assert cudnn.allow_tf32  # as torch has it by default; $TORCH_ALLOW_TF32_CUBLAS_OVERRIDE decides on products
    with pytest.raises(ValueError, match="within"):
        _fail_within()
    assert (cudnn.allow_tf32, matmul.allow_tf32) == before


def _fail_within() -> None:
    with exactly():
        assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == (False, False)
        raise ValueError("within")


@pytest.mark.parametrize("where", ["", "cuda.matmul", "cudnn", "cudnn.conv"])
@pytest.mark.parametrize("value", ["tf32", "ieee"])
def test_precision_set_by_operator(where: str, value: str) -> None:
    """Torch refuses to say what ``allow_tf32`` is where ``fp32_precision`` was set to something else."""
    with float32_precision(where, value):
        before = precision.precisions()
        with exactly():
            assert "tf32" not in precision.precisions().values()
            assert not uses_tf32([9])
        assert precision.precisions() == before
    with float32_precision("", "ieee"):  # operators without one of their own follow
        assert precision.precisions()["matmul"] == "ieee"


@pytest.mark.parametrize(("majors", "expected"), [([7], False), ([8], True), ([7, 9], True)])
def test_who_uses_tf32(majors: list[int], expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs from compute capability 8.0 on, unless it is switched off."""
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    assert uses_tf32(majors) == expected
    with exactly():
        assert not uses_tf32(majors)


@pytest.mark.parametrize(("value", "expected"), [("0", False), ("1", True)])
def test_the_driver_may_be_told_to_leave_tf32_alone(
    monkeypatch: pytest.MonkeyPatch, value: str, expected: bool
) -> None:
    """NVIDIA's libraries read that from a variable, which torch does not know of."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", value)
    assert uses_tf32([9]) == expected


@pytest.mark.parametrize(
    ("value", "within"),
    [(100.0, True), (99.0, True), (95.0, False), (math.nan, False), (math.inf, False)],
)
def test_tolerance_is_a_share_of_the_largest_value(value: float, within: bool) -> None:
    """Small values of an output may be off by as much as rounding changes its large ones, but no more."""
    expected = torch.tensor([100.0, 0.0, math.nan, -math.inf])
    off, fine = scaled(torch.tensor([value, 1.0, math.nan, -math.inf]), expected, TF32_TOLERANCE)
    assert fine == within
    if within:
        assert off == pytest.approx(max(abs(value - 100.0), 1.0), rel=1e-3)


def test_whole_numbers_are_not_rounded() -> None:
    """Outputs that are whole numbers, such as indices, have to be right."""
    expected = torch.tensor([1 << 40, 7])
    assert scaled(expected.clone(), expected, TF32_TOLERANCE) == (0.0, True)
    assert not scaled(expected + torch.tensor([0, 1]), expected, TF32_TOLERANCE)[1]


@pytest.mark.parametrize(("each_ms", "runs"), [(1, 5), (2, 3), (40, 1)])
def test_untimed_runs_last_as_long_as_clocks_need(monkeypatch: pytest.MonkeyPatch, each_ms: int, runs: int) -> None:
    """Ahead of a timed run there are 5 ms of others, however short, and one at least."""
    now_ns = [0]
    monkeypatch.setattr(precision, "time", SimpleNamespace(perf_counter_ns=lambda: now_ns[-1]))
    precision.keep_busy(lambda: now_ns.append(now_ns[-1] + each_ms * 1_000_000))
    assert len(now_ns) - 1 == runs
