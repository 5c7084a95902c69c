"""An exported program as a Relax function, and that function as plain calls."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import tvm
from torch import Tensor
from torch.export import ExportedProgram, default_decompositions
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from hios.errors import UnsupportedError, first_line

#: Core ATen operators that Relax imports whole; decomposing them would scatter one unit over many.
_KEPT_WHOLE = ("linear", "gelu", "softmax", "adaptive_avg_pool2d", "batch_norm", "scaled_dot_product")

#: Arguments of ATen operators that Relax's importer ignores, with the value that does no harm.
_DROPPED: dict[str, dict[str, Any]] = {
    "aten::add": {"alpha": 1},
    "aten::sub": {"alpha": 1},
    "aten::avg_pool2d": {"divisor_override": None},
}


@dataclass(eq=False)
class Call:
    """One Relax operator call.

    ``arguments`` are calls, (call, item) pairs, tensors, numbers, or names of graph inputs; ``shapes`` and
    ``dtype`` describe what it makes.
    """

    function: str
    arguments: list[Any]
    attributes: dict[str, Any]
    shapes: list[tuple[int, ...]]
    dtype: str
    #: Whether it depends on weights only, so that it can be folded.
    constant: bool = field(default=False)


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor of the program with its name there, such as ``fire2.squeeze.weight``."""

    name: str
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class Input:
    """An input of the network."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Lowered:
    """A program in Relax.

    ``function`` is the canonical Relax function, ``calls`` its operator calls in order, ``call_of`` the call
    behind each Relax call expression, ``values`` what each Relax variable stands for, ``outputs`` the calls (or
    (call, item) pairs) that it returns.
    """

    function: relax.Function
    inputs: tuple[Input, ...]
    calls: tuple[Call, ...]
    call_of: Mapping[Any, Call]
    values: Mapping[Any, Any]
    outputs: tuple[Any, ...]


def lower(program: ExportedProgram) -> Lowered:
    """Import a program into Relax, canonicalise it, remove dead code and read the result.

    Raises:
        UnsupportedError: Relax lacks an operator, or a shape is not fixed.
    """
    table = default_decompositions()
    for operator in list(table):
        if any(name in str(operator) for name in _KEPT_WHOLE):
            del table[operator]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own pytree deprecation
        decomposed = program.run_decompositions(table)
    signature = decomposed.graph_signature
    if changed := sorted(signature.buffers_to_mutate.values()):
        raise UnsupportedError(f"the model changes its buffer {changed[0]} in every inference; export it in eval mode")
    if changed := sorted(signature.user_inputs_to_mutate.values()):
        raise UnsupportedError(f"the model changes its input {changed[0]} in place; let it work on a copy")
    _refuse_dropped_arguments(decomposed)
    try:
        module = from_exported_program(decomposed, keep_params_as_input=True, run_ep_decomposition=False)
    except Exception as error:  # the importer raises many types; all mean the same to the user
        raise UnsupportedError(f"Relax cannot import the program: {first_line(error)}") from error
    module, _ = relax.frontend.detach_params(module)
    module = relax.transform.CanonicalizeBindings()(module)
    module = relax.transform.DeadCodeElimination()(module)
    return _Reader(module["main"], _parameters(decomposed)).read()


def _refuse_dropped_arguments(program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            continue
        names = [argument.name for argument in node.target._schema.arguments]
        given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
        for argument, harmless in _DROPPED.get(node.target._schema.name, {}).items():
            if given.get(argument, harmless) != harmless:
                raise UnsupportedError(
                    f"Relax cannot import the program: {node.target}: {argument} is {given[argument]}; "
                    f"allowed: {harmless}, as Relax would ignore it"
                )


def _parameters(program: ExportedProgram) -> dict[str, Weight]:
    signature = program.graph_signature
    named = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    held = {**program.state_dict, **program.constants}
    found = {argument: Weight(name, held[name].detach()) for argument, name in named.items() if name in held}
    for argument, name in signature.inputs_to_lifted_tensor_constants.items():
        found[argument] = Weight(name, program.constants[name].detach())
    return found


class _Reader:
    """Reads a Relax function into calls."""

    def __init__(self, function: relax.Function, parameters: Mapping[str, Weight]) -> None:
        self._function = function
        self._parameters = parameters
        self._values: dict[Any, Any] = {}
        self._call_of: dict[Any, Call] = {}
        self._calls: list[Call] = []
        self._constants = 0

    def read(self) -> Lowered:
        inputs = []
        for variable in self._function.params:
            if variable.name in self._parameters:
                self._values[variable] = self._parameters[variable.name]
            else:
                shape, dtype = _tensor_type(variable.ty, variable.name)
                inputs.append(Input(_text(variable.name), shape, dtype))
                self._values[variable] = inputs[-1]
        for block in self._function.body.blocks:
            for binding in block.bindings:
                self._values[binding.var] = self._value(binding.value, binding.var)
        result = self._values[self._function.body.body]
        outputs = tuple(result) if isinstance(result, list) else (result,)
        return Lowered(self._function, tuple(inputs), tuple(self._calls), self._call_of, self._values, outputs)

    def _value(self, expression: Any, variable: Any) -> Any:
        if isinstance(expression, tvm.ir.Call):
            return self._call(expression, variable)
        if isinstance(expression, relax.TupleGetItem):
            whole = self._values[expression.tuple_value]
            if isinstance(whole, list):
                return whole[expression.index]
            if whole.function == "relax.nn.batch_norm" and expression.index == 0:
                return whole  # its mean and variance only exist in training
            return (whole, expression.index)
        return self._argument(expression, _text(variable.name))

    def _argument(self, expression: Any, place: str) -> Any:
        if isinstance(expression, relax.Tuple):
            return [self._argument(item, place) for item in expression.fields]
        if isinstance(expression, tvm.ir.GenericConst):
            return self._constant(expression)
        if isinstance(literal := getattr(expression, "value", None), int | float):  # a PrimExpr, such as of relax.clip
            return literal
        if expression in self._values:
            return self._values[expression]
        raise UnsupportedError(
            f"{place}: Relax expression {str(expression)[:80]} ({type(expression).__name__}) is not supported; "
            "to add it, read it in hios/frontends/lowering.py"
        )

    def _constant(self, expression: Any) -> Weight | float | int | bool:
        array = expression.value.numpy()
        if array.ndim == 0:
            return array.item()
        self._constants += 1
        return Weight(f"constant_{self._constants}", torch.from_numpy(array.copy()))

    def _call(self, expression: Any, variable: Any) -> Call:
        name = _text(expression.op.name)
        attributes = _attributes(expression.attrs)
        arguments: list[Any] = []
        for argument in expression.args:
            if isinstance(argument, relax.ShapeExpr):
                attributes["shape"] = [int(size) for size in argument.values]
            elif isinstance(value := self._argument(argument, name), list):
                if value and all(isinstance(item, int | float) for item in value):
                    raise UnsupportedError(
                        f"{name}: its argument {tuple(value)} is a tuple of numbers, which calls in graph.json cannot "
                        "have; to add the operator, make it an attribute in hios/frontends/lowering.py and add a "
                        "builder to hios/kernels/table.py"
                    )
                arguments.extend(value)
            else:
                arguments.append(value)
        types = variable.ty.fields if isinstance(variable.ty, relax.TupleType) else [variable.ty]
        described = [_tensor_type(part, name) for part in types]
        if name == "relax.nn.batch_norm":
            described = described[:1]
        call = Call(name, arguments, attributes, [shape for shape, _ in described], described[0][1])
        call.constant = all(is_constant(argument) for argument in arguments)
        self._calls.append(call)
        self._call_of[expression] = call
        return call


def is_constant(value: Any) -> bool:
    """Whether a value depends on weights and numbers only."""
    if isinstance(value, tuple):
        return is_constant(value[0])
    if isinstance(value, Call):
        return value.constant
    return not isinstance(value, Input)


def _tensor_type(kind: Any, place: str) -> tuple[tuple[int, ...], str]:
    try:
        return tuple(int(size) for size in kind.shape.values), _text(kind.dtype)
    except (AttributeError, TypeError) as error:
        raise UnsupportedError(f"{place}: its shape is not fixed ({kind}); export with fixed shapes") from error


def _attributes(attributes: Any) -> dict[str, Any]:
    if attributes is None:
        return {}
    fields = [field.name for field in type(attributes).__tvm_ffi_type_info__.fields]
    return {name: _plain(getattr(attributes, name)) for name in fields}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(literal := getattr(value, "value", None), bool | int | float):
        return literal
    if hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, str):
        return [_plain(value[index]) for index in range(len(value))]
    return _text(value)


def _text(value: Any) -> str:
    """A plain Python string; TVM's own string type is one only by inheritance, which JSON writers refuse."""
    return f"{value}"
