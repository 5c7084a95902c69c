"""Every entry of the kernel table against eager torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hios.errors import UnsupportedError
from hios.kernels import build
from hios.kernels.table import KERNELS, kernel

Draw = Callable[..., Any]
#: A check draws attributes and tensors and returns what the kernel gives and what torch gives.
Check = Callable[[Draw], tuple[Tensor, Tensor]]
CHECKS: dict[str, Check] = {}

_SIZES = st.integers(1, 9)


def _check(*names: str) -> Callable[[Check], Check]:
    def decorate(check: Check) -> Check:
        CHECKS.update(dict.fromkeys(names, check))
        return check

    return decorate


def _tensor(draw: Draw, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(draw(st.integers(0, 1000))))


def _run(function: str, attributes: dict[str, Any], *tensors: Tensor) -> Tensor:
    before = [tensor.clone() for tensor in tensors]
    result: Tensor = build(function, attributes, "test")(*tensors)
    assert all(torch.equal(tensor, old) for tensor, old in zip(tensors, before, strict=True))
    return result


@pytest.mark.parametrize("function", sorted(KERNELS))
@settings(max_examples=50, deadline=None, derandomize=True)
@given(data=st.data())
def test_kernel_equals_eager(function: str, data: st.DataObject) -> None:
    """Whatever shapes and attributes, a kernel gives what eager torch gives and leaves its arguments alone."""
    assert function in CHECKS, f"{function} has no check: add one to {__file__}"
    found, expected = CHECKS[function](data.draw)
    assert found.dtype == expected.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_every_check_has_a_kernel() -> None:
    """No check is left of an entry that is gone."""
    assert set(CHECKS) == set(KERNELS)


@_check("relax.nn.conv2d")
def _conv2d(draw: Draw) -> tuple[Tensor, Tensor]:
    groups, per_group, filters = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    kernel_size = [draw(st.integers(1, 3)) for _ in range(2)]
    top, left, bottom, right = padding = [draw(st.integers(0, 3)) for _ in range(4)]
    strides, dilation = ([draw(st.integers(1, 3)) for _ in range(2)] for _ in range(2))
    height, width = (
        draw(st.integers(max(1, reach * (size - 1) + 1), 10)) for reach, size in zip(dilation, kernel_size, strict=True)
    )
    x = _tensor(draw, draw(st.integers(1, 2)), groups * per_group, height, width)
    weight = _tensor(draw, groups * filters, per_group, *kernel_size)
    bias = _tensor(draw, groups * filters) if draw(st.booleans()) else None
    attributes = {
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "data_layout": "NCHW",
        "kernel_layout": "OIHW",
        "out_layout": "NCHW",
        "out_dtype": "",
    }
    padded = torch.zeros(*x.shape[:2], height + top + bottom, width + left + right)
    padded[:, :, top : top + height, left : left + width] = x
    expected = F.conv2d(padded, weight, bias, strides, 0, dilation, groups)
    return _run("relax.nn.conv2d", attributes, x, weight, *([] if bias is None else [bias])), expected


def _pool(draw: Draw, symmetric: bool) -> tuple[Tensor, dict[str, Any]]:
    pool_size = [draw(st.integers(1, 4)) for _ in range(2)]
    top, left = (draw(st.integers(0, size // 2)) for size in pool_size)
    bottom, right = (top, left) if symmetric else (draw(st.integers(0, size // 2)) for size in pool_size)
    attributes = {
        "pool_size": pool_size,
        "strides": [draw(st.integers(1, 3)) for _ in range(2)],
        "padding": [top, left, bottom, right],
        "dilation": [1, 1],
        "ceil_mode": draw(st.booleans()),
        "count_include_pad": draw(st.booleans()),
        "layout": "NCHW",
        "out_layout": "NCHW",
    }
    height, width = (draw(st.integers(size, 10)) for size in pool_size)
    return _tensor(draw, draw(st.integers(1, 2)), draw(st.integers(1, 3)), height, width), attributes


@_check("relax.nn.max_pool2d")
def _max_pool2d(draw: Draw) -> tuple[Tensor, Tensor]:
    x, attributes = _pool(draw, symmetric=draw(st.booleans()))
    top, left, bottom, right = attributes["padding"]
    size, strides, ceil_mode = attributes["pool_size"], attributes["strides"], attributes["ceil_mode"]
    if (top, left) == (bottom, right):
        attributes["dilation"] = [
            draw(st.integers(1, max(1, (extent - 1) // max(1, window - 1))))
            for extent, window in zip(x.shape[2:], size, strict=True)
        ]
        expected = F.max_pool2d(x, size, strides, (top, left), attributes["dilation"], ceil_mode)
    else:
        padded = torch.full((*x.shape[:2], x.shape[2] + top + bottom, x.shape[3] + left + right), -math.inf)
        padded[:, :, top : top + x.shape[2], left : left + x.shape[3]] = x
        expected = F.max_pool2d(padded, size, strides, ceil_mode=ceil_mode)
    return _run("relax.nn.max_pool2d", attributes, x), expected


@_check("relax.nn.avg_pool2d")
def _avg_pool2d(draw: Draw) -> tuple[Tensor, Tensor]:
    x, attributes = _pool(draw, symmetric=True)
    expected = F.avg_pool2d(
        x,
        attributes["pool_size"],
        attributes["strides"],
        attributes["padding"][:2],
        attributes["ceil_mode"],
        attributes["count_include_pad"],
    )
    return _run("relax.nn.avg_pool2d", attributes, x), expected


@_check("relax.nn.adaptive_avg_pool2d")
def _adaptive_avg_pool2d(draw: Draw) -> tuple[Tensor, Tensor]:
    size = [draw(st.integers(1, 4)), draw(st.integers(1, 4))]
    x = _tensor(draw, 2, 3, draw(_SIZES), draw(_SIZES))
    attributes = {"output_size": size, "layout": "NCHW", "out_layout": "NCHW"}
    return _run("relax.nn.adaptive_avg_pool2d", attributes, x), F.adaptive_avg_pool2d(x, (size[0], size[1]))


@_check("relax.nn.batch_norm")
def _batch_norm(draw: Draw) -> tuple[Tensor, Tensor]:
    channels, epsilon = draw(st.integers(1, 4)), draw(st.sampled_from([1e-5, 1e-3, 0.1]))
    x = _tensor(draw, 2, channels, *draw(st.sampled_from([(), (3,), (2, 3)])))
    gamma, beta, mean = (_tensor(draw, channels) for _ in range(3))
    variance = _tensor(draw, channels).abs()
    attributes = {"axis": 1, "epsilon": epsilon, "center": True, "scale": True, "momentum": 0.1, "training": False}
    column = (channels, *[1] * (x.ndim - 2))
    g, b, m, v = (tensor.reshape(column) for tensor in (gamma, beta, mean, variance))
    expected = (x - m) / torch.sqrt(v + epsilon) * g + b
    return _run("relax.nn.batch_norm", attributes, x, gamma, beta, mean, variance), expected


@_check("relax.concat")
def _concat(draw: Draw) -> tuple[Tensor, Tensor]:
    axis = draw(st.sampled_from([None, 0, 1, 2, -1]))
    shape = [draw(_SIZES)] if axis is None else [draw(_SIZES) for _ in range(3)]
    tensors = []
    for _ in range(draw(st.integers(1, 4))):
        shape[axis or 0] = draw(_SIZES)
        tensors.append(_tensor(draw, *shape))
    return _run("relax.concat", {"axis": axis}, *tensors), torch.cat(tensors, axis or 0)


@_check("relax.reshape")
def _reshape(draw: Draw) -> tuple[Tensor, Tensor]:
    x = _tensor(draw, draw(_SIZES), 4, 6)
    if draw(st.booleans()):
        x = x.transpose(0, 2)  # not contiguous
    shape = draw(st.sampled_from([[x.numel()], [24, x.numel() // 24], [2, x.numel() // 8, 4], [1, -1, 3]]))
    return _run("relax.reshape", {"shape": shape}, x), x.contiguous().view(shape)


@_check("relax.permute_dims")
def _permute_dims(draw: Draw) -> tuple[Tensor, Tensor]:
    axes = draw(st.one_of(st.none(), st.permutations(range(4))))
    x = _tensor(draw, *(draw(_SIZES) for _ in range(4)))
    letters = "abcd"
    order = letters[::-1] if axes is None else "".join(letters[axis] for axis in axes)
    return _run("relax.permute_dims", {"axes": axes}, x), torch.einsum(f"{letters}->{order}", x)


@_check("relax.nn.softmax")
def _softmax(draw: Draw) -> tuple[Tensor, Tensor]:
    axis = draw(st.integers(-3, 2))
    x = 10 * _tensor(draw, *(draw(_SIZES) for _ in range(3)))
    exponential = torch.exp(x - x.amax(axis, keepdim=True))
    return _run("relax.nn.softmax", {"axis": axis}, x), exponential / exponential.sum(axis, keepdim=True)


@_check("relax.mean")
def _mean(draw: Draw) -> tuple[Tensor, Tensor]:
    axes = draw(st.one_of(st.none(), st.lists(st.integers(0, 3), min_size=1, unique=True)))
    keepdims = draw(st.booleans())
    x = _tensor(draw, *(draw(_SIZES) for _ in range(4)))
    every = list(range(4)) if axes is None else axes
    count = math.prod(x.shape[axis] for axis in every)
    return _run("relax.mean", {"axis": axes, "keepdims": keepdims}, x), x.sum(every, keepdims) / count


_OPERATOR: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relax.add": lambda x, y: x + y,
    "relax.subtract": lambda x, y: x - y,
    "relax.multiply": lambda x, y: x * y,
    "relax.divide": lambda x, y: x / y,
}
_FUNCTION: dict[str, Callable[[Tensor], Tensor]] = {
    "relax.nn.relu": lambda x: x.clamp(min=0),
    "relax.sigmoid": lambda x: 1 / (1 + torch.exp(-x)),
    "relax.tanh": lambda x: 1 - 2 / (torch.exp(2 * x) + 1),
    "relax.nn.silu": lambda x: x / (1 + torch.exp(-x)),
}


def _binary(name: str) -> Check:
    def check(draw: Draw) -> tuple[Tensor, Tensor]:
        shape = [draw(_SIZES) for _ in range(3)]
        other = draw(st.sampled_from([shape, shape[1:], [1, *shape[1:]], [shape[0], 1, 1], [1]]))
        operands = [_tensor(draw, *shape), _tensor(draw, *other) + 3.0]
        if draw(st.booleans()):
            operands.reverse()
        return _run(name, {}, *operands), _OPERATOR[name](operands[0], operands[1])

    return check


def _unary(name: str) -> Check:
    def check(draw: Draw) -> tuple[Tensor, Tensor]:
        x = 3 * _tensor(draw, *(draw(_SIZES) for _ in range(draw(st.integers(0, 4)))))
        return _run(name, {}, x), _FUNCTION[name](x)

    return check


CHECKS.update({name: _binary(name) for name in _OPERATOR})
CHECKS.update({name: _unary(name) for name in _FUNCTION})


@_check("relax.matmul")
def _matmul(draw: Draw) -> tuple[Tensor, Tensor]:
    batch, rows, inner, columns = (draw(_SIZES) for _ in range(4))
    attributes = {"out_dtype": "void"}
    if draw(st.booleans()):
        x, y = _tensor(draw, rows, inner), _tensor(draw, inner, columns)
        return _run("relax.matmul", attributes, x, y), torch.einsum("ik,kj->ij", x, y)
    x, y = _tensor(draw, batch, rows, inner), _tensor(draw, batch, inner, columns)
    return _run("relax.matmul", attributes, x, y), torch.einsum("bik,bkj->bij", x, y)


@pytest.mark.parametrize(("name", "expected"), [("relax.add", 5.0), ("relax.subtract", 1.0), ("relax.divide", 1.5)])
def test_numbers_are_operands(name: str, expected: float) -> None:
    """A number stands for a tensor on either side."""
    run = build(name, {}, "test")
    torch.testing.assert_close(run(torch.tensor([3.0]), 2.0), torch.tensor([expected]))


_CONV = {"strides": [1, 1], "padding": [0, 0, 0, 0], "dilation": [1, 1], "groups": 1}
_POOL = {"pool_size": [2, 2], "ceil_mode": False, "count_include_pad": True, **_CONV}


@pytest.mark.parametrize(
    ("function", "attributes", "message"),
    [
        ("relax.nn.conv2d", {**_CONV, "data_layout": "NHWC"}, "data_layout NHWC is not supported, only NCHW"),
        ("relax.nn.conv2d", {**_CONV, "kernel_layout": "HWIO"}, "kernel_layout HWIO is not supported, only OIHW"),
        ("relax.nn.max_pool2d", {**_POOL, "layout": "NHWC"}, "layout NHWC is not supported, only NCHW"),
        ("relax.nn.avg_pool2d", {**_POOL, "layout": "NHWC"}, "layout NHWC is not supported, only NCHW"),
        ("relax.nn.avg_pool2d", {**_POOL, "padding": [0, 0, 1, 1]}, r"padding \[0, 0, 1, 1\] is not supported"),
        ("relax.nn.avg_pool2d", {**_POOL, "dilation": [2, 1]}, r"dilation \[2, 1\] is not supported, only 1"),
        ("relax.nn.adaptive_avg_pool2d", {"output_size": [1, 1], "layout": "NHWC"}, "layout NHWC is not supported"),
        ("relax.nn.batch_norm", {"axis": 3, "epsilon": 1e-5}, "axis 3 is not supported, only 1"),
    ],
)
def test_unsupported_attributes_are_named(function: str, attributes: dict[str, Any], message: str) -> None:
    """Attributes that the table cannot run name the operator of the graph, the function and the value."""
    with pytest.raises(UnsupportedError, match=f"operator stem: {function}: {message}"):
        build(function, attributes, "stem")


def test_unknown_function_is_named() -> None:
    """A function without an entry says where to add one."""
    with pytest.raises(
        UnsupportedError, match=r"operator stem: the kernel table has no entry for relax\.erf; add a builder"
    ):
        build("relax.erf", {}, "stem")


def test_table_refuses_duplicates() -> None:
    """A function stands in the table once."""
    before = dict(KERNELS)
    with pytest.raises(ValueError, match=r"has an entry for relax\.add already"):
        kernel("relax.add")(before["relax.add"])
    assert before == KERNELS
