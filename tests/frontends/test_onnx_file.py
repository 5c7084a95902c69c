"""ONNX files: checked, copied, extracted, and compared with ONNX Runtime and with the same network through torch."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx as format_
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from click.testing import CliRunner
from onnx import ModelProto, TensorProto, helper, numpy_helper
from safetensors.torch import load_file
from torch import Tensor, nn
from tvm import relax

from hios import Graph
from hios.cli import main
from hios.cli.files import export, extract
from hios.errors import ArtifactError, HiosError, UnsupportedError
from hios.formats.onnx_session import OnnxSession
from hios.frontends import onnx_file, onnx_lowering
from hios.frontends import program as programs
from hios.frontends.example_inputs import example_inputs
from hios.frontends.export import build_model
from hios.frontends.extract import extract_program
from hios.frontends.extraction_check import flat, run_graph
from hios.kernels.table import IN_PLACE, KERNELS
from tests.frontends.small_networks import Model
from tests.refusals import refused


def _exported(
    module: nn.Module, inputs: tuple[Tensor, ...], path: Path, *, dynamo: bool = True, **options: Any
) -> Path:
    """A module as torch exports it to ONNX, by its new exporter or by the one before."""
    with warnings.catch_warnings(action="ignore"):
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        torch.onnx.export(module.eval(), inputs, path, dynamo=dynamo, verbose=False, **options)
    return path


def _extracted(path: Path, **options: Any) -> tuple[Graph, dict[str, Tensor]]:
    """Graph and weights of an ONNX file, by way of their files."""
    graph, weights = path.with_suffix(".json"), path.with_suffix(".safetensors")
    extract(path, graph, weights, "net", **options)
    return Graph.read(graph), load_file(weights)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "image_size", "operators", "edges"),
    [("squeezenet", 64, 50, 65), ("inception_v3", 75, 119, 153), ("resnet50", 64, 87, 102)],
)
def test_networks(tmp_path: Path, name: str, image_size: int, operators: int, edges: int) -> None:
    """Through ONNX a network has the units, edges and blocks that it has through torch, and the same outputs.

    One type differs: torch exports its global average pool as ReduceMean, which becomes a mean.
    """
    module, inputs = build_model(name, {"image_size": image_size}, seed=0)
    graph, weights = _extracted(_exported(module, inputs, tmp_path / "net.onnx", external_data=False))
    other, tensors = extract_program(programs.export(module, inputs), "net")
    assert (len(graph.operators), len(graph.edges)) == (operators, edges)
    assert [len(block) for block in graph.blocks] == [len(block) for block in other.blocks]
    types, expected = (Counter(operator.type for operator in each.operators) for each in (graph, other))
    assert types - expected == Counter({"mean": 1})
    assert expected - types == Counter({"adaptive_avg_pool2d": 1})
    torch.testing.assert_close(
        run_graph(graph, weights, inputs), run_graph(other, tensors, inputs), rtol=1e-4, atol=1e-4
    )


class Small(nn.Module):
    """What convolutional networks are made of, where torch's exporter keeps it: nothing is folded beforehand."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU6())
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features, and scores."""
        features = torch.max_pool2d(self.stem(x), 2) + 1
        return features, torch.softmax(self.head(features.mean((2, 3)).flatten(1)), 1)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network with two outputs in ONNX."""
    path = tmp_path_factory.mktemp("small") / "small.onnx"
    return _exported(Small(), (torch.ones(1, 3, 8, 8),), path, external_data=False, optimize=False)


def test_small_network(small: Path) -> None:
    """Weights keep the names of the file, and several outputs come out in order; names say which module it was."""
    graph, weights = _extracted(small)
    assert set(weights) == {"stem.0.weight", "stem.0.bias", "head.weight", "head.bias"}
    inputs = (torch.randn(1, 3, 8, 8),)
    outputs, expected = run_graph(graph, weights, inputs), OnnxSession(small)(*inputs)
    torch.testing.assert_close(outputs, expected)
    assert [tuple(tensor.shape) for tensor in outputs] == [(1, 4, 4, 4), (1, 5)]
    assert "stem.0" in graph.index


@pytest.mark.parametrize("units", ["conv-relu", "relu-sepconv", "operator"])
def test_units(small: Path, units: str) -> None:
    """The units are those that are asked for."""
    assert _extracted(small, units=units)[0].units == units


def _made(
    nodes: list[Any],
    inputs: dict[str, Any],
    output: list[Any] | None,
    weights: dict[str, Any] | None = None,
    *,
    kind: int = TensorProto.FLOAT,
    domains: tuple[str, ...] = (),
) -> ModelProto:
    """A model from inputs of these shapes and kind of elements to y."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in (weights or {}).items()],
    )
    opsets = [helper.make_opsetid("", 20), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _model(
    nodes: list[Any], shape: list[Any] | None, weights: dict[str, Any] | None = None, *, domains: tuple[str, ...] = ()
) -> ModelProto:
    """A model from x to y, with the shapes that follow."""
    model = format_.shape_inference.infer_shapes(_made(nodes, {"x": shape}, None, weights, domains=domains))
    (output,) = model.graph.output
    if not output.type.tensor_type.HasField("shape"):
        output.CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1]))
    return model


_RELU = [helper.make_node("Relu", ["x"], ["y"], name="activation")]


def _saved(model: ModelProto, path: Path) -> Path:
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("nodes", "weights", "expected"),
    [
        ([helper.make_node("GlobalAveragePool", ["x"], ["y"])], {}, lambda x: x.mean((2, 3), keepdim=True)),
        ([helper.make_node("Clip", ["x", "low", "high"], ["y"])], {"low": 0, "high": 0.5}, lambda x: x.clamp(0, 0.5)),
        ([helper.make_node("Clip", ["x", "", "high"], ["y"])], {"high": 0.5}, lambda x: x.clamp(max=0.5)),
        ([helper.make_node("Clip", ["x", "low"], ["y"])], {"low": 0.5}, lambda x: x.clamp(min=0.5)),
        ([helper.make_node("Clip", ["x"], ["c"]), helper.make_node("Neg", ["c"], ["y"])], {}, lambda x: -x),
        ([helper.make_node("Constant", [], ["p"], value_ints=[0, 0, 1, 2, 0, 0, 3, 4]),
          helper.make_node("Pad", ["x", "p", "v"], ["y"])], {"v": 7}, lambda x: F.pad(x, (2, 4, 1, 3), value=7)),
        ([helper.make_node("Constant", [], ["p"], value_ints=[1, 2]),
          helper.make_node("Constant", [], ["a"], value_ints=[-1]),
          helper.make_node("Pad", ["x", "p", "", "a"], ["y"], mode="reflect")], {},
         lambda x: F.pad(x, (1, 2, 0, 0), mode="reflect")),
        ([helper.make_node("Constant", [], ["r"], value_ints=[1, 2, 1, 3]),
          helper.make_node("Tile", ["x", "r"], ["y"])], {}, lambda x: x.tile(1, 2, 1, 3)),
        ([helper.make_node("Flatten", ["x"], ["y"])], {}, lambda x: x.flatten(1)),
        ([helper.make_node("Add", ["x", "a.b"], ["s"]), helper.make_node("Mul", ["s", "a_b"], ["y"])],
         {"a.b": [[[[1.0]]]], "a_b": [[[[2.0]]]]}, lambda x: (x + 1) * 2),
        ([helper.make_node("Constant", [], ["d"], value_ints=[1, 48]), helper.make_node("Reshape", ["x", "d"], ["y"])],
         {}, lambda x: x.reshape(1, 48)),
        ([helper.make_node("Constant", [], ["c"], value_float=3.0), helper.make_node("Add", ["x", "c"], ["y"])],
         {}, lambda x: x + 3),
        ([helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])],
         {"w": np.ones((2, 3, 3, 3)), "b": [1, -200]},
         lambda x: torch.relu(torch.conv2d(x, torch.ones(2, 3, 3, 3), torch.tensor([1.0, -200.0]), padding=1))),
        ([helper.make_node("BatchNormalization", ["x", "g", "b", "m", "v"], ["y"])],
         {"g": [1, 2, 3], "b": [0, 1, 0], "m": [0, 0, 1], "v": [1, 2, 1]},
         lambda x: torch.batch_norm(x, torch.tensor([1.0, 2, 3]), torch.tensor([0.0, 1, 0]), torch.tensor([0.0, 0, 1]),
                                    torch.tensor([1.0, 2, 1]), False, 0, 1e-5, False)),
        ([helper.make_node("Split", ["x"], ["p", "q"], axis=2, num_outputs=2),
          helper.make_node("Sub", ["p", "q"], ["y"])], {}, lambda x: x[:, :, :2] - x[:, :, 2:]),
        ([helper.make_node("Constant", [], ["i"], value_ints=[-1, 0, 2]),
          helper.make_node("Gather", ["x", "i"], ["y"], axis=3)], {}, lambda x: x[:, :, :, [3, 0, 2]]),
        ([helper.make_node("Constant", [], ["i"], value_int=-2), helper.make_node("Gather", ["x", "i"], ["y"], axis=1)],
         {}, lambda x: x[:, 1]),
        ([helper.make_node("ArgMax", ["x"], ["i"], axis=3, keepdims=0), helper.make_node("Gather", ["w", "i"], ["y"])],
         {"w": [[0, 1], [2, 3], [4, 5], [6, 7]]}, lambda x: torch.arange(8.0).reshape(4, 2)[x.argmax(3)]),
        ([helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Constant", [], ["i"], value_ints=[0]),
          helper.make_node("Gather", ["s", "i"], ["n"]), helper.make_node("Constant", [], ["r"], value_ints=[-1]),
          helper.make_node("Concat", ["n", "r"], ["d"], axis=0), helper.make_node("Reshape", ["x", "d"], ["y"])],
         {}, lambda x: x.reshape(1, 48)),
        ([helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Expand", ["w", "s"], ["e"]),
          helper.make_node("Mul", ["e", "x"], ["y"])], {"w": [[1.0], [2], [3], [4]]},
         lambda x: x * torch.arange(1.0, 5)[:, None]),
        ([helper.make_node("Shape", ["x"], ["s"], start=3),
          helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT), helper.make_node("Sqrt", ["f"], ["r"]),
          helper.make_node("Div", ["x", "r"], ["y"])], {}, lambda x: x / 2),
        ([helper.make_node("Shape", ["x"], ["s"], start=2),
          helper.make_node("Cast", ["s"], ["f"], to=TensorProto.FLOAT), helper.make_node("Sqrt", ["f"], ["r"]),
          helper.make_node("Cast", ["r"], ["i"], to=TensorProto.INT64),
          helper.make_node("Constant", [], ["n"], value_ints=[12]),
          helper.make_node("Concat", ["n", "i"], ["d"], axis=0), helper.make_node("Reshape", ["x", "d"], ["y"])],
         {}, lambda x: x.reshape(12, 2, 2)),
        ([helper.make_node("Constant", [], ["n"], value=numpy_helper.from_array(np.asarray([5], np.int64))),
          helper.make_node("ArgMax", ["x"], ["i"], axis=1), helper.make_node("Add", ["i", "n"], ["j"]),
          helper.make_node("Cast", ["j"], ["y"], to=TensorProto.FLOAT)], {},
         lambda x: x.argmax(1, keepdim=True).float() + 5),
        ([helper.make_node("Constant", [], ["n"], value=numpy_helper.from_array(np.asarray([], np.int64))),
          helper.make_node("ConstantOfShape", ["n"], ["c"], value=numpy_helper.from_array(np.asarray([3], np.float32))),
          helper.make_node("Add", ["x", "c"], ["y"])], {}, lambda x: x + 3),
        ([helper.make_node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], auto_pad="SAME_LOWER")], {},
         lambda x: F.avg_pool2d(x, 3, 1, 1, count_include_pad=False)),
    ],
    ids=lambda value: value[0].op_type if isinstance(value, list) else "",
)  # fmt: skip
def test_operators(
    tmp_path: Path, nodes: list[Any], weights: dict[str, Any], expected: Callable[[Tensor], Tensor]
) -> None:
    """Operators of ONNX compute what they should, also where names of weights differ in their dots only."""
    graph, tensors = _extracted(_saved(_model(nodes, [1, 3, 4, 4], weights), tmp_path / "net.onnx"))
    x = torch.randn(1, 3, 4, 4)
    torch.testing.assert_close(run_graph(graph, tensors, (x,)), [expected(x)])


@pytest.mark.parametrize("rule", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("kind", ["Conv", "MaxPool"])
def test_padding_by_rule(tmp_path: Path, kind: str, stride: int, rule: str) -> None:
    """Padding that the file states as a rule is what ONNX Runtime makes of it, even where sides differ."""
    names = ["x", "w"] if kind == "Conv" else ["x"]
    node = helper.make_node(kind, names, ["y"], auto_pad=rule, strides=[stride] * 2, kernel_shape=[3, 2])
    weights = {"w": np.arange(36).reshape(2, 3, 3, 2)} if kind == "Conv" else {}
    path = _saved(_model([node], [1, 3, 6, 5], weights), tmp_path / "net.onnx")
    graph, tensors = _extracted(path)
    assert len(graph.operators) == 1
    x = torch.randn(1, 3, 6, 5)
    torch.testing.assert_close(run_graph(graph, tensors, (x,)), OnnxSession(path)(x), rtol=1e-4, atol=1e-4)


def _attended(model: Any, x: Tensor) -> Tensor:
    """Self-attention, whose export computes sizes from shapes."""
    return model.attention(x, x, x, need_weights=False)[0]


def _halves(model: Any, x: Tensor) -> Tensor:
    """The last column of the second half, beside its first, in a view of as many rows as the input has."""
    half = x.chunk(2, 1)[1]
    return torch.cat([half[:, -1], half[:, 0]], 1).view(x.size(0), -1)


@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize(
    ("module", "x"),
    [
        (nn.Embedding(2, 4), torch.tensor([[1, 0, 1]])),
        (Model(_attended, attention=nn.MultiheadAttention(8, 2, batch_first=True)), torch.randn(2, 5, 8)),
        (Model(_halves), torch.randn(2, 6, 4)),
    ],
    ids=["embedding", "attention", "halves"],
)
def test_exporters_of_torch(tmp_path: Path, module: nn.Module, x: Tensor, dynamo: bool) -> None:
    """Whichever exporter of torch made the file, lookups and sizes computed from shapes come through, and no more."""
    path = _exported(module, (x,), tmp_path / "net.onnx", dynamo=dynamo)
    graph, weights = _extracted(path)
    outputs = run_graph(graph, weights, (x,))[0]
    torch.testing.assert_close(outputs, module(x).detach(), rtol=1e-4, atol=1e-5)
    assert not {"where", "shape_of", "shape_to_tensor", "less"} & {operator.type for operator in graph.operators}


@pytest.mark.slow
@pytest.mark.parametrize("dynamo", [True, False])
@pytest.mark.parametrize("name", ["bert", "t5"])
def test_transformers(tmp_path: Path, name: str, dynamo: bool) -> None:
    """Transformers come through either exporter of torch with the network's outputs."""
    pytest.importorskip("transformers", reason="needs the extra transformers")
    options = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 120, "sequence_length": 8}
    module, inputs = build_model(name, options, seed=0)
    graph, weights = _extracted(_exported(module, inputs, tmp_path / "net.onnx", dynamo=dynamo))
    with torch.inference_mode():
        expected = flat(module(*inputs))
    torch.testing.assert_close(run_graph(graph, weights, inputs), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("version", [3, 8])
def test_weights_among_the_inputs(tmp_path: Path, version: int) -> None:
    """Older files name their weights among the inputs, in any order; they are no inputs here."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Add", ["c", "b"], ["y"])]
    given = _model(nodes, [1, 3, 4, 4], {"w": np.ones((2, 3, 3, 3)), "b": [2.0]})
    x = given.graph.input[0]
    others = [
        helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.dims) for tensor in given.graph.initializer
    ]
    inputs = [others[0], x, others[1]]
    del given.graph.input[:]
    given.graph.input.extend(inputs)
    given.ir_version, given.opset_import[0].version = version, 8
    path = _saved(given, tmp_path / "net.onnx")
    export(str(path), tmp_path / "program.onnx", {})
    for file in (path, tmp_path / "program.onnx"):
        graph, weights = _extracted(file)
        assert [entry.name for entry in graph.inputs] == ["x"]
        outputs = run_graph(graph, weights, (torch.ones(1, 3, 4, 4),))
        assert torch.equal(outputs[0], torch.full((1, 2, 2, 2), 29.0))


@pytest.mark.parametrize("names", [["weight", "weight_2"], ["weight_1", "weight"], ["a_b", "a.b"], ["a.b", "1"]])
def test_names_of_inputs(tmp_path: Path, names: list[str]) -> None:
    """Inputs keep the names that the file gives them, also where weights could be named so."""
    nodes = [helper.make_node("Mul", [names[0], "w"], ["m"]), helper.make_node("Mul", [names[1], "v"], ["n"]),
             helper.make_node("Sub", ["m", "n"], ["y"])]  # fmt: skip
    model = _made(nodes, {name: [2] for name in names}, [2], {"w": [2, 3], "v": [4, 5]})
    graph, weights = _extracted(_saved(model, tmp_path / "net.onnx"))
    assert [entry.name for entry in graph.inputs] == names
    (made,) = run_graph(graph, weights, (torch.tensor([10.0, 20.0]), torch.tensor([1.0, 2.0])))
    assert made.tolist() == [16.0, 50.0]


def test_copy_fixes_the_batch(tmp_path: Path) -> None:
    """Where the file leaves the batch open, it is fixed in inputs and outputs; the file given stays as it is."""
    given = _exported(
        Small(),
        (torch.ones(2, 3, 8, 8),),
        tmp_path / "given.onnx",
        external_data=False,
        dynamic_shapes={"x": {0: torch.export.Dim("batch", min=1, max=9)}},
    )
    before = given.read_bytes()
    text = export(str(given), tmp_path / "program.onnx", {"batch_size": 4})
    assert text.startswith(f"{given}, input float32 [4, 3, 8, 8], ")
    assert text.endswith(" weights")
    model = onnx_file.load(tmp_path / "program.onnx")
    assert [onnx_file.tensor_type(value)[0] for value in model.graph.output] == [(4, 4, 4, 4), (4, 5)]
    assert given.read_bytes() == before
    with pytest.raises(
        UnsupportedError,
        match=r"input x \[batch, 3, 8, 8\]; give --batch-size .*, or --input x=\?x3x8x8 with",
    ):
        export(str(given), tmp_path / "other.onnx", {})
    with pytest.raises(HiosError, match=r"batch_size: found 2; allowed: 4, which the file fixes for input x"):
        export(str(tmp_path / "program.onnx"), tmp_path / "other.onnx", {"batch_size": 2})
    assert not (tmp_path / "other.onnx").exists()


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            _model(_RELU, [1, "width"]),
            "found open dimensions in input x [1, width]; give --input x=1x? with a number",
        ),
        (
            _model(_RELU, [1, None]),
            "found open dimensions in input x [1, ?]; give --input x=1x? with a number for each ?",
        ),
        (_model(_RELU, None), "input x: found no shape; allowed: tensors of fixed shapes"),
        (
            _model([helper.make_node("Own", ["x"], ["y"], name="n", domain="my.domain")], [1], domains=("my.domain",)),
            "node n: found the operator my.domain.Own; allowed: operators of ONNX itself",
        ),
        (
            _model([helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")], [1], domains=("com.microsoft",)),
            "node y: found the operator com.microsoft.Gelu; allowed: operators of ONNX itself",
        ),
        (
            _model([helper.make_node("NoSuch", ["x"], ["y"])], [1]),
            "not a valid ONNX model: No Op registered for NoSuch",
        ),
        (_model([helper.make_node("Relu", ["z"], ["y"])], [1]), "not a valid ONNX model: "),
        (
            _model([helper.make_node("Reshape", ["x", "w"], ["y"])], [1], {"w": [2]}),
            "not a valid ONNX model: ",
        ),
    ],
)
def test_refused_models(tmp_path: Path, model: ModelProto, message: str) -> None:
    """Open shapes, operators that are not ONNX's own and invalid models are refused in one line."""
    path = _saved(model, tmp_path / "net.onnx")
    with refused(f"{path}: {message}"):
        onnx_file.load(path)


def test_elements_that_torch_lacks(tmp_path: Path) -> None:
    """Inputs of strings are refused, with what is allowed."""
    model = _model([helper.make_node("Identity", ["x"], ["y"])], [2])
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.elem_type = TensorProto.STRING
    path = _saved(model, tmp_path / "net.onnx")
    with pytest.raises(UnsupportedError, match=r"input x: found elements of type string; allowed: tensors of bool, "):
        onnx_file.load(path)


@pytest.mark.parametrize("data", [b"", b"no model", b"\x08\x0a\x12"])
def test_damaged_files(tmp_path: Path, data: bytes) -> None:
    """What is no ONNX file is refused, and so is a missing one."""
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="export it again"):
        onnx_file.load(path)
    path.unlink()
    with pytest.raises(ArtifactError, match=r"net\.onnx: cannot be read: No such file"):
        onnx_file.load(path)


def test_damage_that_onnx_does_not_see(tmp_path: Path) -> None:
    """Types that there are not, names that are no text, and files with names that no file has."""
    path = tmp_path / "net.onnx"
    model = _made([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2]}, [2])
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    model.graph.initializer.append(weight)
    path.write_bytes(model.SerializeToString().replace(b"Add", b"A\xffd"))
    with refused(f"{path}: found text that is not UTF-8: ", "; export it again", kind=ArtifactError):
        onnx_file.load(path)
    weight.data_type = -1
    model.graph.initializer[0].CopyFrom(weight)
    with refused(f"{path}: the weight w: found elements of type -1, which", kind=ArtifactError):
        onnx_file.load(_saved(model, path))
    _with_external_data(path, "a\0b")
    with refused(f"{path}: the weight ", r"lies in a\x00b, which is missing", kind=ArtifactError):
        onnx_file.load(path)


def test_nodes_that_nothing_runs(tmp_path: Path) -> None:
    """The message names operator and node, and says why neither Relax nor ONNX Runtime takes it."""
    node = helper.make_node("Tile", ["x", "r"], ["y"], name="repeated")
    model = _made([helper.make_node("Cast", ["x"], ["r"], to=TensorProto.INT64), node], {"x": [2]}, [None])
    with pytest.raises(UnsupportedError) as caught:
        _extracted(_saved(model, tmp_path / "net.onnx"))
    assert str(caught.value) == (
        "Relax cannot import Tile (node repeated): the number of repeats is computed in the model; allowed: a "
        "constant; as an operator of its own: the shape of its result depends on values; allowed: fixed shapes"
    )


def test_errors_of_tvm_are_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What TVM raises wherever in the import is one line, with operators and numbers as people write them."""

    def fail(module: object) -> None:
        three, four = (relax.Var(f"x{size}", relax.TensorType([size], "float32")) for size in (3, 4))
        relax.BlockBuilder().normalize(relax.op.multiply(three, four))

    monkeypatch.setattr(onnx_lowering, "canonical", fail)
    reason = "In relax.multiply, the first input shape at dim 0 is 3 and the second input shape at dim 0 is 4"
    with refused(f"Relax cannot import the model: {reason}", kind=UnsupportedError):
        _extracted(_saved(_model(_RELU, [1]), tmp_path / "net.onnx"))


def test_bounds_that_are_computed_are_refused(tmp_path: Path) -> None:
    """A bound of a clip that depends on the input is refused, with its node."""
    nodes = [helper.make_node("ReduceMax", ["x"], ["m"]), helper.make_node("Clip", ["x", "m"], ["y"], name="clipped")]
    path = _saved(_model(nodes, [1, 3, 4, 4]), tmp_path / "net.onnx")
    with pytest.raises(
        UnsupportedError, match=r"Clip \(node clipped\): the bound min is computed in the model; allowed: "
    ):
        _extracted(path)


def _with_external_data(path: Path, location: str) -> Path:
    model = _model([helper.make_node("Add", ["x", "w"], ["y"])], [3], {"w": [1, 2, 3]})
    (tensor,) = model.graph.initializer
    format_.external_data_helper.set_external_data(tensor, location, 0, 12)
    tensor.ClearField("raw_data")
    return _saved(model, path)


def test_weights_in_a_file_of_their_own(tmp_path: Path) -> None:
    """They are read from the folder of the model, and are within the copy."""
    (tmp_path / "weights").write_bytes(np.asarray([1, 2, 3], np.float32).tobytes())
    given = _with_external_data(tmp_path / "net.onnx", "weights")
    export(str(given), tmp_path / "copy" / "program.onnx", {})
    output = OnnxSession(tmp_path / "copy" / "program.onnx")(torch.zeros(3))
    assert torch.equal(output[0], torch.tensor([1.0, 2.0, 3.0]))
    (tmp_path / "weights").write_bytes(b"")
    with pytest.raises(ArtifactError, match="its weights cannot be read"):
        onnx_file.load(given)


@pytest.mark.parametrize("location", ["../weights", "/etc/passwd", "link", "missing", ""])
def test_weights_elsewhere_are_refused(tmp_path: Path, location: str) -> None:
    """Files outside the model's folder are not read, by whatever way they are named."""
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "weights").write_bytes(bytes(12))
    (folder / "link").symlink_to(tmp_path / "weights")
    path = _with_external_data(folder / "net.onnx", location)
    with pytest.raises(ArtifactError, match=r"the weight w lies in .*(allowed: a file in|which is missing in) "):
        onnx_file.load(path)


def test_links_to_blobs_are_named(tmp_path: Path) -> None:
    """The cache of Hugging Face has links to files in another folder, under other names."""
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    folder.mkdir()
    _with_external_data(blobs / "1a", "weights")
    (blobs / "2b").write_bytes(bytes(12))
    (folder / "net.onnx").symlink_to(blobs / "1a")
    (folder / "weights").symlink_to(blobs / "2b")
    with refused(f"{folder / 'net.onnx'}: found symbolic links", "cp --recursive --dereference", kind=ArtifactError):
        onnx_file.load(folder / "net.onnx")


def _opened(*shapes: list[Any]) -> ModelProto:
    """A model that adds up inputs named a, b and so on."""
    inputs = dict(zip("abcd", shapes, strict=False))
    return _made([helper.make_node("Sum", list(inputs), ["y"])], inputs, shapes[0])


@pytest.mark.parametrize(
    ("model", "inputs", "batch_size", "fixed"),
    [
        pytest.param(_opened(["n", 3, "h", "w"]), {"a": (2, 3, 4, 5)}, None, [(2, 3, 4, 5)], id="names"),
        pytest.param(_opened([None, 3, None, None]), {"a": (2, 3, 4, 5)}, None, [(2, 3, 4, 5)], id="nothing"),
        pytest.param(_opened([-1, 3, -1, "?"]), {"a": (2, 3, 4, 5)}, None, [(2, 3, 4, 5)], id="PaddlePaddle"),
        pytest.param(_opened(["n", "h"], ["n", "h"]), {"b": (2, 3)}, None, [(2, 3), (2, 3)], id="shared names"),
        pytest.param(_opened(["n", "h"], [1, "h"]), {"b": (1, 3)}, None, None, id="still open"),
        pytest.param(_opened(["n", "h"], [2, "h"]), {"b": (2, 3)}, 2, [(2, 3), (2, 3)], id="with a batch"),
    ],
)
def test_open_dimensions_are_fixed(
    tmp_path: Path, model: ModelProto, inputs: dict[str, Any], batch_size: int | None, fixed: Any
) -> None:
    """Shapes that are given fix what is open, also in other inputs where dimensions share a name."""
    path = _saved(model, tmp_path / "net.onnx")
    if fixed is None:
        with pytest.raises(UnsupportedError, match=r"input a \[n, 3\]; give --batch-size .* or --input a=\?x3 with"):
            onnx_file.load(path, batch_size, inputs)
        return
    loaded = onnx_file.load(path, batch_size, inputs)
    assert [onnx_file.tensor_type(value)[0] for value in loaded.graph.input] == fixed
    assert [onnx_file.tensor_type(value)[0] for value in loaded.graph.output] == [fixed[0]]


@pytest.mark.parametrize(
    ("inputs", "batch_size", "message"),
    [
        ({"c": (2, 3)}, None, "inputs: found c; allowed: a, b"),
        ({"a": (2, 3, 4)}, None, r"inputs: a: found 3 dimensions; allowed: 2, \[n, 3\]"),
        ({"a": (2, 4)}, None, "inputs: a: found 4 for dimension 1; allowed: 3, which the file fixes"),
        ({"a": (2, 3)}, 4, "inputs: a: found 2 for dimension 0; allowed: 4, which is the batch size given"),
        (
            {"a": (2, 3), "b": (4, 3)},
            None,
            "inputs: b: found 4 for the dimension n; allowed: 2, as in",
        ),
    ],
)
def test_shapes_that_the_file_does_not_allow(
    tmp_path: Path, inputs: dict[str, Any], batch_size: int | None, message: str
) -> None:
    """Options that contradict the file or each other are named, with what is allowed."""
    path = _saved(_opened(["n", 3], ["n", 3]), tmp_path / "net.onnx")
    with pytest.raises(HiosError, match=message):
        onnx_file.load(path, batch_size, inputs)


def test_input_option(tmp_path: Path) -> None:
    """`hios export --input` fixes shapes of files, not of networks that hios builds."""
    path = _saved(_opened(["n", 3, "h"]), tmp_path / "net.onnx")
    words = ["export", str(path), "--output", str(tmp_path / "program.onnx")]
    assert CliRunner().invoke(main, [*words, "--input", "a=1x3x7"]).exit_code == 0
    assert onnx_file.tensor_type(onnx_file.load(tmp_path / "program.onnx").graph.input[0])[0] == (1, 3, 7)
    for text in ("a", "a=", "a=1x", "=1x2", "a=1x0", "a=1x-3", "a=1,3"):
        refused = CliRunner().invoke(main, [*words, "--input", text])
        assert refused.exit_code == 1
        assert f"--input: found {text}; allowed: NAME=SIZES, such as x=1x3x224x224" in refused.output
    twice = CliRunner().invoke(main, [*words, "--input", "a=1x3x7", "--input", "a=1x3x8"])
    assert "--input: a is given twice; allowed: once" in twice.output
    other = ["export", "squeezenet", "--output", str(tmp_path / "program.pt2"), "--input", "x=1x3x7"]
    assert (
        "squeezenet: found the option input; allowed: for .onnx and .pt2 files"
        in CliRunner().invoke(main, other).output
    )


def _saturating(*, averaged: bool = False) -> ModelProto:
    """Probabilities of 1e-10 and less, in whose place ONNX Runtime gives some that are a hundred times larger.

    Args:
        averaged: whether an average over an axis of length 1 follows.
    """
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Sub", ["r", "w"], ["s"]),
        helper.make_node("Sigmoid", ["s"], ["p" if averaged else "y"]),
    ]
    if averaged:
        nodes.append(helper.make_node("Constant", [], ["axis"], value_ints=[0]))
        nodes.append(helper.make_node("ReduceMean", ["p", "axis"], ["a"]))
        nodes.append(helper.make_node("Identity", ["a"], ["y"]))
    return _model(nodes, [1, 64], {"w": np.linspace(24.0, 26.0, 64).reshape(1, 64)})


@pytest.mark.parametrize("averaged", [False, True])
def test_saturating_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, averaged: bool) -> None:
    """Where probabilities are all but 0, what they are computed from is compared; a wrong graph is still refused."""
    path = _saved(_saturating(averaged=averaged), tmp_path / "net.onnx")
    graph, _ = _extracted(path)
    assert "sigmoid" in [operator.type for operator in graph.operators]
    logits = _model(list(_saturating().graph.node)[:2], [1, 64], {"w": np.zeros((1, 64))})
    assert onnx_file.before_activations(logits) is None
    monkeypatch.setitem(KERNELS, "relax.nn.relu", lambda attributes: lambda x: x.clamp(min=0) * 1.01)
    monkeypatch.delitem(IN_PLACE, "relax.nn.relu")
    with pytest.raises(UnsupportedError, match="output 0 of the extracted graph differs from the program's by up to"):
        _extracted(path)


def test_rounding_is_told_from_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that amplifies rounding may differ by what rounding explains; one that is computed wrongly may not."""
    large = 1e4
    weights = {"w": np.random.default_rng(0).standard_normal((4096, 8)) + large, "c": [large]}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=1),
        helper.make_node("Mul", ["s", "c"], ["m"]),
        helper.make_node("Sub", ["p", "m"], ["y"]),
    ]
    path = _saved(_model(nodes, [1, 4096], weights), tmp_path / "net.onnx")
    _extracted(path)
    monkeypatch.setitem(KERNELS, "relax.subtract", lambda attributes: lambda x, y: (x - y) * 1.05)
    with pytest.raises(UnsupportedError, match="output 0 of the extracted graph differs from the program's by up to"):
        _extracted(path)


def test_limits_of_inputs(tmp_path: Path) -> None:
    """Limits of whole numbers are in graph.json, and random inputs keep them; of other inputs they are refused."""
    cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    path = _saved(_made([cast], {"x": [1, 4096]}, [1, 4096], kind=TensorProto.INT64), tmp_path / "net.onnx")
    limited, _ = _extracted(path, below={"x": 9})
    assert [entry.below for entry in limited.inputs] == [9]
    (drawn,) = example_inputs(limited.inputs, seed=0)
    assert sorted(set(drawn.flatten().tolist())) == list(range(9))
    with pytest.raises(HiosError, match="below: found z; allowed: x"):
        _extracted(path, below={"z": 9})
    floats = _saved(_model(_RELU, [1, 3]), tmp_path / "floats.onnx")
    with pytest.raises(HiosError, match="below: x: found an input of float32; allowed: inputs of whole numbers"):
        _extracted(floats, below={"x": 9})
    words = ["extract", str(path), "--output", str(tmp_path / "g.json"), "--weights", str(tmp_path / "w.safetensors")]
    for text in ("x", "x=", "x=0", "x=1.5", "=3"):
        refused = CliRunner().invoke(main, [*words, "--below", text])
        assert f"--below: found {text}; allowed: NAME=NUMBER, such as tokens=30522" in refused.output


def test_outputs_of_unknown_shape(tmp_path: Path) -> None:
    """Where shape inference cannot tell the shape of an output, a run does."""
    nodes = [helper.make_node("NonZero", ["w"], ["n"]), helper.make_node("Gather", ["x", "n"], ["y"], axis=1)]
    path = _saved(_made(nodes, {"x": [2, 3]}, [2, 1, "open"], {"w": [1, 0, 1]}), tmp_path / "net.onnx")
    loaded = onnx_file.load(path).graph
    assert onnx_file.tensor_type(loaded.output[0])[0] == (2, 1, 0)
    assert onnx_file.interface(loaded, OnnxSession(path)) == (
        [((2, 3), torch.float32)],
        [((2, 1, 2), torch.float32)],
    )


@pytest.mark.parametrize("dtype", ["int32", "float16", "float64", "int64", "bool"])
def test_outputs_that_are_numbers(tmp_path: Path, dtype: str) -> None:
    """A constant that is a single number has its own dtype as an output."""
    number = numpy_helper.from_array(np.asarray(1, dtype), "c")
    model = _model([*_RELU, helper.make_node("Constant", [], ["c"], value=number)], [2])
    model.graph.output.append(helper.make_tensor_value_info("c", number.data_type, []))
    graph, weights = _extracted(_saved(model, tmp_path / "net.onnx"))
    made = run_graph(graph, weights, (torch.ones(2),))[1]
    assert (made.item(), made.dtype) == (1, getattr(torch, dtype))
