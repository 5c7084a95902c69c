"""Colours of operator types: safe for colour-blind readers and the same in every chart of the page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hios.report.predictions import ModelPredictions
    from hios.report.results import ModelResults

#: The "light" scheme of Paul Tol, made for filled areas (https://personal.sron.nl/~pault/, version 3.2).
COLOURS = ("#77aadd", "#ee8866", "#eedd88", "#44bb99", "#ffaabb", "#99ddff", "#bbcc33", "#aaaa00")


@dataclass(frozen=True, slots=True)
class Style:
    """How the bars of an operator type look; ``hatched`` types share the colour of a plain one."""

    name: str
    colour: str
    hatched: bool = False


#: Types beyond the distinguishable ones.
OTHER = Style("other types", "#dddddd")


def type_styles(models: Sequence[ModelResults | ModelPredictions]) -> dict[str, Style]:
    """A style for every operator type of all models, by share of a model's operator time, summed over the models."""
    share: dict[str, float] = defaultdict(float)
    for model in models:
        costs = model.costs.operators
        total = sum(cost.time_ms for cost in costs.values()) or 1.0
        for operator in model.graph.operators:
            share[operator.type] += costs[operator.id].time_ms / total
    return ranked_styles(share)


def ranked_styles(share: Mapping[str, float]) -> dict[str, Style]:
    """A style for every operator type, those with the largest share of the time first.

    The first eight get a colour, the next eight a hatched one, the rest share a grey.
    """
    looks = [(colour, hatched) for hatched in (False, True) for colour in COLOURS]
    styles = {}
    for position, name in enumerate(sorted(share, key=lambda name: (-share[name], name))):
        styles[name] = Style(name, *looks[position]) if position < len(looks) else OTHER
    return styles
