"""How far rounding to float32 puts the outputs of a program."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hios.frontends import program as programs
from hios.frontends.extraction_check import rounding_errors
from hios.frontends.tolerances import explained, explained_share
from tests.frontends.small_networks import Model


def _amplifying(model: Any, x: Tensor, number: Tensor) -> tuple[Tensor, Tensor]:
    """A sum that cancels all but a ten-thousandth of its terms, converted on the way; and what is not rounded."""
    large = (1e4 + x).to(torch.float32)
    return large.sin() * 3 + (large - 1e4), number + 1


def _program(module: nn.Module, *inputs: Tensor) -> torch.export.ExportedProgram:
    return programs.export(module, inputs, module)


def _errors(program: torch.export.ExportedProgram, *inputs: Tensor) -> list[float]:
    errors = rounding_errors(program, inputs)
    assert errors is not None
    return errors


def test_the_error_of_every_output_is_found() -> None:
    """Cancelling shows as a large error, conversions to float32 inside notwithstanding; integers have none."""
    x, number = torch.rand(64), torch.arange(3)
    program = _program(Model(_amplifying), x, number)
    error, none = _errors(program, x, number)
    large = 1e4 + x.double()
    exact = large.sin() * 3 + (large - 1e4)
    assert error == pytest.approx((_amplifying(None, x, number)[0].double() - exact).abs().max().item(), rel=1e-6)
    assert error > 1e-4
    assert none == 0.0


def test_the_program_stays_as_it_is() -> None:
    """Weights in float64 are those of a copy."""
    linear, x = nn.Linear(8, 8), torch.rand(2, 8)
    program = _program(linear, x)
    before = program.module()(x)
    assert 0 < _errors(program, x)[0] < 1e-5
    after = program.module()(x)
    assert after.dtype is torch.float32
    assert torch.equal(before, after)
    assert _errors(_program(Model(lambda m, x: 2 * x), x), x) == [0.0]


def test_a_program_that_does_not_run_in_float64() -> None:
    """Of a program that insists on the type of its input nothing is known."""
    x = torch.rand(2, 8)
    program = _program(Model(lambda m, x: x.view(torch.int32) + torch.ones(2, 8, dtype=torch.int32)), x)
    assert program.module()(x).shape == x.shape
    assert rounding_errors(program, [x]) is None


def test_what_rounding_explains_has_a_limit() -> None:
    """Four times the error, and a hundredth of the largest value at most; nothing of an error that is not a number."""
    outputs = [torch.tensor([-8.0, 2.0]), torch.tensor([0.5])]
    assert explained([1e-3, 1.0], outputs) == [4e-3, 5e-3]
    assert explained_share([1e-3, 1.0], outputs) == pytest.approx(1e-2)
    assert explained_share([0.0, 0.0], outputs) == 0.0
    assert not explained([float("nan")], outputs[1:])[0] >= 0.0
