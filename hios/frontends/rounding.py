"""How far rounding to float32 puts the outputs of a program from what it states."""

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

from hios.core.graph import Graph
from hios.errors import UnsupportedError
from hios.frontends.extraction_check import flat, run_graph
from hios.frontends.program_interface import flat_module


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch, about how it copies its own modules
        module = copy.deepcopy(flat_module(program)).double()
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            for node in part.graph.nodes:
                node.args, node.kwargs = map_aggregate((node.args, node.kwargs), _double_type)
            part.recompile()
    return module


def _double_type(argument: Any) -> Any:
    return torch.float64 if argument is torch.float32 else argument
