"""Inlining the regions under autocast or without gradients that torch.export keeps as nested programs."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from hios.errors import UnsupportedError
from hios.frontends.source_location import of_node

_AUTOCAST = torch.ops.higher_order.wrap_with_autocast
#: The operators that wrap a region, with the position of the nested program among their arguments; its inputs follow.
_REGIONS = {_AUTOCAST: 4, torch.ops.higher_order.wrap_with_set_grad_enabled: 1}


def inline_regions(program: ExportedProgram, name: str) -> None:
    """Inline each region whose context does not change the results of its operators.

    Args:
        program: is changed.
        name: of the model, for messages.

    Raises:
        UnsupportedError: autocast is on in a region, and would change its precision.
    """
    graph = program.graph
    changed = False
    while regions := [node for node in graph.nodes if node.op == "call_function" and node.target in _REGIONS]:
        for node in regions:
            _require_no_autocast(node, name)
            _inline(program, node)
        changed = True
    if changed:
        program.graph_module.recompile()


def _require_no_autocast(node: fx.Node, name: str) -> None:
    if node.target is _AUTOCAST:
        device, _, enabled, *_ = node.args
        if enabled and device == "cpu":
            raise UnsupportedError(
                f"{name}: found {of_node(node).place}, where autocast is on; allowed: torch.autocast with enabled=False"
            )


def _inline(program: ExportedProgram, node: fx.Node) -> None:
    """Inline one region; regions nested in it stay."""
    graph, root = program.graph, program.graph_module
    held, *arguments = node.args[_REGIONS[node.target] :]  # type: ignore[index]
    assert isinstance(held, fx.Node)  # noqa: S101 - it names the attribute
    body = getattr(root, str(held.target))
    places = (inner for inner in body.graph.nodes if inner.op == "placeholder")
    values: dict[fx.Node, Any] = dict(zip(places, arguments, strict=True))
    with graph.inserting_before(node):
        outputs = graph.graph_copy(body.graph, values)
    for inner in body.graph.nodes:
        if inner.op == "get_attr":
            values[inner].target = _attached(root, getattr(body, inner.target))
    for user in list(node.users):
        if user.target is operator.getitem:
            _replace(program, user, outputs[user.args[1]])
    if node.users:
        _replace(program, node, outputs)
    else:
        graph.erase_node(node)
    if not held.users:
        graph.erase_node(held)
        delattr(root, str(held.target))


def _attached(root: fx.GraphModule, value: Any) -> str:
    """The name of an attribute that holds a value."""
    name = next(name for number in itertools.count() if not hasattr(root, name := f"region_{number}"))
    setattr(root, name, value)
    return name


def _replace(program: ExportedProgram, old: fx.Node, new: fx.Node) -> None:
    """Replace a node by another one, including in the outputs."""
    old.replace_all_uses_with(new)
    program.graph_signature.replace_all_uses(old.name, new.name)
    for entry in program.module_call_graph:
        for argument in entry.signature.outputs if entry.signature is not None else ():
            if getattr(argument, "name", None) == old.name:
                argument.name = new.name
    program.graph.erase_node(old)
