"""An operator of graph.json as one Python function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from hios.graph import Operator
from hios.kernels.table import ALLOCATES, IN_PLACE, Kernel, build

#: What an operator reads from outside: ("operator", id, item) or ("input", name, 0).
External = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class CompiledOperator:
    """A scheduling unit ready to run.

    ``run`` takes the tensors named by ``externals``, in that order, and returns the output tensor, or a tuple of
    them for an operator with several outputs.
    """

    id: str
    externals: tuple[External, ...]
    run: Callable[..., Any]


def externals(operator: Operator) -> tuple[External, ...]:
    """What an operator reads from other operators and graph inputs, each value once, in order of first use."""
    found: dict[External, None] = {}
    for call in operator.details["calls"]:
        for argument in call["arguments"]:
            if (value := external(argument)) is not None:
                found[value] = None
    return tuple(found)


def external(argument: Mapping[str, Any]) -> External | None:
    """The outside value behind an argument; None for weights, constants and results of the same operator."""
    if "operator" in argument:
        return ("operator", argument["operator"], argument.get("item", 0))
    if "input" in argument:
        return ("input", argument["input"], 0)
    return None


def number(constant: float | bool | str) -> float | bool:
    """The number behind a constant of graph.json, where inf, -inf and nan are text."""
    return float(constant) if isinstance(constant, str) else constant


def compile_operator(operator: Operator, weights: Mapping[str, Tensor]) -> CompiledOperator:
    """Turn an operator into a function of its outside values.

    Args:
        operator: with its calls.
        weights: tensors by name; they are bound, not copied.

    Raises:
        UnsupportedError: the kernel table lacks an operator.
    """
    outside = externals(operator)
    slot_of = {value: number for number, value in enumerate(outside)}
    calls = operator.details["calls"]
    readers = _readers(calls)
    steps: list[tuple[Kernel, Sequence[int]]] = []
    # Slots: the outside values, then weights and constants, then the result of each call.
    fixed: list[Any] = []
    result_base = len(outside) + sum(
        1 for call in calls for argument in call["arguments"] if "weight" in argument or "constant" in argument
    )
    for call in calls:
        arguments: list[int] = []
        for argument in call["arguments"]:
            value = external(argument)
            if value is not None:
                arguments.append(slot_of[value])
            elif "call" in argument:
                arguments.append(result_base + argument["call"])
            else:
                arguments.append(len(outside) + len(fixed))
                fixed.append(weights[argument["weight"]] if "weight" in argument else number(argument["constant"]))
        steps.append((_chosen_kernel(operator.id, call, calls, readers), arguments))
    return CompiledOperator(operator.id, outside, _function(len(outside), tuple(fixed), steps))


def _readers(calls: Sequence[Mapping[str, Any]]) -> list[int]:
    count = [0] * len(calls)
    for call in calls:
        for argument in call["arguments"]:
            if "call" in argument:
                count[argument["call"]] += 1
    return count


def _chosen_kernel(
    place: str, call: Mapping[str, Any], calls: Sequence[Mapping[str, Any]], readers: Sequence[int]
) -> Kernel:
    function, attributes = call["function"], call.get("attributes", {})
    if function in IN_PLACE:
        producer = call["arguments"][0].get("call")
        if producer is not None and readers[producer] == 1 and calls[producer]["function"] in ALLOCATES:
            return IN_PLACE[function](attributes)
    return build(function, attributes, place)


def _function(
    outside: int, fixed: tuple[Any, ...], steps: Sequence[tuple[Kernel, Sequence[int]]]
) -> Callable[..., Any]:
    if len(steps) == 1:
        kernel, arguments = steps[0]
        if list(arguments) == list(range(outside + len(fixed))):
            return (lambda *values: kernel(*values, *fixed)) if fixed else kernel

    def run(*values: Any) -> Any:
        slots = [*values, *fixed]
        for kernel, arguments in steps:
            slots.append(kernel(*[slots[argument] for argument in arguments]))
        return slots[-1]

    return run
