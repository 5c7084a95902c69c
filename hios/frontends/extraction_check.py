"""Whether an extracted graph computes what its program computes, and how far rounding to float32 puts both."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import torch
from msgspec.structs import replace
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx.node import map_aggregate

from hios.core.graph import Graph, Value
from hios.errors import UnsupportedError, first_line, warn
from hios.frontends.example_inputs import example_inputs
from hios.frontends.program_interface import flat_module
from hios.frontends.tolerances import TOLERANCE_BY_DTYPE, compared, difference, explained, nan_in_words
from hios.kernels import compile_operator
from hios.kernels.compiled_operator import External


class OutputsDifferError(UnsupportedError):
    """The extracted graph computes or rounds values differently from the program."""


#: Rounding errors of the outputs of a program for given inputs (`hios.frontends.extraction_check`).
Rounding = Callable[[Sequence[Tensor]], list[float] | None]


def require_equal(
    graph: Graph, weights: Mapping[str, Tensor], program: Callable[..., Any], rounding: Rounding | None = None
) -> None:
    """Run graph and program, any function from inputs to outputs, on one seeded input and compare all outputs.

    A model can amplify rounding beyond what is allowed for how much its outputs vary; then what rounding explains is
    allowed.

    Raises:
        UnsupportedError: a kernel is missing, the program fails, or shape or dtype of an output differ.
        OutputsDifferError: values of an output differ.
    """
    inputs = example_inputs(graph.inputs, seed=0)
    pairs = _both(graph, weights, program, inputs)
    by_rounding: list[float] | None = None
    for position, (ours, theirs) in enumerate(pairs):
        place = f"output {position} of the extracted graph"
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            raise UnsupportedError(
                f"{place} is {ours.dtype} of shape {tuple(ours.shape)}, the program's {theirs.dtype} of shape "
                f"{tuple(theirs.shape)}: Relax changes this model in importing it"
            )
        off, allowed = difference(ours, theirs)
        if not off <= allowed and by_rounding is None:
            by_rounding = _explained(rounding, inputs, [theirs for _, theirs in pairs])
        if not (off <= allowed or (by_rounding is not None and off <= by_rounding[position])):
            raise OutputsDifferError(
                f"{place} differs from the program's by up to {off:.3g}; allowed: {allowed:.3g}, as its values vary"
            )


def require_close(graph: Graph, weights: Mapping[str, Tensor], program: Callable[..., Any]) -> None:
    """Like `require_equal`, for outputs that are probabilities: the tolerance is a fixed difference."""
    for position, (ours, theirs) in enumerate(_both(graph, weights, program, example_inputs(graph.inputs, seed=0))):
        tolerance = TOLERANCE_BY_DTYPE.get(theirs.dtype, 0.0)
        off, close = compared(ours, theirs, tolerance)
        if not close:
            raise OutputsDifferError(
                f"output {position} of the extracted graph differs from the program's by up to {off:.3g}; allowed: "
                f"{tolerance:g}"
            )


def _explained(rounding: Rounding | None, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> list[float]:
    """The difference of each output that rounding explains; 0 if it is not known."""
    errors = None if rounding is None else rounding(inputs)
    return explained(errors or [0.0] * len(outputs), outputs)


def _both(
    graph: Graph, weights: Mapping[str, Tensor], program: Callable[..., Any], inputs: tuple[Tensor, ...]
) -> list[tuple[Tensor, Tensor]]:
    """Outputs of graph and program on the same inputs, in pairs; an `UnsupportedError` if there is not one for each."""
    ours = run_graph(graph, weights, inputs)
    with torch.inference_mode():
        try:
            theirs = flat(program(*inputs))
        except Exception as error:  # programs raise many types
            raise UnsupportedError(f"the program fails on random inputs: {first_line(error)}") from error
    if len(ours) != len(theirs):
        raise UnsupportedError(
            f"the extracted graph has {len(ours)} output(s), the program {len(theirs)}: Relax changes this model in "
            "importing it"
        )
    for position, output in enumerate(theirs):
        if share := nan_in_words(output):
            warn(
                f"NaN in output {position} of the program ({share}) on random inputs: these values show nothing of "
                "whether the extracted graph is right"
            )
    return list(zip(ours, theirs, strict=True))


def run_graph(graph: Graph, weights: Mapping[str, Tensor], inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """Outputs of a graph, its operators run one after another in topological order."""
    values: dict[External, Any] = {
        ("input", entry.name, 0): value for entry, value in zip(graph.inputs, inputs, strict=True)
    }
    with torch.inference_mode():
        for position in graph.order:
            compiled = compile_operator(graph.operators[position], weights)
            try:
                result = compiled.run(*(values[value] for value in compiled.externals))
            except Exception as error:  # torch's kernels raise many types; all mean the same to the user
                functions = ", ".join(call.function for call in graph.operators[position].calls)
                raise UnsupportedError(f"operator {compiled.id}: {functions}: {first_line(error)}") from error
            for item, part in enumerate(result if isinstance(result, tuple | list) else [result]):
                values["operator", compiled.id, item] = part
    return [_output(reference, values, weights) for reference in graph.outputs]


def _output(reference: Value, values: Mapping[External, Any], weights: Mapping[str, Tensor]) -> Tensor:
    if reference.external is not None:
        return torch.as_tensor(values[reference.external])
    return torch.as_tensor(reference.number) if reference.weight is None else weights[reference.weight]


def flat(outputs: Any) -> list[Tensor]:
    """All tensors of a module's output, in order."""
    if isinstance(outputs, Tensor):
        return [outputs]
    parts = outputs.values() if isinstance(outputs, dict) else outputs
    return [tensor for part in parts for tensor in flat(part)]


def rounding_errors(program: ExportedProgram, inputs: Sequence[Tensor]) -> list[float] | None:
    """Largest absolute difference of each output of a program from that of the same program in float64.

    Two right ways to compute a model in float32 may differ by a few times as much, as each rounds in its own places.
    Some models amplify rounding: attention of T5 does not scale its products, so that with random weights outputs are
    off by 1e-4 of their size. The difference is 0 for outputs of other types; None if the program does not run in
    float64.
    """
    with torch.inference_mode():
        rounded = flat(flat_module(program)(*inputs))
        try:
            exact = flat(_in_float64(program)(*[_doubled(value) for value in inputs]))
        except RuntimeError:  # an operator that has no kernel for float64, or types that no longer fit
            return None
    return _errors(rounded, exact)


def graph_rounding_errors(graph: Graph, weights: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> list[float] | None:
    """The same of an extracted graph, where there is no program of torch: how far it is from itself in float64."""
    precise = {name: _doubled(tensor) for name, tensor in weights.items()}
    try:
        exact = run_graph(_graph_in_float64(graph), precise, tuple(map(_doubled, inputs)))
    except UnsupportedError:  # an operator that has no kernel for float64, or types that no longer fit
        return None
    return _errors(run_graph(graph, weights, tuple(inputs)), exact)


def _graph_in_float64(graph: Graph) -> Graph:
    """A copy of a graph whose calls convert to float64 where they convert to float32."""
    text = msgspec.json.encode([[call.attributes for call in operator.calls] for operator in graph.operators])
    attributes = msgspec.json.decode(text.replace(b'"float32"', b'"float64"'))
    operators = tuple(
        replace(
            operator,
            calls=tuple(replace(call, attributes=own) for call, own in zip(operator.calls, given, strict=True)),
        )
        for operator, given in zip(graph.operators, attributes, strict=True)
    )
    return dataclasses.replace(graph, operators=operators)


def _errors(rounded: Sequence[Tensor], exact: Sequence[Tensor]) -> list[float]:
    return [
        (ours.double() - theirs.double()).abs().max().item() if ours.is_floating_point() and ours.numel() else 0.0
        for ours, theirs in zip(rounded, exact, strict=True)
    ]


def _doubled(value: Tensor) -> Tensor:
    return value.double() if value.dtype is torch.float32 else value


def _in_float64(program: ExportedProgram) -> Callable[..., Any]:
    """A copy of a program with weights, constants and conversions in float64."""
    # torch warns about how it copies its own modules
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        module = copy.deepcopy(flat_module(program)).double()
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            for node in part.graph.nodes:
                node.args, node.kwargs = map_aggregate((node.args, node.kwargs), _double_type)
            part.recompile()
    return module


def _double_type(argument: Any) -> Any:
    return torch.float64 if argument is torch.float32 else argument
