"""Fixing open dimensions of ONNX models, and rewriting models of fixed shapes into what Relax's importer supports.

What a model computes from shapes, such as the sizes that a reshape is given, is known before the run. The file itself
stays as it is: ONNX Runtime runs that, so that the rewriting is checked with the rest of the import.

Recurrent layers (LSTM, GRU, RNN) are unrolled, as torch.export does for those of torch: Relax has none.
With a fixed sequence length a layer is matrix products and elementwise operators, and a scheduler sees them one by one:
both directions of a layer can run at once, and so can layers one step behind each other.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxscript import ir, optimizer

from hios.errors import HiosError, UnsupportedError, shown

#: Rows of weights per unit of the hidden state: the gates of each layer, in the order of ONNX.
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
#: Attributes that are supported, each with the only value allowed; None: any.
_ALLOWED: Mapping[str, Any] = {
    "hidden_size": None,
    "direction": None,
    "linear_before_reset": None,
    "layout": 0,
    "clip": 0.0,
    "input_forget": 0,
}
#: Activations of each direction, in lower case, where the file names them.
_ACTIVATIONS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}
#: Positions of inputs.
_X, _W, _R, _B, _LENGTHS, _H, _C, _PEEPHOLES = range(8)


def unroll(graph: GraphProto, sizes: Mapping[str, Sequence[int]]) -> None:
    """Unroll every recurrent layer of a graph of fixed shapes, in place; ``sizes`` are shapes of its values by name.

    One with weights that are computed, or with an activation or another option that is not supported, stays as it is.
    """
    if not any(node.op_type in _GATES for node in graph.node):
        return
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            values = [attribute.t for attribute in node.attribute if attribute.name == "value"]
            constants |= dict(zip(node.output, values, strict=False))
    before = list(graph.node)
    del graph.node[:]
    for node in before:
        if node.op_type in _GATES:
            for name in filter(None, [*node.input, *[""] * 4][_W : _B + 1]):
                if name not in constants and (value := _computed(name, before, constants)) is not None:
                    constants[name] = value
            try:
                layer = _Layer(node, sizes, constants)
                layer.write()
            except UnsupportedError:  # it stays one operator
                graph.node.append(node)
                continue
            graph.node.extend(layer.nodes)
            graph.initializer.extend(layer.weights)
        else:
            graph.node.append(node)


def _computed(name: str, nodes: Sequence[NodeProto], constants: Mapping[str, TensorProto]) -> TensorProto | None:
    """The value that nodes compute from constants, as exporters reorder gates this way; None if not constant."""
    producers = {output: node for node in nodes for output in node.output}
    needed: dict[int, NodeProto] = {}
    leaves: dict[str, TensorProto] = {}
    waiting = [name]
    while waiting:
        value = waiting.pop()
        if value in constants:
            leaves[value] = constants[value]
        elif value in producers:
            node = producers[value]
            if id(node) not in needed:
                needed[id(node)] = node
                waiting += filter(None, node.input)
        else:
            return None
    steps = [node for node in nodes if id(node) in needed]
    given = [numpy_helper.from_array(numpy_helper.to_array(tensor), leaf) for leaf, tensor in leaves.items()]
    output = helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None)
    graph = helper.make_graph(steps, "weights", [], [output], given)
    (array,) = ReferenceEvaluator(helper.make_model(graph)).run(None, {})
    return numpy_helper.from_array(np.asarray(array), name)


class _Layer:
    """A recurrent layer being unrolled: the nodes that it becomes, and the initializers of these."""

    def __init__(
        self, node: NodeProto, sizes: Mapping[str, Sequence[int]], constants: Mapping[str, TensorProto]
    ) -> None:
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self._node, self._kind = node, node.op_type
        self._inputs = [*node.input, *[""] * 8][:8]
        self._given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        self._prefix = node.name or next(name for name in node.output if name)
        self._where = f"{self._kind} (node {self._prefix})"
        self._count = 0
        self._require_supported()
        w, r, b = (None if not self._inputs[place] else self._constant(place, constants) for place in (_W, _R, _B))
        assert w is not None  # noqa: S101 - the checker requires weights
        assert r is not None  # noqa: S101
        self._w, self._r = w, r
        self._hidden = r.shape[-1]
        self._b = np.zeros((len(w), 2 * w.shape[1]), w.dtype) if b is None else b
        if self._inputs[_X] not in sizes:
            raise UnsupportedError(f"{self._where}: the shape of its input is not known; allowed: fixed shapes")
        self._steps, self._batch, _ = sizes[self._inputs[_X]]

    def _require_supported(self) -> None:
        for name, value in self._given.items():
            if name in _ALLOWED and _ALLOWED[name] in (None, value):
                continue
            if name == "activations" and self._are_usual(value):
                continue
            raise UnsupportedError(f"{self._where}: found {name} {value}; allowed: the default")
        for place, what in ((_LENGTHS, "sequence_lens"), (_PEEPHOLES, "peepholes (P)")):
            if self._inputs[place]:
                raise UnsupportedError(
                    f"{self._where}: found {what}; allowed: sequences of one length, without peepholes"
                )

    def _are_usual(self, names: Sequence[bytes]) -> bool:
        usual = _ACTIVATIONS[self._kind]
        return [name.decode().lower() for name in names] == usual * (len(names) // len(usual))

    def _constant(self, place: int, constants: Mapping[str, TensorProto]) -> np.ndarray:
        name = self._inputs[place]
        if name not in constants:
            raise UnsupportedError(f"{self._where}: its weights {name} are computed; allowed: fixed")
        return numpy_helper.to_array(constants[name])

    def write(self) -> None:
        """Create nodes and weights."""
        direction = self._given.get("direction", b"forward").decode()
        reversed_ = [direction == "reverse"] if direction != "bidirectional" else [False, True]
        sequences, last, cells = [], [], []
        for number, backwards in enumerate(reversed_):
            hidden, cell = self._direction(number, backwards)
            last.append(hidden[0 if backwards else -1])
            sequences.append(hidden)
            cells.append(cell)
        shape = [1, 1, self._batch, self._hidden]
        outputs = [*self._node.output, "", "", ""][:3]
        if outputs[0]:
            rows = [
                self._joined([self._reshaped(hidden[step], shape) for hidden in sequences], 1)
                for step in range(self._steps)
            ]
            self._name(self._joined(rows, 0), outputs[0])
        for values, output in ((last, outputs[1]), (cells, outputs[2])):
            if output:
                self._name(self._joined([self._reshaped(value, shape[1:]) for value in values], 0), output)

    def _direction(self, number: int, backwards: bool) -> tuple[list[str], str]:
        """Hidden states of one direction in input order, and the last cell state of an LSTM."""
        w, r = self._w[number], self._r[number]
        ours, theirs = np.split(self._b[number], 2)
        # What the input adds to the gates, of all steps at once.
        product = self._node_of("MatMul", [self._inputs[_X], self._weight("W", number, w.T)])
        gates = self._node_of("Add", [product, self._weight("WB", number, ours)])
        hidden = self._initial(_H, number)
        cell = self._initial(_C, number) if self._kind == "LSTM" else ""
        recurrent, bias = self._weight("R", number, r.T), self._weight("RB", number, theirs)
        made: list[str] = [""] * self._steps
        for step in reversed(range(self._steps)) if backwards else range(self._steps):
            own = self._reshaped(self._part(gates, 0, step, step + 1), [self._batch, len(w)])
            state = self._node_of("Add", [self._node_of("MatMul", [hidden, recurrent]), bias])
            if self._kind == "LSTM":
                hidden, cell = self._lstm(own, state, cell)
            elif self._kind == "GRU":
                hidden = self._gru(own, state, hidden, number)
            else:
                hidden = self._node_of("Tanh", [self._node_of("Add", [own, state])])
            made[step] = hidden
        return made, cell

    def _lstm(self, own: str, state: str, cell: str) -> tuple[str, str]:
        """The next hidden and cell state; gates are input, output, forget, cell."""
        gates, size = self._node_of("Add", [own, state]), self._hidden
        opened = self._node_of("Sigmoid", [self._part(gates, 1, 0, 3 * size)])
        fresh = self._node_of("Tanh", [self._part(gates, 1, 3 * size, 4 * size)])
        let_in, let_out, kept = (self._part(opened, 1, place * size, (place + 1) * size) for place in range(3))
        cell = self._node_of("Add", [self._node_of("Mul", [kept, cell]), self._node_of("Mul", [let_in, fresh])])
        return self._node_of("Mul", [let_out, self._node_of("Tanh", [cell])]), cell

    def _gru(self, own: str, state: str, hidden: str, number: int) -> str:
        """The next hidden state; gates are update, reset, hidden."""
        size = self._hidden
        both = self._node_of("Add", [self._part(own, 1, 0, 2 * size), self._part(state, 1, 0, 2 * size)])
        opened = self._node_of("Sigmoid", [both])
        update, reset = (self._part(opened, 1, place * size, (place + 1) * size) for place in range(2))
        if self._given.get("linear_before_reset", 0):
            remembered = self._node_of("Mul", [reset, self._part(state, 1, 2 * size, 3 * size)])
        else:
            r, bias = self._r[number][2 * size :], np.split(self._b[number], 2)[1][2 * size :]
            product = self._node_of("MatMul", [self._node_of("Mul", [reset, hidden]), self._weight("RH", number, r.T)])
            remembered = self._node_of("Add", [product, self._weight("RHB", number, bias)])
        fresh = self._node_of("Tanh", [self._node_of("Add", [self._part(own, 1, 2 * size, 3 * size), remembered])])
        # (1 - z) * fresh + z * hidden, with one product less
        change = self._node_of("Mul", [update, self._node_of("Sub", [hidden, fresh])])
        return self._node_of("Add", [fresh, change])

    def _initial(self, place: int, number: int) -> str:
        """The initial state of a direction: zeros unless the file gives one."""
        shape = [self._batch, self._hidden]
        if name := self._inputs[place]:
            return self._reshaped(self._part(name, 0, number, number + 1), shape)
        zeros = np.zeros(shape, self._w.dtype)
        return self._node_of("Constant", [], value=numpy_helper.from_array(zeros))

    def _weight(self, name: str, number: int, value: np.ndarray) -> str:
        name = f"{self._inputs[_W]}.{name}.{number}"
        if all(tensor.name != name for tensor in self.weights):
            self.weights.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def _part(self, value: str, axis: int, begin: int, end: int) -> str:
        return self._node_of("Slice", [value, *map(self._numbers, ([begin], [end], [axis]))])

    def _reshaped(self, value: str, shape: Sequence[int]) -> str:
        return self._node_of("Reshape", [value, self._numbers(shape)])

    def _joined(self, values: Sequence[str], axis: int) -> str:
        return values[0] if len(values) == 1 else self._node_of("Concat", values, axis=axis)

    def _numbers(self, values: Sequence[int]) -> str:
        array = np.asarray(values, np.int64)
        return self._node_of("Constant", [], value=numpy_helper.from_array(array))

    def _node_of(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add a node; returns the name of its value."""
        self._count += 1
        name = f"{self._prefix}/{kind}_{self._count}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def _name(self, value: str, name: str) -> None:
        """Give a value the name that the rest of the graph uses."""
        self.nodes.append(helper.make_node("Identity", [value], [name], f"{self._prefix}/{name}"))


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
