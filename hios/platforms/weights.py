"""Reading weights.safetensors and checking that it belongs to the graph."""

from __future__ import annotations

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
    for entry in graph.weights:
        name, required = entry.name, f"{entry.dtype} of shape {list(entry.shape)}"
        tensor = tensors.get(name)
        found = (
            "none" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} of shape {list(tensor.shape)}"
        )
        if found != required:
            raise ArtifactError(
                f"{path}: {name}: found {found}; required: {required}, as graph {graph.name} states; "
                "graph and weights must come from one extraction"
            )
    return tensors
