"""Fusion patterns: which Relax operators form one scheduling unit.

Patterns are written in TVM's pattern language and tried in order; the first that matches wins, so longer ones come
before their parts. An operator that no pattern takes is a unit of its own. To add a unit, add its pattern to a kind
of ``UNITS``; ``folds_sums`` names the units that also absorb sums that only they read, which have any number of terms
and so no pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm.relax.dpl import DFPattern, is_op, is_tuple_get_item, wildcard

from hios.frontends.relax_calls import RelaxCall, described

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
    accepts: Callable[[Sequence[RelaxCall]], bool] = lambda calls: True


@dataclass(frozen=True, slots=True)
class Units:
    """How operators are grouped: patterns by priority, and the types of units that absorb sums."""

    patterns: Callable[[], list[FusionPattern]]
    folds_sums: frozenset[str] = frozenset()


class _Chain:
    """A pattern under construction: a chain of operators with their weights."""

    def __init__(self) -> None:
        self.pattern: DFPattern = wildcard()
        self.weights: list[DFPattern] = []
        self.operators: list[str] = []

    def then(self, operator: str, weights: int = 0) -> _Chain:
        """Append an operator that takes the current value and weights."""
        own = [wildcard() for _ in range(weights)]
        self.pattern = is_op(operator)(self.pattern, *own)
        self.weights += own
        self.operators.append(operator)
        return self

    def convolution(self, *, biased: bool, normalized: bool, operator: str = _CONV2D) -> _Chain:
        """Append a convolution with its bias and batch norm."""
        self.then(operator, 1)
        if biased:
            self.then("relax.add", 1)
        if normalized:
            self.then("relax.nn.batch_norm", 4)
            self.pattern = is_tuple_get_item(self.pattern, 0)
        return self

    def named(self, kind: str, accepts: Callable[[Sequence[RelaxCall]], bool] = lambda calls: True) -> FusionPattern:
        """The pattern as a unit of this type."""
        return FusionPattern(kind, self.pattern, tuple(self.operators), tuple(self.weights), accepts)


#: Convolution with bias and batch norm, bias alone, batch norm alone, neither: longest first.
_VARIANTS = [(biased, normalized) for normalized in (True, False) for biased in (True, False)]
#: Activations that join the operator before them, with the numbers that they take in addition to their input.
_ACTIVATIONS = {"relax.nn.relu": 0, "relax.nn.silu": 0, "relax.nn.leakyrelu": 0, "relax.clip": 2}


def _plain(operator: str) -> str:
    return operator.rsplit(".", 1)[1]


def _convolutions() -> list[FusionPattern]:
    """A convolution with bias and batch norm, which are folded into its weights."""
    return [
        _Chain().convolution(biased=b, normalized=n, operator=operator).named(kind)
        for operator, kind in CONVOLUTIONS.items()
        for b, n in _VARIANTS
    ]


def _activated_convolutions() -> list[FusionPattern]:
    """The same followed by an activation: "Conv-Relu" (IOS section 6, LIOS table IV)."""
    return [
        _Chain()
        .convolution(biased=b, normalized=n, operator=operator)
        .then(activation, numbers)
        .named(f"{kind}-{_plain(activation)}")
        for operator, kind in CONVOLUTIONS.items()
        for activation, numbers in _ACTIVATIONS.items()
        for b, n in _VARIANTS
    ]


def _linears() -> list[FusionPattern]:
    """A product with a weight matrix, with bias and activation; not a product of two values."""
    return [
        _Chain().then("relax.matmul", 1).then("relax.add", 1).then(activation).named(f"linear-{_plain(activation)}")
        for activation in ("relax.nn.relu", "relax.nn.gelu", "relax.nn.gelu_tanh", "relax.nn.silu")
    ] + [_Chain().then("relax.matmul", 1).then("relax.add", 1).named("linear")]


def _activations_before_convolutions() -> list[FusionPattern]:
    """ReLU followed by a convolution: "Relu-Conv"."""
    return [
        _Chain().then("relax.nn.relu").convolution(biased=b, normalized=n).named("relu-conv2d") for b, n in _VARIANTS
    ]


def _separable_convolutions() -> list[FusionPattern]:
    """ReLU, depthwise and pointwise convolution: "Relu-SepConv"."""
    return [
        _Chain()
        .then("relax.nn.relu")
        .convolution(biased=inner, normalized=False)
        .convolution(biased=b, normalized=n)
        .named("relu-sepconv", _is_separable)
        for b, n in _VARIANTS
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
