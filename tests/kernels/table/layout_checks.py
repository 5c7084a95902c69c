"""Arrangements of elements, and reading and writing at places, against numpy's and loops."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import SIZES, Draw, Run, check, integers, normal, shape_of, whole


def _numpy(function: Any, *arguments: Any, **more: Any) -> Any:
    result = function(*(value.numpy() if isinstance(value, Tensor) else value for value in arguments), **more)
    if isinstance(result, list | tuple):
        return tuple(torch.from_numpy(np.array(part)) for part in result)
    return torch.from_numpy(np.array(result, order="C"))


@check("concat")
def _concat(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    axis = draw(st.sampled_from([None, 0, 1, 2, -1]))
    shape = shape_of(draw, 1 if axis is None else 3)
    tensors = []
    for _ in range(draw(st.integers(1, 4))):
        shape[axis or 0] = draw(SIZES)
        tensors.append(normal(draw, *shape))
    expected = torch.from_numpy(np.concatenate([tensor.numpy() for tensor in tensors], axis or 0))
    return run({"axis": axis}, *tensors), expected


@check("stack")
def _stack(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    axis, shape = draw(st.sampled_from([None, 0, 1, 2, -1])), shape_of(draw, 2)
    tensors = [normal(draw, *shape) for _ in range(draw(st.integers(1, 4)))]
    expected = torch.from_numpy(np.stack([tensor.numpy() for tensor in tensors], axis or 0))
    return run({"axis": axis}, *tensors), expected


@check("split")
def _split(draw: Draw, run: Run) -> tuple[Any, Any]:
    axis = draw(st.integers(-2, 1))
    x = normal(draw, 8, 8)
    if draw(st.booleans()):
        places = sorted(integers(draw, 0, 8, draw(st.integers(1, 3))))
        return run({"indices_or_sections": places, "axis": axis}, x), _numpy(np.split, x, places, axis)
    sections = draw(st.integers(1, 4))
    size = -(-8 // sections)
    places = list(range(size, 8, size))
    return run({"indices_or_sections": sections, "axis": axis}, x), _numpy(np.split, x, places, axis)


@check("reshape")
def _reshape(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x = normal(draw, draw(SIZES), 4, 6)
    if draw(st.booleans()):
        x = x.transpose(0, 2)  # not contiguous
    shape = draw(st.sampled_from([[x.numel()], [24, x.numel() // 24], [2, x.numel() // 8, 4], [1, -1, 3]]))
    return run({"shape": shape}, x), _numpy(np.reshape, x, shape)


@check("flatten")
def _flatten(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x = normal(draw, *shape_of(draw, draw(st.integers(0, 3))))
    return run({}, x), _numpy(np.ravel, x)


@check("nn.batch_flatten")
def _batch_flatten(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x = normal(draw, *shape_of(draw, draw(st.integers(2, 4))))
    return run({}, x), _numpy(np.reshape, x, (len(x), -1))


@check("expand_dims")
def _expand_dims(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x = normal(draw, *shape_of(draw, 2))
    axes = draw(st.lists(st.integers(0, 3), min_size=2, max_size=2, unique=True))
    axes = [axis - 4 if draw(st.booleans()) else axis for axis in axes]
    return run({"axis": axes}, x), _numpy(np.expand_dims, x, tuple(axes))


@check("squeeze")
def _squeeze(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x = normal(draw, 1, draw(SIZES), 1, draw(SIZES))
    axes = draw(st.sampled_from([None, [0], [2], [0, 2], [-2], [-4, 2]]))
    return run({"axis": axes}, x), _numpy(np.squeeze, x, None if axes is None else tuple(axes))


@check("permute_dims")
def _permute_dims(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    axes = draw(st.one_of(st.none(), st.permutations(range(4))))
    x = normal(draw, *shape_of(draw, 4))
    return run({"axes": axes}, x), _numpy(np.transpose, x, axes)


@check("broadcast_to")
def _broadcast_to(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    shape = shape_of(draw, 3)
    x = normal(draw, *draw(st.sampled_from([shape, shape[1:], [1, *shape[1:]], [shape[1], 1], []])))
    return run({"shape": shape}, x), _numpy(np.broadcast_to, x, shape)


@check("meshgrid")
def _meshgrid(draw: Draw, run: Run) -> tuple[Any, Any]:
    tensors = [normal(draw, size) for size in shape_of(draw, draw(st.integers(2, 3)))]
    indexing = draw(st.sampled_from([None, "ij", "xy"]))
    return run({"indexing": indexing}, *tensors), _numpy(np.meshgrid, *tensors, indexing=indexing or "ij")


@check("tile")
def _tile(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, repeats = normal(draw, *shape_of(draw, 2)), integers(draw, 1, 3, draw(st.integers(1, 3)))
    return run({"repeats": repeats}, x), _numpy(np.tile, x, repeats)


@check("repeat")
def _repeat(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, repeats = normal(draw, *shape_of(draw, 2)), draw(st.integers(1, 3))
    axis = draw(st.sampled_from([None, 0, 1, -1]))
    return run({"repeats": repeats, "axis": axis}, x), _numpy(np.repeat, x, repeats, axis)


@check("flip")
def _flip(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, axis = normal(draw, *shape_of(draw, 3)), draw(st.integers(-3, 2))
    return run({"axis": axis}, x), _numpy(np.flip, x, axis)


_MODES = {"constant": "constant", "reflect": "reflect", "edge": "edge", "circular": "wrap"}


@check("nn.pad")
def _pad(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, mode, value = normal(draw, *integers(draw, 3, 6, 4)), draw(st.sampled_from(sorted(_MODES))), 0.0
    width = [0, 0, 0, 0, *integers(draw, 0, 2, 4)]
    more: dict[str, Any] = {}
    if mode == "constant":
        width[:4] = integers(draw, 0, 2, 4)
        value = more["constant_values"] = draw(st.sampled_from([0.0, -1.5]))
    pairs = list(zip(width[::2], width[1::2], strict=True))
    attributes = {"pad_width": width, "pad_value": value, "pad_mode": mode}
    return run(attributes, x), _numpy(np.pad, x, pairs, _MODES[mode], **more)


@check("nn.pixel_shuffle")
def _pixel_shuffle(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    factor, (channels, height, width) = draw(st.integers(1, 3)), shape_of(draw, 3)
    x = normal(draw, 2, channels * factor**2, height, width)
    parts = x.reshape(2, channels, factor, factor, height, width).permute(0, 1, 4, 2, 5, 3)
    expected = parts.reshape(2, channels, height * factor, width * factor)
    return run({"upscale_factor": factor}, x), expected


_TO_THE_END = 2**63 - 1


@check("strided_slice")
def _strided_slice(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x = normal(draw, *shape_of(draw, 3))
    axes = draw(st.lists(st.integers(0, 2), min_size=1, unique=True))
    begin, end = (integers(draw, -8, 8, len(axes)) for _ in range(2))
    end = [draw(st.sampled_from([place, _TO_THE_END])) for place in end]
    strides = [draw(st.sampled_from([1, 2, -1, -2])) for _ in axes]
    slices = [slice(None)] * 3
    for axis, first, last, step in zip(axes, begin, end, strides, strict=True):
        slices[axis] = slice(first, last, step)
    attributes = {"axes": axes, "begin": begin, "end": end, "strides": strides, "assume_inbound": False}
    if set(strides) == {1} and draw(st.booleans()):
        del attributes["strides"]
    return run(attributes, x), torch.from_numpy(x.numpy()[tuple(slices)].copy())


@check("take")
def _take(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    axis, mode = draw(st.sampled_from([None, 0, 1, 2, -1])), draw(st.sampled_from(["fast", "clip", "wrap"]))
    x = normal(draw, *shape_of(draw, 1 if axis is None else 3))
    size = x.shape[axis or 0]
    least, most = (-size, size) if mode == "fast" else (-9, 9)
    indices: Any = whole(draw, least, most, *shape_of(draw, draw(st.integers(1, 2))))
    indices = draw(st.sampled_from([indices, indices.int(), indices.flatten()[0].item()]))
    # numpy's ``raise`` counts negative indices from the end, as torch does; its ``clip`` takes them for 0.
    expected = np.take(x.numpy(), np.asarray(indices), axis, mode="raise" if mode == "fast" else mode)
    return run({"axis": axis, "mode": mode}, x, indices), torch.from_numpy(np.asarray(expected))


@check("index_tensor")
def _index_tensor(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x = normal(draw, *shape_of(draw, 3))
    indices = [
        whole(draw, -size, size, *shape)
        for size, shape in zip(
            x.shape, draw(st.sampled_from([[(2, 3)], [(2, 1), (3,)], [(2,), (2,), (1,)]])), strict=False
        )
    ]
    expected = torch.from_numpy(x.numpy()[tuple(index.numpy() for index in indices)])
    return run({}, x, *indices), expected


@check("index_put")
def _index_put(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, accumulate, count = normal(draw, *shape_of(draw, 2)), draw(st.booleans()), draw(st.integers(1, 3))
    places = draw(st.lists(st.tuples(*(st.integers(0, size - 1) for size in x.shape)), min_size=1, max_size=count))
    if not accumulate:
        places = list(dict.fromkeys(places))  # which of two writes lasts is not defined
    values = normal(draw, len(places))
    expected = x.clone()
    for (row, column), value in zip(places, values, strict=True):
        expected[row, column] = value + (expected[row, column] if accumulate else 0)
    indices = [torch.tensor(part) for part in zip(*places, strict=True)]
    return run({"accumulate": accumulate}, x, *indices, values), expected


@check("gather_elements")
def _gather_elements(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, axis = normal(draw, *shape_of(draw, 3)), draw(st.integers(-3, 2))
    shape = [*x.shape]
    shape[axis] = draw(SIZES)
    indices = whole(draw, 0, x.shape[axis], *shape)
    expected = torch.from_numpy(np.take_along_axis(x.numpy(), indices.numpy(), axis))
    return run({"axis": axis}, x, draw(st.sampled_from([indices, indices.int()]))), expected


@check("gather_nd")
def _gather_nd(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, depth = normal(draw, *shape_of(draw, 3)), draw(st.integers(1, 3))
    indices = torch.stack([whole(draw, 0, size, 2, 4) for size in x.shape[:depth]], -1)
    expected = torch.stack([torch.stack([x[tuple(place)] for place in row]) for row in indices.tolist()])
    return run({"batch_dims": 0}, x, indices), expected


@check("scatter_elements")
def _scatter_elements(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, axis = normal(draw, *shape_of(draw, 2)), draw(st.integers(-2, 1))
    reduction = draw(st.sampled_from(["update", "add", "mul", "mean", "max", "min"]))
    # Along the axis each place once if it is overwritten.
    order = torch.argsort(normal(draw, *x.shape), axis)
    indices = order if reduction == "update" else whole(draw, 0, x.shape[axis], *x.shape)
    updates = normal(draw, *indices.shape)
    candidates: dict[tuple[int, ...], list[float]] = {}
    for place in itertools.product(*map(range, indices.shape)):
        target = list(place)
        target[axis] = int(indices[place])
        candidates.setdefault(tuple(target), [float(x[tuple(target)])]).append(float(updates[place]))
    reduce: dict[str, Any] = {"update": lambda values: values[-1], "add": sum, "mul": np.prod, "mean": np.mean}
    expected = x.clone()
    for element, values in candidates.items():
        expected[element] = float({**reduce, "max": max, "min": min}[reduction](values))
    return run({"axis": axis, "reduction": reduction}, x, indices, updates), expected


@check("scatter_nd")
def _scatter_nd(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, reduction = normal(draw, 5, *shape_of(draw, 1)), draw(st.sampled_from(["update", "add"]))
    rows = draw(st.lists(st.integers(0, 4), min_size=1, unique=reduction == "update"))
    updates = normal(draw, len(rows), x.shape[1])
    expected = x.clone()
    for row, update in zip(rows, updates, strict=True):
        expected[row] = update if reduction == "update" else expected[row] + update
    return run({"reduction": reduction}, x, torch.tensor(rows)[:, None], updates), expected


@check("slice_scatter")
def _slice_scatter(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    x, axis = normal(draw, 6, 6), draw(st.integers(-2, 1))
    start, step = draw(st.integers(0, 4)), draw(st.integers(1, 3))
    end = draw(st.sampled_from([6, start + 1, _TO_THE_END]))
    expected = x.clone()
    chosen = expected.movedim(axis, 0)[start:end:step]
    source = normal(draw, *chosen.movedim(0, axis).shape)
    chosen.copy_(source.movedim(axis, 0))
    return run({"axis": axis}, x, source, start, end, step), expected


@check("one_hot")
def _one_hot(draw: Draw, run: Run) -> tuple[Tensor, Tensor]:
    indices, depth = whole(draw, -2, 6, *shape_of(draw, 2)), draw(st.integers(1, 6))
    axis, (on, off) = draw(st.integers(-3, 2)), draw(st.sampled_from([(1, 0), (2.5, -0.1)]))
    table = np.where(np.arange(depth) == indices.numpy()[..., None], on, off)
    expected = torch.from_numpy(np.moveaxis(table, -1, axis).copy())
    return run({"depth": depth, "axis": axis}, indices, on, off), expected
