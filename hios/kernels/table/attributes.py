"""Reading attributes of Relax operators, and refusing values that torch does not support."""

from __future__ import annotations

from typing import Any

import torch

from hios.errors import UnsupportedError, shown
from hios.kernels.table.kernel_registry import Attributes, Kernel

#: Values by which Relax says that an operator keeps the dtype of its arguments, or the layout of its input.
_UNSET = (None, "", "void")


def refuse(name: str, value: Any, allowed: str) -> UnsupportedError:
    """The error for an attribute value that torch does not support."""
    return UnsupportedError(f"{name} {value} is not supported, only {allowed}")


def only(attributes: Attributes, name: str, allowed: Any) -> None:
    """Refuse all but one value of an attribute; it may also be missing or unset.

    Raises:
        UnsupportedError: it has another value.
    """
    value = attributes.get(name, allowed)
    if value != allowed and value not in _UNSET:
        raise refuse(name, value, str(allowed))


def axes_of(attributes: Attributes, name: str = "axis") -> tuple[int, ...] | None:
    """Axes as a tuple; None for all of them."""
    value = attributes[name]
    if value is None:
        return None
    return (value,) if isinstance(value, int) else tuple(value)


def dtype_of(attributes: Attributes, name: str = "dtype") -> torch.dtype | None:
    """Torch's dtype of an attribute; None if unset.

    Raises:
        UnsupportedError: torch has no such dtype.
    """
    value = attributes.get(name)
    if value in _UNSET:
        return None
    dtype = getattr(torch, value, None)
    if not isinstance(dtype, torch.dtype):
        raise refuse(name, value, "dtypes of torch")
    return dtype


def cast(run: Kernel, dtype: torch.dtype | None) -> Kernel:
    """A kernel whose result has a given dtype; without one, the kernel itself."""
    if dtype is None:
        return run

    def run_and_cast(*tensors: Any) -> Any:
        result = run(*tensors)
        return result if result.dtype is dtype else result.to(dtype)

    return run_and_cast


def sizes(attributes: Attributes, name: str, count: int, least: int = 1) -> tuple[int, ...]:
    """Whole numbers, one for each of some axes, such as strides.

    A stride of 0 would end the process: oneDNN divides by it.

    Raises:
        UnsupportedError: there are more or fewer, or one is not an integer or too small.
    """
    value = attributes[name]
    if (
        not isinstance(value, list | tuple)
        or len(value) != count
        or not all(type(size) is int and size >= least for size in value)
    ):
        raise refuse(name, shown(value), f"{count} whole numbers of at least {least}")
    return tuple(value)


def count(attributes: Attributes, name: str) -> int:
    """An integer of at least 1, such as groups.

    Raises:
        UnsupportedError: it is another value.
    """
    value = attributes[name]
    if type(value) is not int or value < 1:
        raise refuse(name, shown(value), "whole numbers of at least 1")
    return value


def split_padding(padding: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Padding for torch, and an explicit one for ``F.pad`` where the two sides of an axis differ (then it is 0).

    Args:
        padding: of Relax: first before each axis, then after each, such as top, left, bottom, right.
    """
    half = len(padding) // 2
    before, behind = tuple(padding[:half]), tuple(padding[half:])
    if before == behind:
        return before, None
    return (0,) * half, explicit_padding(padding)


def explicit_padding(padding: Any) -> tuple[int, ...]:
    """Relax's padding as ``F.pad`` takes it: both sides of the last axis first."""
    half = len(padding) // 2
    pairs = zip(reversed(padding[:half]), reversed(padding[half:]), strict=True)
    return tuple(side for pair in pairs for side in pair)
