"""Elementwise functions, and tensors from nothing, against numpy's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import Draw, Run, check, normal, shape_of, uniform, whole

Function = Callable[..., Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _tanh_gelu(x: Any) -> Any:
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _selu(x: Any) -> Any:
    return 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0)))


#: Function and domain.
_ONE: dict[str, tuple[Function, float, float]] = {
    "abs": (np.abs, -3, 3),
    "acos": (np.arccos, -0.9, 0.9),
    "acosh": (np.arccosh, 1.1, 5),
    "asin": (np.arcsin, -0.9, 0.9),
    "asinh": (np.arcsinh, -3, 3),
    "atan": (np.arctan, -3, 3),
    "atanh": (np.arctanh, -0.9, 0.9),
    "ceil": (np.ceil, -5, 5),
    "cos": (np.cos, -4, 4),
    "cosh": (np.cosh, -3, 3),
    "erf": (_erf, -2, 2),
    "exp": (np.exp, -3, 3),
    "floor": (np.floor, -5, 5),
    "log": (np.log, 0.1, 9),
    "negative": (np.negative, -3, 3),
    "nn.gelu": (lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))), -3, 3),
    "nn.gelu_tanh": (_tanh_gelu, -3, 3),
    "nn.relu": (lambda x: np.maximum(x, 0), -3, 3),
    "nn.selu": (_selu, -3, 3),
    "nn.silu": (lambda x: x / (1 + np.exp(-x)), -5, 5),
    "round": (np.round, -5, 5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 0.1, 9),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), -5, 5),
    "sign": (np.sign, -3, 3),
    "sin": (np.sin, -4, 4),
    "sinh": (np.sinh, -3, 3),
    "sqrt": (np.sqrt, 0.1, 9),
    "square": (np.square, -3, 3),
    "tan": (np.tan, -1.2, 1.2),
    "tanh": (np.tanh, -3, 3),
    "trunc": (np.trunc, -5, 5),
}
#: Functions of two numbers, both fractions or both whole; by numpy's names first.
_SAME = (
    *("add", "equal", "floor_divide", "greater", "greater_equal", "less", "less_equal", "maximum", "minimum"),
    *("multiply", "not_equal", "subtract"),
)
_BOTH: dict[str, Function] = {
    **{name: getattr(np, name) for name in _SAME},
    "floor_mod": np.mod,
    "mod": np.fmod,
}
_FRACTIONS: dict[str, Function] = {
    **_BOTH,
    "atan2": np.arctan2,
    "divide": np.divide,
    "log_add_exp": np.logaddexp,
    "power": np.power,
}
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")
_WHOLE: dict[str, Function] = {
    **_BOTH,
    **{name: getattr(np, name) for name in (*_BITS, "logical_and", "logical_or", "logical_xor")},
    "divide": lambda x, y: np.trunc(x / y).astype(np.int64),  # towards zero
}


def _expected(function: Function, *arguments: Any) -> Tensor:
    """What numpy gives in double precision, in single precision where it is a fraction."""
    arrays = [
        argument.double().numpy() if isinstance(argument, Tensor) and argument.is_floating_point() else argument
        for argument in arguments
    ]
    result = torch.from_numpy(np.asarray(function(*(np.asarray(array) for array in arrays))))
    return result.float() if result.is_floating_point() else result


def _one(draw: Draw, run: Run, function: Function, low: float, high: float) -> tuple[Tensor, Tensor]:
    x = uniform(draw, low, high, *shape_of(draw, draw(st.integers(0, 4))))
    return run({}, x), _expected(function, x)


def _shapes(draw: Draw) -> list[list[int]]:
    """Two shapes that broadcast, in either order."""
    shape = shape_of(draw, 3)
    other = draw(st.sampled_from([shape, shape[1:], [1, *shape[1:]], [shape[0], 1, 1], [1], []]))
    return draw(st.permutations([shape, other]))


def _two(draw: Draw, run: Run, name: str) -> tuple[Tensor, Tensor]:
    first, second = _shapes(draw)
    if name in _FRACTIONS and (name not in _WHOLE or draw(st.booleans())):
        # Multiples of 1/4 above 0, which every dtype holds: what is equal or a multiple stays so.
        operands: list[Any] = [whole(draw, 1, 24, *shape).float() / 4 for shape in (first, second)]
        function = _FRACTIONS[name]
    else:
        least = 0 if "shift" in name or "bitwise" in name else -9
        operands = [whole(draw, least, 10, *first), whole(draw, 1, 10, *second)]
        function = _WHOLE[name]
    number = draw(st.sampled_from([None, 0, 1]))
    if number is not None:
        operands[number] = operands[number].flatten()[0].item()
    return run({}, *operands), _expected(function, *operands)


for _name, _domain in _ONE.items():
    check(_name, *_domain)(_one)
for _name in {**_FRACTIONS, **_WHOLE}:
    check(_name, _name)(_two)


@check("bitwise_not")
def _bitwise_not(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x = whole(draw, -9, 10, 3, 4)
    x = x > 0 if draw(st.booleans()) else x
    return run({}, x), torch.from_numpy(np.invert(x.numpy()))


@check("logical_not")
def _logical_not(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x = whole(draw, 0, 2, 3, 4) > 0
    return run({}, x), torch.from_numpy(np.logical_not(x.numpy()))


def _special(draw: Draw, run: Run, function: Function) -> tuple[Tensor, Tensor]:
    x = torch.tensor(draw(st.lists(st.sampled_from([0.0, -1.5, math.inf, -math.inf, math.nan]), min_size=1)))
    return run({}, x), torch.from_numpy(function(x.numpy()))


for _name, _function in {"isfinite": np.isfinite, "isinf": np.isinf, "isnan": np.isnan}.items():
    check(_name, _function)(_special)


@check("ewise_fma")
def _ewise_fma(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, y, z = (normal(draw, 3, 4) for _ in range(3))
    return run({}, x, y, z), x * y + z


@check("where")
def _where(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    first, second = _shapes(draw)
    condition, x = whole(draw, 0, 2, *first) > 0, normal(draw, *second)
    y = draw(st.sampled_from([normal(draw, *first), -math.inf, 1.5]))
    chosen = condition.float().expand(torch.broadcast_shapes(first, second))
    expected = torch.from_numpy(np.where(chosen.numpy() > 0, x.numpy(), y.numpy() if isinstance(y, Tensor) else y))
    return run({}, condition, x, y), expected.float()


@check("clip")
def _clip(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    low, high = draw(st.sampled_from([(-1.0, 1.0), (0, math.inf), (-math.inf, 0.5), (-math.inf, math.inf), (0, 6)]))
    if isinstance(low, int) and draw(st.booleans()):
        x = whole(draw, -9, 10, 3, 4)
        return run({}, x, low, high), torch.tensor(
            [[min(max(value, low), high) for value in row] for row in x.tolist()]
        )
    x = 3 * normal(draw, 3, 4)
    return run({}, x, low, high), torch.from_numpy(np.minimum(np.maximum(x.numpy(), low), high)).float()


@check("astype")
def _astype(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x = draw(st.sampled_from([4 * normal(draw, 3, 4), whole(draw, -9, 10, 3, 4)]))
    dtype = draw(st.sampled_from(["float32", "float64", "float16", "int32", "int64", "bool"]))
    return run({"dtype": dtype}, x), torch.from_numpy(x.numpy().astype(dtype))


@check("nn.dropout")
def _dropout(draw: Draw, run: Run) -> tuple[Any, Any]:
    x = normal(draw, *shape_of(draw, 2))
    return run({"rate": 0.5}, x), (x, torch.ones_like(x))


@check("nn.leakyrelu")
def _leaky_relu(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, alpha = normal(draw, 3, 4), draw(st.sampled_from([0.01, 0.5, -1.0]))
    expected = _expected(lambda x: np.where(x > 0, x, alpha * x), x)
    return run({"alpha": alpha}, x), expected


@check("nn.softplus")
def _softplus(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, beta, threshold = (
        3 * normal(draw, 3, 4),
        draw(st.sampled_from([0.5, 1.0, 2.0])),
        draw(st.sampled_from([1.0, 20.0])),
    )
    expected = _expected(lambda x: np.where(beta * x > threshold, x, np.log1p(np.exp(beta * x)) / beta), x)
    return run({"beta": beta, "threshold": threshold}, x), expected


@check("nn.prelu")
def _prelu(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, axis = normal(draw, *shape_of(draw, 4)), draw(st.integers(-4, 3))
    alpha = normal(draw, draw(st.sampled_from([1, x.shape[axis]])))
    lines = [
        part if part.min() >= 0 else part.clamp(min=0) + slope * part.clamp(max=0)
        for part, slope in zip(x.unbind(axis), alpha.expand(x.shape[axis]), strict=True)
    ]
    return run({"axis": axis}, x, alpha), torch.stack(lines, axis)


_DTYPES = st.sampled_from(["float32", "float64", "int64"])


def _constant(draw: Draw, run: Run, value: int) -> tuple[Tensor, Tensor]:
    shape, dtype = shape_of(draw, draw(st.integers(0, 3))), draw(_DTYPES)
    expected = torch.from_numpy(np.full(shape, value, dtype))
    return run({"shape": shape, "dtype": dtype}), expected


def _constant_like(draw: Draw, run: Run, value: int) -> tuple[Tensor, Tensor]:
    x, dtype = normal(draw, *shape_of(draw, 2)), draw(st.one_of(st.none(), _DTYPES))
    expected = torch.from_numpy(np.full(x.shape, value, dtype or "float32"))
    return run({"dtype": dtype}, x), expected


for _name, _value in {"zeros": 0, "ones": 1}.items():
    check(_name, _value)(_constant)
    check(f"{_name}_like", _value)(_constant_like)


def _filling(draw: Draw) -> tuple[Any, float]:
    """A number, by itself or as a tensor."""
    number = draw(st.sampled_from([0, 3, -1]))
    return draw(st.sampled_from([number, torch.tensor(float(number))])), number


@check("full")
def _full(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    shape, dtype, (fill, number) = shape_of(draw, draw(st.integers(0, 3))), draw(_DTYPES), _filling(draw)
    if isinstance(fill, Tensor) and draw(st.booleans()):
        dtype = None
    expected = torch.from_numpy(np.full(shape, number, dtype or "float32"))
    return run({"shape": shape, "dtype": dtype}, fill), expected


@check("full_like")
def _full_like(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, dtype, (fill, number) = normal(draw, *shape_of(draw, 2)), draw(st.one_of(st.none(), _DTYPES)), _filling(draw)
    expected = torch.from_numpy(np.full(x.shape, number, dtype or "float32"))
    return run({"dtype": dtype}, x, fill), expected


@check("arange")
def _arange(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    start, length, step = draw(st.integers(-9, 9)), draw(st.integers(1, 20)), draw(st.sampled_from([-3, -1, 1, 2]))
    end, dtype = start + (length if step > 0 else -length), draw(_DTYPES)
    expected = torch.tensor(list(range(start, end, step))).to(getattr(torch, dtype))
    return run({"dtype": dtype}, start, end, step), expected


def _triangle(draw: Draw, run: Run, function: Any) -> tuple[Tensor, Tensor]:
    x, k = normal(draw, *shape_of(draw, draw(st.integers(2, 3)))), draw(st.integers(-4, 4))
    arguments = [k] if k or draw(st.booleans()) else []
    expected = torch.from_numpy(function(x.numpy(), k))
    return run({}, x, *arguments), expected


check("tril", np.tril)(_triangle)
check("triu", np.triu)(_triangle)
