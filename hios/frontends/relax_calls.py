"""A Relax function as plain calls, independent of the frontend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
import tvm
from torch import Tensor
from torch.utils.dlpack import from_dlpack
from tvm import relax

from hios.errors import UnsupportedError
from hios.frontends.program_interface import Origin, dtype_name

#: Arguments of Relax operators that are tuples of numbers, in order, by the names that they get as attributes.
_TUPLES = {"relax.strided_slice": ("axes", "begin", "end", "strides")}
#: Relax's call of a function that it does not know.
_EXTERNAL = "relax.call_dps_packed"
_RELAX_DTYPES = {
    *("bool", "float16", "bfloat16", "float32", "float64"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}
#: What stands in Relax for dtypes that it lacks, such as complex numbers; only opaque calls take or make them.
STAND_IN = "uint8"


@dataclass(eq=False)
class RelaxCall:
    """A call of a Relax operator.

    ``arguments`` are calls, (call, item) pairs, weights, inputs of the network, or numbers; ``shapes`` and ``dtypes``
    describe its outputs.
    """

    function: str
    arguments: list[Any]
    attributes: dict[str, Any]
    shapes: list[tuple[int, ...]]
    dtypes: list[str]
    #: Whether it depends on weights only, so that it can be folded.
    constant: bool = field(default=False)
    #: Where in the model it comes from; None where the frontend does not say.
    origin: Origin | None = field(default=None)


class OpaqueCalls(dict[str, RelaxCall]):
    """What calls of external functions in Relax stand for, by their names: operators that Relax does not know.

    ``function`` and ``attributes`` are those of graph.json; the arguments are added when the call is read.
    """

    def emit(self, call: RelaxCall, builder: relax.BlockBuilder, tensors: Sequence[Any]) -> list[relax.Var]:
        """Bind the outputs of a call on tensors of Relax; dtypes that Relax lacks are replaced."""
        name = f"opaque_{len(self)}"
        self[name] = call
        known = [dtype if dtype in _RELAX_DTYPES else STAND_IN for dtype in call.dtypes]
        types = [relax.TensorType(shape, dtype) for shape, dtype in zip(call.shapes, known, strict=True)]
        made = builder.emit(relax.op.call_dps_packed(name, relax.Tuple(tensors), types if len(types) > 1 else types[0]))
        if len(types) == 1:
            return [made]
        return [builder.emit(relax.TupleGetItem(made, item)) for item in range(len(types))]


class NodeError(UnsupportedError):
    """A graph cannot hold what Relax made of some nodes of the model, or hios cannot run it.

    ``reasons`` has them by node, as far as they are known.
    """

    def __init__(self, message: str, reasons: Mapping[Any, str]) -> None:
        super().__init__(message)
        self.reasons = reasons

    @classmethod
    def at(cls, origin: Origin | None, message: str) -> NodeError:
        """The error for one node, if it is known."""
        return cls(message, {} if origin is None or origin.node is None else {origin.node: message})


#: What a frontend's caller makes of a program in Relax.
Result = TypeVar("Result")


def with_opaque_calls(make: Callable[[Mapping[Any, str]], Result]) -> Result:
    """What ``make`` makes with some nodes as opaque calls, which it takes with the reasons: as many as it needs.

    Raises:
        NodeError: what it says remains so if the nodes are opaque calls, or the nodes are not known.
    """
    opaque: dict[Any, str] = {}
    while True:
        try:
            return make(opaque)
        except NodeError as error:
            if not error.reasons.keys() - opaque:
                raise
            opaque |= error.reasons


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor of the program with its name, such as ``fire2.squeeze.weight``."""

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
    calls: tuple[RelaxCall, ...]
    call_of: Mapping[Any, RelaxCall]
    values: Mapping[Any, Any]
    outputs: tuple[Any, ...]


def canonical(module: tvm.IRModule) -> relax.Function:
    """The function ``main`` of a module with canonical bindings and without dead code."""
    module = relax.transform.CanonicalizeBindings()(module)
    return relax.transform.DeadCodeElimination()(module)["main"]


def origins(module: tvm.IRModule, made: Iterable[tuple[Origin, Any]]) -> dict[str, Origin]:
    """The origin of each Relax variable of a module as the importer left it, from the nodes in order with their values.

    An importer visits the nodes of a model in order. The last variable that it binds for a node is the value of the
    node, unless that is not a variable, or one that was bound before.
    """
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    names = [binding.var.name for binding in bindings]
    position = {name: number for number, name in enumerate(names)}
    origin_of: dict[str, Origin] = {}
    done = 0
    for origin, value in made:
        parts = value if isinstance(value, tuple | list) else [value]
        end = max((position.get(getattr(part, "name", None), -1) for part in parts), default=-1)
        if end >= done:
            origin_of.update(dict.fromkeys(names[done : end + 1], origin))
            done = end + 1
    for binding in bindings:
        if getattr(binding.value, "name", None) in origin_of:  # another name of a value, such as an output's
            origin_of[binding.var.name] = origin_of[binding.value.name]
    return origin_of


@dataclass
class FunctionReader:
    """Reads a canonical Relax function into calls; its parameters without a weight are inputs."""

    function: relax.Function
    parameters: Mapping[str, Weight]
    origins: Mapping[str, Origin]
    opaque: Mapping[str, RelaxCall]

    def __post_init__(self) -> None:
        self._values: dict[Any, Any] = {}
        self._call_of: dict[Any, RelaxCall] = {}
        self._calls: list[RelaxCall] = []
        self._constants = 0

    def read(self) -> Lowered:
        """All calls of the function.

        Raises:
            NodeError: an expression or argument that a graph cannot hold, or a shape that is not fixed.
        """
        inputs = []
        for variable in self.function.params:
            if variable.name in self.parameters:
                self._values[variable] = self.parameters[variable.name]
            else:
                shape, dtype = _tensor_type(variable.ty, variable.name)
                inputs.append(Input(_text(variable.name), shape, dtype))
                self._values[variable] = inputs[-1]
        for block in self.function.body.blocks:
            for binding in block.bindings:
                try:
                    self._values[binding.var] = self._value(binding.value, binding.var)
                except UnsupportedError as error:
                    raise NodeError.at(self.origins.get(_text(binding.var.name)), str(error)) from error
        result = self._tensor(self.function.body.body, "the output")
        outputs = tuple(result) if isinstance(result, list) else (result,)
        return Lowered(self.function, tuple(inputs), tuple(self._calls), self._call_of, self._values, outputs)

    def _value(self, expression: Any, variable: Any) -> Any:
        if isinstance(variable.ty, relax.ShapeType):
            return _sizes(variable.ty, _text(variable.name))
        if isinstance(expression, tvm.ir.Call) and expression.op.name == "relax.shape_to_tensor":
            return self._weight(torch.tensor(_sizes(expression.args[0].ty, _text(variable.name))))
        if isinstance(expression, tvm.ir.Call):
            return self._call(expression, variable)
        if isinstance(expression, relax.TupleGetItem):
            whole = self._values[expression.tuple_value]
            if isinstance(whole, list):
                return whole[expression.index]
            if whole.function == "relax.nn.batch_norm" and expression.index == 0:
                return whole  # mean and variance are outputs in training only
            return (whole, expression.index)
        return self._tensor(expression, _text(variable.name))

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
            "to add it, read it in hios/frontends/relax_calls.py"
        )

    def _constant(self, expression: Any) -> Weight | float | int | bool:
        tensor = from_dlpack(expression.value)  # the memory is TVM's, and lives as long as the tensor
        return self._weight(tensor) if tensor.ndim > 0 else tensor.item()

    def _weight(self, tensor: Tensor) -> Weight:
        self._constants += 1
        return Weight(f"constant_{self._constants}", tensor)

    def _call(self, expression: Any, variable: Any) -> RelaxCall:
        origin = self.origins.get(_text(variable.name))
        if expression.op.name == _EXTERNAL:
            symbol, given = expression.args
            call = replace(self.opaque[_text(symbol.global_symbol)], arguments=self._tensor(given, _EXTERNAL))
        else:
            call = self._operator_call(expression, variable, origin)
        call.constant = all(is_constant(argument) for argument in call.arguments)
        call.origin = origin
        self._calls.append(call)
        self._call_of[expression] = call
        return call

    def _tensor(self, expression: Any, place: str) -> Any:
        """A value, or several, that stays a tensor with its dtype even if it is a single number."""
        if isinstance(expression, relax.Tuple):
            return [self._tensor(item, place) for item in expression.fields]
        if isinstance(expression, tvm.ir.GenericConst):
            return self._weight(from_dlpack(expression.value))
        return self._argument(expression, place)

    def _operator_call(self, expression: Any, variable: Any, origin: Origin | None) -> RelaxCall:
        name = _text(expression.op.name)
        attributes = _attributes(expression.attrs)
        arguments: list[Any] = []
        tuples = iter(_TUPLES.get(name, ()))
        numbers: dict[int, Tensor] = {}
        for argument in expression.args:
            if isinstance(argument.ty, relax.ShapeType):
                attributes["shape"] = _sizes(argument.ty, name)
            elif isinstance(value := self._argument(argument, name), list):
                if value and all(isinstance(item, int | float) for item in value):
                    attributes[_name_of_tuple(name, value, tuples)] = value
                    continue
                arguments.extend(value)
            else:
                if isinstance(argument, tvm.ir.GenericConst) and not isinstance(value, Weight):
                    numbers[len(arguments)] = from_dlpack(argument.value)
                arguments.append(value)
        dtypes = {described(value)[1] for value in arguments if isinstance(value, RelaxCall | tuple | Weight | Input)}
        for place, number in numbers.items():
            # torch casts a number to the dtype of the tensors it is combined with; a weight keeps its own dtype.
            if dtype_name(number.dtype) not in dtypes:
                arguments[place] = self._weight(number)
        where = name if origin is None else origin.place
        types = variable.ty.fields if isinstance(variable.ty, relax.TupleType) else [variable.ty]
        made = [_tensor_type(part, where) for part in types]
        if name == "relax.nn.batch_norm":
            made = made[:1]
        return RelaxCall(name, arguments, attributes, [shape for shape, _ in made], [dtype for _, dtype in made])


def _name_of_tuple(function: str, value: list[Any], names: Iterator[str]) -> str:
    """The attribute for a tuple of numbers: calls in graph.json take only tensors and numbers as arguments."""
    if (name := next(names, None)) is None:
        raise UnsupportedError(
            f"{function}: its argument {tuple(value)} is a tuple of numbers, which calls in graph.json cannot have; to "
            "add the operator, name the argument in _TUPLES of hios/frontends/relax_calls.py and add a builder to "
            "hios/kernels/table"
        )
    return name


def type_difference(value: Any, shape: tuple[int, ...], dtype: str) -> str | None:
    """In what the type of a Relax value differs from that of the model's, in words; None if in nothing."""
    if value is None:
        return "Relax does not make all its results"
    own = getattr(value, "ty", None)
    if not isinstance(own, relax.TensorType):
        return None
    sizes = None if own.shape is None else tuple(getattr(size, "value", size) for size in own.shape)
    if str(own.dtype) != dtype or sizes != shape:
        return f"Relax makes {own} of {dtype} {list(shape)}"
    return None


def is_constant(value: Any) -> bool:
    """Whether a value depends only on weights and numbers."""
    if isinstance(value, tuple):
        return is_constant(value[0])
    if isinstance(value, RelaxCall):
        return value.constant
    return not isinstance(value, Input)


def described(value: Any) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of an argument of a call; a number has no dimensions."""
    if isinstance(value, tuple):
        producer, item = value
        return producer.shapes[item], producer.dtypes[item]
    if isinstance(value, RelaxCall):
        return value.shapes[0], value.dtypes[0]
    if isinstance(value, Weight):
        return tuple(value.tensor.shape), dtype_name(value.tensor.dtype)
    return (value.shape, value.dtype) if isinstance(value, Input) else ((), "float32")


def _tensor_type(kind: Any, place: str) -> tuple[tuple[int, ...], str]:
    return tuple(_sizes(kind, place)), _text(kind.dtype)


def _sizes(kind: Any, place: str) -> list[int]:
    """The sizes of a shape, or of the shape of a tensor."""
    try:
        return [int(size) for size in getattr(kind, "shape", kind).values]
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
    """A plain Python string; TVM's string is a subclass that JSON writers refuse."""
    return f"{value}"
