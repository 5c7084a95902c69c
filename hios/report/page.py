"""The HTML pages: everything inlined, so that it opens offline and stays readable for years."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from hios.report.captions import words
from hios.report.charts import latency_chart
from hios.report.colours import Style, ranked_styles, type_styles
from hios.report.costs import cost_facts
from hios.report.drawing import svg
from hios.report.facts import (
    cautions,
    ceiling_sentences,
    cut_sentence,
    engine_sentence,
    facts,
    faster_references,
    fastest_sentence,
    fastest_way_sentence,
    input_text,
    slower_sentence,
)
from hios.report.filling import filled
from hios.report.gantt import gantt_chart, schedule_chart
from hios.report.hardware import is_virtual
from hios.report.picture import lay_out
from hios.report.results import ModelResults
from hios.report.summary import device_uses, summary, type_shares
from hios.report.tables import auto_rows, reference_rows, schedule_rows
from hios.runtime import predictions
from hios.schedule import Schedule

#: What a template shows of something, by the names in it.
View = dict[str, Any]

_ABSENT = "–"  # noqa: RUF001  a dash for an empty cell
_SHORTEST_SHOWN_S = 0.0005
#: Pixels; the page is narrower, and shows a picture of this width at four fifths of its size.
_WIDEST_PICTURE = 1400.0
_TALLEST_OPEN = 1100.0


def render(models: Sequence[ModelResults]) -> str:
    """The page of a report as text.

    Args:
        models: at least one model's results, in the order of the page.
    """
    styles = type_styles(models)
    return page(
        "report.html.j2",
        facts=facts(models),
        cautions=cautions(models),
        models=[_view(number, model, styles) for number, model in enumerate(models, start=1)],
    )


def render_schedule(schedule: Schedule, types: Mapping[str, str]) -> str:
    """The page of one schedule as text.

    Args:
        schedule: what schedule.json holds.
        types: type of every operator, for colours; empty if unknown.
    """
    styles = ranked_styles(type_shares(schedule, types))
    count = Counter(styles[types[row.operator]] for row in schedule.placements if types)
    return page(
        "schedule.html.j2",
        title=f"{schedule.algorithm} for {schedule.graph or 'a graph without a name'}",
        facts=summary(schedule),
        uses=device_uses(schedule),
        staged=schedule.placements[0].stage is not None,
        legend=[(style, count[style]) for style in dict.fromkeys(styles.values())],
        chart=chart_of("schedule", schedule_chart(schedule, types, styles)),
    )


def page(template: str, **values: Any) -> str:
    """A page from its template, with plotly and the filters for numbers."""
    return filled(template, {**values, "plotly_js": get_plotlyjs()}, _FILTERS)


def _view(number: int, model: ModelResults, styles: Mapping[str, Style]) -> View:
    """What the template shows of a model."""
    schedules, references = schedule_rows(model), reference_rows(model)
    return {
        "anchor": f"model-{number}",
        "name": model.name,
        "operators": len(model.graph.operators),
        "edges": len(model.graph.edges),
        "units": model.graph.units,
        "input": input_text(model.graph),
        "faster_references": faster_references(model),
        "schedules": schedules,
        "auto": auto_rows(model),
        "references": references,
        "fastest": model.fastest,
        "decimals": model.decimals,
        "sentences": [
            sentence
            for sentence in (
                fastest_way_sentence(model),
                fastest_sentence(model),
                slower_sentence(model),
                cut_sentence(model),
                engine_sentence(model),
                *ceiling_sentences(model),
                predictions.in_words(model.run),
            )
            if sentence
        ],
        "picture": _picture(model, styles),
        "costs": cost_facts(model.costs),
        "virtual": is_virtual(model.run.platform),
        "latency_chart": chart_of(f"latency-{number}", latency_chart(model)),
        "legend": _legend(model, styles),
        "gantts": [
            {"row": row, **chart_of(f"gantt-{number}-{position}", gantt_chart(model, result, styles))}
            if result.predicted or result.measured
            else None
            for position, (row, result) in enumerate(zip(schedules, model.run.results, strict=True))
        ],
    }


def _picture(model: ModelResults, styles: Mapping[str, Style]) -> View:
    """The graph as a drawing with its words; a tall one is for the reader to open."""
    picture = lay_out(model.graph, _WIDEST_PICTURE)
    return {**words(picture), "svg": svg(picture, styles), "open": picture.plan.height <= _TALLEST_OPEN}


def chart_of(identity: str, figure: go.Figure) -> View:
    """A figure as templates take it: ``id``, ``height`` and ``json``."""
    # to_json writes "<" as an escape, so no label can end the script element that carries the JSON.
    return {"id": identity, "height": figure.layout.height, "json": figure.to_json()}


def _legend(model: ModelResults, styles: Mapping[str, Style]) -> list[tuple[Style, int]]:
    """Style and number of operators of every kind of bar in the model's charts."""
    count = Counter(styles[operator.type] for operator in model.graph.operators)
    return [(style, count[style]) for style in dict.fromkeys(styles.values()) if style in count]


def _optional(text: Callable[..., str]) -> Callable[..., str]:
    """A filter that shows an absent value as a dash."""
    return lambda value, *arguments: _ABSENT if value is None else text(value, *arguments)


def _seconds(value: float) -> str:
    return f"{value:.3f}" if value >= _SHORTEST_SHOWN_S else "< 0.001"


_FILTERS: dict[str, Callable[..., str]] = {
    "whole": _optional(str),
    "ms": _optional(lambda value, decimals: f"{value:.{decimals}f}"),
    "times": _optional(lambda value: f"{value:.2f}"),
    "percent": _optional(lambda value: f"{100 * value:.1f}"),
    "drifted": _optional(lambda value: f"{100 * (value - 1):+.1f}"),
    "signed_percent": _optional(lambda value: f"{100 * value:+.1f}"),
    "seconds": _optional(_seconds),
    "difference": _optional(lambda value: f"{value:.1e}" if value else "0"),
}
