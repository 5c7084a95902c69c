"""Calls of ATen operators by name: what Relax cannot import runs as PyTorch runs it.

A call in graph.json names the operator as ``aten.NAME.OVERLOAD``, and has two attributes: ``arguments``, the arguments
that differ from their defaults by name, in which ``{"tensor": 2}`` stands for the third argument of the call; and
``outputs``, the positions of those results that are used, of an operator that has several.

The file may come from strangers: an operator takes only tensors, numbers and a few words, and neither writes to its
arguments nor draws random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hios.core.graph import RECURRENT
from hios.errors import UnsupportedError, shown
from hios.formats.aten_operators import UPDATES_STATISTICS, is_harmless

#: What the names of such operators start with in graph.json.
PREFIX = "aten."

#: Operators whose result depends on how their argument lies in memory, which packed convolutions choose.
_OF_MEMORY = ("aten.as_strided.default", "aten.view.dtype")
#: Arguments that say where and how a result is stored, which the engine decides.
_STORAGE = ("device", "layout", "memory_format", "pin_memory", "non_blocking")


def refusal(operator: Any, arguments: Mapping[str, Any]) -> str | None:
    """Why a call of an ATen operator cannot be one of a graph; None if it can be."""
    if not isinstance(operator, torch._ops.OpOverload) or not is_harmless(f"torch.ops.{operator}"):
        return "allowed: ATen operators on tensors and numbers"
    if torch.Tag.nondeterministic_seeded in operator.tags:
        in_use = str(operator) in RECURRENT and isinstance(arguments, Mapping) and arguments.get("train") is False
        if not in_use:  # recurrent layers draw only in training
            return "it draws random numbers"
    if operator._schema.is_mutable or operator._schema.name in UPDATES_STATISTICS:
        return "it writes to its arguments"
    made = {str(result.type) for result in operator._schema.returns}
    if not made or made - {"Tensor", "List[Tensor]"}:
        return "it returns something else than tensors"
    return None


def described(operator: Any, given: Mapping[str, Any], tensor: Callable[[Any], bool]) -> tuple[list[Any], Any]:
    """The tensors of a call, of which ``tensor`` is true, in order, and its other arguments as graph.json has them.

    Raises:
        UnsupportedError: an argument that graph.json cannot hold.
    """
    tensors: list[Any] = []

    def plain(value: Any) -> Any:
        if tensor(value):
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"number": str(value)}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, complex):
            return {"complex": [plain(value.real), plain(value.imag)]}
        if isinstance(value, list | tuple):
            return [plain(item) for item in value]
        raise UnsupportedError(f"its argument {value} ({type(value).__name__}) is not supported")

    schema = [argument for argument in operator._schema.arguments if argument.name not in _STORAGE]
    stated = [
        argument.name
        for argument in schema
        if not argument.has_default_value() or given[argument.name] != argument.default_value
    ]
    return tensors, {name: plain(given[name]) for name in stated}


def build(function: str, attributes: Mapping[str, Any]) -> Callable[..., Any]:
    """The function of an ATen operator: from its tensors, in order, to its result, or the results that are used.

    Raises:
        UnsupportedError: there is no such operator, it is not allowed, or its arguments are not those it takes.
    """
    arguments = attributes["arguments"]
    operator = _operator(function, arguments)
    schema = {argument.name: argument for argument in operator._schema.arguments}
    if unknown := [name for name in arguments if name not in schema or name in _STORAGE]:
        raise UnsupportedError(f"found the argument {shown(unknown[0])}; allowed: {', '.join(schema)}")
    if missing := [name for name, argument in schema.items() if name not in arguments and _is_required(argument)]:
        raise UnsupportedError(f"the argument {missing[0]} is missing")
    filled = {name: _filler(value) for name, value in arguments.items()}
    by_name = {name: fill for name, fill in filled.items() if schema[name].kwarg_only}
    by_position: list[_Filler] = []
    for name, argument in schema.items():
        if not argument.kwarg_only:
            by_position.append(filled.get(name) or _constant(argument.default_value))
    chosen = _chosen(attributes.get("outputs"))
    gates = RECURRENT.get(function)

    def run(*tensors: Any) -> Any:
        if function in _OF_MEMORY:
            tensors = tuple(_as_in_the_model(tensor) for tensor in tensors)
        given = [fill(tensors) for fill in by_position]
        if gates is not None:
            _require_fitting(gates, *given)
        made = operator(*given, **{name: fill(tensors) for name, fill in by_name.items()})
        return made if isinstance(made, Tensor) else chosen(made)

    return run


def _as_in_the_model(tensor: Tensor) -> Tensor:
    """A tensor in the order of its dimensions, where a packed convolution wrote its channels last."""
    packed = tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return tensor.contiguous() if packed else tensor


def _require_fitting(gates: int, x: Tensor, hx: Any, params: Any, biases: bool, layers: int, *options: Any) -> None:
    """Check the shapes of a recurrent layer, as its fastest kernel reads beyond those that do not fit.

    Raises:
        UnsupportedError: they do not fit, or there is more than one layer or direction.
    """
    *_, bidirectional, batch_first = options
    states = list(hx) if isinstance(hx, list | tuple) else [hx]
    given = [tuple(value.shape) for value in (*states, *params)]
    has_cells = gates == RECURRENT["aten.lstm.input"]
    projects = has_cells and len(params) == (5 if biases else 3)
    fits = x.dim() == 3 and layers == 1 and not bidirectional and len(params) > 1 and params[1].dim() == 2
    if fits:
        rows, made = params[1].shape
        batch, hidden = x.shape[0 if batch_first else 1], rows // gates
        required: list[tuple[int, ...]] = [(1, batch, made)]
        required += [(1, batch, hidden)] if has_cells else []
        required += [(gates * hidden, x.shape[2]), (gates * hidden, made)]
        required += [(gates * hidden,)] * (2 if biases else 0) + ([(made, hidden)] if projects else [])
        fits = given == required and (projects or made == hidden)
    if not fits:
        raise UnsupportedError(
            f"found states and weights of {given} for an input of {tuple(x.shape)}; allowed: those of one layer"
        )


#: A value as a function of the tensors of a call.
_Filler = Callable[[Sequence[Any]], Any]


def _operator(function: str, arguments: Mapping[str, Any]) -> Any:
    packet, _, overload = function.removeprefix(PREFIX).partition(".")
    operator = None
    if is_harmless(f"torch.ops.{function}"):
        operator = getattr(getattr(torch.ops.aten, packet), overload)
    if reason := refusal(operator, arguments):
        raise UnsupportedError(f"found {shown(function, quoted=False)}: {reason}")
    return operator


def _is_required(argument: Any) -> bool:
    return not argument.has_default_value() and argument.name not in _STORAGE


def _constant(value: Any) -> _Filler:
    return lambda tensors: value


def _filler(value: Any) -> _Filler:
    """The value behind a plain one; an `UnsupportedError` if `described` does not write it."""
    if isinstance(value, list):
        parts = [_filler(item) for item in value]
        if any(isinstance(item, list | dict) for item in value):
            return lambda tensors: [part(tensors) for part in parts]
        return _constant(value)
    if not isinstance(value, dict):
        return _constant(value)
    match list(value.items()):
        case [("tensor", int(position))] if position >= 0:
            return lambda tensors: tensors[position]
        case [("number", "inf" | "-inf" | "nan" as number)]:
            return _constant(float(number))
        case [("dtype", str(name))] if isinstance(dtype := getattr(torch, name, None), torch.dtype):
            return _constant(dtype)
        case [("complex", [real, imaginary])] if not any(
            "tensor" in part for part in (real, imaginary) if isinstance(part, dict)
        ):
            return _constant(complex(_filler(real)(()), _filler(imaginary)(())))
    raise UnsupportedError(f"found {shown(value)}; allowed: numbers, words, lists, tensor, number, dtype and complex")


def _chosen(outputs: Iterable[int] | None) -> Callable[[Sequence[Tensor]], Any]:
    """The results that are used, of several; only one is not in a tuple."""
    if outputs is None:
        return lambda made: made[0] if len(made) == 1 else made
    places = [int(place) for place in outputs]
    if len(places) == 1:
        return lambda made: made[places[0]]
    return lambda made: tuple(made[place] for place in places)
