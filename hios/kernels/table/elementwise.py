"""Elementwise operators: arithmetic, comparisons, logic, activations; tensors made from a shape, and triangles."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.kernels.table.kernel_registry import (
    IN_PLACE,
    Attributes,
    Kernel,
    always,
    dtype_of,
    kernel,
    plain,
    refuse,
)

_Number = float | int | bool


def _on_tensors(function: Callable[[Tensor, Tensor], Tensor]) -> Kernel:
    """A function of two tensors as one that takes a number on either side, of the dtype of the tensor."""

    def run(x: Tensor | _Number, y: Tensor | _Number) -> Tensor:
        if not isinstance(x, Tensor) and isinstance(y, Tensor):
            x = torch.full(
                (), x, dtype=y.dtype, device=y.device
            )  # a CUDA graph can hold this, but no copy from the host
        elif isinstance(x, Tensor) and not isinstance(y, Tensor):
            y = torch.full((), y, dtype=x.dtype, device=x.device)
        return function(x, y)  # type: ignore[arg-type]  # torch says what is wrong with two numbers

    return run


def _divide(x: Tensor | _Number, y: Tensor | _Number) -> Tensor:
    """Relax truncates integer division towards zero; torch returns a float."""
    fractions = (x if isinstance(x, Tensor) else y).is_floating_point()  # type: ignore[union-attr]
    return torch.div(x, y) if fractions else torch.div(x, y, rounding_mode="trunc")


#: Operators whose torch functions take numbers on either side themselves.
_ARITHMETIC: dict[str, Kernel] = {
    "add": torch.add,
    "divide": _divide,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "power": torch.pow,
}


def _of_torch(*names: str) -> dict[str, Any]:
    """Functions that torch has under the names of Relax."""
    return {name: getattr(torch, name) for name in names}


_TWO_TENSORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **_of_torch("atan2", "bitwise_and", "bitwise_or", "bitwise_xor", "floor_divide", "logical_and", "logical_or"),
    **_of_torch("logical_xor", "maximum", "minimum"),
    "equal": torch.eq,
    "floor_mod": torch.remainder,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "left_shift": torch.bitwise_left_shift,
    "less": torch.lt,
    "less_equal": torch.le,
    "log_add_exp": torch.logaddexp,
    "mod": torch.fmod,  # the sign of the dividend, as in C
    "not_equal": torch.ne,
    "right_shift": torch.bitwise_right_shift,
}
_ONE_TENSOR: dict[str, Kernel] = {
    **_of_torch("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "bitwise_not", "ceil", "cos", "cosh", "erf"),
    **_of_torch("exp", "floor", "isfinite", "isinf", "isnan", "log", "logical_not", "rsqrt", "sigmoid", "sign", "sin"),
    **_of_torch("sinh", "sqrt", "square", "tan", "tanh", "trunc"),
    "negative": torch.neg,
    "nn.gelu": F.gelu,
    "nn.gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "nn.relu": torch.relu,
    "nn.selu": F.selu,
    "nn.silu": F.silu,
    "round": torch.round,  # halves round to even, as in Relax
}
for _name, _function in {**_ARITHMETIC, **_ONE_TENSOR}.items():
    plain(f"relax.{_name}", _function)
for _name, _function in _TWO_TENSORS.items():
    plain(f"relax.{_name}", _on_tensors(_function))
plain("relax.ewise_fma", lambda x, y, z: torch.addcmul(z, x, y))
plain("relax.where", torch.where)


def _clip(x: Tensor, low: _Number, high: _Number) -> Tensor:
    return torch.clamp(x, *_bounds(x, low, high))


def _clip_in_place(x: Tensor, low: _Number, high: _Number) -> Tensor:
    return torch.clamp_(x, *_bounds(x, low, high))


def _bounds(x: Tensor, low: _Number, high: _Number) -> tuple[_Number, _Number]:
    if x.is_floating_point():
        return low, high
    limits = torch.iinfo(x.dtype)  # with an infinite bound torch would convert integers to floats
    return max(low, limits.min), min(high, limits.max)


plain("relax.clip", _clip)
plain("relax.nn.leakyrelu", F.leaky_relu, itemgetter("alpha"))
plain("relax.nn.softplus", F.softplus, itemgetter("beta"), itemgetter("threshold"))


@kernel("relax.astype")
def _astype(attributes: Attributes) -> Kernel:
    dtype = dtype_of(attributes)
    if dtype is None:
        raise refuse("dtype", attributes.get("dtype"), "a dtype of torch")
    return lambda x: x.to(dtype)


@kernel("relax.nn.dropout")
def _dropout(attributes: Attributes) -> Kernel:
    """The identity in inference; the mask, which keeps everything, is an expanded scalar."""
    return lambda x: (x, x.new_ones(()).expand(x.shape))


@kernel("relax.nn.prelu", allocates=True)
def _prelu(attributes: Attributes) -> Kernel:
    axis = attributes["axis"]

    def prelu(x: Tensor, alpha: Tensor) -> Tensor:
        if alpha.numel() > 1:
            alpha = alpha.reshape(-1, *[1] * (x.ndim - 1 - axis % x.ndim))
        return torch.where(x > 0, x, alpha * x)

    return prelu


#: Activations that end units; they overwrite the result of the operator before them.
_OVERWRITING: dict[str, Kernel] = {
    "clip": _clip_in_place,
    "nn.gelu": torch.ops.aten.gelu_,
    "nn.relu": torch.relu_,
    "nn.silu": lambda x: F.silu(x, inplace=True),
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
}
IN_PLACE.update({f"relax.{name}": always(function) for name, function in _OVERWRITING.items()})
IN_PLACE["relax.nn.leakyrelu"] = lambda attributes: lambda x: F.leaky_relu_(x, attributes["alpha"])


def _number(value: Tensor | float) -> float:
    return value.item() if isinstance(value, Tensor) else value


@kernel("relax.full", allocates=True)
def _full(attributes: Attributes) -> Kernel:
    shape, dtype = tuple(attributes["shape"]), dtype_of(attributes)

    def full(fill: Tensor | float) -> Tensor:
        own = fill.dtype if isinstance(fill, Tensor) else None
        return torch.full(shape, _number(fill), dtype=dtype or own)

    return full


def _of_shape(function: Kernel, attributes: Attributes) -> Kernel:
    shape, dtype = tuple(attributes["shape"]), dtype_of(attributes)
    return lambda: function(shape, dtype=dtype)


#: Functions whose only attribute is the dtype.
_BY_DTYPE: dict[str, Kernel] = {
    "arange": torch.arange,
    "full_like": lambda x, fill, dtype: torch.full_like(x, _number(fill), dtype=dtype),
    "ones_like": torch.ones_like,
    "zeros_like": torch.zeros_like,
}


def _by_dtype(function: Kernel, attributes: Attributes) -> Kernel:
    dtype = dtype_of(attributes)
    return lambda *arguments: function(*arguments, dtype=dtype)


for _name, _function in (("zeros", torch.zeros), ("ones", torch.ones)):
    kernel(f"relax.{_name}", allocates=True)(partial(_of_shape, _function))
for _name, _function in _BY_DTYPE.items():
    kernel(f"relax.{_name}", allocates=True)(partial(_by_dtype, _function))
plain("relax.tril", torch.tril)
plain("relax.triu", torch.triu)
