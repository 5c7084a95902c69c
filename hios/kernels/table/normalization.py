"""Normalizations and softmax."""

from __future__ import annotations

from operator import itemgetter

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from hios.errors import UnsupportedError
from hios.kernels.table.attributes import only
from hios.kernels.table.kernel_registry import Attributes, Kernel, kernel, plain


def _require_affine(attributes: Attributes) -> None:
    only(attributes, "center", True)
    only(attributes, "scale", True)


@kernel("relax.nn.batch_norm", allocates=True)
def _batch_norm(attributes: Attributes) -> Kernel:
    only(attributes, "axis", 1)
    only(attributes, "training", False)
    _require_affine(attributes)
    epsilon = attributes["epsilon"]

    # Relax returns (output, mean, variance); in inference only the output exists, see hios.frontends.relax_calls.
    def batch_norm(x: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        return F.batch_norm(x, mean, variance, gamma, beta, training=False, eps=epsilon)

    return batch_norm


@kernel("relax.nn.layer_norm", allocates=True)
def _layer_norm(attributes: Attributes) -> Kernel:
    _require_affine(attributes)
    axes, epsilon = tuple(attributes["axes"]), attributes["epsilon"]
    last = tuple(range(-len(axes), 0))
    if axes == last:
        return lambda x, gamma, beta: F.layer_norm(x, gamma.shape, gamma, beta, epsilon)
    return lambda x, gamma, beta: F.layer_norm(x.movedim(axes, last), gamma.shape, gamma, beta, epsilon).movedim(
        last, axes
    )


@kernel("relax.nn.rms_norm", allocates=True)
def _rms_norm(attributes: Attributes) -> Kernel:
    axes, epsilon = tuple(attributes["axes"]), attributes["epsilon"]
    last = tuple(range(-len(axes), 0))
    return lambda x, weight: F.rms_norm(x.movedim(axes, last), weight.shape, weight, epsilon).movedim(last, axes)


@kernel("relax.nn.group_norm", allocates=True)
def _group_norm(attributes: Attributes) -> Kernel:
    only(attributes, "channel_axis", 1)
    _require_affine(attributes)
    groups, epsilon = attributes["num_groups"], attributes["epsilon"]
    axes = tuple(attributes["axes"])

    def group_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        _require_axes(axes, x, first=2)
        return F.group_norm(x, groups, gamma, beta, epsilon)

    return group_norm


@kernel("relax.nn.instance_norm", allocates=True)
def _instance_norm(attributes: Attributes) -> Kernel:
    only(attributes, "channel_axis", 1)
    _require_affine(attributes)
    axes, epsilon = tuple(attributes["axes"]), attributes["epsilon"]
    # Torch's exporter lays the batch into the channels; Relax's importer then names the batch an axis.
    if 0 in axes:

        def run(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
            _require_axes(axes[1:], x, first=2)
            return F.batch_norm(x, None, None, gamma, beta, training=True, eps=epsilon)

    else:

        def run(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
            _require_axes(axes, x, first=2)
            return F.instance_norm(x, weight=gamma, bias=beta, eps=epsilon)

    return run


def _require_axes(axes: tuple[int, ...], x: Tensor, first: int) -> None:
    if sorted(axis % x.ndim for axis in axes) != list(range(first, x.ndim)):
        raise UnsupportedError(f"axes {list(axes)} of a tensor of {x.ndim} dimensions are not supported, only all")


plain("relax.nn.softmax", torch.softmax, itemgetter("axis"))
plain("relax.nn.log_softmax", torch.log_softmax, itemgetter("axis"))
