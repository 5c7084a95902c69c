"""Rewriting ONNX models of fixed shapes into what Relax's importer supports.

What a model computes from shapes, such as the sizes that a reshape is given, is known before the run. The file itself
stays as it is: ONNX Runtime runs that, so that the rewriting is checked with the rest of the import.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnxscript import ir, optimizer

from hios.frontends.onnx_recurrent import unroll

#: Operators whose padding may be a rule in place of numbers, and that Relax's importer cannot take with it.
_PADDED = ("AveragePool", "Conv", "LpPool", "MaxPool")
_REAL = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE)

logging.getLogger("onnxscript.optimizer").setLevel(logging.ERROR)  # it warns about all that it leaves unchanged


def rewritten(model: ModelProto) -> ModelProto:
    """A copy with constants for all that follows from shapes, explicit padding, and recurrent layers unrolled."""
    given = model.graph.initializer
    result = onnx.shape_inference.infer_shapes(folded(model), data_prop=True)
    _move_constants(result.graph, {tensor.name for tensor in given})
    sizes = _sizes(result)
    for node in result.graph.node:
        if node.op_type in _PADDED and set(node.input) <= {*sizes, ""}:
            _state_padding(node, sizes)
    unroll(result.graph, sizes)
    return result


def folded(model: ModelProto) -> ModelProto:
    """A copy with constants folded, except those computed from weights.

    That is left to ``hios.frontends.folding``, which keeps their names.
    """
    weights = {tensor.name for tensor in model.graph.initializer if tensor.data_type in _REAL and tensor.dims}

    def should_fold(node: ir.Node) -> bool | None:
        if any(value is not None and value.name in weights for value in node.inputs):
            return False
        # Left alone by default, as it may be large; Relax's importer fails on that of a scalar.
        return True if node.op_type == "ConstantOfShape" else None

    result = ir.from_proto(model)
    with np.errstate(all="ignore"):  # masks have infinities, as they will when the model runs
        optimizer.fold_constants(result, onnx_shape_inference=True, should_fold=should_fold)
    return ir.to_proto(result)


def _move_constants(graph: GraphProto, weights: Container[str]) -> None:
    """Turn new initializers into constants, so that they are not taken for weights of the file."""
    tensors = list(graph.initializer)
    steps = list(graph.node)
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(tensor for tensor in tensors if tensor.name in weights)
    made = [tensor for tensor in tensors if tensor.name not in weights]
    graph.node.extend(helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in made)
    graph.node.extend(steps)


def _sizes(model: ModelProto) -> dict[str, list[int]]:
    """The shapes of values by name, where known."""
    graph = model.graph
    sizes_of = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for value in [*graph.input, *graph.value_info, *graph.output]:
        dimensions = value.type.tensor_type.shape.dim
        if dimensions and all(size.HasField("dim_value") for size in dimensions):
            sizes_of[value.name] = [size.dim_value for size in dimensions]
    return sizes_of


def _state_padding(node: NodeProto, sizes: dict[str, list[int]]) -> None:
    """Replace the attribute ``auto_pad`` by explicit padding."""
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    rule = given.pop("auto_pad", b"NOTSET")
    if rule == b"NOTSET":
        return
    if rule == b"VALID":
        pads = [0] * 2 * (len(sizes[node.input[0]]) - 2)
    else:
        image = sizes[node.input[0]][2:]
        window = given.get("kernel_shape") or sizes[node.input[1]][2:]
        ones = [1] * len(image)
        totals = _totals(image, window, given.get("strides", ones), given.get("dilations", ones))
        less, more = [total // 2 for total in totals], [total - total // 2 for total in totals]
        pads = less + more if rule == b"SAME_UPPER" else more + less
        given.pop("ceil_mode", None)  # the rule says how many windows there are
    given["pads"] = pads
    del node.attribute[:]
    node.attribute.extend(helper.make_attribute(name, value) for name, value in given.items())


def _totals(image: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]) -> list[int]:
    """Total padding of each axis with which a window starts at every multiple of the stride."""
    return [
        max(0, (-(-size // stride) - 1) * stride + (extent - 1) * dilation + 1 - size)
        for size, extent, stride, dilation in zip(image, window, strides, dilations, strict=True)
    ]
