"""Fusion patterns: which Relax operators form one scheduling unit.

Patterns are written in TVM's pattern language and tried in this order; the first that matches wins, so longer
ones stand before their parts. An operator that no pattern takes is a unit of its own. To add a unit, add a line
to ``fusion_patterns``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm.relax.dpl import DFPattern, is_op, is_tuple_get_item, wildcard


@dataclass(frozen=True, slots=True)
class FusionPattern:
    """A kind of scheduling unit: ``type`` in graph.json, and the Relax operators that it holds.

    ``weights`` are subpatterns that must depend on weights only.
    """

    type: str
    pattern: DFPattern
    weights: tuple[DFPattern, ...]


def fusion_patterns() -> list[FusionPattern]:
    """All patterns in order of priority: convolution with bias, batch norm and activation (IOS "Conv-Relu")."""
    return [
        _convolution(biased, normalised, activation)
        for activation in ("relax.nn.relu", None)
        for normalised in (True, False)
        for biased in (True, False)
    ]


def _convolution(biased: bool, normalised: bool, activation: str | None) -> FusionPattern:
    weights = [wildcard()]
    pattern = is_op("relax.nn.conv2d")(wildcard(), weights[0])
    if biased:
        weights.append(wildcard())
        pattern = is_op("relax.add")(pattern, weights[-1])
    if normalised:
        statistics = [wildcard() for _ in range(4)]
        weights.extend(statistics)
        pattern = is_tuple_get_item(is_op("relax.nn.batch_norm")(pattern, *statistics), 0)
    kind = "conv2d"
    if activation is not None:
        pattern = is_op(activation)(pattern)
        kind += "-" + activation.rsplit(".", 1)[1]
    return FusionPattern(kind, pattern, tuple(weights))
