"""Whether an extracted graph computes what its program computes: tolerances, and how far rounding goes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from hios import Graph, HiosWarning
from hios.errors import UnsupportedError
from hios.frontends import program as programs
from hios.frontends.extraction_check import OutputsDifferError, require_equal, rounding_errors
from hios.frontends.tolerances import beyond, compared, difference, explained, explained_share, scaled
from tests.frontends.small_networks import Model
from tests.operators import operator_from, tensor_from, value_from


def _graph(function: str) -> Graph:
    """A function of one input of a hundred numbers."""
    call = {"function": f"relax.{function}", "arguments": [{"input": "x"}], "attributes": {}}
    shapes = {"inputs": [[100]], "outputs": [[100]]}
    operator = operator_from(function, function, {"calls": [call], "shapes": shapes, "dtype": "float32"})
    inputs = (tensor_from({"name": "x", "shape": [100], "dtype": "float32"}),)
    return Graph("net", (operator,), (), inputs, (value_from({"operator": function}),))


def test_other_numbers_of_outputs_are_refused() -> None:
    """A program with more outputs than the graph is named with both numbers."""
    require_equal(_graph("exp"), {}, torch.exp)
    with pytest.raises(UnsupportedError, match=r"the extracted graph has 1 output\(s\), the program 2"):
        require_equal(_graph("exp"), {}, lambda x: (x.exp(), x))


def test_programs_that_fail_on_other_inputs_are_refused() -> None:
    """A program may take some values only, which random inputs are not."""

    def program(x: Tensor) -> Tensor:
        raise RuntimeError("all elements of input should be between 0 and 1")

    with pytest.raises(UnsupportedError, match=r"^the program fails on random inputs: all elements of input should"):
        require_equal(_graph("exp"), {}, program)


def test_outputs_of_nan_show_nothing() -> None:
    """Where the program gives NaN a warning says how often; a graph that does not is still refused."""
    with pytest.warns(HiosWarning, match=r"NaN in output 0 of the program \(\d+ of 100 values\)"):
        require_equal(_graph("log"), {}, torch.log)
    with (
        pytest.warns(HiosWarning, match="NaN in output 0"),
        pytest.raises(OutputsDifferError, match="differs from the program's by up to inf"),
    ):
        require_equal(_graph("exp"), {}, torch.log)


def test_what_rounding_explains_is_allowed() -> None:
    """A difference beyond what the variation of outputs allows passes if rounding explains it, and only then."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return x.exp() * (1 + 1e-3)

    require_equal(_graph("exp"), {}, program, lambda inputs: [inputs[0].exp().max().item() * 1e-3])

    for rounding in (None, lambda inputs: [1e-9], lambda inputs: None):
        with pytest.raises(OutputsDifferError, match="output 0 of the extracted graph differs"):
            require_equal(_graph("exp"), {}, program, rounding)


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


INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("values", "expected", "off", "within"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0, True),
        ([1.0, 2.0001], [1.0, 2.0], 0.0001, True),
        ([1.0, 2.1], [1.0, 2.0], 0.1, False),
        ([NAN, INF, -INF], [NAN, INF, -INF], 0.0, True),
        ([INF], [-INF], INF, False),
        ([1.0], [INF], INF, False),
        ([INF], [1.0], INF, False),
        ([], [], 0.0, True),
    ],
)
def test_compared(values: list[float], expected: list[float], off: float, within: bool) -> None:
    """Finite values may differ by the tolerance; what is not finite must be the same, which is no difference then."""
    error, close = compared(torch.tensor(values), torch.tensor(expected), 1e-4)
    assert error == pytest.approx(off, abs=1e-6)
    assert close == within


@pytest.mark.parametrize("wrong", [NAN, INF, -INF, 1.0])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_one_rule_for_what_is_not_finite(wrong: float, place: int) -> None:
    """Every comparison treats NaN as equal to NaN and an infinity to itself, and nothing else to either."""
    expected = torch.tensor([1.0, NAN, INF, -INF])
    values = expected.clone()
    values[place] = wrong
    same = torch.equal(values.nan_to_num(nan=7.0), expected.nan_to_num(nan=7.0))
    off, allowed = difference(values, expected)
    verdicts = [
        compared(values, expected, 1e-4)[1],
        scaled(values, expected, 1e-4)[1],
        beyond([values], [expected], 1e-4) is None,
        off <= allowed,
    ]
    assert verdicts == [same] * 4
