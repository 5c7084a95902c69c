"""Fixing open dimensions of ONNX models, and rewriting models of fixed shapes into what Relax's importer supports.

What a model computes from shapes, such as the sizes that a reshape is given, is known before the run. The file itself
stays as it is: ONNX Runtime runs that, so that the rewriting is checked with the rest of the import.

Recurrent layers (LSTM, GRU, RNN) remain whole, but for the two directions of a layer.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnxscript import ir, optimizer

from hios.core.graph import RECURRENT
from hios.errors import HiosError, UnsupportedError, shown

#: Inputs of recurrent layers that all directions share: the sequence, and its lengths.
_SHARED = (0, 4)
#: Options with which a layer stays one operator: numbers that belong to some of its activations.
_INDIVISIBLE = {"activation_alpha", "activation_beta"}


def _split_directions(graph: GraphProto) -> None:
    """Replace recurrent layers of two directions, in place, by two layers of one direction, which can run at once."""
    before = list(graph.node)
    del graph.node[:]
    for node in before:
        given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        is_layer = f"onnx.{node.op_type}" in RECURRENT and not node.domain
        both = given.pop("direction", b"") == b"bidirectional"
        if not (is_layer and both) or given.get("layout") or _INDIVISIBLE & given.keys():
            graph.node.append(node)
            continue
        names = given.pop("activations", [])
        prefix = node.name or next(name for name in node.output if name)
        for place, direction in enumerate(("forward", "reverse")):
            number = f"{prefix}/{place}"
            position = numpy_helper.from_array(np.asarray([place], np.int64))
            graph.node.append(helper.make_node("Constant", [], [number], value=position))
            inputs = list(node.input)
            for item, name in enumerate(node.input):
                if name and item not in _SHARED:
                    inputs[item] = f"{prefix}/{direction}/{item}"
                    graph.node.append(helper.make_node("Gather", [name, number], [inputs[item]], axis=0))
            own = names[place * len(names) // 2 : (place + 1) * len(names) // 2]
            more = {**given, **({"activations": own} if own else {})}
            made = [name and f"{name}/{direction}" for name in node.output]
            graph.node.append(
                helper.make_node(node.op_type, inputs, made, f"{prefix}/{direction}", direction=direction, **more)
            )
        for item, name in enumerate(node.output):
            if name:
                parts = [f"{name}/{direction}" for direction in ("forward", "reverse")]
                graph.node.append(helper.make_node("Concat", parts, [name], axis=0 if item else 1))


#: Operators whose padding may be a rule in place of numbers, and that Relax's importer cannot take with it.
_PADDED = ("AveragePool", "Conv", "LpPool", "MaxPool")
_REAL = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE)

logging.getLogger("onnxscript.optimizer").setLevel(logging.ERROR)  # it warns about all that it leaves unchanged


def rewritten(model: ModelProto) -> ModelProto:
    """A copy with constants for what follows from shapes, explicit padding, and recurrent layers split by direction."""
    given = model.graph.initializer
    result = folded(model)
    _split_directions(result.graph)
    result = onnx.shape_inference.infer_shapes(result, data_prop=True)
    _move_constants(result.graph, {tensor.name for tensor in given})
    sizes = _sizes(result)
    for node in result.graph.node:
        if node.op_type in _PADDED and set(node.input) <= {*sizes, ""}:
            _state_padding(node, sizes)
    return result


def folded(model: ModelProto) -> ModelProto:
    """A copy with constants folded, except those computed from weights.

    That is left to ``hios.frontends.extract``, which keeps their names.
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


#: Elements that are integers.
_WHOLE = (TensorProto.INT32, TensorProto.INT64)
#: Shapes by input name.
Shapes = Mapping[str, Sequence[int]]


def fix_shapes(
    model: ModelProto, inputs: Sequence[ValueInfoProto], path: Path, shapes: Shapes, batch_size: int | None = None
) -> None:
    """Fix every open dimension of the inputs (without weights) in place, first dimensions to the batch size.

    A dimension is open if the file gives it a name, no size, or -1 (as exporters of PaddlePaddle do). Dimensions with
    the same name have the same size.

    Raises:
        UnsupportedError: an input is not a tensor of known rank, or a dimension stays open; the message lists the
            inputs and the options to give.
        HiosError: an unknown input, or a shape or batch size that the file does not allow.
    """
    for value in inputs:
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            raise UnsupportedError(f"{path}: input {value.name}: found no shape; allowed: tensors of fixed shapes")
    asked = {value.name: _asked(value, path, shapes, batch_size) for value in inputs}
    if unknown := sorted(set(shapes) - set(asked)):
        names = ", ".join(asked) or "none"
        raise HiosError(f"{path}: inputs: found {shown(unknown[0], quoted=False)}; allowed: {names}")
    sizes = _named(inputs, asked, path)
    if any([_fix(value, asked[value.name], sizes) for value in inputs]):  # noqa: C419 - all are fixed, not the first
        del model.graph.value_info[:]  # states the open dimensions
        for size in (size for value in model.graph.output for size in value.type.tensor_type.shape.dim):
            if size.dim_value < 0:  # open, without a name that shape inference could replace
                size.ClearField("dim_value")
    _require_fixed(inputs, path)


def fix_values(model: ModelProto, shapes: Shapes) -> dict[str, Sequence[int]]:
    """Turn inputs that are one integer, such as a sampling rate, into constants if given; the shapes of other inputs.

    What depends on it, such as which branch is taken, is then known before the run.
    """
    rest = dict(shapes)
    for value in list(model.graph.input):
        kind = value.type.tensor_type
        is_number = kind.HasField("shape") and not kind.shape.dim and kind.elem_type in _WHOLE
        if is_number and len(rest.get(value.name, ())) == 1:
            (number,) = rest.pop(value.name)
            model.graph.initializer.append(helper.make_tensor(value.name, kind.elem_type, [], [number]))
            model.graph.input.remove(value)
    return rest


def _dimensions(value: ValueInfoProto) -> list[int | str]:
    """The size of every dimension; for an open one its name, which may be empty."""
    return [
        size.dim_value if size.HasField("dim_value") and size.dim_value >= 1 else size.dim_param.strip("?")
        for size in value.type.tensor_type.shape.dim
    ]


def _named(inputs: Sequence[ValueInfoProto], asked: Mapping[str, Sequence[int | None]], path: Path) -> dict[str, int]:
    """Sizes of the named open dimensions."""
    sizes: dict[str, int] = {}
    for value in inputs:
        for name, size in zip(_dimensions(value), asked[value.name], strict=True):
            if isinstance(name, str) and name and size is not None and sizes.setdefault(name, size) != size:
                raise HiosError(
                    f"{path}: inputs: {value.name}: found {size} for the dimension {name}; allowed: {sizes[name]}, as "
                    "in the inputs before it"
                )
    return sizes


def _fix(value: ValueInfoProto, asked: Sequence[int | None], sizes: Mapping[str, int]) -> bool:
    """Write the sizes of open dimensions; returns whether there were any."""
    changed = False
    for position, name in enumerate(_dimensions(value)):
        if isinstance(name, str) and (size := asked[position] or sizes.get(name)) is not None:
            value.type.tensor_type.shape.dim[position].dim_value = size
            changed = True
    return changed


def _asked(value: ValueInfoProto, path: Path, shapes: Shapes, batch_size: int | None) -> list[int | None]:
    """The size of every dimension from the user or the file; None if neither gives one."""
    dimensions = _dimensions(value)
    asked: list[int | None] = [size if isinstance(size, int) else None for size in dimensions]
    if batch_size is not None and asked:
        if asked[0] is not None and asked[0] != batch_size:
            raise HiosError(
                f"{path}: batch_size: found {batch_size}; allowed: {asked[0]}, which the file fixes for input "
                f"{value.name}"
            )
        asked[0] = batch_size
    shape = shapes.get(value.name)
    if shape is None:
        return asked
    if len(shape) != len(asked):
        raise HiosError(
            f"{path}: inputs: {value.name}: found {len(shape)} dimensions; allowed: {len(asked)}, {_listed(value)}"
        )
    for position, (size, known) in enumerate(zip(shape, asked, strict=True)):
        if known is not None and size != known:
            raise HiosError(
                f"{path}: inputs: {value.name}: found {size} for dimension {position}; allowed: {known}, which "
                + ("is the batch size given" if position == 0 and batch_size is not None else "the file fixes")
            )
    return list(shape)


def _require_fixed(inputs: Sequence[ValueInfoProto], path: Path) -> None:
    """Refuse open dimensions, as graph and costs depend on all of them."""
    opened = [value for value in inputs if not all(isinstance(size, int) for size in _dimensions(value))]
    if not opened:
        return
    batches_only = all(isinstance(size, int) for value in opened for size in _dimensions(value)[1:])
    templates = {
        value.name: ["?" if isinstance(size, str) else str(size) for size in _dimensions(value)] for value in opened
    }
    options = " ".join(f"--input {name}={'x'.join(template)}" for name, template in templates.items())
    config = ", ".join(f"{name}: [{', '.join(template)}]" for name, template in templates.items())
    open_dimensions = "; ".join(f"input {value.name} {_listed(value)}" for value in opened)
    raise UnsupportedError(
        f"{path}: found open dimensions in {open_dimensions}; give "
        + ("--batch-size (in config.yaml: batch_size), or " if batches_only else "")
        + f"{options} with a number for each ? (in config.yaml: inputs: {{{config}}})"
    )


def _listed(value: ValueInfoProto) -> str:
    """The shape as text, such as [batch, 3, ?, ?]."""
    return f"[{', '.join(str(size) if size != '' else '?' for size in _dimensions(value))}]"
