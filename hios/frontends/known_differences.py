"""Operators for which another runtime is known to answer differently from PyTorch, in known_differences.json.

benchmarks/runtime_faithfulness.py makes the file: it runs every operator by itself on values on which runtimes stumble.

finite   differences on ordinary values keep a runtime out of a graph with that operator and dtype
special  on NaN, infinities and numbers at the limits of their dtype: only if ``strict``; the report names them
wide     on whole numbers at the limits of 32 and 64 bits, and
masked   on masks with empty rows: left to the comparison on other inputs (`hios.optimizing.other_inputs`), as most
         whole numbers in a graph are indices, flags and sizes, which never get that large, and many masks are constant
outside  on indices outside of what they index, for which PyTorch raises: every call checks these (`hios.optimizing`)
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import fx

FILE = Path(__file__).with_suffix(".json")
KINDS = ("finite", "masked", "wide", "special", "outside")


@functools.cache
def read() -> dict[str, Any]:
    """Versions of the runtimes, and operators with the dtypes for which they differ, by runtime and kind."""
    table: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return table


def write(table: dict[str, Any]) -> None:
    """Write the file."""
    FILE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


def known(graph: fx.Graph, runtime: str, *kinds: str) -> list[str]:
    """Operators of a graph for which a runtime differs on values of these kinds, each with its dtypes, as text."""
    runtimes = (runtime, "onnxruntime") if runtime == "openvino" and through_onnx(graph) else (runtime,)
    tables = [read()["differences"].get(own, {}).get(kind, {}) for own in runtimes for kind in kinds]
    found = dict.fromkeys(own for node in graph.nodes if (own := signature(node)) is not None)
    return [f"{name} of {dtypes}" for name, dtypes in found if any(dtypes in table.get(name, ()) for table in tables)]


def through_onnx(graph: fx.Graph) -> bool:
    """Whether OpenVINO gets a program by way of ONNX: one with a GRU, or an LSTM without projections.

    These are the layers that torch.onnx keeps whole, if its converters are installed (extra `onnx`).
    """
    layers = (node.args for node in graph.nodes if str(node.target) in {"aten.lstm.input", "aten.gru.input"})
    return find_spec("onnxscript") is not None and any(
        len(params) == count * (2 if both else 1) * (4 if biases else 2)
        for _, _, params, biases, count, _, _, both, *_ in layers
    )


def signature(node: fx.Node) -> tuple[str, str] | None:
    """The ATen operator of a node, such as ``max.dim``, and its dtypes, such as ``int64 to bool``; None for others."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return None
    name = _without_writing(node.target)
    if name == "index.Tensor":
        name += f" with {sum(index is not None for index in node.args[1])}"  # type: ignore[union-attr]
    if name == "scaled_dot_product_attention" and len(node.all_input_nodes) > len({*node.args[:3]}):
        name += " with a mask"
    given, made = next(_dtypes(node.all_input_nodes), ""), next(_dtypes([node]), "")
    return name, given if given in {made, ""} else f"{given} to {made}"


def _without_writing(operator: torch._ops.OpOverload) -> str:
    """The name of an operator; of one that writes into its argument, that of the one that does not."""
    name, _, overload = operator.__name__.partition(".")
    if operator._schema.is_mutable:
        name = f"__{name[3:]}" if name.startswith("__i") else name.removesuffix("_")
        overload = overload.removesuffix("out").removesuffix("_")
        other = getattr(torch.ops.aten, name, None)
        if other is None or overload not in other.overloads():
            overload = "default"
    return name if overload == "default" else f"{name}.{overload}"


def _dtypes(nodes: Iterable[fx.Node]) -> Iterator[str]:
    values = (node.meta.get("val") for node in nodes)
    return (
        str(tensor.dtype).removeprefix("torch.")
        for value in values
        for tensor in (value if isinstance(value, list | tuple) else [value])
        if isinstance(tensor, torch.Tensor)
    )
