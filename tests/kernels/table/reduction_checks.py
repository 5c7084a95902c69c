"""Reductions, running sums, extremes and sorting against numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import (
    Check,
    Draw,
    Run,
    axes_of,
    check,
    distinct,
    integers,
    normal,
    shape_of,
    uniform,
    whole,
)

#: Functions of numpy, and whether whole numbers may be reduced.
_REDUCTIONS: dict[str, tuple[Any, bool]] = {
    "max": (np.max, True),
    "mean": (np.mean, False),
    "min": (np.min, True),
    "prod": (np.prod, True),
    "std": (np.std, False),
    "sum": (np.sum, True),
    "variance": (np.var, False),
}


def _reduction(function: Any, whole_numbers: bool) -> Check:
    def reduction(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
        shape, axes, keepdims = integers(draw, 2, 4, 3), axes_of(draw, 3), draw(st.booleans())
        x = uniform(draw, 0.5, 1.5, *shape)
        if whole_numbers and draw(st.booleans()):
            x = whole(draw, 1, 3, *shape).int()
        wide = x.double() if x.is_floating_point() else x
        result = function(wide.numpy(), None if axes is None else tuple(axes), keepdims=keepdims)
        return run({"axis": axes, "keepdims": keepdims}, x), torch.as_tensor(result).to(x.dtype)

    return reduction


for _name, _kind in _REDUCTIONS.items():
    check(_name)(_reduction(*_kind))


def _running(function: Any) -> Check:
    def running(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
        shape, axis = integers(draw, 1, 5, 2), draw(st.sampled_from([None, 0, 1, -1]))
        x = draw(st.sampled_from([normal(draw, *shape), whole(draw, 1, 3, *shape).int()]))
        dtype = draw(st.sampled_from([None, "float64"]))
        result = torch.from_numpy(np.asarray(function(x.double().numpy(), axis)))
        attributes = {"axis": axis, "dtype": dtype, "exclusive": False}
        return run(attributes, x), result.to(torch.float64 if dtype else x.dtype)

    return running


check("cumsum")(_running(np.cumsum))
check("cumprod")(_running(np.cumprod))


def _extreme(function: Any) -> Check:
    def extreme(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
        x, axis = distinct(draw, *shape_of(draw, 3)), draw(st.sampled_from([None, 0, 1, -1]))
        keepdims = draw(st.booleans())
        expected = torch.from_numpy(np.asarray(function(x.numpy(), axis, keepdims=keepdims)))
        return run({"axis": axis, "keepdims": keepdims}, x), expected

    return extreme


check("argmax")(_extreme(np.argmax))
check("argmin")(_extreme(np.argmin))


def _sorting(draw: Draw) -> tuple[Tensor, dict[str, Any], Tensor]:
    """A tensor, attributes, and the order along the axis."""
    x, axis, descending = distinct(draw, *shape_of(draw, 3)), draw(st.integers(-3, 2)), draw(st.booleans())
    order = torch.from_numpy(np.argsort(-x.numpy() if descending else x.numpy(), axis))
    return x, {"axis": axis, "descending": descending}, order


@check("sort")
def _sort(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, attributes, order = _sorting(draw)
    expected = torch.from_numpy(np.take_along_axis(x.numpy(), order.numpy(), attributes["axis"]))
    return run(attributes, x), expected


@check("argsort")
def _argsort(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, attributes, order = _sorting(draw)
    dtype = draw(st.sampled_from(["int32", "int64"]))
    return run({**attributes, "dtype": dtype}, x), order.to(getattr(torch, dtype))


@check("topk")
def _topk(draw: Draw, run: Run) -> tuple[Any, Any]:
    x, attributes, order = _sorting(draw)
    axis, count = attributes["axis"], draw(st.integers(1, x.shape[attributes["axis"]]))
    order = order.narrow(axis, 0, count)
    values = torch.from_numpy(np.take_along_axis(x.numpy(), order.numpy(), axis))
    dtype, kind = draw(st.sampled_from(["int32", "int64"])), draw(st.sampled_from(["both", "values", "indices"]))
    chosen = {"k": count, "axis": axis, "ret_type": kind, "largest": attributes["descending"], "dtype": dtype}
    indices = order.to(getattr(torch, dtype))
    expected = {"both": (values, indices), "values": values, "indices": indices}[kind]
    return run(chosen, x), expected
