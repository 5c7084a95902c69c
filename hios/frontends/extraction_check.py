"""Whether an extracted graph computes what its program computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from hios.errors import UnsupportedError, first_line, warn
from hios.frontends.example_inputs import example_inputs
from hios.graph import Graph, Value
from hios.kernels import compile_operator
from hios.kernels.unit import External
from hios.tolerances import TOLERANCE, compared, difference, nan_in_words


class OutputsDifferError(UnsupportedError):
    """The extracted graph computes or rounds values differently from the program."""


def require_equal(graph: Graph, weights: Mapping[str, Tensor], program: Callable[..., Any]) -> None:
    """Run graph and program on one seeded input and compare all outputs.

    Args:
        graph: what was extracted.
        weights: its weights by name.
        program: the module of the program, or any other function from inputs to outputs.

    Raises:
        UnsupportedError: a kernel is missing, or shape or dtype of an output differ.
        OutputsDifferError: values of an output differ.
    """
    for position, (ours, theirs) in enumerate(_both(graph, weights, program)):
        place = f"output {position} of the extracted graph"
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            raise UnsupportedError(
                f"{place} is {ours.dtype} of shape {tuple(ours.shape)}, the program's {theirs.dtype} of shape "
                f"{tuple(theirs.shape)}: Relax changes this model in importing it"
            )
        off, allowed = difference(ours, theirs)
        if not off <= allowed:
            raise OutputsDifferError(
                f"{place} differs from the program's by up to {off:.3g}; allowed: {allowed:.3g}, as its values vary"
            )


def require_close(graph: Graph, weights: Mapping[str, Tensor], program: Callable[..., Any]) -> None:
    """Like `require_equal`, for outputs that are probabilities: the tolerance is a fixed difference.

    Raises:
        OutputsDifferError: values of an output differ.
    """
    for position, (ours, theirs) in enumerate(_both(graph, weights, program)):
        tolerance = TOLERANCE.get(theirs.dtype, 0.0)
        off, close = compared(ours, theirs, tolerance)
        if not close:
            raise OutputsDifferError(
                f"output {position} of the extracted graph differs from the program's by up to {off:.3g}; allowed: "
                f"{tolerance:g}"
            )


def _both(graph: Graph, weights: Mapping[str, Tensor], program: Callable[..., Any]) -> list[tuple[Tensor, Tensor]]:
    """Outputs of graph and program on one seeded input, in pairs.

    Raises:
        UnsupportedError: one has more outputs than the other.
    """
    inputs = example_inputs(graph.inputs, seed=0)
    ours = run_graph(graph, weights, inputs)
    with torch.inference_mode():
        theirs = flat(program(*inputs))
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
