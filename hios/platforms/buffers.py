"""Buffers of the arena as tensors, and values copied into them."""

from __future__ import annotations

import ctypes

from torch import Tensor

from hios.errors import PlatformError
from hios.kernels.tensors import torch_dtype
from hios.platforms.device_program import Buffer
from hios.workers.arena import Arena


def arena_tensor(arena: Arena, buffer: Buffer) -> Tensor:
    """A buffer as a tensor."""
    return arena.tensor(buffer.offset, buffer.shape, torch_dtype(buffer.dtype))


def deliver(value: Tensor, buffer: Tensor) -> None:
    """Copy a value into its buffer, refusing shapes or dtypes that ``copy_`` would broadcast or convert.

    Raises:
        PlatformError: shape or dtype are not those that the graph states.
    """
    if value.shape != buffer.shape or value.dtype != buffer.dtype:
        raise PlatformError(
            f"found a value of shape {tuple(value.shape)} and {value.dtype}; the graph states "
            f"{tuple(buffer.shape)} and {buffer.dtype}"
        )
    buffer.copy_(value)


def copy_alone(value: Tensor, target: Tensor) -> Tensor:
    """Copy a tensor into a contiguous one of the same shape and dtype, on the calling thread only.

    ``copy_`` splits large tensors over the threads of torch, and those spin on for milliseconds on cores that the
    workers need.
    """
    if value.is_contiguous() and not value.is_conj() and not value.is_neg():
        ctypes.memmove(target.data_ptr(), value.data_ptr(), value.nbytes)
    else:
        target.copy_(value.detach())
    return target
