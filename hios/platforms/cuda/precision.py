"""Precision and clock rate of timed runs: float32 in full for comparing outputs and as torch's default for timing.

By default torch lets cuDNN convolve in TF32, with the 10 bits of a half-precision fraction, on GPUs that can. Two ways
to compute the same network then differ by about a thousandth of its outputs, and it could not be told whether one of
them is wrong. So every way is compared once in full float32, where a difference of 1e-4 means something; timed runs,
in TF32, are held to a tolerance (`hios.frontends.tolerances.scaled`) that finds what is missing or mixed up.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import torch

#: TF32 came with compute capability 8.0.
_FIRST_MAJOR = 8
#: Nanoseconds of untimed runs ahead of a timed one: a GPU lowers its clock rate while it has nothing to do, as between
#: the turns of competitors, and needs some milliseconds of work to raise it again.
_BUSY_NS = 5_000_000
#: Whose precision of float32 counts here. Unlike ``allow_tf32``, ``fp32_precision`` can be read whoever has set it how.
_MATMUL, _CUDNN = cast(Any, torch.backends.cuda.matmul), cast(Any, torch.backends.cudnn)
_OPERATORS = {"matmul": _MATMUL, "convolution": _CUDNN.conv, "recurrent": _CUDNN.rnn}


def precisions() -> dict[str, str]:
    """How precisely operators compute in float32 on GPUs now, as torch names it."""
    return {name: operator.fp32_precision for name, operator in _OPERATORS.items()}


def uses_tf32(majors: list[int]) -> bool:
    """Whether convolutions or matrix products run in TF32 now, by the major compute capability of every GPU."""
    allowed = "tf32" in precisions().values()
    return allowed and max(majors) >= _FIRST_MAJOR and os.environ.get("NVIDIA_TF32_OVERRIDE") != "0"


def keep_busy(run: Callable[[], object]) -> None:
    """Run something that waits for the GPU, at least once, until clock rates are those of a busy GPU."""
    began = time.perf_counter_ns()
    run()
    while time.perf_counter_ns() - began < _BUSY_NS:
        run()


@contextlib.contextmanager
def exactly() -> Iterator[None]:
    """A context of full float32 precision for launches."""
    before = precisions()
    older: list[Any] = []
    for backend in (_CUDNN, _MATMUL):
        with contextlib.suppress(RuntimeError):  # it contradicts fp32_precision, which was set since
            if backend.allow_tf32:
                older.append(backend)
    for backend in older:
        backend.allow_tf32 = False
    others = [operator for operator in _OPERATORS.values() if operator.fp32_precision == "tf32"]
    for operator in others:
        operator.fp32_precision = "ieee"
    try:
        yield
    finally:
        for operator in others:
            operator.fp32_precision = "none"  # that of the backend, if it is the one of before
        for backend in older:
            backend.allow_tf32 = True
        for name, precision in before.items():
            if _OPERATORS[name].fp32_precision != precision:
                _OPERATORS[name].fp32_precision = precision
