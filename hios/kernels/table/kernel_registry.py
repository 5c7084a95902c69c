"""The registry of the table: builders by Relax operator name; reading attributes, and refusing what torch lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from hios.errors import UnsupportedError, shown
from hios.kernels.table import aten, onnx_node

Attributes = Mapping[str, Any]
Kernel = Callable[..., Any]
Builder = Callable[[Attributes], Kernel]

#: Builders by Relax operator name.
KERNELS: dict[str, Builder] = {}

#: Builders of kernels that overwrite their argument, where a call of ``ALLOCATES`` made it and nothing else reads it.
IN_PLACE: dict[str, Builder] = {}

#: Calls whose result is memory of its own, never a view of an argument.
ALLOCATES: set[str] = set()


def kernel(*names: str, allocates: bool = False) -> Callable[[Builder], Builder]:
    """Register a builder for Relax operators; ``allocates``: whether the result is never a view of an argument.

    Raises:
        ValueError: a name has an entry already.
    """

    def decorate(builder: Builder) -> Builder:
        for name in names:
            if name in KERNELS:
                raise ValueError(f"the kernel table has an entry for {name} already")
            KERNELS[name] = builder
            if allocates:
                ALLOCATES.add(name)
        return builder

    return decorate


def plain(name: str, function: Kernel, *readers: Callable[[Attributes], Any], allocates: bool = True) -> None:
    """Register a torch function of the operator's tensors, followed by what readers find in its attributes."""

    def builder(attributes: Attributes) -> Kernel:
        values = [read(attributes) for read in readers]
        return lambda *tensors: function(*tensors, *values)

    kernel(name, allocates=allocates)(builder if readers else always(function))


def always(function: Kernel) -> Builder:
    """A builder that returns the same kernel for all attributes."""
    return lambda attributes: function


def build(function: str, attributes: Attributes, place: str) -> Kernel:
    """The torch call of an operator; ``place`` is the operator of the graph that needs it, for the message.

    Raises:
        UnsupportedError: the table has no entry, or not for these attributes, or one that it needs is missing.
    """
    opaque = next((kind.build for kind in (aten, onnx_node) if function.startswith(kind.PREFIX)), None)
    if opaque is None and function not in KERNELS:
        raise UnsupportedError(
            f"operator {place}: the kernel table has no entry for {function}; add a builder to hios/kernels/table"
        )
    try:
        return KERNELS[function](attributes) if opaque is None else opaque(function, attributes)
    except UnsupportedError as error:
        raise UnsupportedError(f"operator {place}: {function}: {error}") from None
    except KeyError as error:
        raise UnsupportedError(f"operator {place}: {function}: the attribute {error.args[0]} is missing") from None
    except (TypeError, ValueError, AttributeError) as error:  # attributes of other types than extraction writes
        raise UnsupportedError(f"operator {place}: {function}: its attributes cannot be read: {error}") from None


#: Values by which Relax says that an operator keeps the dtype of its arguments, or the layout of its input.
_UNSET = (None, "", "void")


def refuse(name: str, value: Any, allowed: str) -> UnsupportedError:
    """The error for an attribute value that torch does not support."""
    return UnsupportedError(f"{name} {value} is not supported, only {allowed}")


def only(attributes: Attributes, name: str, allowed: Any) -> None:
    """Refuse all but one value of an attribute, by an `UnsupportedError`; it may also be missing or unset."""
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
    """Torch's dtype of an attribute; None if unset, an `UnsupportedError` if torch has none of that name."""
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
    """An integer of at least 1, such as groups; an `UnsupportedError` if it is another value."""
    value = attributes[name]
    if type(value) is not int or value < 1:
        raise refuse(name, shown(value), "whole numbers of at least 1")
    return value


def split_padding(padding: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Padding for torch, and an explicit one for ``F.pad`` where the two sides of an axis differ (then it is 0).

    Relax's padding is first before each axis, then after each, such as top, left, bottom, right.
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
