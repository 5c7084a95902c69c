"""The report of predictions as an HTML page, self-contained like that of runs."""

from __future__ import annotations

from collections.abc import Sequence

from hios.report.cost_facts import cost_facts
from hios.report.environment import Provenance, origin, predicted_hardware
from hios.report.gantt_chart import predicted_chart
from hios.report.graph_words import type_counts
from hios.report.model_predictions import ModelPredictions
from hios.report.page import filled, model_head, papers_view, serving_views
from hios.report.paper_figures import PaperFigures
from hios.report.serving_results import ServedScenario
from hios.report.tables import View, placement_rows, prediction_rows


def render_predictions(
    models: Sequence[ModelPredictions],
    provenance: Provenance,
    figures: PaperFigures | None = None,
    serving: Sequence[ServedScenario] = (),
) -> str:
    """The page as text.

    Args:
        models: at least one, in the order of the page.
        provenance: how the page came about.
        figures: of the papers; their part is left out if None.
        serving: scenarios of several models; their part is left out if there are none.
    """
    facts = dict.fromkeys(
        fact
        for model in models
        if model.costs.platform is not None
        for fact in predicted_hardware(model.costs.platform)
    )
    views = [_view(number, model) for number, model in enumerate(models, start=1)]
    return filled(
        "predicted.html.j2",
        facts=list(facts),
        origin=origin(provenance),
        configuration=provenance.configuration,
        page_origin=provenance.origin,
        models=views,
        **papers_view(figures),
        serving=serving_views(serving),
    )


def _view(number: int, model: ModelPredictions) -> View:
    """What the template shows of a model."""
    rows = [
        {**row, "predicted_speedup": model.sequential_ms / row["predicted_ms"] if row["predicted_ms"] else None}
        for row in prediction_rows(model.name, model.schedules, model.costs)
    ]
    graph = model.graph
    return {
        **model_head(number, model),
        "sentence": _fastest(model),
        "rows": rows,
        "costs": cost_facts(model.costs),
        "legend": type_counts(operator.type for operator in graph.operators),
        "gantts": [
            {
                "label": label,
                "latency_ms": schedule.latency_ms,
                "chart": predicted_chart(schedule, label, graph, f"gantt-{number}-{position}"),
                "placements": placement_rows(model.type_of, schedule.placements, ()),
            }
            for position, (label, schedule) in enumerate(model.schedules.items())
        ],
    }


def _fastest(model: ModelPredictions) -> str:
    label, schedule = min(model.schedules.items(), key=lambda entry: entry[1].latency_ms)
    gain = f", {model.sequential_ms / schedule.latency_ms:.2f} times as fast as the sequential schedule on one device"
    return (
        f"Fastest as predicted: {label}, {schedule.latency_ms:.3f} ms{gain if schedule.latency_ms > 0 else ''}. "
        f"Times are {model.words}."
    )
