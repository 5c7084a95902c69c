"""Grouping the calls of a Relax function into scheduling units.

The counting rule of the papers has no operator for the sum of a consumer's inputs: engines add while they read. So a
sum joins the unit that reads it if no other does. A sum that several operators read is an operator of its own, and so
is one that has a submodule of its own, which is how a model can request it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.relax.dpl.pattern import WildcardPattern

from hios.frontends.patterns import UNITS, FusionPattern
from hios.frontends.relax_calls import Lowered, RelaxCall, described, is_constant


@dataclass(eq=False)
class Unit:
    """A scheduling unit: its type, its calls in order, and the call that produces its output.

    Before folding ``output`` is the last of the calls; other units refer to it by that call.
    """

    type: str
    calls: list[RelaxCall]
    output: RelaxCall


def group(lowered: Lowered, kind: str) -> list[Unit]:
    """Scheduling units in topological order.

    Matching runs on the unfused function, so every operator keeps its identity. A pattern takes calls only if
    nothing outside the unit reads what is inside it.
    """
    rules = UNITS[kind]
    readers = _readers(lowered)
    taken: set[RelaxCall] = set()
    units: list[Unit] = []
    for fusion, calls in _matches(rules.patterns(), lowered):
        if any(call in taken or call.constant for call in calls) or not fusion.accepts(calls):
            continue
        if any(reader not in calls for call in calls[:-1] for reader in readers[call]):
            continue
        taken.update(calls)
        units.append(Unit(fusion.type, calls, calls[-1]))
    units += [Unit(_type(call), [call], call) for call in lowered.calls if call not in taken and not call.constant]
    if rules.folds_sums:
        units = _with_sums(units, SumFolder(readers), rules.folds_sums)
    place = {call: position for position, call in enumerate(lowered.calls)}
    for unit in units:
        unit.calls.sort(key=place.__getitem__)
    return sorted(units, key=lambda unit: place[unit.output])


def _type(call: RelaxCall) -> str:
    return call.function.removeprefix("relax.").removeprefix("nn.")


def _readers(lowered: Lowered) -> Mapping[RelaxCall, list[RelaxCall | None]]:
    """The calls that read each call, one entry per use; None stands for the outputs of the network."""
    readers: dict[RelaxCall, list[RelaxCall | None]] = defaultdict(list)
    for reader, values in [*((call, call.arguments) for call in lowered.calls), (None, lowered.outputs)]:
        for value in values:
            producer = value[0] if isinstance(value, tuple) else value
            if isinstance(producer, RelaxCall):
                readers[producer].append(reader)
    return readers


def _matches(patterns: Sequence[FusionPattern], lowered: Lowered) -> list[tuple[FusionPattern, list[RelaxCall]]]:
    """All matches of every pattern, in order of the patterns; they may overlap."""
    bindings = {binding.var: binding.value for block in lowered.function.body.blocks for binding in block.bindings}
    place = {call: position for position, call in enumerate(lowered.calls)}
    ends: dict[str, list[Any]] = defaultdict(list)
    for value in bindings.values():
        call = _call_behind(value, lowered)
        if call is not None:
            ends[call.function].append(value)
    matches = []
    for fusion in patterns:
        if not ends.keys() >= set(fusion.operators):
            continue
        for value in ends[fusion.operators[-1]]:
            match = fusion.pattern.extract_matched_expr(value, bindings)
            if match is None or not all(_depends_on_weights(match[weight], lowered) for weight in fusion.weights):
                continue
            inside = {
                lowered.call_of[expression]
                for pattern, expression in match.items()
                if not isinstance(pattern, WildcardPattern) and expression in lowered.call_of
            }
            matches.append((fusion, sorted(inside, key=place.__getitem__)))
    return matches


def _call_behind(expression: Any, lowered: Lowered) -> RelaxCall | None:
    """The call of an expression, or the call whose first item it takes."""
    if expression in lowered.call_of:
        return lowered.call_of[expression]
    value = lowered.values.get(getattr(expression, "tuple_value", None))
    return value if isinstance(value, RelaxCall) else None


def _depends_on_weights(expression: Any, lowered: Lowered) -> bool:
    if expression in lowered.call_of:
        return lowered.call_of[expression].constant
    # Whatever is neither a call nor a variable is a literal.
    return expression not in lowered.values or is_constant(lowered.values[expression])


def _with_sums(units: Sequence[Unit], sums: SumFolder, folding: frozenset[str]) -> list[Unit]:
    """The units with sums absorbed by their only reader, and other multi-term sums as units of their own."""
    free = {unit.output for unit in units if len(unit.calls) == 1}
    gone: set[RelaxCall] = set()
    for unit in units:
        if unit.type in folding:
            added = sums.read_by(unit.calls, free - gone)
            unit.calls += added
            gone.update(added)
    for unit in reversed(units):
        if unit.output not in gone and unit.output in free and sums.is_root(unit.output):
            added = sums.terms_of(unit.output, free - gone)
            if added:
                unit.calls += added
                unit.type = "add"
                gone.update(added)
    return [unit for unit in units if unit.output not in gone]


_ADD, _SCALE, _DIVIDE = "relax.add", "relax.multiply", "relax.divide"


class SumFolder:
    """Finds sums that belong to the unit that reads them; among the readers of a call None stands for the outputs."""

    def __init__(self, readers: Mapping[RelaxCall, Sequence[RelaxCall | None]]) -> None:
        self._readers = readers

    def read_by(self, calls: Sequence[RelaxCall], free: Collection[RelaxCall]) -> list[RelaxCall]:
        """All sums that only these calls of one unit read; ``free`` are calls that are units by themselves so far."""
        sums: list[RelaxCall] = []
        for call in calls:
            for argument in call.arguments:
                if _is_sum(argument) and self._belongs(argument, call, calls, free) and argument not in sums:
                    sums += [argument, *self.terms_of(argument, free)]
        return sums

    def terms_of(self, root: RelaxCall, free: Collection[RelaxCall]) -> list[RelaxCall]:
        """The nested sums and scaled values that only this sum reads."""
        terms: list[RelaxCall] = []
        waiting = [root]
        while waiting:
            reader = waiting.pop()
            for argument in reader.arguments:
                part = _is_sum(argument) or (reader.function == _ADD and _is_scaled(argument))
                if part and argument not in terms and self._belongs(argument, reader, [reader], free):
                    terms.append(argument)
                    waiting.append(argument)
        return terms

    def is_root(self, call: RelaxCall) -> bool:
        """Whether a call is a sum, or the division of a sum by a number: an average."""
        if call.function == _ADD:
            return _is_sum(call)
        dividend, *divisor = call.arguments or [None]
        return call.function == _DIVIDE and _is_sum(dividend) and all(map(is_constant, divisor))

    def _belongs(
        self, part: RelaxCall, reader: RelaxCall, unit: Sequence[RelaxCall], free: Collection[RelaxCall]
    ) -> bool:
        """Whether only the unit reads the part, and the part comes from the module of its reader or one around it."""
        return (
            part in free
            and all(other in unit for other in self._readers[part])
            and _around(_module(part), _module(reader))
        )


def _is_sum(value: Any) -> bool:
    """Whether a value is the sum of two values, neither of them a weight."""
    return isinstance(value, RelaxCall) and value.function == _ADD and not any(map(is_constant, value.arguments))


def _is_scaled(value: Any) -> bool:
    """Whether a value is another times a single number, a weight or a literal."""
    if not isinstance(value, RelaxCall) or value.function != _SCALE:
        return False
    return any(is_constant(factor) and math.prod(described(factor)[0]) == 1 for factor in value.arguments)


def _module(call: RelaxCall) -> str:
    return call.origin.module if call.origin is not None else ""


def _around(outer: str, inner: str) -> bool:
    return outer in ("", inner) or inner.startswith(f"{outer}.")
