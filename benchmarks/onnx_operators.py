"""Which operators of ONNX come through `hios.extract`, and compute what ONNX says.

    python benchmarks/onnx_operators.py [--all] [NAME ...]

The list is the tests of ONNX itself that the package onnx brings, files of one or a few nodes with inputs and outputs.
Left out are those that ONNX Runtime does not load or answers differently, that draw random numbers, and whose inputs
and outputs are not tensors of numbers, or have a size that depends on values. The tests give everything as an input,
also shapes and axes, which are constants in files of models. So an operator that is refused is tried again with inputs
of whole numbers as constants, then with all but the first. Its graph runs on the inputs of the test and on these
negated, and is compared with the outputs of the test and of ONNX Runtime: equal, as far as rounding goes; refused, with
a reason; or different. ``--all`` prints all that are not equal, with reasons; otherwise reasons are counted. The exit
status is 1 if one is different or crashes.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests
from torch import Tensor

import hios
from benchmarks.torch_operators import CRASHED, DIFFERENT, EQUAL, LEFT_OUT, REFUSED, differs, report
from hios.errors import HiosError, first_line
from hios.formats.onnx_session import OnnxSession
from hios.frontends.extraction_check import run_graph
from hios.frontends.onnx_file import DTYPES, inputs_of

#: The newest versions of ONNX's files and operators that ONNX Runtime reads; tests of newer ones are tried as these.
IR_VERSION, OPSET = 13, 26
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")


@functools.cache
def database() -> dict[str, TestCase]:
    """The tests by name."""
    return {case.name.removeprefix("test_"): case for kind in KINDS for case in load_model_tests(kind=kind)}


def example(case: TestCase) -> tuple[ModelProto, list[Tensor], list[Tensor]] | None:
    """The file of a test, its inputs and outputs; None if these are not tensors of numbers."""
    model, inputs, outputs = _read(case)
    model.ir_version = min(model.ir_version, IR_VERSION)
    for entry in model.opset_import:
        entry.version = min(entry.version, OPSET)
    values = (*model.graph.input, *model.graph.output)
    if any(value.type.tensor_type.elem_type not in DTYPES for value in values):
        return None
    return model, [_tensor(value) for value in inputs], [_tensor(value) for value in outputs]


def _read(case: TestCase) -> tuple[ModelProto, Sequence[Any], Sequence[Any]]:
    if case.model_dir:
        folder = Path(case.model_dir)
        inputs, outputs = (_numbered(folder / "test_data_set_0", what) for what in ("input", "output"))
        return onnx.load(folder / "model.onnx"), [*map(onnx.load_tensor, inputs)], [*map(onnx.load_tensor, outputs)]
    assert case.model is not None  # noqa: S101 - tests without a folder have it
    assert case.data_sets is not None  # noqa: S101 - likewise
    return case.model, *case.data_sets[0]


def _numbered(folder: Path, what: str) -> list[Path]:
    return sorted(folder.glob(f"{what}_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))


def _tensor(value: Any) -> Tensor:
    return torch.from_numpy(numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.array(value))


def _constants(names: list[str], inputs: Sequence[Tensor]) -> list[list[str]]:
    """Which inputs become constants where an operator is refused: those of whole numbers, then all but the first."""
    whole = [name for name, value in zip(names, inputs, strict=True) if not value.is_floating_point()]
    return [fixed for fixed in (whole, names[1:]) if 0 < len(fixed) < len(names)]


def with_constants(model: ModelProto, inputs: Sequence[Tensor], names: Sequence[str]) -> ModelProto:
    """The same file with some inputs as constants."""
    fixed = ModelProto()
    fixed.CopyFrom(model)
    for value, tensor in zip(inputs_of(model.graph), inputs, strict=True):
        if value.name in names:
            fixed.graph.initializer.append(numpy_helper.from_array(tensor.numpy(), value.name))
            fixed.graph.input.remove(value)
    return fixed


def outcome(name: str) -> tuple[str, str]:
    """What becomes of an operator, and why."""
    found = example(database()[name])
    if found is None:
        return LEFT_OUT, "inputs or outputs that are not tensors of numbers"
    model, inputs, outputs = found
    if not inputs:
        return LEFT_OUT, "no inputs"
    if len(inputs) != len(inputs_of(model.graph)):
        return LEFT_OUT, "inputs with values of their own"
    try:
        session = OnnxSession(name, model.SerializeToString())
        made = [session(*inputs) for _ in range(2)]
    except Exception as error:
        return LEFT_OUT, f"ONNX Runtime refuses it: {type(error).__name__}"
    if differs(*made):
        return LEFT_OUT, "random"
    if differs(made[0], outputs):
        return LEFT_OUT, "ONNX Runtime differs"
    what, why = _tried(model, inputs, outputs)
    names = [value.name for value in inputs_of(model.graph)]
    for fixed in _constants(names, inputs):
        if what == REFUSED:
            left = [value for name, value in zip(names, inputs, strict=True) if name not in fixed]
            what, why = _tried(with_constants(model, inputs, fixed), left, outputs)
    return what, why


def _tried(model: ModelProto, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "operator.onnx")
        onnx.save(model, path)
        try:
            graph, weights = hios.extract(path)
        except HiosError as error:
            return REFUSED, first_line(error).replace(str(path), "FILE")
        except Exception as error:
            return CRASHED, f"{type(error).__name__}: {first_line(error)}"
        negated = tuple(-value if value.is_floating_point() else value for value in inputs)
        try:
            expected = OnnxSession(path)(*negated)
        except Exception:  # it refuses such values
            expected = None
    try:
        why = differs(run_graph(graph, weights, tuple(inputs)), outputs)
        if not why and expected is not None and (why := differs(run_graph(graph, weights, negated), expected)):
            why += " if negated"
    except Exception as error:
        return CRASHED, f"{type(error).__name__}: {first_line(error)}"
    return (DIFFERENT, why) if why else (EQUAL, "")


if __name__ == "__main__":
    sys.exit(report(sys.argv[1:], __doc__, database, outcome, f"onnx {onnx.__version__}"))
