"""Tensors of a graph: random ones for what profiling times, weights.safetensors, and buffers of the arena."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from hios.core.graph import Graph, Operator, TensorSpec
from hios.errors import ArtifactError, HiosError, PlatformError
from hios.kernels import CompiledOperator, compile_operator
from hios.kernels.compiled_operator import External, weights_of
from hios.kernels.merged import compile_merged, torch_dtype, value_type
from hios.kernels.onednn import as_made
from hios.platforms.program import Buffer
from hios.workers.arena import Arena


class Workload:
    """An operator with weights and inputs of its own.

    Weights and inputs are on the device of the generator. Convolutions are packed for that device, and inputs have the
    memory format that these produce. Whole numbers may be indices: they are 0 and 1, or only 0 where a tensor has a
    dimension of size 1.
    """

    def __init__(self, graph: Graph, operator: Operator, generator: torch.Generator) -> None:
        inputs = {entry.name: entry for entry in graph.inputs}
        below = 1 if operator.shapes and any(1 in own for own in operator.shapes.inputs) else 2
        weights = _weights(graph, [operator], generator, below)
        self.compiled: CompiledOperator = compile_operator(operator, weights, packed=True)
        kinds = [_kind(graph, inputs, value) for value in self.compiled.externals]
        self.inputs = [
            as_made(_random(shape, dtype, generator, below))
            if value[0] == "operator"
            else _random(shape, dtype, generator, below)
            for value, (shape, dtype) in zip(self.compiled.externals, kinds, strict=True)
        ]
        #: Bytes of its weights and inputs.
        self.nbytes = sum(tensor.nbytes for tensor in [*weights.values(), *self.inputs])

    def run(self) -> None:
        """Run the operator and drop its result."""
        self.compiled.run(*self.inputs)


class Merged:
    """Convolutions of one input, merged (IOS, operator merge) and one after another, with weights and input.

    Arguments are those of `Workload`.
    """

    def __init__(self, graph: Graph, operators: Sequence[str], generator: torch.Generator) -> None:
        members = [graph.operators[graph.index[operator]] for operator in operators]
        weights = _weights(graph, members, generator)
        self._together = compile_merged(graph, operators, weights, packed=True)
        compiled = [compile_operator(operator, weights, packed=True) for operator in members]
        self._apart = [operator.run for operator in compiled]
        (value,) = compiled[0].externals
        shape, dtype = _kind(graph, {entry.name: entry for entry in graph.inputs}, value)
        made = _random(shape, dtype, generator)
        self.inputs = [as_made(made)]
        #: Bytes of its weights and input.
        self.nbytes = sum(tensor.nbytes for tensor in [*weights.values(), *self.inputs])

    def run_together(self) -> None:
        """Run the merged operator and drop its results."""
        self._together(*self.inputs)

    def run_apart(self) -> None:
        """Run the operators one after another and drop their results."""
        for run in self._apart:
            run(*self.inputs)


def _weights(
    graph: Graph, operators: Sequence[Operator], generator: torch.Generator, below: int = 2
) -> dict[str, Tensor]:
    """Random weights of operators, by name."""
    known = {entry.name: entry for entry in graph.weights}
    return {name: _random(known[name].shape, known[name].dtype, generator, below) for name in weights_of(operators)}


def _kind(graph: Graph, inputs: dict[str, TensorSpec], value: External) -> tuple[Sequence[int], str]:
    if value[0] == "input":
        return inputs[value[1]].shape, inputs[value[1]].dtype
    return value_type(graph, value)


def _random(shape: Sequence[int], dtype: str, generator: torch.Generator, below: int = 2) -> Tensor:
    kind = torch_dtype(dtype)
    if kind.is_floating_point or kind.is_complex:
        return torch.randn(tuple(shape), generator=generator, dtype=kind, device=generator.device)
    return torch.randint(0, below, tuple(shape), generator=generator, dtype=kind, device=generator.device)


def load_weights(path: str | Path, graph: Graph) -> dict[str, Tensor]:
    """Tensors by name; an `ArtifactError` if they are missing, damaged, or not the weights of the graph."""
    try:
        tensors = load_file(path)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror or 'no such file'}") from error
    except SafetensorError as error:
        raise ArtifactError(f"{path}: damaged or not a safetensors file ({error}); extract it again") from error
    require_weights(tensors, graph, str(path))
    return tensors


def require_weights(tensors: Mapping[str, Tensor], graph: Graph, source: str) -> None:
    """Check that tensors by name are the weights of a graph; ``source`` is their file, for messages.

    Raises:
        ArtifactError: one is missing or of another shape or dtype.
    """
    for entry in graph.weights:
        name, required = entry.name, f"{entry.dtype} of shape {list(entry.shape)}"
        tensor = tensors.get(name)
        stated = (
            "none" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} of shape {list(tensor.shape)}"
        )
        if stated != required:
            raise ArtifactError(
                f"{source}: {name}: found {stated}; required: {required}, as graph {graph.name} states; "
                "graph and weights must come from one extraction"
            )


def arena_tensor(arena: Arena, buffer: Buffer) -> Tensor:
    """A buffer as a tensor."""
    return arena.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype))


def deliver(value: Tensor, buffer: Tensor) -> None:
    """Copy a value into its buffer, refusing shapes or dtypes that ``copy_`` would broadcast or convert."""
    if value.shape != buffer.shape or value.dtype != buffer.dtype:
        raise PlatformError(
            f"found a value of shape {tuple(value.shape)} and {value.dtype}; the graph states "
            f"{tuple(buffer.shape)} and {buffer.dtype}"
        )
    buffer.copy_(value)


def copy_alone(value: Tensor, target: Tensor) -> Tensor:
    """Copy a tensor into a contiguous one of the same shape and dtype, on the calling thread only.

    ``copy_`` splits large tensors over the threads of torch, and those spin on for milliseconds on cores that the
    workers need.

    Raises:
        HiosError: the tensor has no memory, or less than its shape needs, as its storage was freed or it is fake.
    """
    contiguous, address = value.is_contiguous(), value.data_ptr()
    size = value.nbytes if contiguous else _span_bytes(value)
    there = value.untyped_storage().nbytes() if address else 0
    # Reading what is not there would end the process, in torch's own copy_ too.
    if there < size or ((offset := value.storage_offset()) and there < offset * value.itemsize + size):
        raise HiosError("found a tensor without memory, or with too little; allowed: one whose values are in memory")
    if contiguous and not value.is_conj() and not value.is_neg():
        ctypes.memmove(target.data_ptr(), address, size)
    else:
        target.copy_(value.detach())
    return target


def _span_bytes(value: Tensor) -> int:
    """Bytes from the first element of a tensor to the end of the last one."""
    if not value.numel():
        return 0
    steps = ((length - 1) * stride for length, stride in zip(value.shape, value.stride(), strict=True))
    return (1 + sum(steps)) * value.itemsize
