"""Grouping the calls of a Relax function into scheduling units.

The counting rule of the papers has no operator for the sum of a consumer's inputs: engines add while they read. So a
sum joins the unit that reads it if no other does. A sum that several operators read is an operator of its own, and so
is one that has a submodule of its own, which is how a model can request it.

Fusion patterns are written in TVM's language and tried in order; the first that matches wins, so longer ones come
before their parts. An operator that no pattern takes is a unit of its own. To add a unit, add its pattern to a kind
of ``UNITS``; ``folds_sums`` names the units that also absorb sums that only they read, which have any number of terms
and so no pattern.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm.relax.dpl import DFPattern, is_op, is_tuple_get_item, wildcard
from tvm.relax.dpl.pattern import WildcardPattern

from hios.frontends.relax_calls import Lowered, RelaxCall, described, is_constant

#: Convolutions whose bias and batch norm are folded into their filters, with their names in types of units.
CONVOLUTIONS = {f"relax.nn.conv{dimensions}d": f"conv{dimensions}d" for dimensions in (2, 1, 3)}
_CONV2D = "relax.nn.conv2d"


@dataclass(frozen=True, slots=True)
class FusionPattern:
    """A kind of scheduling unit: its ``type`` in graph.json and its Relax operators.

    ``operators`` are their names in order, ``weights`` are subpatterns that must depend on weights only, ``accepts``
    checks matched calls, in order, for conditions that the pattern language cannot express.
    """

    type: str
    pattern: DFPattern
    operators: tuple[str, ...]
    weights: tuple[DFPattern, ...]
    accepts: Callable[[Sequence[RelaxCall]], bool]


@dataclass(frozen=True, slots=True)
class Units:
    """How operators are grouped: patterns by priority, and the types of units that absorb sums."""

    patterns: Callable[[], list[FusionPattern]]
    folds_sums: frozenset[str] = frozenset()


#: An operator of a chain, with the number of weights that it takes in addition to its input.
_Step = tuple[str, int]
#: Convolution with bias and batch norm, bias alone, batch norm alone, neither: longest first.
_VARIANTS = [(biased, normalized) for normalized in (True, False) for biased in (True, False)]
#: Activations that join the operator before them, with the numbers that they take in addition to their input.
_ACTIVATIONS = {"relax.nn.relu": 0, "relax.nn.silu": 0, "relax.nn.leakyrelu": 0, "relax.clip": 2}
_RELU: _Step = ("relax.nn.relu", 0)
_LINEAR: tuple[_Step, ...] = (("relax.matmul", 1), ("relax.add", 1))


def _chain(
    kind: str, *steps: _Step, accepts: Callable[[Sequence[RelaxCall]], bool] = lambda calls: True
) -> FusionPattern:
    """A kind of unit in which every operator takes the result of the one before."""
    pattern, weights = wildcard(), list[DFPattern]()
    for operator, count in steps:
        own = [wildcard() for _ in range(count)]
        pattern = is_op(operator)(pattern, *own)
        if operator == "relax.nn.batch_norm":
            pattern = is_tuple_get_item(pattern, 0)
        weights += own
    return FusionPattern(kind, pattern, tuple(operator for operator, _ in steps), tuple(weights), accepts)


def _convolution(biased: bool, normalized: bool, operator: str = _CONV2D) -> list[_Step]:
    """A convolution with its bias and batch norm."""
    steps = {operator: 1, "relax.add": int(biased), "relax.nn.batch_norm": 4 * normalized}
    return [(name, weights) for name, weights in steps.items() if weights]


def _plain(operator: str) -> str:
    return operator.rsplit(".", 1)[1]


def _convolutions() -> list[FusionPattern]:
    """A convolution with bias and batch norm, which are folded into its weights."""
    return [
        _chain(kind, *_convolution(*variant, operator))
        for operator, kind in CONVOLUTIONS.items()
        for variant in _VARIANTS
    ]


def _activated_convolutions() -> list[FusionPattern]:
    """The same followed by an activation: "Conv-Relu" (IOS section 6, LIOS table IV)."""
    return [
        _chain(f"{kind}-{_plain(activation)}", *_convolution(*variant, operator), (activation, numbers))
        for operator, kind in CONVOLUTIONS.items()
        for activation, numbers in _ACTIVATIONS.items()
        for variant in _VARIANTS
    ]


def _linears() -> list[FusionPattern]:
    """A product with a weight matrix, with bias and activation; not a product of two values."""
    activations = ("relax.nn.relu", "relax.nn.gelu", "relax.nn.gelu_tanh", "relax.nn.silu")
    activated = [_chain(f"linear-{_plain(activation)}", *_LINEAR, (activation, 0)) for activation in activations]
    return [*activated, _chain("linear", *_LINEAR)]


def _activations_before_convolutions() -> list[FusionPattern]:
    """ReLU followed by a convolution: "Relu-Conv"."""
    return [_chain("relu-conv2d", _RELU, *_convolution(*variant)) for variant in _VARIANTS]


def _separable_convolutions() -> list[FusionPattern]:
    """ReLU, depthwise and pointwise convolution: "Relu-SepConv"."""
    return [
        _chain("relu-sepconv", _RELU, *_convolution(inner, False), *_convolution(*variant), accepts=_is_separable)
        for variant in _VARIANTS
        for inner in (True, False)
    ]


def _is_separable(calls: Sequence[RelaxCall]) -> bool:
    """Whether the first convolution is depthwise and the second pointwise."""
    depthwise, pointwise = (call for call in calls if call.function == _CONV2D)
    channels = depthwise.shapes[0][1]
    single = all(
        values == [value] * len(values)
        for name, value in (("strides", 1), ("padding", 0))
        for values in [pointwise.attributes[name]]
    )
    kernel, _ = described(pointwise.arguments[1])
    return depthwise.attributes["groups"] == channels > 1 and single and kernel[2:] == (1, 1)


#: Ways to cut a network into scheduling units, by the name that config.yaml and ``hios extract --units`` take.
#: ``relu-sepconv`` tries separable convolutions first and "Relu-Conv" last: between two convolutions a ReLU belongs to
#: the one before, as in "Conv-Relu", unless a separable one follows it. ``operator`` is one unit per Relax operator
#: after folding, which is what Opara schedules: bias and batch norm are in the weights of their convolution by then.
UNITS: dict[str, Units] = {
    "conv-relu": Units(lambda: [*_activated_convolutions(), *_convolutions(), *_linears()]),
    "relu-sepconv": Units(
        lambda: [
            *_separable_convolutions(),
            *_activated_convolutions(),
            *_activations_before_convolutions(),
            *_convolutions(),
            *_linears(),
        ],
        folds_sums=frozenset({"relu-sepconv", "relu-conv2d", "concat"}),
    ),
    "operator": Units(_convolutions),
}
#: The default, for models that declare none.
DEFAULT_UNITS = "conv-relu"


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
    if not call.function.startswith("relax."):
        return call.function.split(".")[1]  # of an opaque call, such as aten.scatter_add.default
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
