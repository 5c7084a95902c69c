"""A model with nested inputs and outputs as a graph with flat lists of tensors."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._prims_common import make_contiguous_strides_for
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from hios.core.graph import Graph
from hios.errors import ExampleInputsError, UnsupportedError
from hios.frontends.model_declarations import Declarations
from hios.frontends.program_interface import TensorType, type_text

if TYPE_CHECKING:
    from torch.export import ExportedProgram

#: Types of values allowed besides tensors: immutable, and fully described by their value.
_CONSTANTS = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device)

#: Parameters that take any number of arguments.
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)

#: Dtypes for which torch has no minimum and maximum, by which inputs are checked.
_UNORDERED = (torch.uint16, torch.uint32, torch.uint64)
#: How deeply objects among outputs may hold others.
_DEPTH = 4
#: What an output is: ("tensor", its number among the graph's outputs), ("input", number of an input tensor),
#: ("constant", value) or ("view", (number of a tensor, arguments of its ``as_strided``)).
_Output = tuple[str, Any]


class ModelInputs:
    """The inputs that a model was optimized for: structure, types of tensors, and all other values.

    With a model, calls may pass by name what the example passes by position, and vice versa.

    Raises:
        ExampleInputsError: the model does not take these arguments.
        UnsupportedError: none is a tensor, or one is not a plain tensor on the CPU.
    """

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any], model: nn.Module | None = None) -> None:
        #: Brings other forms of the same arguments into that of the example; None where the model is not known.
        self._binding = None if model is None else Binding(model.forward, args, kwargs, type(model).__name__)
        leaves, self._spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        self._constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self._places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        self._fixed = [place for place, leaf in enumerate(leaves) if not isinstance(leaf, Tensor)]
        self._types = [_type(leaves[place]) for place in self._places]
        #: Whether they are tensors by position and nothing else, which need not be flattened.
        self._flat = not kwargs and len(self._places) == len(leaves) == len(args)
        if not self._places:
            raise UnsupportedError("example inputs: found no tensor; required: at least one")
        for place in self._places:
            if wrong := _unusual(leaves[place]):
                raise UnsupportedError(f"example inputs: found {wrong}; allowed: plain tensors on the CPU")
            if (dtype := leaves[place].dtype) in _UNORDERED:
                raise UnsupportedError(f"example inputs: found {dtype}, for which torch has no limits; allowed: others")
        if wrong := _no_constant(self._constants):
            raise UnsupportedError(f"example inputs: found {wrong}; allowed: tensors, numbers, strings and None")

    @property
    def described(self) -> str:
        """Structure, types and constants as text that is the same in another process."""
        constants = [value.__qualname__ if isinstance(value, type) else repr(value) for value in self._constants]
        return f"{self._spec} {list(map(type_text, self._types))} {constants}"

    def tensors(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor] | str:
        """The tensors of a call in order, or why these inputs do not fit."""
        if self._flat and not kwargs and len(args) == len(self._types) and all(type(value) is Tensor for value in args):
            return self._unfit(args) or list(args)
        leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
        if spec != self._spec and self._binding is not None:
            adapted = self._binding.as_in_the_example(args, kwargs)
            leaves, spec = (leaves, spec) if adapted is None else pytree.tree_flatten(adapted)
        if spec != self._spec:
            return "inputs of another structure than the example's"
        tensors = [leaves[place] for place in self._places]
        if why := self._unfit(tensors):
            return why
        for place in self._fixed:
            leaf, constant = leaves[place], self._constants[place]
            if not same(leaf, constant):
                found = "a tensor" if isinstance(leaf, Tensor) else repr(leaf)
                return f"found {found} as an input, the example has {constant!r}"
        return tensors

    def _unfit(self, tensors: Sequence[Any]) -> str:
        """Why values do not fit the tensors of the example, one each; empty if they do."""
        for tensor, required in zip(tensors, self._types, strict=True):
            if not isinstance(tensor, Tensor):
                return f"found {type(tensor).__name__} as an input, the example has {type_text(required)}"
            if wrong := _unusual(tensor):
                return f"found {wrong} as an input, the example has {type_text(required)}"
            if (given := _type(tensor)) != required:
                return f"found an input {type_text(given)}, the example has {type_text(required)}"
        return ""

    def required(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
        """The tensors of a call in order; an `UnsupportedError` if these inputs do not fit."""
        tensors = self.tensors(args, kwargs)
        if isinstance(tensors, str):
            raise UnsupportedError(f"inputs: {tensors}")
        return tensors

    def rebuilt(self, tensors: Sequence[Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments with these tensors inserted."""
        leaves = list(self._constants)
        for place, tensor in zip(self._places, tensors, strict=True):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return args, kwargs


def _type(tensor: Tensor) -> TensorType:
    return tuple(tensor.shape), tensor.dtype


def _unusual(tensor: Tensor) -> str:
    """What the engine cannot handle about a tensor; empty for plain tensors."""
    if type(tensor) not in (Tensor, nn.Parameter):
        return f"a {type(tensor).__name__}"
    if tensor.device.type != "cpu":
        return f"a tensor on {tensor.device}"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}"
    if is_functorch_wrapped_tensor(tensor):
        return "a tensor within a transform of torch.func"
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None:
        return "a tensor with a tangent"
    return ""


def _no_constant(values: Sequence[Any]) -> str:
    """A value that may differ in the next call, such as a number computed from tensors; empty if none does."""
    wrong = (value for value in values if type(value) not in _CONSTANTS and not isinstance(value, Enum | type))
    return next((f"a value of type {type(value).__name__}" for value in wrong), "")


def is_plain_object(value: Any) -> bool:
    """Whether a value is nothing but its attributes, as objects of most classes in Python are, torch's own apart."""
    kind = type(value)
    known = issubclass(kind, Tensor | nn.Module | Enum | type | FunctionType | ModuleType)
    known |= kind.__module__.partition(".")[0] == "torch"
    special = any(vars(base).get("__slots__") or "__new__" in vars(base) for base in kind.__mro__[:-1])
    return not (known or special) and hasattr(value, "__dict__")


@dataclass(frozen=True, slots=True)
class _Object:
    """What pytree takes apart into the attributes of an object, and puts together as that object."""

    kind: type
    attributes: dict[str, Any]


def _put_together(attributes: Any, kind: Any) -> Any:
    made = object.__new__(kind)
    vars(made).update(zip(*attributes, strict=True))
    return made


pytree.register_pytree_node(
    _Object,
    lambda own: ([list(own.attributes), list(own.attributes.values())], own.kind),
    _put_together,
)


def _opened(values: Any, around: tuple[int, ...] = ()) -> Any:
    """Values in which objects that hold tensors, such as caches of keys and values, can be taken apart."""

    def opened(leaf: Any) -> Any:
        if id(leaf) in around or len(around) == _DEPTH or not is_plain_object(leaf):
            return leaf
        attributes = _opened(vars(leaf), (*around, id(leaf)))
        tensors = around or any(isinstance(own, Tensor) for own in pytree.tree_leaves(attributes))
        return _Object(type(leaf), attributes) if tensors else leaf

    return pytree.tree_map(opened, values)


def same(value: Any, other: Any) -> bool:
    """Whether a value is as another, for which NaN is equal to NaN."""
    if type(value) is not type(other):
        return False
    try:
        return value is other or bool(value == other) or bool(value != value and other != other)
    except (ValueError, RuntimeError):  # arrays and tensors, which do not compare as one
        return False


class ModelOutputs:
    """How to build the outputs of a model from those of the graph.

    Equal tensors stay the same object, and views of other outputs stay views; strides are the model's.
    """

    def __init__(self, outputs: Any, inputs: Sequence[Tensor]) -> None:
        leaves, self._spec = pytree.tree_flatten(_opened(outputs))
        made = {id(leaf): leaf for leaf in leaves if isinstance(leaf, Tensor)}
        for tensor in inputs:
            made.pop(id(tensor), None)
        self._bases: list[Tensor] = []
        for tensor in sorted(made.values(), key=lambda own: (not _is_contiguous(own), -own.numel())):
            if self._view(tensor) is None:
                self._bases.append(tensor)
        self.tensors: list[Tensor] = [tensor for tensor in made.values() if any(tensor is own for own in self._bases)]
        self._parts: list[_Output] = [self._part(leaf, inputs) for leaf in leaves]
        self._strides = [own.stride() if _has_own_strides(own) else None for own in self.tensors]
        self._viewed = {value[0] for kind, value in self._parts if kind == "view"}
        self._handed_on = {value: inputs[value].stride() for kind, value in self._parts if kind == "input"}
        #: Outputs that are neither tensors of a graph nor constants, in words; empty if there are none.
        self.wrong = _no_constant([value for kind, value in self._parts if kind == "constant"])

    def _part(self, leaf: Any, inputs: Sequence[Tensor]) -> _Output:
        if not isinstance(leaf, Tensor):
            return "constant", leaf
        for kind, tensors in (("input", inputs), ("tensor", self.tensors)):
            for number, tensor in enumerate(tensors):
                if tensor is leaf:
                    return kind, number
        base, place = self._view(leaf) or (leaf, ())
        number = next(number for number, tensor in enumerate(self.tensors) if tensor is base)
        return "view", (number, place)

    def _view(self, tensor: Tensor) -> tuple[Tensor, tuple[Any, ...]] | None:
        """The contiguous output in whose memory a tensor is, and where; None if there is none."""
        for base in self._bases:
            if _is_contiguous(base) and _form(base) == _form(tensor) and _memory(base) == _memory(tensor):
                offset = tensor.storage_offset() - base.storage_offset()
                last = offset + sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride(), strict=True))
                if offset >= 0 and last < base.numel():
                    return base, (tuple(tensor.shape), tensor.stride(), offset)
        return None

    def forget(self) -> None:
        """Release the recorded tensors."""
        self.tensors, self._bases = [], []

    def refusal(self, model: str) -> UnsupportedError:
        """Why outputs with a wrong value, or without a tensor, are refused."""
        if not self.wrong:
            return UnsupportedError(f"{model}: found no output that is computed; required: at least one")
        return UnsupportedError(
            f"outputs: found {self.wrong}; allowed: tensors; numbers, strings and None if they are the same in every "
            "call"
        )

    @property
    def count(self) -> int:
        """The number of tensors that the graph returns."""
        return len({value for kind, value in self._parts if kind == "tensor"})

    def flat(self, outputs: Any) -> list[Tensor]:
        """The tensors that the graph should return, taken from outputs of the model."""
        tensors: dict[int, Tensor] = {}
        for (kind, value), leaf in zip(self._parts, pytree.tree_leaves(_opened(outputs)), strict=True):
            if kind == "tensor":
                tensors.setdefault(value, leaf)
        return list(tensors.values())

    def unfit(self, inputs: Sequence[Tensor]) -> str:
        """Why the outputs may be others than inputs that they are in the example; empty if they are these.

        ``contiguous()`` hands on a tensor of the right strides, and copies others.
        """
        for number, stride in self._handed_on.items():
            if not _has_strides(found := inputs[number], stride):
                return f"found an input with strides {found.stride()} that the model returns, the example has {stride}"
        return ""

    def rebuilt(self, tensors: Sequence[Tensor], inputs: Sequence[Tensor]) -> Any:
        """Outputs like those of the model with these tensors of the graph."""
        if any(self._strides) or self._viewed:
            tensors = [self._laid_out(number, tensor) for number, tensor in enumerate(tensors)]
        leaves = []
        for kind, value in self._parts:
            if kind == "view":
                size, stride, offset = value[1]
                leaves.append(tensors[value[0]].as_strided(size, stride, tensors[value[0]].storage_offset() + offset))
            else:
                leaves.append(value if kind == "constant" else (tensors if kind == "tensor" else inputs)[value])
        return pytree.tree_unflatten(leaves, self._spec)

    def _laid_out(self, number: int, tensor: Tensor) -> Tensor:
        """A tensor of the graph with the strides of the model's, and contiguous if there are views of it."""
        stride = self._strides[number]
        if stride is None:
            return tensor.contiguous() if number in self._viewed else tensor
        return tensor if tensor.stride() == stride else laid_out(tensor, stride)


def laid_out(tensor: Tensor, stride: tuple[int, ...]) -> Tensor:
    """A tensor with these strides, of which 0 repeats the first element: a copy, unless they mean the same memory."""
    if tensor.stride() == stride:
        return tensor
    if _has_strides(tensor, stride):
        return tensor.as_strided(tensor.shape, stride)
    made = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype)
    written = made
    for place in (place for place, step in enumerate(stride) if step == 0):
        written, tensor = (own.narrow(place, 0, min(1, own.shape[place])) for own in (written, tensor))
    written.copy_(tensor)
    return made


def _has_strides(tensor: Tensor, stride: tuple[int, ...]) -> bool:
    """Whether strides mean the memory that a tensor has."""
    return all(
        size == 1 or own == other for size, own, other in zip(tensor.shape, tensor.stride(), stride, strict=True)
    )


def _memory(tensor: Tensor) -> int:
    """The memory that a tensor is in; that of no other for one that is not strided."""
    return int(tensor.untyped_storage()._cdata) if tensor.layout is torch.strided else id(tensor)


def _is_contiguous(tensor: Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.is_contiguous()


def _form(tensor: Tensor) -> tuple[object, ...]:
    """How numbers are to be read from memory."""
    return tensor.dtype, tensor.is_conj(), tensor.is_neg()


def _has_own_strides(tensor: Tensor) -> bool:
    """Whether strides are not those of a new tensor, and no two elements share memory, but for repeated ones."""
    if tensor.layout is not torch.strided or tensor.stride() == make_contiguous_strides_for(tensor.shape):
        return False
    reached = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if stride and size > 1:
            if stride <= reached:
                return False
            reached += stride * (size - 1)
    return True


class _FlatModel(nn.Module):
    """A model that takes and returns flat lists of tensors; records its outputs in ``seen``.

    The tensors are those of ``outputs``, if these are known already: when traced, views may not be known as such.
    """

    def __init__(
        self, model: nn.Module, inputs: ModelInputs, seen: list[ModelOutputs], outputs: ModelOutputs | None
    ) -> None:
        super().__init__()
        self.model = model
        self.training = model.training
        self._inputs, self._seen, self._outputs = inputs, seen, outputs

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        args, kwargs = self._inputs.rebuilt(tensors)
        made = self.model(*args, **kwargs)
        outputs = ModelOutputs(made, tensors)
        outputs.forget()
        self._seen[:] = [outputs]
        return tuple((self._outputs or outputs).flat(made))


class Exported(NamedTuple):
    """A model as a program with flat lists of tensors, and what the model says about itself."""

    program: ExportedProgram
    declared: Declarations


class Traced(NamedTuple):
    """A model as a graph of its operators, and its weights by name."""

    graph: Graph
    weights: Mapping[str, Tensor]


def export(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: ModelOutputs | None = None
) -> Exported:
    """Export a model, in the mode it is to run in, for example inputs; with its outputs if they are known.

    Raises:
        HiosError: torch.export refuses the model.
    """
    from hios.frontends import program as programs  # loads much of torch, which a start from the cache does without

    inputs = ModelInputs(args, kwargs)
    tensors = inputs.required(args, kwargs)
    seen: list[ModelOutputs] = []
    with warnings.catch_warnings():
        # nn.LSTM and its like derive a list from their parameters anew.
        warnings.filterwarnings("ignore", "The tensor attribute.*assigned during export")
        program = programs.export(_FlatModel(model, inputs, seen, outputs), tuple(tensors), model)
    if seen[0].wrong or not seen[0].count:
        raise seen[0].refusal(type(model).__name__)
    declared = Declarations.of(model)
    declared = replace(declared, blocks=tuple(f"model.{block}" for block in declared.blocks)).for_inputs(tensors)
    return Exported(program, declared)


def extract(exported: Exported, name: str, units: str | None = None) -> Traced:
    """The graph of an exported model, in the scheduling units that the model declares if None are given.

    Raises:
        HiosError: extraction refuses the model.
    """
    from hios.frontends.extract import extract_program  # loads TVM, which a start from the cache does without

    return Traced(*extract_program(exported.program, name, exported.declared, units=units))


class Binding:
    """Rearranges arguments of a function into the form of an example; messages name the model.

    Raises:
        ExampleInputsError: the function does not take the example's arguments.
    """

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], name: str = "the model"
    ) -> None:
        self._signature: inspect.Signature | None
        try:
            self._signature = inspect.signature(function)
        except (TypeError, ValueError):  # compiled code has none
            self._signature = None
            return
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ExampleInputsError(
                f"example inputs of {name}: {error}; its forward is {self._signature}, found {len(args)} positional "
                f"argument(s){_named(kwargs)}"
            ) from None
        parameters = list(self._signature.parameters.values())
        if any(parameter.kind in _VARIABLE for parameter in parameters):
            self._signature = None  # arguments without names cannot be distinguished
        self._by_position = [parameter.name for parameter in parameters[: len(args)]]
        self._by_name = list(kwargs)

    def as_in_the_example(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments in the form of the example; None if that is impossible.

        An argument that the example leaves out has to have its default.
        """
        if self._signature is None:
            return None
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            return None  # the model itself says what is wrong
        bound.apply_defaults()
        values = dict(bound.arguments)
        if not all(name in values for name in (*self._by_position, *self._by_name)):
            return None
        positional = tuple(values.pop(name) for name in self._by_position)
        named = {name: values.pop(name) for name in self._by_name}
        defaults = self._signature.parameters
        if any(value is not defaults[name].default for name, value in values.items()):
            return None
        return positional, named


def _named(kwargs: Mapping[str, Any]) -> str:
    return f" and {', '.join(kwargs)}" if kwargs else ""
