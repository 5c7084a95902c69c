"""Whether an extracted graph computes what its program computes."""

from __future__ import annotations

import pytest
import torch

from hios import Graph, HiosWarning
from hios.errors import UnsupportedError
from hios.frontends.extraction_check import OutputsDifferError, require_equal
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
