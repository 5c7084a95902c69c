"""Grouping the calls of a Relax function into scheduling units."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.relax.dpl.pattern import WildcardPattern

from hios.frontends.calls import Call, Lowered, is_constant
from hios.frontends.patterns import UNITS, FusionPattern
from hios.frontends.sums import SumFolder


@dataclass(eq=False)
class Unit:
    """A scheduling unit: its type, its calls in order, and the call of the function that makes its output.

    Before folding ``output`` is the last of the calls; other units refer to it by that call.
    """

    type: str
    calls: list[Call]
    output: Call


def group(lowered: Lowered, kind: str) -> list[Unit]:
    """Scheduling units in topological order.

    Matching runs on the unfused function, so every operator keeps its identity. A pattern takes calls only if
    nothing outside the unit reads what is inside it.

    Args:
        lowered: calls in topological order.
        kind: a key of ``patterns.UNITS``.
    """
    rules = UNITS[kind]
    readers = _readers(lowered)
    taken: set[Call] = set()
    found: list[Unit] = []
    for fusion, calls in _matches(rules.patterns(), lowered):
        if any(call in taken or call.constant for call in calls) or not fusion.accepts(calls):
            continue
        if any(reader not in calls for call in calls[:-1] for reader in readers[call]):
            continue
        taken.update(calls)
        found.append(Unit(fusion.type, calls, calls[-1]))
    found += [Unit(_type(call), [call], call) for call in lowered.calls if call not in taken and not call.constant]
    if rules.folds_sums:
        found = _with_sums(found, SumFolder(readers), rules.folds_sums)
    place = {call: position for position, call in enumerate(lowered.calls)}
    for unit in found:
        unit.calls.sort(key=place.__getitem__)
    return sorted(found, key=lambda unit: place[unit.output])


def _type(call: Call) -> str:
    return call.function.removeprefix("relax.").removeprefix("nn.")


def _readers(lowered: Lowered) -> Mapping[Call, list[Call | None]]:
    """The calls that read each call, one entry for each time; None stands for the outputs of the network."""
    readers: dict[Call, list[Call | None]] = defaultdict(list)
    for reader, values in [*((call, call.arguments) for call in lowered.calls), (None, lowered.outputs)]:
        for value in values:
            producer = value[0] if isinstance(value, tuple) else value
            if isinstance(producer, Call):
                readers[producer].append(reader)
    return readers


def _matches(patterns: Sequence[FusionPattern], lowered: Lowered) -> list[tuple[FusionPattern, list[Call]]]:
    """What every pattern matches, in order of the patterns; matches may overlap."""
    bindings = {binding.var: binding.value for block in lowered.function.body.blocks for binding in block.bindings}
    place = {call: position for position, call in enumerate(lowered.calls)}
    ends: dict[str, list[Any]] = defaultdict(list)
    for value in bindings.values():
        call = _call_behind(value, lowered)
        if call is not None:
            ends[call.function].append(value)
    found = []
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
            found.append((fusion, sorted(inside, key=place.__getitem__)))
    return found


def _call_behind(expression: Any, lowered: Lowered) -> Call | None:
    """The call that an expression is, or whose first item it takes."""
    if expression in lowered.call_of:
        return lowered.call_of[expression]
    value = lowered.values.get(getattr(expression, "tuple_value", None))
    return value if isinstance(value, Call) else None


def _depends_on_weights(expression: Any, lowered: Lowered) -> bool:
    if expression in lowered.call_of:
        return lowered.call_of[expression].constant
    # Whatever is neither a call nor a variable is a literal.
    return expression not in lowered.values or is_constant(lowered.values[expression])


def _with_sums(units: Sequence[Unit], sums: SumFolder, folding: frozenset[str]) -> list[Unit]:
    """The units with sums inside those that alone read them, and other sums of several terms as one unit each."""
    free = {unit.output for unit in units if len(unit.calls) == 1}
    gone: set[Call] = set()
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
