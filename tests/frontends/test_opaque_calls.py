"""Operators that Relax cannot import, or imports wrongly: one opaque call each, which PyTorch's own operator runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import hios
from hios import Graph
from hios.core.graph import Operator
from hios.errors import UnsupportedError
from hios.files import artifacts
from hios.frontends.extraction_check import run_graph
from hios.frontends.program import export, save
from hios.kernels import build, compile_operator
from tests.cli.commands import succeed
from tests.frontends.small_networks import Model, extracted
from tests.refusals import refused


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _whole(below: int, *shape: int) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(0))


_ROWS = _whole(4, 3, 5)
_CHOSEN = torch.tensor([True, False, True, False])
_TABLE = _random(4, 5)
_IMAGE = _random(1, 2, 8, 8)


def _grid(x: Tensor) -> Tensor:
    return torch.tanh(x.permute(0, 2, 3, 1)[..., :2])


#: Functions of one tensor with an example, and the ATen operators that become opaque calls.
_FUNCTIONS: dict[str, tuple[Callable[[Tensor], Any], Tensor, set[str]]] = {
    "scatter_add": (lambda x: x.scatter_add(0, _ROWS, x[:3] * 2), _TABLE, {"scatter_add.default"}),
    "scatter_reduce": (lambda x: x.scatter_reduce(0, _ROWS, x[:3], "amax"), _TABLE, {"scatter_reduce.two"}),
    "index_add": (
        lambda x: x.index_add(0, torch.tensor([0, 2]), x[:2], alpha=2),
        _TABLE,
        {"index_add.default"},
    ),
    "index_put that accumulates": (
        lambda x: x.index_put((torch.tensor([0, 0, 1]),), x[:3], accumulate=True),
        _TABLE,
        {"index_put.default"},
    ),
    "index_put with a mask": (
        lambda x: (x.index_put((_CHOSEN,), torch.tensor(3.0)), x.index_put((x > 0,), torch.tensor(2.0))),
        _TABLE,
        {"index_put.default"},
    ),
    "grid_sample": (
        lambda x: [
            F.grid_sample(x, _grid(x), mode, padding, align_corners=False)
            for mode in ("bilinear", "nearest", "bicubic")
            for padding in ("zeros", "border", "reflection")
        ],
        _IMAGE,
        {"grid_sampler_2d.default"},
    ),
    "embedding_bag": (
        lambda x: [F.embedding_bag(_ROWS, x, mode=mode) for mode in ("sum", "mean", "max")],
        _TABLE,
        {"_embedding_bag_forward_only.default"},
    ),
    "one_hot": (lambda x: F.one_hot((x > 0).long(), 3), _TABLE, {"one_hot.default"}),
    "unfold and fold": (
        lambda x: F.fold(F.unfold(x, 3, padding=1), (8, 8), 3, padding=1),
        _IMAGE,
        {"index.Tensor", "index_put.default"},
    ),
    "windows": (lambda x: x.unfold(1, 2, 2), _TABLE, {"unfold.default"}),
    "group norm without affine": (lambda x: F.group_norm(x, 2), _random(2, 4, 5, 5), {"native_group_norm.default"}),
    "antialiased resizing": (
        lambda x: [F.interpolate(x, (4, 5), mode=mode, antialias=True) for mode in ("bilinear", "bicubic")],
        _IMAGE,
        {"_upsample_bilinear2d_aa.default", "_upsample_bicubic2d_aa.default"},
    ),
    "fractional resizing": (
        lambda x: [F.interpolate(x, scale_factor=1.3, mode=mode) for mode in ("bilinear", "bicubic", "nearest")],
        _IMAGE,
        {"upsample_bilinear2d.vec", "upsample_bicubic2d.vec", "upsample_nearest2d.vec"},
    ),
    "adaptive max pooling": (
        lambda x: (F.adaptive_max_pool2d(x, (3, 5)), *F.adaptive_max_pool2d(x, (3, 5), return_indices=True)),
        _IMAGE,
        {"adaptive_max_pool2d.default"},
    ),
    "adaptive max pooling in space": (
        lambda x: F.adaptive_max_pool3d(x, (3, 2, 3)),
        _random(1, 2, 5, 6, 4),
        {"adaptive_max_pool3d.default"},
    ),
    "pooling with indices": (
        lambda x: (F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), (2, 2)), F.max_pool2d(x, 2)),
        _IMAGE,
        {"max_pool2d_with_indices.default", "max_unpool2d.default"},
    ),
    "cdist": (
        lambda x: [torch.cdist(x, x[:2] + 1, p) for p in (1.0, 2.0, torch.inf)],
        _TABLE,
        {"_cdist_forward.default"},
    ),
    "kthvalue": (lambda x: tuple(x.kthvalue(2, 1)), _TABLE, {"kthvalue.default"}),
    "median": (lambda x: (x.median(), *x.median(1), x.nanmedian()), _TABLE, {"median.dim", "nanmedian.default"}),
    "stable sort": (
        lambda x: tuple(torch.sort(x.round(), dim=1, stable=True, descending=True)),
        _TABLE,
        {"sort.stable"},
    ),
    "largest so far": (lambda x: tuple(x.cummax(1)), _TABLE, {"cummax.default"}),
    "bit shifts": (lambda x: (x << 1, x >> 1), _whole(100, 4, 5), {"__lshift__.Scalar", "__rshift__.Scalar"}),
    "prod": (lambda x: (x.prod(1), x.prod()), _TABLE, {"prod.dim_int"}),
    "error functions": (lambda x: (torch.erfc(x), torch.erfinv(x.tanh())), _TABLE, {"erfc.default", "erfinv.default"}),
    "gamma functions": (lambda x: (x.lgamma(), x.digamma()), _TABLE, {"lgamma.default", "digamma.default"}),
    "searchsorted": (
        lambda x: (torch.searchsorted(torch.tensor([-1.0, 0, 1]), x), torch.bucketize(x, torch.tensor([0.0, 1]))),
        _TABLE,
        {"searchsorted.Tensor", "bucketize.Tensor"},
    ),
    "complex results": (lambda x: torch.fft.fft(x), _TABLE, {"_fft_r2c.default"}),
    "complex arithmetic": (
        lambda x: torch.fft.irfft(torch.fft.rfft2(x).conj() * 2j, n=5).abs(),
        _TABLE,
        {"_fft_r2c.default", "_conj.default", "mul.Tensor", "_fft_c2r.default"},
    ),
    "spectrogram": (
        lambda x: torch.stft(x, 8, window=torch.hann_window(8), return_complex=True).abs(),
        _random(64),
        {"unfold.default", "_fft_r2c.default", "abs.default"},
    ),
    "dtypes that Relax lacks": (lambda x: x.to(torch.float8_e4m3fn).float(), _TABLE, {"_to_copy.default"}),
    "linear equations": (
        lambda x: (torch.linalg.solve(x[:, :4] + 9 * torch.eye(4), x), torch.linalg.svdvals(x)),
        _TABLE,
        {"linalg_solve.default", "_linalg_svd.default"},
    ),
    "factors of matrices": (
        lambda x: (*torch.linalg.lu_factor(x), *torch.linalg.ldl_factor(x[:, :4]), torch.linalg.tensorinv(x[:, :4], 1)),
        _TABLE,
        {"linalg_lu_factor.default", "linalg_ldl_factor.default", "linalg_tensorinv.default"},
    ),
    "divisor of averages": (
        lambda x: F.avg_pool2d(x, 3, divisor_override=2),
        _IMAGE,
        {"avg_pool2d.default"},
    ),
    "numbers without a sign for infinity": (
        lambda x: torch.cdist(x, x, -1.0 * -torch.inf),
        _TABLE,
        {"_cdist_forward.default"},
    ),
}


def _opaque(graph: Graph) -> dict[str, Operator]:
    """Operators of opaque calls by the name of what they call."""
    return {
        call.function.removeprefix("aten."): operator
        for operator in graph.operators
        for call in operator.calls
        if call.function.startswith("aten.")
    }


def _require_equal(module: nn.Module, given: Tensor, others: Tensor) -> Graph:
    """Compare the graph, extracted with one input, with the module on another, to the last bits."""
    network = extracted(module, (given,))
    ours = run_graph(network.graph, network.tensors, (others,))
    with torch.inference_mode():
        theirs = module(others)
    for one, other in zip(ours, [theirs] if isinstance(theirs, Tensor) else theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6, equal_nan=True)
    return network.graph


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_graph_equals_eager(name: str) -> None:
    """The graph gives what PyTorch gives, also for numbers that it was not extracted with; FLOPs are not known."""
    function, x, operators = _FUNCTIONS[name]
    graph = _require_equal(Model(lambda model, value: function(value)), x, x.flip(0))
    opaque = _opaque(graph)
    assert operators <= opaque.keys()
    unknown = {operator.type for operator in opaque.values() if operator.flops is None}
    assert unknown >= {name.split(".")[0] for name in operators - {"index.Tensor"}}
    assert all(operator.bytes for operator in opaque.values())


@pytest.mark.parametrize(
    ("module", "operator"),
    [
        (nn.ConvTranspose3d(2, 3, 2, stride=2), "convolution.default"),
        (
            Model(lambda model, x: model.own(x[:, :, 0, 0], x[:, :, 1, 1]), own=nn.Bilinear(2, 2, 3)),
            "_trilinear.default",
        ),
    ],
    ids=["ConvTranspose3d", "Bilinear"],
)
def test_layers(module: nn.Module, operator: str) -> None:
    """Layers keep their weights."""
    x = _random(1, 2, 3, 3, 3) if isinstance(module, nn.ConvTranspose3d) else _random(4, 2, 3, 3)
    assert operator in _opaque(_require_equal(module.eval(), x, x + 1))


@pytest.mark.parametrize(
    "function",
    [
        lambda model, ids: F.embedding(ids, model.table),
        lambda model, ids: model.table.index_select(0, ids),
        lambda model, ids: model.table.gather(0, ids[:, None].expand(3, 5)),
        lambda model, ids: F.one_hot(ids, 4),
        lambda model, ids: model.table[ids],
        lambda model, ids: model.table.index_add(0, ids, model.table[:3]),
        lambda model, ids: model.table.index_copy(0, ids, model.table[:3]),
        lambda model, ids: model.table.index_fill(0, ids, 0.5),
    ],
    ids=["embedding", "index_select", "gather", "one_hot", "index", "index_add", "index_copy", "index_fill"],
)
def test_places_outside_of_a_table(function: Callable[..., Tensor]) -> None:
    """What PyTorch refuses, the graph refuses; what counts from the end there does so here."""
    module = Model(function, table=nn.Parameter(_TABLE))
    network = extracted(module, (torch.tensor([1, 0, 3]),))
    for places in torch.tensor([[0, -1, 2], [0, 4, 2], [0, -5, 1]]):
        try:
            expected = module(places)
        except (IndexError, RuntimeError) as error:
            with pytest.raises(UnsupportedError, match=re.escape(str(error).splitlines()[0][:40])):
                run_graph(network.graph, network.tensors, (places,))
        else:
            torch.testing.assert_close(run_graph(network.graph, network.tensors, (places,))[0], expected)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: x.nonzero(), r"found aten\.nonzero\.default .*: the shape of its result depends on the values"),
        (lambda x: x[x > 0], r"the shape of its result depends on the values of its input; allowed: fixed shapes"),
        (lambda x: torch.rand_like(x) + x, "draws random numbers"),
    ],
)
def test_what_stays_refused(function: Callable[[Tensor], Tensor], message: str) -> None:
    """Shapes that depend on values, and random numbers."""
    with pytest.raises(UnsupportedError, match=message):
        extracted(Model(lambda model, x: function(x)), (_TABLE,))


@pytest.mark.parametrize("function", [lambda x: x.as_strided((4,), (5,)), lambda x: x.view(torch.int16)])
def test_what_depends_on_memory(function: Callable[[Tensor], Tensor]) -> None:
    """Packed convolutions write images channels last, and what reads memory gets them as PyTorch writes them."""
    own = nn.Conv2d(2, 4, 1).requires_grad_(False)
    for values in own.parameters():
        values.copy_(_whole(9, *values.shape))  # so that nothing is rounded
    module, x = Model(lambda model, x: function(model.own(x)), own=own), _whole(9, 1, 2, 8, 8).float()
    network = extracted(module, (_IMAGE,))
    first, second = (compile_operator(operator, network.tensors, packed=True) for operator in network.graph.operators)
    assert torch.equal(second.run(first.run(x)), module(x))


def test_complex_inputs_are_refused() -> None:
    """Inputs are of dtypes that Relax has; complex weights are taken, as only opaque calls read them."""
    turned = Model(lambda model, x: torch.view_as_real(torch.fft.fft(x) * model.turn), turn=nn.Parameter(_TABLE + 1j))
    _require_equal(turned, _TABLE, _TABLE + 1)
    with pytest.raises(UnsupportedError, match="found complex64; allowed: dtypes of Relax"):
        extracted(Model(lambda model, x: x.abs()), (_TABLE + 1j,))


_ONE = {"self": {"tensor": 0}}


@pytest.mark.parametrize(
    ("function", "attributes", "message"),
    [
        ("aten.from_file.default", {"arguments": {"filename": "/etc/passwd"}}, "found aten.from_file.default"),
        ("aten.relu_.default", {"arguments": _ONE}, "it writes to its arguments"),
        ("aten.rand_like.default", {"arguments": _ONE}, "it draws random numbers"),
        (
            "aten.native_dropout.default",
            {"arguments": {"input": {"tensor": 0}, "p": 0.5, "train": None}},
            "it draws random numbers",
        ),
        ("aten.lstm.data", {"arguments": {"train": False}}, "it draws random numbers"),
        ("aten.dropout.default", {"arguments": {"train": False}}, "it draws random numbers"),
        ("aten.mkldnn_rnn_layer.default", {"arguments": _ONE}, "found aten.mkldnn_rnn_layer.default: allowed"),
        ("aten.item.default", {"arguments": _ONE}, "it returns something else than tensors"),
        ("aten.erfc.out", {"arguments": _ONE}, "it writes to its arguments"),
        ("aten.__class__.default", {"arguments": _ONE}, "found aten.__class__.default"),
        ("aten.erfc", {"arguments": _ONE}, "found aten.erfc: allowed"),
        ("aten.erfc.default.op", {"arguments": _ONE}, "found aten.erfc.default.op: allowed"),
        ("aten.erfc.default", {}, "the attribute arguments is missing"),
        ("aten.erfc.default", {"arguments": {}}, "the argument self is missing"),
        ("aten.erfc.default", {"arguments": {**_ONE, "out": 1}}, 'found the argument "out"; allowed: self'),
        ("aten.sum.default", {"arguments": {**_ONE, "dtype": {"dtype": "load"}}}, 'found {"dtype": "load"}; allowed'),
        ("aten.erfc.default", {"arguments": {"self": {"tensor": -1}}}, 'found {"tensor": -1}; allowed'),
        ("aten.erfc.default", {"arguments": {"self": {"call": "os.system"}}}, 'found {"call": "os.system"}'),
        ("aten.median.dim", {"arguments": {**_ONE, "dim": 0}, "outputs": ["x"]}, "its attributes cannot be read"),
        ("aten.full_like.default", {"arguments": {**_ONE, "fill_value": {"complex": [{"tensor": 0}, 0]}}}, "allowed"),
        ("aten._sparse_coo_tensor_unsafe.default", {"arguments": {}}, "allowed: ATen operators on tensors and"),
        ("aten._unsafe_index.Tensor", {"arguments": {}}, "allowed: ATen operators on tensors and numbers"),
        ("aten.max_pool2d_with_indices_backward.default", {"arguments": {}}, "allowed: ATen operators on tensors"),
        ("aten._convert_indices_from_coo_to_csr.default", {"arguments": {}}, "allowed: ATen operators on tensors"),
        ("aten.native_batch_norm.default", {"arguments": {}}, "it writes to its arguments"),
    ],
)
def test_files_of_strangers(function: str, attributes: dict[str, Any], message: str) -> None:
    """A graph.json names pure operators on tensors and numbers; everything else is refused before it runs."""
    with refused("operator place: ", message, kind=UnsupportedError):
        build(function, attributes, "place")


def _in_branches(model: Any, x: Tensor) -> tuple[Tensor, ...]:
    """Sampled, filtered in the frequency domain and pooled: opaque operators, of several and of complex results."""
    x = F.relu(model.stem(x))
    sampled = F.grid_sample(x, _grid(model.first(x)), align_corners=False)
    spectrum = torch.fft.rfft2(model.second(x))
    filtered = torch.fft.irfft2(spectrum * 0.5, s=x.shape[-2:])
    largest, places = F.adaptive_max_pool2d(x, (3, 5), return_indices=True)
    y = model.head(torch.cat([sampled, filtered, x], 1))
    return y, largest, places, torch.fft.fft(y.mean((2, 3)))


def _branches() -> tuple[nn.Module, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        stem, first = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        model = Model(_in_branches, stem=stem, first=first, second=nn.Conv2d(8, 8, 1), head=nn.Conv2d(24, 4, 1))
        return model.eval(), torch.randn(1, 3, 16, 16)


@pytest.mark.slow
def test_commands(tmp_path: Path) -> None:
    """Every command takes a graph with opaque operators: they are profiled, scheduled on two devices and verified."""
    module, x = _branches()
    save(export(module, (x,)), tmp_path / "program.pt2")
    files = [tmp_path / "graph.json", tmp_path / "weights.safetensors"]
    succeed("extract", tmp_path / "program.pt2", "--output", files[0], "--weights", files[1])
    graph = Graph.read(files[0])
    unknown = [operator for operator in graph.operators if operator.flops is None]
    assert {"grid_sampler_2d", "_fft_r2c", "_fft_c2r", "adaptive_max_pool2d"} <= {one.type for one in unknown}
    succeed("profile", files[0], *("--devices", 2, "--repeats", 2, "--budget", 0, "--output", tmp_path / "costs.json"))
    assert hios.Costs.read(tmp_path / "costs.json").time_ms.keys() == graph.index.keys()
    algorithms = ("sequential", "greedy", "opara", "ios", "heft", "hios-lp")
    schedules = [tmp_path / f"{name}.json" for name in algorithms]
    for name, path in zip(algorithms, schedules, strict=True):
        devices = 2 if name in ("heft", "hios-lp") else 1
        succeed(
            *("schedule", files[0], tmp_path / "costs.json", "--algorithm", name, "--devices", devices),
            *("--output", path),
        )
    succeed(
        *("execute", *files, *schedules, "--program", tmp_path / "program.pt2", "--runs", 2, "--warmup", 1),
        *("--output", tmp_path / "run.json"),
    )
    run = artifacts.read(tmp_path / "run.json", "run")
    assert {result["label"] for result in run["results"]} == {*algorithms}


@pytest.mark.slow
@torch.no_grad()
def test_optimize(tmp_path: Path) -> None:
    """hios.optimize schedules a network with opaque operators and gives its outputs, complex ones among them."""
    module, x = _branches()
    fast = hios.optimize(module, x, cache=tmp_path, way="schedule", budget_s=0.1)
    report = fast.report
    assert {way.kind for way in report.ways if way.label == report.chosen} == {"schedule"}
    for ours, theirs in zip(fast(x + 1), module(x + 1), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    fast.close()
