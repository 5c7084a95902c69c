"""HTML pages from templates: everything inlined, so that a page opens offline and stays readable for years.

The page of a large study is drawn by several processes and leaves out what browsers could not open; files and commands
have that. Where charts are left out, the browser also lays out only what is near the window (`.large` in style.css).
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any, TypeVar

import jinja2
import markupsafe
import msgspec

from hios.charts.marks import BOUND, MEASURED, PREDICTED, explanation
from hios.charts.rendering import unchecked
from hios.charts.theme import DARK, GRID, GROUND, INK, SOFT, TINT, dark_rules
from hios.core.costs import predicted_for
from hios.core.schedule import Schedule
from hios.report.charts import gantt_chart, latency_chart, predicted_chart, schedule_chart
from hios.report.graph_layout import lay_out
from hios.report.graph_svg import svg, type_counts, words
from hios.report.results import (
    ModelPredictions,
    ModelResults,
    Provenance,
    facts,
    input_text,
    origin,
    predicted_hardware,
    sequential_ms,
)
from hios.report.serving_results import (
    ServedScenario,
    calibration_sentence,
    findings,
    gap_rows,
    serving_charts,
    serving_rows,
    setting_sentence,
)
from hios.report.statements import (
    advice,
    cautions,
    ceiling_sentences,
    chain_note,
    cost_summary,
    cut_sentence,
    engine_sentence,
    faster_references,
    fastest_sentence,
    fastest_way_sentence,
    headlines,
    row_anchor,
    slower_sentence,
)
from hios.report.tables import View, auto_rows, placement_rows, prediction_rows, reference_rows, schedule_rows
from hios.report.terminal import device_uses, summary
from hios.runtime import predictions
from hios.workers.process_settings import end_with_parent, interrupts_blocked

#: Most Gantt charts of a page, rows of schedules in a table, and pictures of graphs.
_CHARTS, _ROWS, _PICTURES = 150, 2000, 50
#: Most bars of all Gantt charts together: with this many a page has about 9 MB.
_BARS = 26_000
#: Number of parts from which several processes are worth starting.
_MANY = 8

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
    """Whether a page shows all of a kind.

    Attributes:
        charts: Gantt charts of all schedules; else those of the fastest schedule of each network.
        rows: all schedules in the tables, and the tables' files; else a few schedules of each network.
        pictures: the graphs.
    """

    charts: bool
    rows: bool
    pictures: bool

    @classmethod
    def of(cls, models: Sequence[ModelResults]) -> Limits:
        """Those of a page about some networks."""
        schedules = sum(len(model.run.results) for model in models)
        bars = sum(len(one.predicted) + len(one.measured) for model in models for one in model.run.results)
        return cls(schedules <= _CHARTS and bars <= _BARS, schedules <= _ROWS, len(models) <= _PICTURES)

    def places(self, number: int, model: ModelResults, anchors: Set[str]) -> list[int]:
        """The schedules of a network that tables show, by place in its run; the page links to ``anchors``."""
        results = model.run.results
        best = min(results, key=lambda result: result.predicted_ms, default=None)
        return [
            place
            for place, result in enumerate(results)
            if self.rows
            or place == model.fastest
            or result is best
            or result.algorithm == "sequential"
            or not anchors.isdisjoint(row_anchor(table, number, place) for table in ("measured", "predicted"))
        ]

    def sentences(self) -> list[str]:
        """What is left out, and where it is."""
        left_out = []
        if not self.charts:
            left_out.append(
                "Gantt charts are of the fastest schedule of each network only; hios show --html draws any other."
            )
        if not self.rows:
            left_out.append(
                "Of each network the tables show the sequential schedule, the fastest, and the one that was predicted "
                "to be; latency.csv and operators.csv, in the folder for tables, have all."
            )
        if not self.pictures:
            left_out.append("Graphs are not drawn; hios draw does.")
        return [f"This study is too large for one page. {left_out[0]}", *left_out[1:]] if left_out else []


def made(parts: Sequence[Any], make: Callable[[int, Any], T], processes: int) -> list[T]:
    """What a function makes of the number of each part, from 1, and the part, in their order; all can be pickled.

    So many processes are at work at once at most; few parts are made in this process.

    Several processes import the program that asks for this once more, as those of ``multiprocessing`` do: it must not
    begin anything when it is imported.
    """
    numbers = range(1, len(parts) + 1)
    if processes < 2 or len(parts) < _MANY:
        return list(map(make, numbers, parts))
    # Not forked: what draws charts has threads of its own, whose locks a fork would take along.
    pool = ProcessPoolExecutor(processes, get_context("spawn"), end_with_parent, (os.getpid(),))
    try:
        with interrupts_blocked():
            results: Iterable[T] = pool.map(make, numbers, parts)
        return list(results)
    finally:
        pool.shutdown(cancel_futures=True)


_ABSENT = "–"  # noqa: RUF001  a dash for an empty cell
_SHORTEST_SHOWN_S = 0.0005
#: Pixels; the page is narrower, and shows a picture of this width at four fifths of its size.
_WIDEST_PICTURE = 1400.0
_TALLEST_OPEN = 1100.0
#: A figure's table with more rows than this is folded.
_LONGEST_OPEN = 12
#: Media types of the files embedded in a page, by suffix.
_MEDIA = {"csv": "text/csv", "tex": "application/x-tex"}


def render(
    models: Sequence[ModelResults],
    files: Mapping[str, str],
    provenance: Provenance,
    papers: View | None = None,
    serving: Sequence[ServedScenario] = (),
    processes: int = 1,
) -> str:
    """The page of a report as text.

    ``files`` are the tables that readers may save from the page, by name. Papers and serving are left out without any.
    """
    limits, first = Limits.of(models), headlines(models)
    anchors = frozenset(headline.anchor for headline in first)
    views = made(models, partial(_unchecked_view, limits, anchors), processes)
    return filled(
        "report.html.j2",
        headlines=first,
        left_out=limits.sentences(),
        advice=advice(models),
        large=not limits.charts,
        cautions=cautions(models),
        models=views,
        facts=facts(models),
        files=[(name, data_address(name, text)) for name, text in files.items()] if limits.rows else [],
        marks=explanation((MEASURED, PREDICTED, BOUND)),
        any_auto=any(view["auto"] for view in views),
        **_beside_models(provenance, papers, serving),
    )


def _unchecked_view(limits: Limits, anchors: frozenset[str], number: int, model: ModelResults) -> View:
    with unchecked():
        return _view(number, model, limits, anchors)


def _beside_models(provenance: Provenance, papers: View | None, serving: Sequence[ServedScenario]) -> View:
    """What templates show beside the networks: how the page came about, what was found of the papers, and serving."""
    return {
        "origin": origin(provenance),
        "configuration": provenance.configuration,
        "page_origin": provenance.origin and msgspec.json.encode(provenance.origin).decode(),
        "verdicts": [] if papers is None else papers["verdicts"],
        "papers_page": "" if papers is None else papers["address"],
        "all_marks": explanation(),
        "serving": serving_views(serving),
    }


def serving_views(scenarios: Sequence[ServedScenario]) -> list[View]:
    """What templates show of serving, a view for each scenario."""
    return [
        {
            "label": scenario.label,
            "setting": setting_sentence(scenario),
            "findings": list(findings(scenario)),
            "charts": serving_charts(scenario, f"serving-chart-{number}"),
            "rows": serving_rows(scenario),
            "gaps": gap_rows(scenario),
            "calibration": calibration_sentence(scenario),
        }
        for number, scenario in enumerate(scenarios, start=1)
    ]


def render_papers(papers: View, page: str) -> str:
    """The page of the papers as text; ``page`` is the address of the report beside it."""
    return filled("papers.html.j2", **papers, page=page, all_marks=explanation(), longest_table=_LONGEST_OPEN)


def render_schedule(schedule: Schedule, types: Mapping[str, str]) -> str:
    """The page of one schedule as text; ``types`` of operators, for colors, are empty if unknown."""
    return filled(
        "schedule.html.j2",
        title=f"{schedule.algorithm} for {schedule.graph or 'a graph without a name'}",
        facts=summary(schedule),
        uses=device_uses(schedule),
        staged=schedule.placements[0].stage is not None,
        legend=type_counts(types[row.operator] for row in schedule.placements) if types else [],
        chart=schedule_chart(schedule, types, "schedule"),
        placements=placement_rows(lambda operator: types.get(operator, ""), schedule.placements, ()),
    )


def filled(template: str, **values: Any) -> str:
    """A page from its template; a value that is missing is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hios.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(_FILTERS)
    light = {"ink": INK, "soft": SOFT, "line": GRID, "ground": GROUND, "tint": TINT}
    theme = {"light": light, "dark": {name: DARK[color] for name, color in light.items()}}
    environment.globals.update(
        theme=theme, dark_rules=dark_rules("svg.chart") + "\n" + dark_rules("svg.graph"), row_anchor=row_anchor
    )
    return environment.get_template(template).render(**values)


def data_address(name: str, text: str) -> str:
    """A file within a page, as the address of a link."""
    content = base64.b64encode(text.encode("utf-8")).decode("ascii")
    return f"data:{_MEDIA[name.rpartition('.')[2]]};base64,{content}"


def _view(number: int, model: ModelResults, limits: Limits, anchors: frozenset[str]) -> View:
    """What the template shows of a model, by its number from 1; ``anchors`` are rows that the page links to."""
    schedules, auto = schedule_rows(model), auto_rows(model)
    shown = limits.places(number, model, anchors)
    return {
        **model_head(number, model),
        "faster_references": faster_references(model),
        "schedules": schedules,
        "auto": auto,
        "predicted_rows": [(place, schedules[place]) for place in shown],
        "measured_rows": [(place, schedules[place]) for place in shown] + list(enumerate(auto, start=len(schedules))),
        "references": reference_rows(model),
        "fastest": model.fastest,
        "decimals": model.decimals,
        "sentences": list(_sentences(model)),
        "picture": _picture(model) if limits.pictures else None,
        "costs": cost_summary(model.costs, model.graph),
        "virtual": bool(model.run.platform.virtual),
        "latency_chart": latency_chart(model, f"latency-{number}"),
        "legend": type_counts(operator.type for operator in model.graph.operators),
        "gantts": [
            {
                "row": row,
                "chart": gantt_chart(model, result, f"gantt-{number}-{position}"),
                "placements": placement_rows(model.type_of, result.predicted, result.measured),
            }
            if (result.predicted or result.measured) and (limits.charts or position == model.fastest)
            else None
            for position, (row, result) in enumerate(zip(schedules, model.run.results, strict=True))
        ],
    }


def model_head(number: int, model: Any) -> View:
    """What every page shows of a model: its anchor, name and size."""
    graph = model.graph
    return {
        "number": number,
        "anchor": f"model-{number}",
        "name": model.name,
        "operators": len(graph.operators),
        "edges": len(graph.edges),
        "units": graph.units,
        "input": input_text(graph),
    }


def _sentences(model: ModelResults) -> Iterable[str]:
    sentences = [fastest_way_sentence(model), fastest_sentence(model), slower_sentence(model), cut_sentence(model)]
    sentences.append(engine_sentence(model))
    said = [predictions.segments_in_words(model.run), predictions.in_words(model.run)]
    return filter(None, [*sentences, *ceiling_sentences(model), *said])


def _picture(model: ModelResults) -> View:
    """The graph as a drawing with its words; a tall one is for the reader to open."""
    picture = lay_out(model.graph, _WIDEST_PICTURE)
    return {**words(picture), "svg": svg(picture), "open": picture.plan.height <= _TALLEST_OPEN}


def _inline(svg: str) -> str:
    """A drawing within HTML, which knows the namespace of SVG, and keeps line breaks in attributes as they are."""
    return svg.replace(' xmlns="http://www.w3.org/2000/svg"', "", 1).replace("&#xA;", "\n")


def _optional(text: Callable[..., str]) -> Callable[..., str]:
    """A filter that shows an absent value as a dash."""
    return lambda value, *arguments: _ABSENT if value is None else text(value, *arguments)


_FILTERS: dict[str, Callable[..., str]] = {
    "inline": lambda text: markupsafe.Markup(_inline(text)),  # noqa: S704
    "whole": _optional(str),
    "shortest": lambda value: f"{value:.4g}" if isinstance(value, float) else str(value),
    "ms": _optional(lambda value, decimals: f"{value:.{decimals}f}"),
    "times": _optional(lambda value: f"{value:.2f}"),
    "percent": _optional(lambda value: f"{round(100 * value, 1) + 0.0:.1f}"),  # no "-0.0"
    "drifted": _optional(lambda value: f"{100 * (value - 1):+.1f}"),
    "signed_percent": _optional(lambda value: f"{100 * value:+.1f}"),
    "seconds": _optional(lambda value: f"{value:.3f}" if value >= _SHORTEST_SHOWN_S else "< 0.001"),
    "difference": _optional(lambda value: f"{value:.1e}" if value else "0"),
}


def render_predictions(
    models: Sequence[ModelPredictions],
    provenance: Provenance,
    papers: View | None = None,
    serving: Sequence[ServedScenario] = (),
) -> str:
    """The page of predictions as text; papers and serving are left out without any."""
    facts = dict.fromkeys(
        fact
        for model in models
        if model.costs.platform is not None
        for fact in predicted_hardware(model.costs.platform)
    )
    views = [_predicted_view(number, model) for number, model in enumerate(models, start=1)]
    return filled(
        "predicted.html.j2",
        facts=list(facts),
        models=views,
        **_beside_models(provenance, papers, serving),
    )


def _predicted_view(number: int, model: ModelPredictions) -> View:
    """What the template shows of a model."""
    baseline_ms = sequential_ms(model.graph, model.costs)
    rows = [
        {**row, "predicted_speedup": baseline_ms / row["predicted_ms"] if row["predicted_ms"] else None}
        for row in prediction_rows(model.name, model.graph, model.schedules, model.costs)
    ]
    return {
        **model_head(number, model),
        "fastest": _fastest(model),
        "words": predicted_for(model.costs.platform) or "",
        "rows": rows,
        "costs": cost_summary(model.costs, model.graph),
        "legend": type_counts(operator.type for operator in model.graph.operators),
        "gantts": [
            {
                "label": label,
                "latency_ms": schedule.latency_ms,
                "chart": predicted_chart(model, label, f"gantt-{number}-{position}"),
                "placements": placement_rows(model.type_of, schedule.placements, ()),
            }
            for position, (label, schedule) in enumerate(model.schedules.items())
        ],
    }


def _fastest(model: ModelPredictions) -> str:
    label, schedule = min(model.schedules.items(), key=lambda entry: entry[1].latency_ms)
    speedup = sequential_ms(model.graph, model.costs) / (schedule.latency_ms or 1.0)
    gain = f", {speedup:.2f} times as fast as the sequential schedule on one device"
    chain = chain_note(model.graph, model.costs)
    return f"{label}, {schedule.latency_ms:.3f} ms{gain if schedule.latency_ms > 0 else ''}{chain}"
