"""Tensors from nothing against numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import Check, Draw, Run, check, normal, shape_of

_DTYPES = st.sampled_from(["float32", "float64", "int64"])


def _constant(value: int) -> Check:
    def constant(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
        shape, dtype = shape_of(draw, draw(st.integers(0, 3))), draw(_DTYPES)
        expected = torch.from_numpy(np.full(shape, value, dtype))
        return run({"shape": shape, "dtype": dtype}), expected

    return constant


def _constant_like(value: int) -> Check:
    def constant_like(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
        x, dtype = normal(draw, *shape_of(draw, 2)), draw(st.one_of(st.none(), _DTYPES))
        expected = torch.from_numpy(np.full(x.shape, value, dtype or "float32"))
        return run({"dtype": dtype}, x), expected

    return constant_like


for _name, _value in {"zeros": 0, "ones": 1}.items():
    check(_name)(_constant(_value))
    check(f"{_name}_like")(_constant_like(_value))


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


def _triangle(function: Any) -> Check:
    def triangle(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
        x, k = normal(draw, *shape_of(draw, draw(st.integers(2, 3)))), draw(st.integers(-4, 4))
        arguments = [k] if k or draw(st.booleans()) else []
        expected = torch.from_numpy(function(x.numpy(), k))
        return run({}, x, *arguments), expected

    return triangle


check("tril")(_triangle(np.tril))
check("triu")(_triangle(np.triu))
