"""From a program to its optimized graph and weights.

Operators on weights only, biases and batch norm are folded in torch, one unit at a time, in well under a second;
Relax's FoldConstant takes 16 to 30 s on these networks.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor
from torch.export import ExportedProgram

from hios.core.blocks import declared_blocks, found_blocks
from hios.core.graph import LOOKUPS, Call, Edge, Graph, Operator, Shapes, TensorSpec, Value
from hios.errors import HiosError, UnsupportedError, first_line, shown
from hios.frontends.extraction_check import (
    OutputsDifferError,
    graph_rounding_errors,
    require_close,
    require_equal,
    rounding_errors,
)
from hios.frontends.model_declarations import Declarations
from hios.frontends.program import Program
from hios.frontends.program_interface import dtype_name, flat_module
from hios.frontends.relax_calls import Input, Lowered, NodeError, RelaxCall, Weight, described, is_constant
from hios.frontends.torch_lowering import lower
from hios.frontends.units import CONVOLUTIONS, DEFAULT_UNITS, Unit, group
from hios.kernels import build
from hios.kernels.flops import flops
from hios.kernels.merged import nbytes


class Folder:
    """Evaluates weight-only calls, each once, and folds biases and batch norm into convolutions."""

    def __init__(self) -> None:
        self._results: dict[RelaxCall, list[Weight]] = {}

    def weight(self, value: Any) -> Weight | float | int | bool:
        """The tensor or number of a constant value; operators on weights are evaluated."""
        call, item = value if isinstance(value, tuple) else (value, 0)
        if not isinstance(call, RelaxCall):
            return value
        if call not in self._results:
            self._results[call] = self._evaluated(call)
        return self._results[call][item]

    def _evaluated(self, call: RelaxCall) -> list[Weight]:
        arguments = [self.weight(argument) for argument in call.arguments]
        names = [argument.name for argument in arguments if isinstance(argument, Weight)]
        place = call.function if call.origin is None else call.origin.place
        try:
            run = build(call.function, call.attributes, place)
        except UnsupportedError as error:
            raise NodeError.at(call.origin, str(error)) from None
        tensors = [argument.tensor if isinstance(argument, Weight) else argument for argument in arguments]
        with torch.inference_mode():
            try:
                result = run(*tensors)
            except Exception as error:  # torch's kernels raise many types; all mean the same to the user
                raise UnsupportedError(f"{place}: {call.function} on weights: {first_line(error)}") from error
        name = names[0] if names else call.function.removesuffix(".default").rsplit(".", 1)[1]
        return [Weight(name, part) for part in (result if isinstance(result, tuple | list) else [result])]

    def fold(self, unit: Unit) -> Unit:
        """The unit with constant arguments as weights, and with bias and batch norm folded into its convolution."""
        calls: list[RelaxCall] = []
        replaced: dict[RelaxCall, RelaxCall] = {}
        for original in unit.calls:
            call = replace(original, arguments=[self._argument(value, replaced) for value in original.arguments])
            convolution = calls[-1] if calls and calls[-1].function in CONVOLUTIONS else None
            if convolution is not None and call.arguments[0] is convolution and self._folded(convolution, call):
                replaced[original] = convolution
            else:
                replaced[original] = call
                calls.append(call)
        return Unit(unit.type, calls, unit.output)

    def _argument(self, value: Any, replaced: dict[RelaxCall, RelaxCall]) -> Any:
        if isinstance(value, RelaxCall) and value in replaced:
            return replaced[value]
        return self.weight(value) if is_constant(value) else value

    @staticmethod
    def _folded(convolution: RelaxCall, call: RelaxCall) -> bool:
        """Fold ``call`` into the preceding convolution if it is a bias or a batch norm; returns whether it was."""
        weight = convolution.arguments[1]
        if call.function == "relax.add" and isinstance(call.arguments[1], Weight):
            return _fold_bias(convolution, weight, call.arguments[1])
        if call.function == "relax.nn.batch_norm" and call.attributes["axis"] == 1:
            _fold_batch_norm(convolution, weight, call.arguments[1:], call.attributes["epsilon"])
            return True
        return False


def _fold_bias(convolution: RelaxCall, weight: Weight, bias: Weight) -> bool:
    filters, dimensions = weight.tensor.shape[0], weight.tensor.ndim
    one_a_filter = (filters, *[1] * (dimensions - 2))
    # A bias with more dimensions than the image would broadcast the result to more dimensions.
    if bias.tensor.ndim > dimensions or bias.tensor.numel() != filters:
        return False
    if bias.tensor.shape[1 - dimensions :] != one_a_filter:
        return False
    added = bias.tensor.reshape(filters)
    if len(convolution.arguments) > 2:
        added = convolution.arguments[2].tensor + added
    convolution.arguments[2:] = [Weight(_bias_name(weight), added)]
    return True


def _fold_batch_norm(convolution: RelaxCall, weight: Weight, statistics: list[Weight], epsilon: float) -> None:
    """W' = w * g, b' = (b - mean) * g + beta with g = gamma / sqrt(variance + epsilon), in double precision."""
    gamma, beta, mean, variance = (part.tensor.double() for part in statistics)
    scale = gamma / torch.sqrt(variance + epsilon)
    bias = convolution.arguments[2].tensor.double() if len(convolution.arguments) > 2 else torch.zeros_like(mean)
    kind = weight.tensor.dtype
    scaled = weight.tensor.double() * scale.reshape(-1, *[1] * (weight.tensor.ndim - 1))
    shifted: Tensor = (bias - mean) * scale + beta
    convolution.arguments[1] = Weight(weight.name, scaled.to(kind))
    convolution.arguments[2:] = [Weight(_bias_name(weight), shifted.to(kind))]


def _bias_name(weight: Weight) -> str:
    return f"{weight.name.removesuffix('.weight')}.bias"


def extract(
    program: str | Path | Program,
    name: str,
    *,
    units: str | None = None,
    below: Mapping[str, int] | None = None,
    trusted: bool = False,
) -> tuple[Graph, dict[str, Tensor]]:
    """The optimized graph of a program, or of its file, with its weights; arguments and errors as of `hios.extract`."""
    if not isinstance(program, Program):
        if Path(program).suffix.lower() == ".onnx":
            return _extract_onnx(program, name, units, below or {})
        program = Program.read(program, trusted=trusted)
    return extract_program(program.exported, name, program.ranged(), units=units, below=below)


def extract_program(
    program: ExportedProgram,
    name: str,
    declared: Declarations | None = None,
    *,
    units: str | None = None,
    below: Mapping[str, int] | None = None,
) -> tuple[Graph, dict[str, Tensor]]:
    """The optimized graph of a program of torch with its weights by name; see ``extract_lowered``.

    The graph is run once and compared with the program, which catches imports that silently change a model.
    """
    graph, tensors = lower(program, lambda lowered: extract_lowered(lowered, name, declared, units=units))
    graph = _with_limits(graph, below or {})
    with _advising(graph):
        require_equal(graph, tensors, flat_module(program), functools.partial(rounding_errors, program))
    return graph, tensors


def _extract_onnx(
    path: str | Path, name: str, units: str | None, below: Mapping[str, int]
) -> tuple[Graph, dict[str, Tensor]]:
    """The optimized graph of an ONNX file with its weights by name, compared with ONNX Runtime.

    Where probabilities differ by more than their variation allows, what they are computed from is compared.
    """
    from hios.formats.onnx_session import OnnxSession
    from hios.frontends import onnx_file, onnx_lowering

    model = onnx_file.load(path)

    def made(lowered: Lowered) -> tuple[Graph, dict[str, Tensor]]:
        return extract_lowered(lowered, name, units=units)

    graph, tensors = onnx_lowering.lower(model, made)
    graph = _with_limits(graph, below)
    with _advising(graph):
        try:
            require_equal(graph, tensors, OnnxSession(path), functools.partial(graph_rounding_errors, graph, tensors))
        except OutputsDifferError:
            if (before := onnx_file.before_activations(model)) is None:
                raise
            require_close(graph, tensors, OnnxSession(path))
            logits, their_tensors = onnx_lowering.lower(before, made)
            runtime = OnnxSession(path, before.SerializeToString())
            require_equal(_with_limits(logits, below), their_tensors, runtime)
    return graph, tensors


@contextlib.contextmanager
def _advising(graph: Graph) -> Iterator[None]:
    """Add to an error about outputs which integer inputs were drawn as 0 and 1, as their range is unknown."""
    try:
        yield
    except OutputsDifferError as error:
        drawn = [entry.name for entry in graph.inputs if entry.below is None and _is_whole(entry.dtype)]
        if not drawn:
            raise
        options = " ".join(f"--below {name}=NUMBER" for name in drawn)
        raise OutputsDifferError(
            f"{error}; the values of {', '.join(drawn)} were 0 and 1: if the model is made for others, give {options} "
            "(in config.yaml: below)"
        ) from error


def _is_whole(dtype: str) -> bool:
    return not dtype.startswith(("float", "bfloat", "complex", "bool"))


def _with_limits(graph: Graph, below: Mapping[str, int]) -> Graph:
    """The graph with the user's limits of inputs; a `HiosError` if one does not exist, or does not hold integers."""
    known = {entry.name: entry for entry in graph.inputs}
    for name, limit in below.items():
        if name not in known:
            raise HiosError(f"below: found {shown(name, quoted=False)}; allowed: {', '.join(known) or 'no input'}")
        if not _is_whole(dtype := known[name].dtype):
            raise HiosError(f"below: {name}: found an input of {dtype}; allowed: inputs of whole numbers")
        if limit < 1:
            raise HiosError(f"below: {name}: found {limit}; allowed: at least 1")
    if not below:
        return graph
    return replace(graph, inputs=tuple(_limited(entry, below.get(entry.name)) for entry in graph.inputs))


def extract_lowered(
    lowered: Lowered, name: str, declared: Declarations | None = None, *, units: str | None = None
) -> tuple[Graph, dict[str, Tensor]]:
    """The optimized graph of a program in Relax with its weights by name.

    Units are those given, those declared, or ``DEFAULT_UNITS``. Blocks that are not declared are found from the graph.

    Batch norm and constants are folded, dead code is removed, operators are grouped into scheduling units.

    Raises:
        NodeError: the kernel table lacks an operator.
        HiosError: the declared blocks cannot run one after another.
    """
    declared = declared or Declarations()
    kind = units or declared.units or DEFAULT_UNITS
    folder = Folder()
    cut = [folder.fold(unit) for unit in group(lowered, kind)]
    _require_kernels(cut)
    outputs = [folder.weight(value) if is_constant(value) else value for value in lowered.outputs]
    writer = _Writer(lowered.inputs, outputs, cut)
    graph = writer.graph(name)
    blocks = declared_blocks(graph, writer.modules, declared.blocks) if declared.blocks else found_blocks(graph)
    inputs = tuple(map(_limited, graph.inputs, itertools.chain(declared.below, itertools.repeat(None))))
    return replace(graph, blocks=blocks, units=kind, inputs=inputs), writer.tensors


def _limited(entry: TensorSpec, below: int | None) -> TensorSpec:
    return entry if below is None else msgspec.structs.replace(entry, below=below)


def _require_kernels(units: Sequence[Unit]) -> None:
    """Say where in the model operators without kernels come from; later only the units are known."""
    errors = []
    for unit in units:
        for call in unit.calls:
            try:
                build(call.function, call.attributes, call.origin.place if call.origin is not None else call.function)
            except UnsupportedError as error:
                errors.append(NodeError.at(call.origin, str(error)))
    if errors:
        raise NodeError(str(errors[0]), {node: reason for error in errors for node, reason in error.reasons.items()})


class _Writer:
    """Names the units and describes them as graph.json does."""

    def __init__(self, inputs: Sequence[Input], outputs: Sequence[Any], units: Sequence[Unit]) -> None:
        self._inputs = inputs
        self._outputs = outputs
        self._units = units
        self._ids: set[str] = set()
        self._id_of: dict[RelaxCall, str] = {}
        self._name_of: dict[Any, str] = {}
        self.tensors: dict[str, Tensor] = {}
        #: By operator id the modules that compute it, in order.
        self.modules: dict[str, list[str]] = {}
        self._stored: set[int] = set()

    def graph(self, name: str) -> Graph:
        operators: list[Operator] = []
        edges: list[Edge] = []
        for unit in self._units:
            operator = self._operator(unit)
            operators.append(operator)
            edges.extend(
                Edge(self._id_of[producer], operator.id, nbytes(producer.shapes[item], producer.dtypes[item]))
                for call in unit.calls
                for producer, item in map(_producer, call.arguments)
                if producer is not None and producer not in unit.calls
            )
        return Graph(
            name=name,
            operators=tuple(operators),
            edges=tuple(edges),
            inputs=tuple(TensorSpec(value.name, tuple(value.shape), value.dtype) for value in self._inputs),
            outputs=tuple(self._reference(value, []) for value in self._outputs),
            weights=tuple(
                TensorSpec(key, tuple(tensor.shape), dtype_name(tensor.dtype)) for key, tensor in self.tensors.items()
            ),
        )

    def _operator(self, unit: Unit) -> Operator:
        calls = tuple(
            Call(
                call.function,
                tuple(self._reference(argument, unit.calls) for argument in call.arguments),
                {name: _json(value) for name, value in call.attributes.items()},
            )
            for call in unit.calls
        )
        self._id_of[unit.output] = operator_id = self._unique_id(unit)
        self.modules[operator_id] = [call.origin.module for call in unit.calls if call.origin is not None]
        outside = [value for call in unit.calls for value in call.arguments if _is_outside(value, unit.calls)]
        inputs = [described(value) for value in dict.fromkeys(outside)]
        outputs = list(zip(unit.output.shapes, unit.output.dtypes, strict=True))
        return Operator(
            operator_id,
            unit.type,
            calls,
            Shapes(tuple(tuple(shape) for shape, _ in inputs), tuple(tuple(shape) for shape, _ in outputs)),
            dtype=unit.output.dtypes[0],
            dtypes=tuple(unit.output.dtypes) if len(set(unit.output.dtypes)) > 1 else None,
            flops=_flops(unit),
            bytes=sum(nbytes(shape, dtype) for shape, dtype in (*inputs, *outputs)) + _weight_bytes(unit),
        )

    def _reference(self, value: Any, calls: list[RelaxCall]) -> Value:
        producer, item = _producer(value)
        if producer is not None:
            if producer in calls:
                return Value(call=calls.index(producer))
            return Value(operator=self._id_of[producer], item=item if len(producer.shapes) > 1 else None)
        if isinstance(value, Input):
            return Value(input=value.name)
        if isinstance(value, Weight):
            return Value(weight=self._tensor_name(value))
        return Value(constant=_json(value))

    def _tensor_name(self, weight: Weight) -> str:
        """The weight's own name, numbered if folding made several tensors of one."""
        tensor = weight.tensor
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if key not in self._name_of:
            # safetensors stores the metadata of a file under __metadata__
            self._name_of[key] = name = _free(weight.name, {*self.tensors, "__metadata__"})
            self.tensors[name] = self._apart(tensor)
        return self._name_of[key]

    def _apart(self, tensor: Tensor) -> Tensor:
        """The tensor, copied if it shares memory with others, which safetensors refuses."""
        storage = tensor.untyped_storage()
        whole = storage.nbytes() == tensor.nbytes and tensor.is_contiguous()
        if not whole or storage.data_ptr() in self._stored:
            return tensor.clone(memory_format=torch.contiguous_format)
        self._stored.add(storage.data_ptr())
        return tensor

    def _unique_id(self, unit: Unit) -> str:
        """The path of the module that owns the weights of the unit, otherwise its type; numbered if taken."""
        weights = [value for call in unit.calls for value in call.arguments if isinstance(value, Weight)]
        owners = [weight.name.rpartition(".")[0].split(".") for weight in weights if weight.tensor.numel() > 1]
        shared = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*owners, strict=False))
        own = ".".join(parts[0] for parts in shared)
        operator_id = _free(own or unit.type, self._ids)
        self._ids.add(operator_id)
        return operator_id


def _weight_bytes(unit: Unit) -> int:
    """Bytes of weights that a unit reads, each counted once; of a lookup table only the rows it reads."""
    read: dict[tuple[int, int], int] = {}
    for call in unit.calls:
        for place, value in enumerate(call.arguments):
            if isinstance(value, Weight):
                whole = value.tensor.nbytes
                looked_up = place == 0 and call.function in LOOKUPS
                rows = nbytes(call.shapes[0], call.dtypes[0]) if looked_up else whole
                key = (value.tensor.data_ptr(), whole)
                read[key] = max(read.get(key, 0), min(rows, whole))
    return sum(read.values())


def _json(value: Any) -> Any:
    """The value, with the numbers that JSON cannot express (inf, -inf, nan) as text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _free(name: str, taken: Container[str]) -> str:
    if name not in taken:
        return name
    return next(f"{name}_{number}" for number in itertools.count(2) if f"{name}_{number}" not in taken)


def _producer(value: Any) -> tuple[RelaxCall | None, int]:
    if isinstance(value, tuple):
        return value[0], value[1]
    return (value, 0) if isinstance(value, RelaxCall) else (None, 0)


def _is_outside(value: Any, calls: list[RelaxCall]) -> bool:
    producer, _ = _producer(value)
    return isinstance(value, Input) or (producer is not None and producer not in calls)


def _flops(unit: Unit) -> int | None:
    """Operations of all calls; None if those of one are unknown."""
    counted = [
        flops(call.function, call.attributes, [described(argument)[0] for argument in call.arguments], call.shapes[0])
        for call in unit.calls
    ]
    known = [count for count in counted if count is not None]
    return sum(known) if len(known) == len(counted) else None
