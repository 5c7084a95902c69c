"""Operators that Relax's importer lacks or gets wrong, in every precision, against eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from hios.frontends.extraction_check import run_graph
from hios.frontends.tolerances import difference
from tests.frontends.small_networks import Model, batch_norm, extracted


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _require_equal(module: nn.Module, inputs: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> None:
    """Compare the graph, extracted with some inputs, with the module on others."""
    network = extracted(module, inputs)
    ours = run_graph(network.graph, network.tensors, others)
    with torch.inference_mode():
        theirs = module(*others)
    for one, other in zip(ours, [theirs] if isinstance(theirs, Tensor) else theirs, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        off, allowed = difference(one, other)
        assert off <= allowed


_LAYERS: dict[str, Callable[[], nn.Module]] = {
    "conv1d": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2)),
    "conv2d": lambda: nn.Conv2d(4, 6, 3, padding=(1, 0), dilation=2, bias=False),
    "conv2d with bias": lambda: nn.Conv2d(4, 4, 3, groups=4),
    "conv3d": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Conv3d(2, 3, (1, 3, 3))),
    "conv1d transposed": lambda: nn.Sequential(nn.Flatten(2), nn.ConvTranspose1d(4, 6, 3, 2, 1, 1, groups=2)),
    "conv2d transposed": lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, 1),
    "conv, batch norm, relu": lambda: nn.Sequential(nn.Conv2d(4, 4, 3, bias=False), batch_norm(4), nn.ReLU()),
    "linear": lambda: nn.Linear(8, 5),
    "mlp": lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8, bias=False), nn.LayerNorm(8)),
    "attention": lambda: Model(
        lambda model, x: model.own(*[x.flatten(1, 2)] * 3, need_weights=False)[0],
        own=nn.MultiheadAttention(8, 2, batch_first=True),
    ),
    "encoder": lambda: nn.Sequential(
        nn.Flatten(1, 2), nn.TransformerEncoderLayer(8, 2, 16, activation=F.gelu, batch_first=True)
    ),
    "matrix products": lambda: Model(lambda model, x: (x @ x.mT, x[0, 0] @ x[0, 1], x[0] @ x[0, 0])),
    "addmm": lambda: Model(lambda model, x: torch.addmm(x[0, 0, 0], x[0, 0], x[0, 1], alpha=0.5, beta=2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", _LAYERS)
def test_precisions(kind: str, dtype: torch.dtype) -> None:
    """Convolutions, linear layers, matrix products and attention keep the precision of their tensors."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = _LAYERS[kind]().eval().to(dtype)
    _require_equal(module, (_random(2, 4, 8, 8).to(dtype),), (_random(2, 4, 8, 8, seed=1).to(dtype),))


_WHOLE = torch.tensor([[-7, -3, -2], [0, 2, 9]])
_FUNCTIONS: dict[str, tuple[Callable[..., Any], Tensor]] = {
    "amax": (lambda x: (x.amax((0, 2)), x.amin(1, keepdim=True), x.amax()), _random(2, 3, 4)),
    "logsumexp": (lambda x: x.logsumexp(1), _random(2, 3)),
    "any": (lambda x: ((x > 1).any(), (x > 0).any(1), torch.any(x > 0, (0, 1), keepdim=True)), _random(3, 4)),
    "any of numbers": (lambda x: (x.any(), x.any(0), x.relu().all(1)), _random(3, 4)),
    "exp2": (torch.exp2, _random(3)),
    "exp2 of whole numbers": (torch.exp2, _WHOLE),
    "alpha": (lambda x: (torch.add(x, x, alpha=2), torch.sub(x, 3, alpha=0.5), torch.rsub(x, 3, alpha=2)), _random(3)),
    "whole quotient": (lambda x: (x / 3, x / (x + 20), x // 4, x % 4), _WHOLE),
    "rounded quotient": (lambda x: [torch.div(x, 2, rounding_mode=mode) for mode in (None, "floor", "trunc")], _WHOLE),
    "quotient of fractions": (lambda x: (x // 0.3, torch.div(x, 0.3, rounding_mode="trunc"), x % 0.3), _random(5)),
    "whole by fraction": (lambda x: (x * 0.5, x + 0.5, x - 0.5, 2.5 * (x > 0), x % 1.5), _WHOLE),
    "whole against fraction": (lambda x: (x < 2.5, x >= -2.5, x == 2.5, x > 1.5, x <= -2.5, x != 2.0), _WHOLE),
    "number of another precision": (lambda x: x * torch.tensor(3.1, dtype=torch.float64) + torch.tensor(3), _random(3)),
    "celu": (lambda x: (F.celu(x, 2.0), F.celu(x, 0.5)), _random(20)),
    "linear interpolation": (lambda x: F.interpolate(x, scale_factor=2, mode="linear"), _random(2, 3, 8)),
    "bicubic interpolation by a factor that sizes do not show": (
        lambda x: F.interpolate(x, scale_factor=1.3, mode="bicubic"),
        _random(1, 2, 8, 8),
    ),
    "nearest points": (
        lambda x: [F.interpolate(x, size) for size in ((16, 24), (24, 8), (4, 8), (2, 1), (13, 8), (8, 3))],
        _random(1, 2, 8, 8),
    ),
    "activations in place": (lambda x: F.silu(F.hardswish(x + 1, inplace=True), inplace=True), _random(20)),
}


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_functions(name: str) -> None:
    """Each gives what PyTorch gives, in the same dtype, also for numbers that it was not extracted with."""
    function, x = _FUNCTIONS[name]
    _require_equal(Model(lambda model, value: function(value)), (x.abs(),), (x,))


def _heads(*shape: int) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(_random(*shape, seed=seed) for seed in range(3))  # type: ignore[return-value]


_SEEN = torch.tensor([[True, False, True], [True, True, False]])


@pytest.mark.parametrize(
    "attention",
    [
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, _SEEN),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, q[..., :3] - 1),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, _SEEN, scale=2.0),
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, k[..., :1].mT > 0),
    ],
)
@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (2, 1, 3)])
def test_attention(attention: Callable[..., Tensor], shape: tuple[int, ...]) -> None:
    """Attention of any number of dimensions, with masks of truth values or numbers, and with a scale."""
    query, key, value = _heads(*shape, 3, 4)
    others = _heads(*shape, 3, 4)[::-1]
    inputs = (query[..., :2, :], key, value)
    _require_equal(Model(lambda model, *heads: attention(*heads)), inputs, (others[0][..., :2, :], *others[1:]))


def test_attention_of_groups() -> None:
    """Several heads of queries may read one head of keys and values."""

    def attention(model: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)

    query, (_, key, value) = _random(2, 6, 3, 4), _heads(2, 2, 3, 4)
    _require_equal(Model(attention), (query, key, value), (query + 1, value, key))


_ROWS, _COLUMNS = torch.tensor([[0], [2]]), torch.tensor([[1, 0, 2]])


@pytest.mark.parametrize(
    "pick",
    [
        lambda x: x[:, :, _ROWS, _COLUMNS],
        lambda x: x[:, :, _ROWS[..., None, None], _COLUMNS],
        lambda x: x[:, torch.tensor([0, 1]), torch.tensor([2, 0])],
        lambda x: x[:, torch.tensor([0, 1]), :, torch.tensor([2, 0])],
        lambda x: x[torch.tensor([0, 0]), torch.tensor([1, 3])],
        lambda x: x[:, :, torch.tensor([2, 0])],
        lambda x: x[:, :, torch.tensor([-1, 0])],
        lambda x: x[:, torch.tensor([-1, 1]), torch.tensor([2, -4])],
        lambda x: F.unfold(x, 2, stride=2),
    ],
    ids=["rows and columns", "more axes", "together", "apart", "first", "one", "one negative", "negative", "unfold"],
)
def test_index(pick: Callable[[Tensor], Tensor]) -> None:
    """Indices of several axes are applied together, whatever axes are next to or between them."""
    x, other = _random(1, 4, 4, 4), _random(1, 4, 4, 4, seed=1)
    _require_equal(Model(lambda model, x: pick(x)), (x,), (other,))


_NAN = torch.where(torch.arange(60).reshape(3, 20) % 7 == 4, torch.nan, torch.linspace(-1, 1, 60).reshape(3, 20))
_LAST_IS_NAN = torch.cat([torch.ones(1, 2, 3, 8), torch.full((1, 2, 1, 8), torch.nan)], 2)
_LARGE_AND_SMALL = torch.cartesian_prod(*[torch.tensor([1e30, -1e30, 2.0, torch.inf])] * 3).T
_LARGE = torch.tensor([3e38, -3e38, 6e37, -1.0, 2.0, torch.inf, -torch.inf, torch.nan])


@pytest.mark.parametrize(
    ("function", "given", "other"),
    [
        (F.hardswish, _random(8), _LARGE),
        (lambda x: tuple(x.max(1)), _random(3, 20), _NAN),
        (lambda x: tuple(x.max(0, keepdim=True)), _random(3, 20), torch.ones(3, 20)),
        (lambda x: x.log2().floor(), _random(4).abs() + 1, torch.tensor([8192, 32768, 2.0**26, 2.0**30])),
        (lambda x: x.log10().floor(), _random(3).abs() + 1, torch.tensor([1e3, 1e6, 1e9])),
        *(
            (function, _random(4).abs(), torch.tensor([1e-8, -1e-8, 1e-30, 20]))
            for function in (torch.log1p, torch.expm1, F.elu, F.softplus)
        ),
        (lambda x: x.sort().indices, _random(1000), _random(1000, seed=1).relu()),
        (torch.argsort, _random(1000), _random(1000, seed=1).relu()),
        *(
            (function, _random(4).half(), torch.tensor([21, 42, 197, 60000]).half())
            for function in (lambda x: x / 0.7, lambda x: x * torch.tensor(0.7), lambda x: 1e-8 * x, F.hardswish)
        ),
        (lambda x: x.norm(dim=-1), _random(2, 4).half(), torch.full((2, 4), 300).half()),
        (F.normalize, _random(2, 4).half(), torch.full((2, 4), 300).half()),
        (lambda x: F.multilabel_margin_loss(x, torch.arange(60).reshape(3, 20) % 20), _random(3, 20), _NAN),
        (lambda x: torch.linalg.cross(x, x.flip(0), dim=0), _random(3, 64), _LARGE_AND_SMALL),
        (lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), _random(1, 2, 4, 8), _LAST_IS_NAN),
        *(
            (
                lambda x, more=more: F.interpolate(x, mode="bicubic", **more),
                _random(1, 2, 8, 8),
                _random(1, 2, 8, 8, seed=1),
            )
            for more in (
                {"size": (13, 5), "align_corners": True},
                {"scale_factor": 1.3, "align_corners": True},
                {"size": (13, 5)},
                {"scale_factor": 2.0},
            )
        ),
    ],
)
def test_to_the_last_bit(function: Callable[[Tensor], Any], given: Tensor, other: Tensor) -> None:
    """Large and small numbers, NaN and ties give exactly what PyTorch gives, and so does bicubic resizing."""
    network = extracted(Model(lambda model, x: function(x)), (given,))
    ours, theirs = run_graph(network.graph, network.tensors, (other,)), function(other)
    for one, right in zip(ours, [theirs] if isinstance(theirs, Tensor) else theirs, strict=True):
        torch.testing.assert_close(one, right, rtol=0, atol=0, equal_nan=True)
