"""The registry of the table: builders by Relax operator name, and which of them overwrite or allocate memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hios.errors import UnsupportedError

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
    """The torch call of a Relax operator; ``place`` is the operator of the graph that needs it, for the message.

    Raises:
        UnsupportedError: the table has no entry, or not for these attributes, or one that it needs is missing.
    """
    if function not in KERNELS:
        raise UnsupportedError(
            f"operator {place}: the kernel table has no entry for {function}; add a builder to hios/kernels/table"
        )
    try:
        return KERNELS[function](attributes)
    except UnsupportedError as error:
        raise UnsupportedError(f"operator {place}: {function}: {error}") from None
    except KeyError as error:
        raise UnsupportedError(f"operator {place}: {function}: the attribute {error.args[0]} is missing") from None
    except (TypeError, ValueError, AttributeError) as error:  # attributes of other types than Relax writes
        raise UnsupportedError(f"operator {place}: {function}: its attributes cannot be read: {error}") from None
