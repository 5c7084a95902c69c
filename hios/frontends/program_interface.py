"""Inputs and outputs of an exported program (tensors and the structure they come in), and the places of its nodes."""

from __future__ import annotations

import copy
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from hios.errors import UnsupportedError
from hios.frontends.pt2_archive import PLAIN_TREES

#: A line of a stack trace that names a file and a line.
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)')


@dataclass(frozen=True, slots=True)
class Origin:
    """The location in the model that a call comes from.

    ``module`` is the path of the submodule that computes it ("" for the model itself), ``place`` the location in words,
    ``node`` the node of the model as the frontend has it.
    """

    module: str
    place: str
    node: Any = field(default=None, compare=False, repr=False)


def of_node(node: fx.Node) -> Origin:
    """Module and line of a node of an exported program, if the program states them."""
    stack = node.meta.get("nn_module_stack") or {}
    module = [path for path, _ in stack.values()][-1] if stack else ""
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    line = f" ({Path(frames[-1]['file']).name}:{frames[-1]['line']})" if frames else ""
    return Origin(module, f"{node.target}{f' in {module}' if module else ''}{line}", node)


def arguments_of(node: fx.Node) -> dict[str, Any]:
    """The arguments of a call of an ATen operator by name, defaults included."""
    arguments = node.target._schema.arguments  # type: ignore[union-attr]
    given = dict(zip([argument.name for argument in arguments], node.args, strict=False))
    return {**{argument.name: argument.default_value for argument in arguments}, **given, **node.kwargs}


def user_inputs(program: ExportedProgram) -> list[fx.Node]:
    """The nodes of the inputs that a caller gives, in order."""
    given = set(program.graph_signature.user_inputs)
    return [node for node in program.graph.nodes if node.op == "placeholder" and node.name in given]


def copied(program: ExportedProgram) -> ExportedProgram:
    """A copy of the program that can be modified; it shares the tensors of weights and constants."""
    # torch warns about a deprecated class that it uses itself
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        calls = copy.deepcopy(program.module_call_graph)
    graph = copy.deepcopy(program.graph)
    for node, original in zip(graph.nodes, program.graph.nodes, strict=True):
        node.name = original.name  # a copy of `input`, as of torch.nn.Sequential, would be input_1
        if node.op == "placeholder":
            node.target = original.target
    return ExportedProgram(
        root=program.graph_module,
        graph=graph,
        graph_signature=copy.deepcopy(program.graph_signature),
        state_dict=dict(program.state_dict),
        range_constraints=dict(program.range_constraints),
        module_call_graph=calls,
        example_inputs=program.example_inputs,
        constants=dict(program.constants),
        verifiers=program.verifiers,
    )


def plain(program: ExportedProgram, name: str) -> ExportedProgram:
    """The program, changed in place: with tensors only, in structures that need no lookup by name when loaded.

    Outputs that are None are left out. Outputs become a flat tuple if they are not all tensors, or if they are in a
    container of a custom type, such as a named tuple.

    Raises:
        UnsupportedError: an input is no tensor, or an output neither a tensor nor None.
    """
    signature = program.graph_signature
    for given in signature.input_specs:
        if given.kind is InputKind.USER_INPUT and isinstance(given.arg, ConstantArgument):
            raise UnsupportedError(
                f"{name}: found the input {given.arg.name}, which is {_described(given.arg.value)}; allowed: tensors; "
                "let the model hold the value, or have a default for it, and export it without"
            )
    user_outputs = [made.arg for made in signature.output_specs if made.kind is OutputKind.USER_OUTPUT]
    for position, output in enumerate(user_outputs):
        if isinstance(output, ConstantArgument) and output.value is not None:
            raise UnsupportedError(
                f"{name}: found the output {position}, which is {_described(output.value)}; allowed: tensors; let the "
                "model return nothing else"
            )
    missing = any(isinstance(output, ConstantArgument) for output in user_outputs)
    if missing:
        _leave_out_constants(program)
    if missing or not _is_plain(program.call_spec.out_spec):
        outputs = pytree.tree_structure(tuple(range(len(signature.user_outputs))))
        calls = program.module_call_graph[0].signature
        assert calls is not None  # noqa: S101 - the first entry is the model itself
        calls.out_spec = outputs
    return program


def _described(value: Any) -> str:
    return "None" if value is None else f"{type(value).__name__} {value}"


def _is_plain(spec: Any) -> bool:
    return (spec.type is None or spec.type in PLAIN_TREES) and all(map(_is_plain, spec.children()))


def _leave_out_constants(program: ExportedProgram) -> None:
    """Remove constant outputs; only None occurs."""
    output = program.graph.output_node()
    specs = program.graph_signature.output_specs
    kept = [number for number, spec in enumerate(specs) if not isinstance(spec.arg, ConstantArgument)]
    output.args = (tuple(output.args[0][number] for number in kept),)
    specs[:] = [specs[number] for number in kept]
    program.graph_module.recompile()


def flat_module(program: ExportedProgram) -> nn.Module:
    """The module of a program with its input tensors in order, whatever their structure or names."""
    module: nn.Module = program.module()
    spec = program.call_spec.in_spec
    positional = pytree.tree_structure((tuple(range(spec.num_leaves)), {}))
    return module if spec == positional else _Flattened(module, spec)


class _Flattened(nn.Module):
    """A module that takes the flattened inputs of another."""

    def __init__(self, module: nn.Module, spec: pytree.TreeSpec) -> None:
        super().__init__()
        self._module, self._spec = module, spec

    def forward(self, *tensors: Tensor) -> Any:
        args, kwargs = pytree.tree_unflatten(tensors, self._spec)
        return self._module(*args, **kwargs)


#: Shape and dtype of a tensor.
TensorType = tuple[tuple[int, ...], torch.dtype]


def type_text(tensor_type: TensorType) -> str:
    """Such as ``float32 [1, 3, 224, 224]``."""
    shape, dtype = tensor_type
    return f"{dtype_name(dtype)} {list(shape)}"


def dtype_name(dtype: torch.dtype) -> str:
    """Such as ``float32``."""
    return str(dtype).removeprefix("torch.")
