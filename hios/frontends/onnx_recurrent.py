"""Unrolling recurrent layers of ONNX (LSTM, GRU, RNN), as torch.export does for those of torch.

Relax has no recurrent operator. With a fixed sequence length a layer is matrix products and elementwise operators,
and a scheduler sees them one by one: both directions of a layer can run at once, and so can layers one step behind
each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from hios.errors import UnsupportedError

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
