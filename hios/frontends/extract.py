"""From program.pt2 to graph.json and weights.safetensors."""

from __future__ import annotations

import itertools
from collections.abc import Container, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor
from torch.export import ExportedProgram

from hios.artifacts import replacing, require_writable
from hios.errors import HiosError
from hios.frontends import program as programs
from hios.frontends.calls import Call, Input, Weight, is_constant
from hios.frontends.folding import Folder
from hios.frontends.lowering import lower
from hios.frontends.units import Unit, group
from hios.frontends.verification import require_equal
from hios.graph import Edge, Graph, Operator
from hios.kernels.flops import flops
from hios.kernels.tensors import nbytes


def extract(program: str | Path, output: str | Path, weights: str | Path, name: str) -> Graph:
    """Extract the optimised graph of a program and write it.

    Args:
        program: program.pt2.
        output: graph.json to write.
        weights: safetensors file to write.
        name: name of the graph.

    Raises:
        HiosError: the program cannot be read, imported or run by the kernel table.
    """
    if Path(output).resolve() == Path(weights).resolve():
        raise HiosError(f"{output}: named for the graph and for the weights; they are two files")
    for path in (output, weights):
        require_writable(path)
    graph, tensors = extract_program(programs.load(program), name)
    with replacing(weights) as temporary:
        save_file(tensors, temporary)
        graph.write(output)  # inside: without a graph there are no weights either
    return graph


def extract_program(program: ExportedProgram, name: str) -> tuple[Graph, dict[str, Tensor]]:
    """The optimised graph of a program with its weights by name.

    Batch norm and constants are folded, dead code is removed, operators are fused into scheduling units. The
    graph is run once beside the program: an import that silently changes a model does not get past this.

    Raises:
        UnsupportedError: Relax or the kernel table lacks an operator, or the outputs differ.
    """
    lowered = lower(program)
    folder = Folder()
    units = [folder.fold(unit) for unit in group(lowered)]
    outputs = [folder.weight(value) if is_constant(value) else value for value in lowered.outputs]
    writer = _Writer(lowered.inputs, outputs, units)
    graph = writer.graph(name)
    require_equal(graph, writer.tensors, program)
    return graph, writer.tensors


class _Writer:
    """Names the units and describes them as graph.json does."""

    def __init__(self, inputs: Sequence[Input], outputs: Sequence[Any], units: Sequence[Unit]) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._units = units
        self._ids: set[str] = set()
        self._id_of: dict[Call, str] = {}
        self._name_of: dict[Any, str] = {}
        self.tensors: dict[str, Tensor] = {}

    def graph(self, name: str) -> Graph:
        operators: list[Operator] = []
        edges: list[Edge] = []
        for unit in self._units:
            operator = self._operator(unit)
            operators.append(operator)
            edges.extend(
                Edge(self._id_of[producer], operator.id, nbytes(producer.shapes[item], producer.dtype))
                for call in unit.calls
                for producer, item in map(_producer, call.arguments)
                if producer is not None and producer not in unit.calls
            )
        return Graph(
            name=name,
            operators=tuple(operators),
            edges=tuple(edges),
            inputs=tuple(
                {"name": value.name, "shape": list(value.shape), "dtype": value.dtype} for value in self._inputs
            ),
            outputs=tuple(self._reference(value, []) for value in self._outputs),
            weights=tuple(
                {"name": key, "shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
                for key, tensor in self.tensors.items()
            ),
        )

    def _operator(self, unit: Unit) -> Operator:
        calls = [
            {
                "function": call.function,
                "arguments": [self._reference(argument, unit.calls) for argument in call.arguments],
                "attributes": call.attributes,
            }
            for call in unit.calls
        ]
        self._id_of[unit.output] = operator_id = self._unique_id(unit)
        outside = [value for call in unit.calls for value in call.arguments if _is_outside(value, unit.calls)]
        inputs = [_described(value) for value in dict.fromkeys(outside)]
        outputs = [(shape, unit.output.dtype) for shape in unit.output.shapes]
        weights = [value for call in unit.calls for value in call.arguments if isinstance(value, Weight)]
        moved = sum(nbytes(shape, dtype) for shape, dtype in (*inputs, *outputs))
        details = {
            "calls": calls,
            "shapes": {
                "inputs": [list(shape) for shape, _ in inputs],
                "outputs": [list(shape) for shape, _ in outputs],
            },
            "dtype": unit.output.dtype,
            "flops": sum(_flops(call) for call in unit.calls),
            "bytes": moved + sum(weight.tensor.nbytes for weight in weights),
        }
        return Operator(operator_id, unit.type, details)

    def _reference(self, value: Any, calls: list[Call]) -> dict[str, Any]:
        producer, item = _producer(value)
        if producer is not None:
            if producer in calls:
                return {"call": calls.index(producer)}
            reference: dict[str, Any] = {"operator": self._id_of[producer]}
            return {**reference, "item": item} if len(producer.shapes) > 1 else reference
        if isinstance(value, Input):
            return {"input": value.name}
        if isinstance(value, Weight):
            return {"weight": self._tensor_name(value)}
        return {"constant": value}

    def _tensor_name(self, weight: Weight) -> str:
        """The weight's own name; a number behind it where folding made several tensors from one."""
        tensor = weight.tensor
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if key not in self._name_of:
            self._name_of[key] = name = _free(weight.name, self.tensors)
            # A copy: safetensors refuses tensors that share memory, as views of one weight do.
            self.tensors[name] = tensor.contiguous().clone()
        return self._name_of[key]

    def _unique_id(self, unit: Unit) -> str:
        """The path of the module whose weights the unit holds, else its type; numbered where taken."""
        weights = [value for call in unit.calls for value in call.arguments if isinstance(value, Weight)]
        own = weights[0].name.rpartition(".")[0] if weights else ""
        operator_id = _free(own or unit.type, self._ids)
        self._ids.add(operator_id)
        return operator_id


def _free(name: str, taken: Container[str]) -> str:
    if name not in taken:
        return name
    return next(f"{name}_{number}" for number in itertools.count(2) if f"{name}_{number}" not in taken)


def _producer(value: Any) -> tuple[Call | None, int]:
    if isinstance(value, tuple):
        return value[0], value[1]
    return (value, 0) if isinstance(value, Call) else (None, 0)


def _is_outside(value: Any, calls: list[Call]) -> bool:
    producer, _ = _producer(value)
    return isinstance(value, Input) or (producer is not None and producer not in calls)


def _described(value: Any) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of a tensor argument; a number has no dimensions."""
    producer, item = _producer(value)
    if producer is not None:
        return producer.shapes[item], producer.dtype
    if isinstance(value, Weight):
        return tuple(value.tensor.shape), str(value.tensor.dtype).removeprefix("torch.")
    return (value.shape, value.dtype) if isinstance(value, Input) else ((), "float32")


def _flops(call: Call) -> int:
    shapes = [_described(argument)[0] for argument in call.arguments]
    return flops(call.function, call.attributes, shapes, call.shapes[0])
