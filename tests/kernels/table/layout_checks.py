"""Arrangements of elements against numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.kernels.table.checks import SIZES, Draw, Run, check, integers, normal, shape_of


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
