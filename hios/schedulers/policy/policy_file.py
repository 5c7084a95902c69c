"""Files of trained policies: safetensors with the weights by name, and how they were trained."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from hios.artifacts import Json, replacing
from hios.errors import ArtifactError
from hios.schedulers.policy.network import initial_weights
from hios.schedulers.policy.perceptron import Weights

#: The one key of the metadata: several would be written in any order, and equal policies give equal files.
_KEY = "hios-gpg"


def write_policy(path: str | Path, weights: Weights, training: Json) -> None:
    """Write a policy; equal weights give equal bytes.

    Weights are named as by `initial_weights`; ``training`` is saved with them as JSON.
    """
    from safetensors.numpy import save

    data = save(
        {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in sorted(weights.items())},
        metadata={_KEY: json.dumps(training, sort_keys=True)},
    )
    with replacing(path) as part:
        part.write_bytes(data)


def read_policy(path: str | Path) -> Weights:
    """The weights of a policy.

    Raises:
        ArtifactError: missing, damaged, or not the weights of a policy.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        weights: Weights = load(Path(path).read_bytes())
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror or 'no such file'}") from error
    except SafetensorError as error:
        raise ArtifactError(f"{path}: damaged or not a safetensors file ({error}); train it again") from error
    for name, expected in initial_weights(0).items():
        shape = list(weights[name].shape) if name in weights else None
        if shape != list(expected.shape):
            raise ArtifactError(
                f"{path}: {name}: found {'none' if shape is None else f'shape {shape}'}; required: shape "
                f"{list(expected.shape)}, as hios train writes it; train it again with this version"
            )
    return {name: weights[name] for name in initial_weights(0)}
