"""A network of many_branches.py in TensorFlow with inter_op 2 and intra_op 1; `many_branches.py` starts it.

    python tensorflow_branches.py FILE RUNS

FILE (.npz) has the input, the right output, and the weights of every branch in PyTorch's order and layout. Images and
filters are brought into TensorFlow's layout first, and weights are constants of the graph. Printed are milliseconds of
RUNS calls, as JSON; between them other memory is written, as the caches have little left of a way in a session whose
ways take turns. Runs in an environment of its own, without hios.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

try:
    import tensorflow as tf
except ImportError:  # in the environment of hios
    tf = None

WARMUP = 20
#: Bytes written between runs.
OTHER_BYTES = 1 << 26


def _layers(x: Any, weights: Sequence[Any]) -> Any:
    """Convolutions of 1 x 1 or linear layers, each with its bias and ReLU."""
    for weight, bias in zip(weights[::2], weights[1::2], strict=True):
        made = tf.nn.conv2d(x, weight.transpose(2, 3, 1, 0), 1, "VALID") if weight.ndim > 2 else x @ weight.T
        x = tf.nn.relu(tf.nn.bias_add(made, bias))
    return x


def _gru(x: Any, weights: Sequence[Any]) -> Any:
    """The last output of a GRU: what comes from the input of all steps at once, then step by step."""
    of_input, of_state, input_bias, state_bias = weights
    given = tf.unstack(x @ of_input.T + input_bias, axis=1)
    state = tf.zeros((x.shape[0], of_state.shape[1]))
    for own in given:
        reset, update, new = tf.split(own, 3, axis=1)
        old_reset, old_update, old_new = tf.split(tf.matmul(state, of_state.T) + state_bias, 3, axis=1)
        update = tf.sigmoid(update + old_update)
        new = tf.tanh(new + tf.sigmoid(reset + old_reset) * old_new)
        state = new + update * (state - new)
    return state


def main() -> None:
    """Print the times of a network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("runs", type=int, metavar="RUNS")
    given = parser.parse_args()
    tf.config.threading.set_inter_op_parallelism_threads(2)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    data = dict(np.load(given.file))
    x, right = (own.transpose(0, 2, 3, 1) if own.ndim > 3 else own for own in (data.pop("x"), data.pop("y")))
    branch: Callable[[Any, Sequence[Any]], Any] = _layers if x.ndim != 3 else _gru
    branches: dict[str, list[Any]] = {}
    for name, weight in data.items():
        branches.setdefault(name.split(".")[1], []).append(weight)
    network = tf.function(lambda x: tf.concat([branch(x, own) for own in branches.values()], -1))
    run, x = network.get_concrete_function(tf.TensorSpec(x.shape)), tf.constant(x)
    for _ in range(WARMUP):
        np.testing.assert_allclose(run(x).numpy(), right, rtol=1e-4, atol=1e-4)
    taken, other = [], np.zeros(OTHER_BYTES, np.uint8)
    for _ in range(given.runs):
        other += 1
        began = time.perf_counter_ns()
        run(x)
        taken.append((time.perf_counter_ns() - began) / 1e6)
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
