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
        name, shape = entry["name"], entry["shape"]
        found = list(tensors[name].shape) if name in tensors else "none"
        if found != shape:
            raise ArtifactError(
                f"{path}: {name}: found {found}; required: shape {shape}, as graph {graph.name} states; "
                "graph and weights must come from one extraction"
            )
    return tensors
