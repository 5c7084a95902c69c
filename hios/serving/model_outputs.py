"""What a model itself computes, as the reference for served outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hios.frontends import program as programs
from hios.frontends.extraction_check import flat
from hios.frontends.program_interface import flat_module
from hios.frontends.rounding import rounding_errors
from hios.platforms.reference import require_onnx, runtime


def model_outputs(program: Path, inputs: Sequence[Sequence[Tensor]], *, trusted: bool = False) -> list[list[Tensor]]:
    """Outputs of a program in eager PyTorch, or in ONNX Runtime where it is an ONNX file.

    Args:
        program: program.pt2 or program.onnx.
        inputs: of each inference.
        trusted: whether a file that can run code when it is loaded may be.

    Raises:
        HiosError: the file cannot be loaded, or takes other inputs.
    """
    module = _module(program, trusted)
    with torch.inference_mode():
        return [list(flat(module(*given))) for given in inputs]


def rounding(program: Path, inputs: Sequence[Tensor], *, trusted: bool = False) -> list[float] | None:
    """How far rounding to float32 puts each output (`rounding_errors`); None for what is not known.

    Args:
        program: program.pt2 or program.onnx; of the latter it is not known.
        inputs: of an inference.
        trusted: whether a file that can run code when it is loaded may be.
    """
    if runtime(program) != "eager":
        return None
    return rounding_errors(programs.load(program, trusted=trusted), inputs)


def _module(program: Path, trusted: bool) -> Callable[..., Any]:
    if runtime(program) == "eager":
        return flat_module(programs.load(program, trusted=trusted))
    require_onnx()
    from hios.frontends.onnx_session import Session  # its package is an extra of its own

    return Session(str(program), threads=1)
