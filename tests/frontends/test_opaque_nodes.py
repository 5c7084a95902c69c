"""Nodes of ONNX files that Relax cannot import, or imports wrongly: one opaque call each, which ONNX Runtime runs."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.helper import make_node as node
from packaging.version import Version

from hios import Graph
from hios.errors import UnsupportedError
from hios.formats.onnx_session import OnnxSession
from hios.frontends.example_inputs import example_inputs
from hios.frontends.extract import extract
from hios.frontends.extraction_check import run_graph
from hios.frontends.onnx_file import DTYPES
from hios.kernels import build
from tests.cli.commands import succeed
from tests.refusals import refused

_RANDOM = np.random.default_rng(0)


def _real(*shape: int) -> Any:
    return _RANDOM.standard_normal(shape).astype(np.float32)


def _whole(*shape: int) -> Any:
    # With larger ones, ONNX Runtime's sums of products with uint8 saturate on processors with AVX2 and without VNNI.
    return _RANDOM.integers(-64, 65, shape).astype(np.int8)


def _one(value: Any, dtype: Any = np.float32) -> Any:
    return np.asarray(value, dtype)


def _model(
    nodes: list[NodeProto],
    inputs: dict[str, list[int]],
    weights: dict[str, Any] | None = None,
    *,
    opset: int | None = 20,
    outputs: tuple[str, ...] = ("y",),
    dtype: int = TensorProto.FLOAT,
) -> ModelProto:
    """A model of these nodes; the types of its outputs are those of a run. Without opset, no node is of ONNX itself."""
    given = [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()]
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", given, [ValueInfoProto(name=name) for name in outputs], held)
    own = [] if opset is None else [helper.make_opsetid("", opset)]
    opsets = [*own, helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    zeros = [torch.zeros(shape, dtype=DTYPES[dtype]) for shape in inputs.values()]
    made = OnnxSession("model", model.SerializeToString())(*zeros)
    for output, value in zip(model.graph.output, made, strict=True):
        kind = helper.np_dtype_to_tensor_dtype(value.numpy().dtype)
        output.CopyFrom(helper.make_tensor_value_info(output.name, kind, value.shape))
    return model


_LOOP = helper.make_graph(
    [
        node("Mul", ["acc", "two"], ["grown"]),
        node("Identity", ["go"], ["on"]),
        node("Add", ["grown", "x"], ["seen"]),
    ],
    "body",
    [
        helper.make_tensor_value_info("number", TensorProto.INT64, []),
        helper.make_tensor_value_info("go", TensorProto.BOOL, []),
        helper.make_tensor_value_info("acc", TensorProto.FLOAT, [3, 4]),
    ],
    [
        helper.make_tensor_value_info("on", TensorProto.BOOL, []),
        helper.make_tensor_value_info("grown", TensorProto.FLOAT, [3, 4]),
        helper.make_tensor_value_info("seen", TensorProto.FLOAT, [3, 4]),
    ],
)
_SCAN = helper.make_graph(
    [node("Add", ["sum", "row"], ["more"]), node("Identity", ["more"], ["seen"])],
    "body",
    [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("sum", "row")],
    [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("more", "seen")],
)
_SCALES = {"s": _one(0.05), "z": _one(3, np.uint8), "ws": _one(0.01), "wz": _one(0, np.int8)}
_QUANTIZE = node("QuantizeLinear", ["x", "s", "z"], ["q"])
_DEQUANTIZE = node("DequantizeLinear", ["c", "s", "z"], ["y"])
_IMAGE = {"x": [1, 3, 8, 8]}

#: Models by what they are about, with the operators that become opaque calls.
_MODELS: dict[str, tuple[ModelProto, set[str]]] = {
    "Det": (_model([node("Det", ["x"], ["y"])], {"x": [3, 3]}), {"Det"}),
    "Resize in one dimension": (
        _model([node("Resize", ["x", "", "s"], ["y"], mode="linear")], {"x": [1, 3, 4]}, {"s": _one([1, 1, 2])}),
        {"Resize"},
    ),
    "Resize of some axes": (
        _model(
            [node("Resize", ["x", "", "s"], ["y"], axes=[3, 2], mode="nearest")],
            _IMAGE,
            {"s": _one([1.5, 2])},
            opset=20,
        ),
        set(),
    ),
    "Resize antialiased": (
        _model([node("Resize", ["x", "", "", "z"], ["y"], mode="linear", antialias=1)], _IMAGE, {"z": [1, 3, 5, 3]}),
        {"Resize"},
    ),
    "Resize of a part": (
        _model(
            [node("Resize", ["x", "r", "", "z"], ["y"], coordinate_transformation_mode="tf_crop_and_resize")],
            _IMAGE,
            {"r": _one([0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9]), "z": [1, 3, 5, 3]},
        ),
        set(),
    ),
    "GridSample": (
        _model(
            [node("GridSample", ["x", "g"], ["y"], mode="cubic", padding_mode="reflection", align_corners=1)],
            {**_IMAGE, "g": [1, 4, 5, 2]},
        ),
        {"GridSample"},
    ),
    "RoiAlign": (
        _model(
            [node("RoiAlign", ["x", "b", "i"], ["y"], output_height=3, output_width=2, sampling_ratio=2)],
            _IMAGE,
            {"b": _one([[0, 0, 8, 8], [2, 2, 6, 7]]), "i": [0, 0]},
        ),
        {"RoiAlign"},
    ),
    "Einsum": (_model([node("Einsum", ["x"], ["y"], equation="bii->bi")], {"x": [2, 3, 3]}), {"Einsum"}),
    "CumSum": (
        _model([node("CumSum", ["x", "a"], ["y"], exclusive=1, reverse=1)], {"x": [2, 3]}, {"a": 1}),
        {"CumSum"},
    ),
    "GroupNormalization": (
        _model(
            [node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)],
            {"x": [2, 4, 5, 5]},
            {"s": _real(4), "b": _real(4)},
            opset=21,
        ),
        {"GroupNormalization"},
    ),
    "Celu between convolutions": (
        _model(
            [
                node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
                node("Relu", ["c"], ["r"]),
                node("Celu", ["r"], ["e"]),
                node("Add", ["e", "r"], ["y"]),
            ],
            _IMAGE,
            {"w": _real(4, 3, 3, 3)},
        ),
        {"Celu"},
    ),
    "Hardmax": (_model([node("Hardmax", ["x"], ["y"], axis=0)], {"x": [4, 3]}), {"Hardmax"}),
    "ConvTranspose": (
        _model(
            [node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2], pads=[0, 1, 2, 0], output_padding=[1, 0])],
            _IMAGE,
            {"w": _real(3, 4, 3, 3)},
        ),
        {"ConvTranspose"},
    ),
    "DFT": (
        _model(
            [node("Unsqueeze", ["x", "m"], ["u"]), node("DFT", ["u"], ["y"], axis=1, onesided=1)],
            {"x": [2, 8]},
            {"m": [-1]},
            opset=17,
        ),
        {"DFT"},
    ),
    "Loop": (
        _model(
            [node("Loop", ["n", "t", "x"], ["y", "z"], body=_LOOP)],
            {"x": [3, 4]},
            {"n": 5, "t": True, "two": _one(2)},
            outputs=("y", "z"),
        ),
        {"Loop"},
    ),
    "Scan": (
        _model(
            [node("Scan", ["i", "x"], ["y", "z"], body=_SCAN, num_scan_inputs=1)],
            {"x": [3, 4]},
            {"i": _one([0] * 4)},
            outputs=("y", "z"),
        ),
        {"Scan"},
    ),
    "quantized weights and values": (
        _model(
            [
                _QUANTIZE,
                node("DequantizeLinear", ["q", "s", "z"], ["d"]),
                node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
                node("Conv", ["d", "v"], ["e"], pads=[1, 1, 1, 1]),
                node("Relu", ["e"], ["r"]),
                node("QuantizeLinear", ["r", "s", "z"], ["c"]),
                _DEQUANTIZE,
            ],
            _IMAGE,
            {**_SCALES, "w": _whole(4, 3, 3, 3)},
        ),
        {"QuantizeLinear", "DequantizeLinear"},
    ),
    "QLinearConv": (
        _model(
            [
                _QUANTIZE,
                node("QLinearConv", ["q", "s", "z", "w", "ws", "wz", "s", "z"], ["c"], pads=[1, 1, 1, 1]),
                _DEQUANTIZE,
            ],
            _IMAGE,
            {**_SCALES, "w": _whole(4, 3, 3, 3)},
        ),
        {"QuantizeLinear", "QLinearConv", "DequantizeLinear"},
    ),
    "QLinearMatMul": (
        _model(
            [_QUANTIZE, node("QLinearMatMul", ["q", "s", "z", "w", "ws", "wz", "s", "z"], ["c"]), _DEQUANTIZE],
            {"x": [5, 8]},
            {**_SCALES, "w": _whole(8, 4)},
        ),
        {"QLinearMatMul"},
    ),
    "quantized by ONNX Runtime": (
        _model(
            [
                _QUANTIZE,
                node("QLinearAdd", ["q", "s", "z", "q", "s", "z", "s", "z"], ["c"], domain="com.microsoft"),
                _DEQUANTIZE,
            ],
            {"x": [5, 8]},
            _SCALES,
        ),
        {"QLinearAdd"},
    ),
    "nothing of ONNX itself": (
        _model(
            [node("DynamicQuantizeMatMul", ["x", "w", "ws"], ["y"], domain="com.microsoft")],
            {"x": [5, 8]},
            {**_SCALES, "w": _whole(8, 4)},
            opset=None,
        ),
        {"DynamicQuantizeMatMul"},
    ),
    "dynamic quantization": (
        _model(
            [
                node("DynamicQuantizeLinear", ["x"], ["a", "b", "c"]),
                node("MatMulInteger", ["a", "w", "c"], ["d"]),
                node("Cast", ["d"], ["e"], to=TensorProto.FLOAT),
                node("Mul", ["e", "b"], ["y"]),
            ],
            {"x": [5, 8]},
            {"w": _whole(8, 4)},
        ),
        {"DynamicQuantizeLinear"},
    ),
    "pooling with indices": (
        _model([node("MaxPool", ["x"], ["y", "z"], kernel_shape=[2, 2], strides=[2, 2])], _IMAGE, outputs=("y", "z")),
        {"MaxPool"},
    ),
    "places": (
        _model(
            [
                node("GatherND", ["x", "i"], ["g"], batch_dims=1),
                node("ScatterND", ["x", "i", "u"], ["s"], reduction="max"),
                node("ReverseSequence", ["s", "l"], ["r"]),
                node("ReduceMax", ["r"], ["m"], keepdims=0),
                node("Clip", ["g", "", "m"], ["y"]),
            ],
            {"x": [2, 3]},
            {"i": [[1], [0]], "u": _real(2, 3), "l": [1, 2, 2]},
        ),
        {"GatherND", "ScatterND", "ReverseSequence", "Clip"},
    ),
}


def _saved(model: ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


def _opaque(graph: Graph) -> set[str]:
    calls = [call for operator in graph.operators for call in operator.calls]
    return {call.function.removeprefix("onnx.") for call in calls if call.function.startswith("onnx.")}


def _attention() -> tuple[ModelProto, set[str]]:
    nodes = [node("Attention", ["x", "k", "v"], ["y"], is_causal=1)]
    return _model(nodes, {name: [1, 2, 3, 4] for name in "xkv"}, opset=23), {"Attention"}


@pytest.mark.parametrize("name", [*_MODELS, "Attention"])
def test_graph_equals_onnx_runtime(name: str, tmp_path: Path) -> None:
    """The graph gives what ONNX Runtime gives for the file, on other inputs too; FLOPs are not known."""
    if name in {"Attention", "GroupNormalization"} and Version(onnxruntime.__version__) < Version("1.23"):
        pytest.skip("ONNX Runtime before 1.23 knows neither opset 23 nor the shape of a group normalization")
    model, operators = _MODELS.get(name) or _attention()
    path = _saved(model, tmp_path / "net.onnx")
    graph, weights = extract(path, "net")
    assert operators <= _opaque(graph)
    assert {operator.type for operator in graph.operators if operator.flops is None} == _opaque(graph)
    inputs = example_inputs(graph.inputs, seed=3)
    for ours, theirs in zip(run_graph(graph, weights, inputs), OnnxSession(path)(*inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "values"),
    [
        pytest.param(
            _model([node("IsInf", ["x"], ["y"], detect_negative=0)], {"x": [3]}), [np.inf, -np.inf, 0], id="IsInf"
        ),
        pytest.param(
            _model([node("TopK", ["x", "k"], ["v", "y"])], {"x": [6]}, {"k": [3]}, outputs=("v", "y")),
            [1, 2, 2, 1, 2, 2],
            id="TopK",
        ),
        pytest.param(
            _model([node("ScatterElements", ["x", "i", "u"], ["y"])], {"x": [4]}, {"i": [1, -1], "u": _real(2)}),
            [1, 2, 3, 4],
            id="ScatterElements",
        ),
        pytest.param(
            _model(
                [node("Resize", ["x", "", "s"], ["y"], mode="linear")], {"x": [1, 1, 1, 4]}, {"s": _one([1, 1, 1, 0.6])}
            ),
            [[[[1, 2, 3, 4]]]],
            id="Resize",
        ),
        *(
            pytest.param(
                _model([node(name, ["x", "a"], ["y"])], {"x": [1, 2048]}, {"a": [1]}, dtype=TensorProto.FLOAT16),
                np.full((1, 2048), 9),
                id=name,
            )
            for name in ("ReduceL2", "ReduceLogSum")
        ),
        pytest.param(
            _model(
                [node("InstanceNormalization", ["x", "s", "b"], ["y"])],
                {"x": [1, 1, 1, 4]},
                {"s": np.ones(1, np.float16), "b": np.zeros(1, np.float16)},
                dtype=TensorProto.FLOAT16,
            ),
            [[[[-600, -300, 300, 600]]]],
            id="InstanceNormalization",
        ),
        pytest.param(_model([node("Softplus", ["x"], ["y"])], {"x": [4]}), [-20, -75, 30, 100], id="Softplus"),
        pytest.param(_model([node("Mish", ["x"], ["y"])], {"x": [4]}), [-20, -10, 30, 100], id="Mish"),
        pytest.param(
            _model([node("Cast", ["x"], ["y"], to=TensorProto.INT32)], {"x": [3]}), [3e9, -5e9, 1.7], id="Cast"
        ),
        pytest.param(
            _model([node("ReduceLogSumExp", ["x", "a"], ["y"])], {"x": [2, 2]}, {"a": [1]}),
            [[-np.inf, -np.inf], [0, 1]],
            id="ReduceLogSumExp",
        ),
        pytest.param(
            _model(
                [node("ReduceSumSquare", ["x"], ["y"], noop_with_empty_axes=1)], {"x": [2]}, dtype=TensorProto.INT32
            ),
            [2, -3],
            id="noop_with_empty_axes",
        ),
        pytest.param(
            _model([node("MeanVarianceNormalization", ["x"], ["y"], axes=[0, 2, 3])], {"x": [1, 1, 2, 2]}),
            [[[[10000, 10001], [10002, 10003]]]],
            id="MeanVarianceNormalization",
        ),
        pytest.param(
            _model(
                [node("Pow", ["x", "e"], ["y"])],
                {"x": [2]},
                {"e": np.asarray([10, 2], np.int32)},
                dtype=TensorProto.INT32,
            ),
            [10, -3],
            id="Pow",
        ),
        pytest.param(
            _model([node("Shrink", ["x"], ["y"], lambd=1.5, bias=1.5)], {"x": [2]}, dtype=TensorProto.INT32),
            [2, -2],
            id="Shrink",
        ),
    ],
)
def test_values_of_which_relax_makes_something_else(model: ModelProto, values: Any, tmp_path: Path) -> None:
    """One infinity of both, the first of equal numbers, places from the end, scales that give no whole sizes..."""
    path = _saved(model, tmp_path / "net.onnx")
    graph, weights = extract(path, "net")
    given = torch.as_tensor(values, dtype=DTYPES[model.graph.input[0].type.tensor_type.elem_type])
    for ours, theirs in zip(run_graph(graph, weights, (given,)), OnnxSession(path)(given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=0)


@pytest.mark.parametrize(
    ("model", "place"),
    [
        pytest.param(
            _model(
                [node("NonMaxSuppression", ["b", "s", "n", "t"], ["y"], name="boxes")],
                {"b": [1, 6, 4], "s": [1, 2, 6]},
                {"n": [3], "t": _one([0.5])},
            ),
            "NonMaxSuppression (node boxes)",
            id="boxes",  # as many are kept as values say
        ),
        pytest.param(
            _model(
                [
                    node("Cast", ["a"], ["i"], to=TensorProto.INT64),
                    node("ReduceSum", ["x", "i"], ["y"], name="sum"),
                ],
                {"x": [2, 3], "a": [1]},
            ),
            "ReduceSum (node sum)",
            id="axes",
        ),
        pytest.param(
            _model(
                [
                    node("Cast", ["x"], ["i"], to=TensorProto.INT64),
                    node("ConstantOfShape", ["i"], ["y"], name="zeros"),
                ],
                {"x": [2]},
            ),
            "ConstantOfShape (node zeros)",
            id="sizes",  # which are 0 for zeros, as if they were not known
        ),
    ],
)
def test_shapes_that_depend_on_values_stay_refused(model: ModelProto, place: str, tmp_path: Path) -> None:
    """The message names the node."""
    message = rf"^Relax cannot import {re.escape(place)}: .*: the shape of its result depends on values"
    with pytest.raises(UnsupportedError, match=message):
        extract(_saved(model, tmp_path / "net.onnx"), "net")


@pytest.mark.parametrize(
    "model",
    [
        _model([node("Resize", ["x", "", "s"], ["y"], mode="linear")], _IMAGE, {"s": _one([1, 1, 2, 2])}),
        _model([node("Clip", ["x", "", "m"], ["y"])], _IMAGE, {"m": _one(1)}),
        _model([node("ReduceSum", ["x", "a"], ["y"], noop_with_empty_axes=1)], _IMAGE, {"a": [1]}),
    ],
    ids=["Resize", "Clip", "ReduceSum"],
)
def test_nodes_that_relax_takes_stay_its_own(model: ModelProto, tmp_path: Path) -> None:
    """Also with inputs that are left out, or attributes that change nothing beside others."""
    graph, _ = extract(_saved(model, tmp_path / "net.onnx"), "net")
    assert _opaque(graph) == set()


def test_sequences_are_refused(tmp_path: Path) -> None:
    """What Relax does not make of a sequence, an operator of its own does not either; the message says so."""
    nodes = [node("SplitToSequence", ["x"], ["q"]), node("SequenceLength", ["q"], ["y"], name="length")]
    message = r"^Relax cannot import SequenceLength \(node length\): .*: found an input that is no tensor"
    with pytest.raises(UnsupportedError, match=message):
        extract(_saved(_model(nodes, {"x": [2, 3]}), tmp_path / "net.onnx"), "net")


def test_output_that_follows_from_shapes(tmp_path: Path) -> None:
    """Also if it is the only output: nothing is computed then."""
    path = _saved(_model([node("Shape", ["x"], ["y"])], {"x": [2, 3]}), tmp_path / "net.onnx")
    graph, weights = extract(path, "net")
    (shape,) = run_graph(graph, weights, (torch.zeros(2, 3),))
    assert (graph.operators, shape.tolist()) == ((), [2, 3])


def _coded(model: ModelProto) -> dict[str, Any]:
    return {"model": base64.b64encode(model.SerializeToString()).decode()}


_TWO = _model([node("Celu", ["x"], ["c"]), node("Celu", ["c"], ["y"])], {"x": [2]})
_NOISE = _model([node("RandomUniformLike", ["x"], ["y"], seed=1.0)], {"x": [2]})


def _elsewhere() -> ModelProto:
    model = _model([node("PRelu", ["x", "w"], ["y"])], {"x": [2]}, {"w": _real(2)})
    onnx.external_data_helper.set_external_data(model.graph.initializer[0], "/etc/passwd", 0, 8)
    return model


def _in_a_branch() -> ModelProto:
    """Branches without nodes, each with a constant in another file."""
    held = numpy_helper.from_array(_real(2), "y")
    onnx.external_data_helper.set_external_data(held, "other", 0, 8)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    branch = helper.make_graph([], "branch", [], [made], [held])
    chosen = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    graph = helper.make_graph([node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)], "g", [chosen], [made])
    return helper.make_model(graph, ir_version=10)


def _sparse() -> ModelProto:
    model = _elsewhere()
    held = model.graph.sparse_initializer.add()
    held.values.CopyFrom(model.graph.initializer.pop())
    return model


def _foreign() -> ModelProto:
    model = _MODELS["Det"][0]
    copy = ModelProto()
    copy.CopyFrom(model)
    copy.graph.node[0].domain = "com.example"
    return copy


@pytest.mark.parametrize(
    ("function", "attributes", "message"),
    [
        ("onnx.Celu", {}, "the attribute model is missing"),
        ("onnx.Celu", {"model": "?"}, "its model is not in base64"),
        ("onnx.Celu", {"model": base64.b64encode(b"nonsense").decode()}, "its model is damaged"),
        ("onnx.Celu", _coded(_TWO), 'its model has the nodes ["Celu", "Celu"]; allowed: one Celu'),
        ("onnx.Relu", _coded(_MODELS["Det"][0]), 'its model has the nodes ["Det"]; allowed: one Relu'),
        ("onnx.Det", _coded(_foreign()), 'its model has "com.example.Det"; allowed: operators of ONNX itself'),
        ("onnx.PRelu", _coded(_elsewhere()), "its model has data in other files; allowed: in the model"),
        ("onnx.If", _coded(_in_a_branch()), "its model has data in other files; allowed: in the model"),
        ("onnx.PRelu", _coded(_sparse()), "its model has data in other files; allowed: in the model"),
        (
            "onnx.RandomUniformLike",
            _coded(_NOISE),
            "RandomUniformLike draws random numbers; allowed: the same outputs",
        ),
    ],
)
def test_files_of_strangers(function: str, attributes: dict[str, Any], message: str) -> None:
    """A graph.json may hold models of one node of ONNX's own operators, with their data in them."""
    with refused(f"operator place: {function}: ", message, kind=UnsupportedError):
        build(function, attributes, "place")


def test_first_bytes_do_not_choose_the_format() -> None:
    """A model whose name of a producer makes it look like ONNX Runtime's own format is read as ONNX."""
    model = ModelProto()
    model.CopyFrom(_MODELS["Det"][0])
    model.producer_name = "ORTM"
    assert model.SerializeToString()[4:8] == b"ORTM"
    value = torch.eye(3).expand(*(size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim))
    assert build("onnx.Det", _coded(model), "place")(value.contiguous()).numel() > 0


@pytest.mark.parametrize("operator", ["RandomNormal", "RandomUniformLike"])
def test_random_numbers_are_refused(operator: str, tmp_path: Path) -> None:
    """Noise is neither drawn in every run nor kept as a weight, even with a seed."""
    made = node(operator, ["x"] if operator.endswith("Like") else [], ["n"], seed=1.0, shape=[2])
    if operator.endswith("Like"):
        del made.attribute[1]
    path = _saved(_model([made, node("Add", ["x", "n"], ["y"])], {"x": [2]}), tmp_path / "noise.onnx")
    with pytest.raises(UnsupportedError, match=f"{operator} draws random numbers; allowed: the same outputs"):
        extract(path, "noise")


@pytest.mark.slow
def test_commands(tmp_path: Path) -> None:
    """Every command takes a file with int8 convolutions in branches: profiled, scheduled and compared with the file."""
    convolutions = [
        node("QLinearConv", ["q", "s", "z", f"w{number}", "ws", "wz", "s", "z"], [f"c{number}"], pads=[1, 1, 1, 1])
        for number in range(3)
    ]
    nodes = [_QUANTIZE, *convolutions, node("Concat", ["c0", "c1", "c2"], ["c"], axis=1), _DEQUANTIZE]
    filters = {f"w{number}": _whole(4, 3, 3, 3) for number in range(3)}
    path = _saved(_model(nodes, _IMAGE, {**_SCALES, **filters}), tmp_path / "net.onnx")
    files = [tmp_path / "graph.json", tmp_path / "weights.safetensors"]
    succeed("extract", path, "--output", files[0], "--weights", files[1])
    succeed("profile", files[0], *("--devices", 2, "--repeats", 2, "--budget", 0, "--output", tmp_path / "costs.json"))
    schedule = tmp_path / "schedule.json"
    succeed(
        *("schedule", files[0], tmp_path / "costs.json", "--algorithm", "heft", "--devices", 2, "--output", schedule)
    )
    succeed(
        *("execute", *files, schedule, "--program", path, "--runs", 2, "--warmup", 1),
        *("--output", tmp_path / "run.json"),
    )
