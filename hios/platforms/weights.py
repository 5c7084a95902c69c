"""Reading weights.safetensors and checking that it belongs to the graph."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from hios.errors import ArtifactError
from hios.graph import Graph


def load_weights(path: str | Path, graph: Graph) -> dict[str, Tensor]:
    """Tensors by name.

    Raises:
        ArtifactError: missing, damaged, or not the weights of the graph.
    """
    try:
        tensors = load_file(path)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror or 'no such file'}") from error
    except SafetensorError as error:
        raise ArtifactError(f"{path}: damaged or not a safetensors file ({error}); extract it again") from error
    require_weights(tensors, graph, str(path))
    return tensors


def require_weights(tensors: Mapping[str, Tensor], graph: Graph, source: str) -> None:
    """Check that tensors are the weights of a graph.

    Args:
        tensors: by name.
        graph: the graph.
        source: their file, for messages.

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
