"""benchmarks/torch_operators.py: what becomes of operators."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks import torch_operators


def _info(operator: Any, *args: Any) -> Any:
    """An entry as torch's database has it."""
    return SimpleNamespace(
        op=operator,
        supported_dtypes=lambda device: {torch.float32},
        sample_inputs=lambda device, dtype, requires_grad: [SimpleNamespace(input=args[0], args=args[1:], kwargs={})],
    )


def _twice(value: Tensor) -> Tensor:
    return value.mul_(2)


def test_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators are equal, refused with a reason, or left out as they are none that a graph could have."""
    values = torch.linspace(-1, 1, 12).reshape(3, 4)
    infos = {
        "softmax": _info(torch.softmax, values, 1),
        "nonzero": _info(torch.nonzero, values),
        "bernoulli": _info(torch.bernoulli, torch.full((1000,), 0.5)),
        "mul_": _info(_twice, values.clone()),
        "numel": _info(torch.numel, values),
        "dropout": _info(torch.dropout, values, 0.0, True),
        "linspace": _info(torch.linspace, 0, 1, 3),
        "reshape": _info(torch.reshape, values, (7,)),
    }
    monkeypatch.setattr(torch_operators, "database", lambda: infos)
    found = {name: torch_operators.outcome(name) for name in infos}
    assert found.pop("softmax") == (torch_operators.EQUAL, "")
    what, why = found.pop("nonzero")
    assert what == torch_operators.REFUSED
    assert "data-dependent" in why
    assert found.pop("dropout") == (
        torch_operators.REFUSED,
        "Call: found no output that is computed; required: at least one",
    )
    assert found == {
        "bernoulli": (torch_operators.LEFT_OUT, "random"),
        "mul_": (torch_operators.LEFT_OUT, "writes into its inputs"),
        "numel": (torch_operators.LEFT_OUT, "outputs that are not tensors"),
        "linspace": (torch_operators.LEFT_OUT, "no tensor among its inputs"),
        "reshape": (torch_operators.LEFT_OUT, "fails in eager mode: RuntimeError"),
    }


def test_other_values_differ() -> None:
    """NaN equals NaN and rounding is none; other values, dtypes and shapes are differences."""
    values = torch.tensor([1.0, float("nan")])
    assert torch_operators.differs([values * (1 + 1e-6)], [values]) == ""
    assert torch_operators.differs([values + 1], [values]) == "other values"
    assert "instead of" in torch_operators.differs([values.double()], [values])
    narrow, other = values.to(torch.float8_e4m3fn), (-values).to(torch.float8_e4m3fn)
    assert torch_operators.differs([narrow], [narrow.clone()]) == ""
    assert torch_operators.differs([other], [narrow]) == "other values"
    assert torch_operators.differs([torch.tensor([1, 2])], [torch.tensor([1, 3])]) == "other values"
