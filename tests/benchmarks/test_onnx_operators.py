"""benchmarks/onnx_operators.py: what becomes of ONNX's own tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper
from onnx.backend.test.case.test_case import TestCase

from benchmarks import onnx_operators
from benchmarks.torch_operators import CRASHED, DIFFERENT, EQUAL, LEFT_OUT, REFUSED

_X, _PLACES = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.asarray([3, 2])


@pytest.fixture(autouse=True)
def _old_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that every ONNX Runtime that hios takes can read."""
    monkeypatch.setattr(onnx_operators, "IR_VERSION", 10)
    monkeypatch.setattr(onnx_operators, "OPSET", 20)


def _case(node: NodeProto, inputs: list[Any], output: Any) -> TestCase:
    """A test as ONNX has it, of one operator of a future version."""
    names = ["x", "s"][: len(inputs)]
    kinds = [helper.np_dtype_to_tensor_dtype(value.dtype) for value in (*inputs, output)]
    values = [
        helper.make_tensor_value_info(name, kind, value.shape)
        for name, kind, value in zip([*names, "y"], kinds, [*inputs, output], strict=True)
    ]
    graph = helper.make_graph([node], "graph", values[:-1], values[-1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 99)], ir_version=99)
    return TestCase("test", "test", None, None, model, [(inputs, [output])], "node", 1e-3, 1e-7)


def test_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators are equal, also with a shape that is a constant; refused; different; or left out."""
    tests = {
        "relu": _case(helper.make_node("Relu", ["x"], ["y"]), [_X], np.maximum(_X, 0)),
        "reshape": _case(helper.make_node("Reshape", ["x", "s"], ["y"]), [_X, _PLACES], _X.reshape(3, 2)),
        "nonzero": _case(helper.make_node("NonZero", ["x"], ["y"]), [_X], np.stack(_X.nonzero())),
        "strange": _case(helper.make_node("Strange", ["x"], ["y"]), [_X], _X),
        "wrong": _case(helper.make_node("Relu", ["x"], ["y"]), [_X], _X),
        "noise": _case(helper.make_node("RandomUniformLike", ["x"], ["y"]), [_X], _X),
        "text": _case(helper.make_node("Cast", ["x"], ["y"], to=TensorProto.STRING), [_X], _X.astype(object)),
    }
    monkeypatch.setattr(onnx_operators, "database", lambda: tests)
    found = {name: onnx_operators.outcome(name) for name in tests}
    what, why = found.pop("nonzero")
    assert what == REFUSED
    assert "the shape of its result depends on values" in why
    assert found == {
        "relu": (EQUAL, ""),
        "reshape": (EQUAL, ""),
        "strange": (LEFT_OUT, "ONNX Runtime refuses it: UnsupportedError"),
        "wrong": (LEFT_OUT, "ONNX Runtime differs"),
        "noise": (LEFT_OUT, "random"),
        "text": (LEFT_OUT, "inputs or outputs that are not tensors of numbers"),
    }


def test_graphs_that_compute_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """They differ on the inputs of the test, or on these negated, or fail."""
    case = _case(helper.make_node("Relu", ["x"], ["y"]), [_X], np.maximum(_X, 0))
    monkeypatch.setattr(onnx_operators, "database", lambda: {"relu": case})

    def other(graph: Any, weights: Any, inputs: Any) -> Any:
        (value,) = inputs
        return [value.abs()] if value[0, 0] == 1 else [value.relu()]

    monkeypatch.setattr(onnx_operators, "run_graph", other)
    assert onnx_operators.outcome("relu") == (DIFFERENT, "other values if negated")
    monkeypatch.setattr(onnx_operators, "run_graph", lambda *given: [given[2][0] + 1])
    assert onnx_operators.outcome("relu") == (DIFFERENT, "other values")
    monkeypatch.setattr(onnx_operators, "run_graph", lambda *given: given[2][1])
    assert onnx_operators.outcome("relu") == (CRASHED, "IndexError: tuple index out of range")
