"""Small modules: what is fused, folded and refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hios.cli.files import extract
from hios.core.graph import Value
from hios.errors import HiosError, UnsupportedError
from hios.frontends.extraction_check import require_equal
from hios.frontends.program import export, save
from hios.kernels.table import KERNELS
from tests.frontends.small_networks import Model, batch_norm, extracted, read_files, write_files


def _image(seed: int = 0) -> Tensor:
    return torch.randn(2, 4, 9, 9, generator=torch.Generator().manual_seed(seed))


def _weight(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, generator=torch.Generator().manual_seed(1)))


def _conv(bias: bool = True, filters: int = 4, **options: Any) -> nn.Conv2d:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        return nn.Conv2d(4, filters, 3, bias=bias, **options)


@dataclass(frozen=True)
class Case:
    """A module with the types of its operators in order and its edges by operator number."""

    name: str
    model: Callable[[], nn.Module]
    types: list[str]
    edges: list[tuple[int, int]]
    inputs: int = 1


def _view_not_in_place(model: Any, x: Tensor) -> Tensor:
    y = torch.tanh(x)
    return F.relu(y.reshape(2, -1)).reshape(y.shape) + y


CASES = [
    Case(
        "conv, bias, batch norm, relu",
        lambda: Model(lambda m, x: F.relu(m.norm(m.conv(x))), conv=_conv(), norm=batch_norm(4)),
        ["conv2d-relu"],
        [],
    ),
    Case(
        "conv, batch norm",
        lambda: Model(lambda m, x: m.norm(m.conv(x)), conv=_conv(bias=False), norm=batch_norm(4)),
        ["conv2d"],
        [],
    ),
    Case(
        "grouped, dilated, strided conv, batch norm, relu",
        lambda: Model(
            lambda m, x: F.relu(m.norm(m.conv(x))),
            conv=_conv(filters=6, groups=2, dilation=(2, 1), stride=(1, 2), padding=(2, 1)),
            norm=batch_norm(6),
        ),
        ["conv2d-relu"],
        [],
    ),
    Case(
        "batch norm without affine weights",
        lambda: Model(lambda m, x: m.norm(m.conv(x)), conv=_conv(), norm=nn.BatchNorm2d(4, affine=False)),
        ["conv2d"],
        [],
    ),
    Case(
        "batch norm without a convolution before it",
        lambda: Model(lambda m, x: F.relu(m.norm(x)), norm=batch_norm(4)),
        ["batch_norm", "relu"],
        [(0, 1)],
    ),
    Case(
        "two batch norms: the second has no convolution before it",
        lambda: Model(
            lambda m, x: m.second(m.first(m.conv(x))), conv=_conv(), first=batch_norm(4), second=batch_norm(4)
        ),
        ["conv2d", "batch_norm"],
        [(0, 1)],
    ),
    Case(
        "conv without bias, sigmoid",
        lambda: Model(lambda m, x: torch.sigmoid(m.conv(x)), conv=_conv(bias=False)),
        ["conv2d", "sigmoid"],
        [(0, 1)],
    ),
    Case(
        "the result of a convolution read twice: not fused",
        lambda: Model(lambda m, x: (lambda y: F.relu(y) + y)(m.conv(x)), conv=_conv()),
        ["conv2d", "relu", "add"],
        [(0, 1), (1, 2), (0, 2)],
    ),
    Case(
        "the result of a convolution is also an output: not fused",
        lambda: Model(lambda m, x: (lambda y: (F.relu(y), y))(m.conv(x)), conv=_conv()),
        ["conv2d", "relu"],
        [(0, 1)],
    ),
    Case(
        "relu of a view must not change what it views",
        lambda: Model(_view_not_in_place),
        ["tanh", "reshape", "relu", "reshape", "add"],
        [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)],
    ),
    Case(
        "one convolution with bias called twice: weights are stored once",
        lambda: Model(lambda m, x: m.conv(F.relu(m.conv(x))), conv=_conv()),
        ["conv2d-relu", "conv2d"],
        [(0, 1)],
    ),
    Case(
        "one convolution with two batch norms: weights are folded apart",
        lambda: Model(
            lambda m, x: m.first(m.conv(x)) + m.second(m.conv(x)),
            conv=_conv(),
            first=batch_norm(4),
            second=nn.BatchNorm2d(4, affine=False),
        ),
        ["conv2d", "conv2d", "add"],
        [(0, 2), (1, 2)],
    ),
    Case(
        "a weight and a view of it",
        lambda: Model(lambda m, x: x * m.weight + m.weight.reshape(1, 9, 9), weight=_weight(9, 9)),
        ["multiply", "add"],
        [(0, 1)],
    ),
    Case(
        "parallel edges",
        lambda: Model(lambda m, x: (lambda y: y + y)(F.relu(x))),
        ["relu", "add"],
        [(0, 1), (0, 1)],
    ),
    Case("an input read twice", lambda: Model(lambda m, x: x + x), ["add"], []),
    Case(
        "operators on weights are folded",
        lambda: Model(
            lambda m, x: x * torch.sigmoid(m.weight + 1.0).reshape(4, 1, 1) + m.conv(m.image),
            weight=_weight(4),
            conv=_conv(padding=1),
            image=_image(3),
        ),
        ["multiply", "add"],
        [(0, 1)],
    ),
    Case(
        "numbers",
        lambda: Model(lambda m, x: 2.0 - (x - 1.0) / 3.0),
        ["subtract", "divide", "subtract"],
        [(0, 1), (1, 2)],
    ),
    Case("two outputs", lambda: Model(lambda m, x: (F.relu(x), torch.sigmoid(x))), ["relu", "sigmoid"], []),
    Case("one value as two outputs", lambda: Model(lambda m, x: (lambda y: (y, y))(F.relu(x))), ["relu"], []),
    Case("an output that is an input", lambda: Model(lambda m, x: (F.relu(x), x)), ["relu"], []),
    Case(
        "outputs that depend on weights only",
        lambda: Model(lambda m, x: (F.relu(x), torch.sigmoid(m.weight), m.weight), weight=_weight(8)),
        ["relu"],
        [],
    ),
    Case("dead code", lambda: Model(lambda m, x: (torch.tanh(x) * 2, F.relu(x))[1]), ["relu"], []),
    Case("an input that nothing reads", lambda: Model(lambda m, x, y: F.relu(y)), ["relu"], [], inputs=2),
    Case(
        "a bias of more dimensions than the image is not folded",
        lambda: Model(lambda m, x: m.conv(x) + m.weight, conv=_conv(bias=False), weight=_weight(1, 1, 4, 1, 1)),
        ["conv2d"],
        [],
    ),
    Case(
        "a bias that differs from pixel to pixel is not folded",
        lambda: Model(lambda m, x: m.conv(x) + m.weight, conv=_conv(bias=False), weight=_weight(1, 4, 7, 7)),
        ["conv2d"],
        [],
    ),
    Case(
        "a bias before the convolution's result",
        lambda: Model(lambda m, x: m.weight + m.conv(x), conv=_conv(bias=False), weight=_weight(4, 1, 1)),
        ["conv2d"],
        [],
    ),
    Case(
        "a convolution whose weights are an input is fused with nothing",
        lambda: Model(lambda m, x, y: F.relu(F.conv2d(x, y[:, :, :3, :3] if y.shape[-1] == 3 else y))),
        ["conv2d", "relu"],
        [(0, 1)],
        inputs=2,
    ),
    Case(
        "a sum of two convolutions is not a bias",
        lambda: Model(
            lambda m, x: F.relu(m.one(x) + m.two(x)), one=_conv(bias=False), two=_conv(bias=False, dilation=1)
        ),
        ["conv2d", "conv2d", "add", "relu"],
        [(0, 2), (1, 2), (2, 3)],
    ),
    Case(
        "in-place operators",
        lambda: Model(lambda m, x: F.relu(x, inplace=False).add_(x).mul_(2.0)),
        ["relu", "add", "multiply"],
        [(0, 1), (1, 2)],
    ),
    Case(
        "linear and softmax",
        lambda: Model(lambda m, x: F.softmax(m.linear(torch.flatten(x, 1)), 1), linear=nn.Linear(324, 5)),
        ["reshape", "linear", "softmax"],
        [(0, 1), (1, 2)],
    ),
    Case(
        "a convolution of sequences: bias and batch norm are folded too",
        lambda: Model(
            lambda m, x: F.relu(m.norm(m.conv(x[0]))), conv=nn.Conv1d(9, 6, 3), norm=nn.BatchNorm1d(6, eps=0.01)
        ),
        ["take", "conv1d-relu"],
        [(0, 1)],
    ),
    Case(
        "padding with minus infinity",
        lambda: Model(lambda m, x: F.max_pool2d(F.pad(x, (1, 0, 1, 0), value=float("-inf")), 2)),
        ["pad", "max_pool2d"],
        [(0, 1)],
    ),
    Case(
        "a maximum over the whole image",
        lambda: Model(lambda m, x: F.adaptive_max_pool2d(x, 1)),
        ["adaptive_max_pool2d"],
        [],
    ),
    Case("a maximum over thirds", lambda: Model(lambda m, x: F.adaptive_max_pool2d(x, 3)), ["adaptive_max_pool2d"], []),
    Case(
        "sums of truth values are whole numbers",
        lambda: Model(lambda m, x: torch.cumsum(x > 0, 1) + torch.sum(x > 0, 1, keepdim=True)),
        ["greater", "cumsum", "greater", "astype", "sum", "add"],
        [(0, 1), (2, 3), (3, 4), (1, 5), (4, 5)],
    ),
    Case(
        "means and pools",
        lambda: Model(lambda m, x: x.mean((2, 3), keepdim=True) + x.mean() + F.adaptive_avg_pool2d(x, 1)),
        ["mean", "mean", "add", "adaptive_avg_pool2d", "add"],
        [(0, 2), (1, 2), (2, 4), (3, 4)],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_small_module(case: Case, tmp_path: Path) -> None:
    """A small module is cut into the operators expected, and its files give what eager gives."""
    module = case.model().eval()
    inputs = tuple(_image(seed) for seed in range(case.inputs))
    network = read_files(write_files(tmp_path, module, inputs), module, inputs)
    graph, index = network.graph, network.graph.index
    assert [operator.type for operator in graph.operators] == case.types
    assert sorted((index[edge.source], index[edge.target]) for edge in graph.edges) == sorted(case.edges)
    torch.testing.assert_close(network.run(), network.eager(), rtol=1e-5, atol=1e-5)


def test_folding_leaves_the_module_alone() -> None:
    """Weights of the module stay as they were; the folded ones are copies."""
    module = Model(lambda m, x: m.norm(m.conv(x)), conv=_conv(), norm=batch_norm(4)).eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    network = extracted(module, (_image(),))
    network.run()
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert sorted(network.tensors) == ["conv.bias", "conv.weight"]
    assert not torch.equal(network.tensors["conv.weight"], before["conv.weight"])


def test_shared_weights_are_stored_once() -> None:
    """A convolution that is called twice has one pair of tensors, however often it is read."""
    case = next(case for case in CASES if case.name.startswith("one convolution with bias called twice"))
    assert sorted(extracted(case.model(), (_image(),)).tensors) == ["conv.bias", "conv.weight"]


def test_dead_weights_are_dropped() -> None:
    """Weights that no output needs are not in the weights file."""
    module = Model(lambda m, x: (m.dead(x), F.relu(x))[1], dead=_conv())
    assert extracted(module, (_image(),)).tensors == {}


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda m, x: (torch._assert_async((x < 9).all(), "large"), F.relu(x))[1],
            r"Relax cannot import aten\._assert_async\.msg \(small_networks\.py:\d+\)",
        ),
        (lambda m, x: x * m.buffer.add_(1.0), "the model changes its buffer buffer in every inference"),
    ],
)
def test_unsupported_operators_are_named(function: Callable[..., Any], message: str, tmp_path: Path) -> None:
    """What Relax or the kernel table lacks is one line that names the operator; nothing is written."""
    module = Model(function, weight=_weight(4, 1, 1), buffer=torch.ones(1))
    save(export(module.eval(), (_image(),)), tmp_path / "program.pt2")
    with pytest.raises(UnsupportedError, match=message) as caught:
        extract(tmp_path / "program.pt2", tmp_path / "graph.json", tmp_path / "weights.safetensors", "test")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["program.pt2"]


def test_numbers_are_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder for an operator that takes numbers, as relax.clip does, gets them after the tensors."""
    monkeypatch.setitem(KERNELS, "relax.clip", lambda attributes: torch.clamp)
    network = extracted(Model(lambda m, x: torch.clamp(x, -0.5, 1)), (_image(),))
    assert network.graph.operators[0].calls[0].arguments[1:] == (Value(constant=-0.5), Value(constant=1.0))
    torch.testing.assert_close(network.run(), network.eager())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (torch.sigmoid, r"output 0 of the extracted graph differs from the program's by up to .*; allowed: .*, as its"),
        (torch.flatten, r"output 0 of the extracted graph is torch\.float32 of shape \(648,\), the program's"),
        (Tensor.double, r"output 0 of the extracted graph is torch\.float64 of shape \(2, 4, 9, 9\), the program's"),
    ],
)
def test_graphs_that_compute_something_else_are_refused(
    wrong: Callable[[Tensor], Tensor], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every graph is compared with its program once: a wrong kernel, here of tanh, does not get out of extraction."""
    monkeypatch.setitem(KERNELS, "relax.tanh", lambda attributes: wrong)
    with pytest.raises(UnsupportedError, match=f"^{message}") as caught:
        write_files(tmp_path, Model(lambda m, x: torch.tanh(x)), (_image(),))
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["program.pt2"]


def test_a_module_without_operators_is_refused(tmp_path: Path) -> None:
    """A module that returns its input has nothing to schedule; no file is written."""
    with pytest.raises(HiosError, match=r"graph\.json: operators: found \[\]; allowed: at least 1"):
        write_files(tmp_path, Model(lambda m, x: x), (_image(),))
    assert [path.name for path in tmp_path.iterdir()] == ["program.pt2"]


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_small_outputs_are_compared_by_their_size(scale: float) -> None:
    """A convolution whose weights are wrong by a hundredth shows in probabilities of a thousand classes too."""
    module = Model(
        lambda m, x: scale * F.softmax(m.linear(torch.flatten(m.conv(x), 1)), 1),
        conv=_conv(),
        linear=nn.Linear(196, 1000),
    ).eval()
    network = extracted(module, (_image(),))
    require_equal(network.graph, network.tensors, module)
    wrong = {**network.tensors, "conv.weight": 1.01 * network.tensors["conv.weight"]}
    with pytest.raises(UnsupportedError, match="differs from the program's"):
        require_equal(network.graph, wrong, module)


def test_values_that_are_not_finite_must_be_the_same() -> None:
    """Infinities and what is no number are compared too."""
    module = Model(lambda m, x: torch.log(F.relu(x))).eval()
    network = extracted(module, (_image(),))
    require_equal(network.graph, network.tensors, module)
    with pytest.raises(UnsupportedError, match="differs from the program's by up to inf"):
        require_equal(network.graph, network.tensors, Model(lambda m, x: torch.log(F.relu(x)).clamp(min=-100)))


def test_bytes_of_look_ups() -> None:
    """Of a table the rows looked up count, and a weight that a unit reads twice counts once."""
    module = Model(lambda m, x: m.table(x), table=nn.Embedding(1000, 8)).eval()
    operators = extracted(module, (torch.tensor([[1, 5, 7]]),)).graph.operators
    (size,) = [operator.bytes for operator in operators if operator.type == "embedding"]
    assert size == 3 * 8 + 2 * 3 * 8 * 4  # the ids, rows read and written
