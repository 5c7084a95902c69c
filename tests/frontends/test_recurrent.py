"""Recurrent layers: one operator for each layer and direction, which computes what PyTorch or ONNX Runtime does."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import ModelProto, NodeProto, TensorProto, checker, helper, numpy_helper
from torch import nn
from torch.utils import _pytree as pytree

import hios
from hios.cli.files import export
from hios.core.graph import Graph
from hios.errors import UnsupportedError
from hios.formats.onnx_session import OnnxSession
from hios.frontends.example_inputs import example_inputs
from hios.frontends.extract import extract
from hios.frontends.extraction_check import run_graph
from hios.frontends.onnx_export import to_onnx
from hios.frontends.onnx_rewriting import rewritten
from hios.kernels.table import aten
from tests.frontends.small_networks import Model
from tests.openvino_marker import needs_openvino

_STEPS, _BATCH, _SIZE, _HIDDEN = 3, 2, 5, 4
_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def _layer(
    kind: str, directions: int = 1, *, bias: bool = True, states: bool = True, outputs: int = 2, **attributes: Any
) -> ModelProto:
    """A model of one recurrent layer with random weights; states are inputs."""
    random = np.random.default_rng(0)
    rows = _GATES[kind] * _HIDDEN
    shapes = {"w": [directions, rows, _SIZE], "r": [directions, rows, _HIDDEN]} | (
        {"b": [directions, 2 * rows]} if bias else {}
    )
    weights = [numpy_helper.from_array(random.normal(size=s).astype(np.float32), name) for name, s in shapes.items()]
    state = [directions, _BATCH, _HIDDEN]
    given = {"x": [_STEPS, _BATCH, _SIZE]}
    if states:
        given |= {"h": state} | ({"c": state} if kind == "LSTM" else {})
    made = {"y": [_STEPS, directions, _BATCH, _HIDDEN], "last": state, "cell": state}
    names = ["x", "w", "r", "b" if bias else "", "", *(name for name in ("h", "c") if name in given)]
    node = helper.make_node(kind, names, list(made)[:outputs], "layer", hidden_size=_HIDDEN, **attributes)
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in given.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, made[name]) for name in list(made)[:outputs]],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _saved(model: ModelProto, folder: Path) -> Path:
    path = folder / "net.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    "model",
    [
        _layer("LSTM", outputs=3),
        _layer("LSTM", direction="reverse", bias=False),
        _layer("LSTM", 2, direction="bidirectional", outputs=3, activations=["Sigmoid", "Tanh", "Tanh"] * 2),
        _layer("LSTM", states=False, outputs=1),
        _layer("GRU"),
        _layer("GRU", 2, direction="bidirectional", linear_before_reset=1),
        _layer("GRU", bias=False, states=False),
        _layer("RNN", direction="reverse"),
    ],
    ids=["lstm", "lstm-reverse", "lstm-both", "lstm-plain", "gru", "gru-both", "gru-plain", "rnn-reverse"],
)
def test_layers(model: ModelProto, tmp_path: Path) -> None:
    """Every kind of layer gives all of its outputs as ONNX Runtime does, on inputs that extraction did not try."""
    path = _saved(model, tmp_path)
    graph, weights = extract(path, "net")
    inputs = tuple(torch.randn(entry.shape) for entry in graph.inputs)
    torch.testing.assert_close(run_graph(graph, weights, inputs), OnnxSession(path)(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", list(_GATES))
def test_directions_do_not_wait_for_each_other(kind: str, tmp_path: Path) -> None:
    """A layer of two directions is two operators without a dependency, with the work of their matrix products."""
    graph, _ = extract(_saved(_layer(kind, 2, direction="bidirectional", outputs=2), tmp_path), "net")
    _require_apart(graph, kind, 2 * _STEPS * _BATCH * _GATES[kind] * _HIDDEN * (_SIZE + _HIDDEN))


def _require_apart(graph: Graph, kind: str, flops: int) -> None:
    first, second = (operator for operator in graph.operators if operator.type == kind)
    assert (first.flops, second.flops) == (flops, flops)
    before: dict[str, set[str]] = {operator.id: set() for operator in graph.operators}
    for position in graph.order:
        target = graph.operators[position].id
        for edge in graph.edges:
            if edge.target == target:
                before[target] |= {edge.source} | before[edge.source]
    assert first.id not in before[second.id]
    assert second.id not in before[first.id]


@pytest.mark.parametrize(
    ("kind", "options", "count"),
    [
        ("GRU", {}, 1),
        ("GRU", {"num_layers": 2, "bidirectional": True, "dropout": 0.5}, 4),
        ("LSTM", {"bidirectional": True, "batch_first": True}, 2),
        ("LSTM", {"num_layers": 2, "proj_size": 3}, 2),
        ("RNN", {"bias": False}, 1),
        ("RNN", {"nonlinearity": "relu", "bidirectional": True}, 2),
    ],
)
def test_layers_of_torch(kind: str, options: dict[str, Any], count: int) -> None:
    """All outputs, also with states that are given, are those of PyTorch; dropout between layers is for training."""
    torch.manual_seed(0)
    layer = getattr(nn, kind)(_SIZE, _HIDDEN, **options).eval()
    x = torch.randn(_STEPS, _BATCH, _SIZE)
    _, state = layer(torch.randn(_STEPS, x.shape[1 - layer.batch_first], _SIZE).transpose(0, int(layer.batch_first)))
    program = torch.export.export(layer, (x, state))
    graph, weights = hios.extract(program)
    name = "rnn_" + options.get("nonlinearity", "tanh") if kind == "RNN" else kind.lower()
    assert [operator.type for operator in graph.operators].count(name) == count
    expected = tuple(pytree.tree_leaves(layer(x, state)))
    given = tuple(pytree.tree_leaves((x, state)))
    torch.testing.assert_close(tuple(run_graph(graph, weights, given)), expected, rtol=1e-5, atol=1e-6)
    if count == 2 and options.get("bidirectional"):
        gates = _GATES[kind]
        _require_apart(graph, name, 2 * _STEPS * _BATCH * gates * _HIDDEN * (_SIZE + _HIDDEN))


@needs_openvino
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("GRU", {"num_layers": 2, "bidirectional": True}),
        ("LSTM", {"batch_first": True}),
        ("LSTM", {"proj_size": 3}),
        ("RNN", {}),
    ],
)
def test_openvino_has_whole_layers(kind: str, options: dict[str, Any]) -> None:
    """Outputs and states equal PyTorch's; no step of a GRU or LSTM is written out, but for what ONNX has no layer."""
    from hios.frontends import openvino

    torch.manual_seed(0)
    layer = getattr(nn, kind)(_SIZE, _HIDDEN, **options).eval()
    x = torch.randn(_STEPS, _BATCH, _SIZE)
    model = openvino.converted(torch.export.export(layer, (x,)), "the layer")
    expected = pytree.tree_leaves(layer(x))
    torch.testing.assert_close(openvino.OpenVinoSession(model, threads=1)(x), expected, rtol=1e-4, atol=1e-5)
    is_whole = any(node.get_type_name() == f"{kind}Sequence" for node in model.get_ops())
    assert is_whole == (kind != "RNN" and "proj_size" not in options)


_ONNX_LOGS = ("torch.onnx", "onnxscript.optimizer")


def test_exports_of_others_get_a_table_of_their_own() -> None:
    """What torch.onnx parses is kept for exports of hios alone; functions that others add to it stay with them."""
    from torch.onnx._internal.exporter import _registration

    logs, registry = [logging.getLogger(name) for name in _ONNX_LOGS], _registration.ONNXRegistry
    before = [log.level for log in logs], vars(registry)["from_torchlib"]
    to_onnx(torch.export.export(nn.ReLU(), (torch.ones(2),)))
    assert ([log.level for log in logs], vars(registry)["from_torchlib"]) == before


def test_exports_log_nothing_of_what_they_leave(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What torch and onnxscript leave unchanged while they export, such as constants, they tell nobody."""
    export = torch.onnx.export
    for name in _ONNX_LOGS:  # torch has records of its own log end there
        logging.getLogger(name).addHandler(caplog.handler)

    def logging_export(*given: Any, **options: Any) -> Any:
        for name in _ONNX_LOGS:
            logging.getLogger(f"{name}.part").warning("Evaluation failed")
        return export(*given, **options)

    monkeypatch.setattr(torch.onnx, "export", logging_export)
    try:
        to_onnx(torch.export.export(nn.ReLU(), (torch.ones(2),)))
    finally:
        for name in _ONNX_LOGS:
            logging.getLogger(name).removeHandler(caplog.handler)
    assert [record for record in caplog.records if record.message == "Evaluation failed"] == []


@needs_openvino
@pytest.mark.parametrize("is_readable", [True, False])
def test_openvino_takes_the_program_where_onnx_does_not_do(is_readable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX would drop inputs that nothing reads, and OpenVINO may refuse a file; the layer is then written out."""
    from hios.frontends import openvino

    if not is_readable:
        monkeypatch.setattr(openvino, "to_onnx", lambda _: b"no model")
    torch.manual_seed(0)
    model = Model(lambda own, x, *unread: own.gru(x)[0], gru=nn.GRU(_SIZE, _HIDDEN)).eval()
    inputs = (torch.ones(_STEPS, _BATCH, _SIZE), torch.ones(2))[: 2 if is_readable else 1]
    converted = openvino.converted(torch.export.export(model, inputs), "the model")
    (made,) = openvino.OpenVinoSession(converted, threads=1)(*inputs)
    torch.testing.assert_close(made, model(*inputs), rtol=1e-4, atol=1e-5)


def test_layers_in_training_are_refused() -> None:
    """What drops values in training is no part of a graph of inference."""
    program = torch.export.export(nn.GRU(_SIZE, _HIDDEN, 2, dropout=0.5), (torch.randn(_STEPS, _BATCH, _SIZE),))
    with pytest.raises(UnsupportedError, match=r"gru.*it draws random numbers"):
        hios.extract(program)


@pytest.mark.parametrize("name", ["activation_alpha", "activation_beta"])
def test_numbers_of_activations(name: str, tmp_path: Path) -> None:
    """A layer whose activations share a list of numbers stays one operator, with the work of both directions."""
    more: Any = {"activations": ["HardSigmoid", "Tanh", "Tanh"] * 2, name: [0.3, 0.4]}
    model = _layer("LSTM", 2, direction="bidirectional", **more)
    _require_one_operator(model, tmp_path, "LSTM")
    graph, _ = extract(tmp_path / "net.onnx", "net")
    assert [operator.flops for operator in graph.operators if operator.type == "LSTM"] == [
        2 * 2 * _STEPS * _BATCH * 4 * _HIDDEN * (_SIZE + _HIDDEN)
    ]


def test_layers_of_two_directions_are_valid_models() -> None:
    """One value may be both states, and two layers may share their weights."""
    model = _layer("LSTM", 2, direction="bidirectional")
    (layer,) = model.graph.node
    layer.input[6] = "h"
    again = NodeProto()
    again.CopyFrom(layer)
    again.name, again.output[:] = "again", ["more", "latest"]
    model.graph.node.append(again)
    made = rewritten(model)
    assert [node.op_type for node in made.graph.node].count("LSTM") == 4
    checker.check_model(made)


def test_weights_that_nodes_compute(tmp_path: Path) -> None:
    """Exporters bring gates into the order of ONNX with nodes, which are computed before the run."""
    model = _layer("RNN", bias=False, states=False)
    (layer,) = model.graph.node
    layer.input[1] = "turned"
    model.graph.node.insert(0, helper.make_node("Neg", ["w"], ["turned"]))
    path = _saved(model, tmp_path)
    graph, weights = extract(path, "net")
    inputs = (torch.randn(_STEPS, _BATCH, _SIZE),)
    torch.testing.assert_close(run_graph(graph, weights, inputs), OnnxSession(path)(*inputs), rtol=1e-5, atol=1e-5)


def test_layers_with_computed_weights(tmp_path: Path) -> None:
    """Weights that depend on inputs are no reason to refuse a layer; ONNX Runtime runs it as it is."""
    model = _layer("RNN", bias=False)
    (layer,) = model.graph.node
    layer.input[2] = "made"
    model.graph.node.insert(0, helper.make_node("Expand", ["h", "sizes"], ["made"]))
    sizes = np.asarray([1, _HIDDEN, _HIDDEN], np.int64)
    model.graph.initializer.append(numpy_helper.from_array(sizes, "sizes"))
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 1
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 1
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("last", TensorProto.FLOAT, [1, 1, _HIDDEN]))
    _require_one_operator(model, tmp_path, "RNN")


def _require_one_operator(model: ModelProto, folder: Path, kind: str) -> None:
    path = _saved(model, folder)
    graph, weights = extract(path, "net")
    assert [operator.type for operator in graph.operators].count(kind) == 1
    inputs = example_inputs(graph.inputs, seed=1)
    torch.testing.assert_close(run_graph(graph, weights, inputs), OnnxSession(path)(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rate", [8000, 16000])
def test_branches_by_a_number(rate: int, tmp_path: Path) -> None:
    """Which branch is taken may depend on an input that is a number, whose value becomes part of the model."""
    branches = [
        helper.make_graph(
            [helper.make_node(kind, ["x"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4])],
        )
        for kind, name in (("Neg", "slow"), ("Abs", "fast"))
    ]
    nodes = [
        helper.make_node("Equal", ["sr", "limit"], ["is_slow"]),
        helper.make_node("If", ["is_slow"], ["y"], "branch", then_branch=branches[0], else_branch=branches[1]),
    ]
    graph = helper.make_graph(
        nodes,
        "graph",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4]),
            helper.make_tensor_value_info("sr", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(np.asarray(8000, np.int64), "limit")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path, fixed = _saved(model, tmp_path), tmp_path / "fixed.onnx"
    with pytest.raises(UnsupportedError, match=r"If \(node branch\): which branch is taken depends on the values of"):
        extract(path, "net")
    export(str(path), fixed, {}, inputs={"sr": [rate]})
    extracted, weights = extract(fixed, "net")
    assert [entry.name for entry in extracted.inputs] == ["x"]
    x = torch.randn(1, 4)
    torch.testing.assert_close(run_graph(extracted, weights, (x,)), [-x if rate == 8000 else x.abs()])


@pytest.mark.parametrize(
    "attributes",
    [{"clip": 0.1}, {"activations": ["Relu", "Tanh", "Tanh"]}, {"activations": ["Tanh", "Tanh", "Tanh"]}],
)
def test_options_of_layers(attributes: dict[str, Any], tmp_path: Path) -> None:
    """Options that change what a layer computes count."""
    _require_one_operator(_layer("LSTM", **attributes), tmp_path, "LSTM")


def _layer_of_graph(**changed: tuple[int, ...]) -> None:
    """Run a layer of a graph.json whose tensors have some other shapes."""
    shapes = {
        "x": (5, 3, 4),
        "h": (1, 3, 6),
        "c": (1, 3, 6),
        "w": (24, 4),
        "r": (24, 6),
        "b": (24,),
        "rb": (24,),
    } | changed
    plain = {"has_biases": True, "num_layers": 1, "dropout": 0.0, "train": False, "bidirectional": False}
    tensors = {
        "input": {"tensor": 0},
        "hx": [{"tensor": 1}, {"tensor": 2}],
        "params": [{"tensor": k} for k in range(3, 7)],
    }
    run = aten.build("aten.lstm.input", {"arguments": {**tensors, **plain, "batch_first": False}})
    run(*(torch.zeros(shape) for shape in shapes.values()))


@pytest.mark.parametrize(
    "changed",
    [{"b": (1,)}, {"w": (8, 4)}, {"r": (4, 1)}, {"h": (1, 1, 6)}, {"c": (1, 3, 1)}, {"x": (5, 3, 9)}, {"x": (5, 4)}],
)
def test_shapes_of_layers_are_checked(changed: dict[str, tuple[int, ...]]) -> None:
    """PyTorch's fastest kernel would read beyond tensors that are too small, which a file of strangers may state."""
    _layer_of_graph()
    with pytest.raises(UnsupportedError, match=r"found states and weights of .*; allowed: those of one layer"):
        _layer_of_graph(**changed)
