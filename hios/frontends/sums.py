"""Sums of several values: into the unit that alone reads them, or one unit each.

The counting rule of the papers has no operator for the sum of a consumer's inputs: engines add while they read. A
sum that several operators read is an operator of its own, and so is one that a module of its own makes: a model's way
to say so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from hios.frontends.calls import Call, described, is_constant

_ADD, _SCALE, _DIVIDE = "relax.add", "relax.multiply", "relax.divide"


class SumFolder:
    """Finds sums that belong to their reader.

    Args:
        readers: the calls that read each call, None standing for the outputs of the network.
    """

    def __init__(self, readers: Mapping[Call, Sequence[Call | None]]) -> None:
        self._readers = readers

    def read_by(self, calls: Sequence[Call], free: Collection[Call]) -> list[Call]:
        """The calls of all sums that nothing but these calls read.

        Args:
            calls: of one unit.
            free: calls that are units by themselves so far.
        """
        found: list[Call] = []
        for call in calls:
            for argument in call.arguments:
                if _is_sum(argument) and self._belongs(argument, call, calls, free) and argument not in found:
                    found += [argument, *self.terms_of(argument, free)]
        return found

    def terms_of(self, root: Call, free: Collection[Call]) -> list[Call]:
        """The sums and scaled values that a sum alone adds up, at any depth."""
        found: list[Call] = []
        waiting = [root]
        while waiting:
            reader = waiting.pop()
            for argument in reader.arguments:
                part = _is_sum(argument) or (reader.function == _ADD and _is_scaled(argument))
                if part and argument not in found and self._belongs(argument, reader, [reader], free):
                    found.append(argument)
                    waiting.append(argument)
        return found

    def is_root(self, call: Call) -> bool:
        """Whether a call is a sum, or the division of a sum by a number: an average."""
        if call.function == _ADD:
            return _is_sum(call)
        dividend, *divisor = call.arguments or [None]
        return call.function == _DIVIDE and _is_sum(dividend) and all(map(is_constant, divisor))

    def _belongs(self, part: Call, reader: Call, unit: Sequence[Call], free: Collection[Call]) -> bool:
        """Whether nothing outside the unit reads the part, and the module of its reader, or one around it, makes it."""
        return (
            part in free
            and all(other in unit for other in self._readers[part])
            and _around(_module(part), _module(reader))
        )


def _is_sum(value: Any) -> bool:
    """Whether a value is the sum of two values, neither a weight."""
    return isinstance(value, Call) and value.function == _ADD and not any(map(is_constant, value.arguments))


def _is_scaled(value: Any) -> bool:
    """Whether a value is another times a single number, a weight or a literal."""
    if not isinstance(value, Call) or value.function != _SCALE:
        return False
    return any(is_constant(factor) and math.prod(described(factor)[0]) == 1 for factor in value.arguments)


def _module(call: Call) -> str:
    return call.origin.module if call.origin is not None else ""


def _around(outer: str, inner: str) -> bool:
    return outer in ("", inner) or inner.startswith(f"{outer}.")
