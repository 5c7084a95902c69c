"""program.onnx: checking, loading and copying ONNX files, and running them with ONNX Runtime.

An ONNX file holds no code. Operators from other domains than ONNX's own, which libraries implement, are refused,
and weights in separate files are read only if the files are in the folder of the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import onnx
import torch
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, inliner
from onnx.external_data_helper import load_external_data_for_model, uses_external_data

from hios.errors import ArtifactError, UnsupportedError, first_line
from hios.files import read_limits
from hios.formats.onnx_operators import is_known
from hios.formats.onnx_session import OnnxSession
from hios.frontends.onnx_rewriting import Shapes, fix_shapes, fix_values, folded
from hios.frontends.program_interface import TensorType, dtype_name, type_text

#: Largest protobuf message, and so the largest ONNX file that holds its weights.
_LARGEST_BYTES = 2**31 - 1
#: Activations whose results are bounded.
_SATURATING = ("Sigmoid", "HardSigmoid", "Softmax", "Tanh")
#: What hands on their results, reshaped or averaged.
_PASSED_ON = ("Identity", "Squeeze", "Unsqueeze", "Reshape", "Flatten", "Transpose", "ReduceMean")
#: Element types of inputs and outputs, by ONNX's numbers for them.
DTYPES: dict[int, torch.dtype] = {
    TensorProto.BOOL: torch.bool,
    TensorProto.UINT8: torch.uint8,
    TensorProto.INT8: torch.int8,
    TensorProto.INT16: torch.int16,
    TensorProto.INT32: torch.int32,
    TensorProto.INT64: torch.int64,
    TensorProto.FLOAT16: torch.float16,
    TensorProto.FLOAT: torch.float32,
    TensorProto.DOUBLE: torch.float64,
}


def described(model: ModelProto) -> str:
    """Inputs and number of weights, as text."""
    types = [tensor_type(value) for value in inputs_of(model.graph)]
    weights = sum(math.prod(tensor.dims) for tensor in model.graph.initializer)
    return f"input {', '.join(map(type_text, types))}, {weights:,} weights"


def load(path: str | Path, batch_size: int | None = None, shapes: Shapes | None = None) -> ModelProto:
    """Read an ONNX file with its weights, and check it.

    ``batch_size`` is the size of a first dimension that the file leaves open; ``shapes`` are those of inputs by name,
    where it leaves other dimensions open; of an input without dimensions its value, which then is part of the model.

    Raises:
        ArtifactError: missing, damaged, or its weights lie outside its folder.
        UnsupportedError: operators that are not ONNX's own, shapes that are not fixed, or elements that torch lacks.
        HiosError: a batch size or shape that differs from the one fixed by the file, or an unknown input.
    """
    path = Path(path)
    try:
        with read_limits.limited(path) as most:  # values that shapes depend on are computed
            return _checked(_read(path, most), path, batch_size, shapes)
    except UnicodeDecodeError as error:  # when a name is asked for
        raise ArtifactError(f"{path}: found text that is not UTF-8: {error.object[:40]!r}; export it again") from error


def _read(path: Path, most: int) -> ModelProto:
    try:
        if path.exists() and not path.is_file():  # a device might have no end
            raise ArtifactError(f"{path}: cannot be read: no regular file")
        return onnx.load(path, load_external_data=False)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (DecodeError, ValueError) as error:
        if isinstance(error, DecodeError) and path.stat().st_size > most / 3:  # protobuf does not say that memory ends
            raise MemoryError from error
        raise ArtifactError(f"{path}: not an ONNX file, or cut off; export it again") from error


def _checked(model: ModelProto, path: Path, batch_size: int | None, shapes: Shapes | None) -> ModelProto:
    _load_weights(model, path)
    if model.functions:
        model = inliner.inline_local_functions(model)
    for node in nodes(model.graph):
        if not is_known(node):
            raise UnsupportedError(
                f"{path}: node {node.name or node.output[0]}: found the operator {node.domain}.{node.op_type}; "
                "allowed: operators of ONNX itself and of ONNX Runtime's quantization; export the model without others"
            )
        texts: tuple[object, ...] = (node.op_type, node.name, *node.input, *node.output)
        for text in texts:
            if isinstance(text, bytes):  # as protobuf has what is not UTF-8
                text.decode()  # raises; ONNX's own check does not say why with every version of Python
    inputs = inputs_of(model.graph)  # without weights that serve as default values
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)  # earlier versions list weights among the inputs
    left = fix_values(model, shapes or {})
    fix_shapes(model, inputs_of(model.graph), path, left, batch_size)
    if shapes is not None and len(left) < len(shapes):
        # What depends on the values is computed now: ONNX Runtime fails on some branches within branches.
        _require_memory(_inferred(model, path), path)
        model = folded(model)
    model = _inferred(model, path)
    _require_dtypes(model.graph, path)
    _require_memory(model, path)
    return model


def _inferred(model: ModelProto, path: Path) -> ModelProto:
    """A valid model with the shapes of its values."""
    try:
        onnx.checker.check_model(model, full_check=True)
        # Also of outputs, which state dimensions by names where the file left the batch open.
        return onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        reason = first_line(error).rstrip(".")
        raise ArtifactError(f"{path}: not a valid ONNX model: {reason}; export it again") from error


def _require_memory(model: ModelProto, path: Path) -> None:
    """Refuse a model with a value that does not fit into memory, however short its file is."""
    graph = model.graph
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.elem_type in DTYPES:
            shape, dtype = tensor_type(value)
            read_limits.require_memory(path, f"the value {value.name}", math.prod(shape) * dtype.itemsize)


def nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """All nodes of a graph, including those in branches and loops."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for part in [attribute.g, *attribute.graphs]:
                yield from nodes(part)


def before_activations(model: ModelProto) -> ModelProto | None:
    """A copy without saturating activations at its outputs, and without what only reshapes or averages them.

    None if no output comes from such an activation.

    Probabilities that are nearly all 0 or 1 say little about what they were computed from, and runtimes approximate
    their tails differently.
    """
    copy = ModelProto()
    copy.CopyFrom(model)
    producers = {name: node for node in copy.graph.node for name in node.output}
    types = {value.name: value for value in (*copy.graph.value_info, *copy.graph.input)}
    cut = False
    for position, output in enumerate(copy.graph.output):
        node = producers.get(output.name)
        while node is not None and node.op_type in _PASSED_ON:
            node = producers.get(node.input[0])
        taken = {output.name for output in copy.graph.output}
        if node is not None and node.op_type in _SATURATING and node.input[0] in types.keys() - taken:
            copy.graph.output[position].CopyFrom(types[node.input[0]])
            cut = True
    return copy if cut else None


def inputs_of(graph: GraphProto) -> list[ValueInfoProto]:
    """Inputs that are not weights, which old files list among the inputs."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def tensor_type(value: ValueInfoProto) -> TensorType:
    """Shape and dtype of an input or output whose shape is fixed."""
    kind = value.type.tensor_type
    return tuple(int(size.dim_value) for size in kind.shape.dim), DTYPES[kind.elem_type]


def interface(graph: GraphProto, session: OnnxSession) -> tuple[list[TensorType], list[TensorType]]:
    """Shapes and dtypes of inputs and outputs; shapes that inference cannot determine are taken from a run."""
    inputs = [tensor_type(value) for value in inputs_of(graph)]
    outputs = [tensor_type(value) for value in graph.output]
    if any(size < 1 for shape, _ in outputs for size in shape):
        made = session(*(torch.zeros(shape, dtype=dtype) for shape, dtype in inputs))
        outputs = [(tuple(value.shape), value.dtype) for value in made]
    return inputs, outputs


def _load_weights(model: ModelProto, path: Path) -> None:
    folder = path.resolve().parent
    total = model.ByteSize()
    for tensor in _tensors(model):
        apart = uses_external_data(tensor)
        if tensor.data_type not in helper.get_all_tensor_dtypes() and (tensor.data_type or apart):
            raise ArtifactError(
                f"{path}: the weight {tensor.name}: found elements of type {tensor.data_type}, which ONNX does not "
                "have; export it again"
            )
        if not apart:
            continue
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        file = (folder / location.replace("\0", "\\0")).resolve()
        if not file.is_file() and (path.parent / location).is_file():
            raise ArtifactError(
                f"{path}: found symbolic links, as in the cache of Hugging Face; allowed: the model and {location} as "
                "files of one folder; copy it with cp --recursive --dereference"
            )
        if not file.is_relative_to(folder) or file == folder:
            raise ArtifactError(
                f"{path}: the weight {tensor.name} lies in {location or 'no file'}; allowed: a file in {folder}"
            )
        if not file.is_file():
            raise ArtifactError(f"{path}: the weight {tensor.name} lies in {location}, which is missing in {folder}")
        total += math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    if total > _LARGEST_BYTES:
        raise UnsupportedError(f"{path}: found {total / 1e9:.1f} GB of model and weights; allowed: less than 2.1 GB")
    try:
        load_external_data_for_model(model, str(folder))
    except (onnx.checker.ValidationError, OSError, ValueError) as error:
        raise ArtifactError(f"{path}: its weights cannot be read: {first_line(error)}") from error


def _tensors(model: ModelProto) -> Iterator[TensorProto]:
    """All tensors of a model: weights, and those in node attributes."""
    bodies: list[Sequence[NodeProto]] = [list(nodes(model.graph)), *(function.node for function in model.functions)]
    graphs = [model.graph]
    for node in (node for body in bodies for node in body):
        for attribute in node.attribute:
            yield from [attribute.t, *attribute.tensors]
            graphs += [attribute.g, *attribute.graphs]
    for graph in graphs:
        yield from graph.initializer


def _require_dtypes(graph: GraphProto, path: Path) -> None:
    for kind, value in [*(("input", value) for value in graph.input), *(("output", value) for value in graph.output)]:
        if value.type.tensor_type.elem_type not in DTYPES:
            dtype = TensorProto.DataType.Name(value.type.tensor_type.elem_type).lower()
            allowed = ", ".join(map(dtype_name, DTYPES.values()))
            raise UnsupportedError(
                f"{path}: {kind} {value.name}: found elements of type {dtype}; allowed: tensors of {allowed}"
            )
