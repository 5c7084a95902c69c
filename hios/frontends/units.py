"""Grouping the calls of a Relax function into scheduling units."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tvm.relax.dpl.pattern import WildcardPattern

from hios.frontends.calls import Call, Lowered, is_constant
from hios.frontends.patterns import FusionPattern, fusion_patterns


@dataclass(eq=False)
class Unit:
    """A scheduling unit: its type, its calls in order, and the call of the function that makes its output.

    Before folding ``output`` is the last of the calls; other units refer to it by that call.
    """

    type: str
    calls: list[Call]
    output: Call


def group(lowered: Lowered) -> list[Unit]:
    """Scheduling units in topological order.

    Matching runs on the unfused function, so every operator keeps its identity. A pattern takes calls only if
    nothing outside the unit reads what is inside it.
    """
    bindings = {binding.var: binding.value for block in lowered.function.body.blocks for binding in block.bindings}
    readers = _readers(lowered)
    patterns = fusion_patterns()
    taken: set[Call] = set()
    unit_ending_at: dict[Call, Unit] = {}
    for fusion in patterns:
        for value in bindings.values():
            calls = _matched(fusion, value, bindings, lowered)
            if not calls or any(call in taken or call.constant for call in calls):
                continue
            if any(reader not in calls for call in calls[:-1] for reader in readers[call]):
                continue
            taken.update(calls)
            unit_ending_at[calls[-1]] = Unit(fusion.type, calls, calls[-1])
    units = []
    for call in lowered.calls:
        if call in unit_ending_at:
            units.append(unit_ending_at[call])
        elif call not in taken and not call.constant:
            units.append(Unit(call.function.removeprefix("relax.").removeprefix("nn."), [call], call))
    return units


def _readers(lowered: Lowered) -> dict[Call, list[Any]]:
    readers: dict[Call, list[Any]] = defaultdict(list)
    for reader, values in [*((call, call.arguments) for call in lowered.calls), (None, lowered.outputs)]:
        for value in values:
            producer = value[0] if isinstance(value, tuple) else value
            if isinstance(producer, Call):
                readers[producer].append(reader)
    return readers


def _matched(fusion: FusionPattern, value: Any, bindings: dict[Any, Any], lowered: Lowered) -> list[Call]:
    """Calls that a pattern takes when its last operator is ``value``, in order; empty without a match."""
    match = fusion.pattern.extract_matched_expr(value, bindings)
    if match is None:
        return []
    if not all(_depends_on_weights(match[weight], lowered) for weight in fusion.weights):
        return []
    inside = {
        lowered.call_of[expression]
        for pattern, expression in match.items()
        if not isinstance(pattern, WildcardPattern) and expression in lowered.call_of
    }
    return [call for call in lowered.calls if call in inside]


def _depends_on_weights(expression: Any, lowered: Lowered) -> bool:
    if expression in lowered.call_of:
        return lowered.call_of[expression].constant
    # Whatever is neither a call nor a variable is a literal.
    return expression not in lowered.values or is_constant(lowered.values[expression])
