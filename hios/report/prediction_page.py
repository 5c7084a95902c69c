"""The report of predictions as an HTML page, self-contained like that of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from hios.report.colours import Style, type_styles
from hios.report.costs import cost_facts
from hios.report.facts import input_text
from hios.report.gantt import predicted_chart
from hios.report.hardware import predicted_hardware
from hios.report.page import chart_of, page
from hios.report.predictions import ModelPredictions
from hios.report.tables import prediction_rows


def render_predictions(models: Sequence[ModelPredictions]) -> str:
    """The page as text.

    Args:
        models: at least one, in the order of the page.
    """
    styles = type_styles(models)
    facts = dict.fromkeys(
        fact
        for model in models
        if model.costs.platform is not None
        for fact in predicted_hardware(model.costs.platform)
    )
    return page(
        "predicted.html.j2",
        facts=list(facts),
        models=[_view(number, model, styles) for number, model in enumerate(models, start=1)],
    )


def _view(number: int, model: ModelPredictions, styles: Mapping[str, Style]) -> dict[str, Any]:
    """What the template shows of a model."""
    count = Counter(styles[operator.type] for operator in model.graph.operators)
    rows = [
        {**row, "predicted_speedup": model.sequential_ms / row["predicted_ms"] if row["predicted_ms"] else None}
        for row in prediction_rows(model.name, model.schedules, model.costs)
    ]
    return {
        "anchor": f"model-{number}",
        "name": model.name,
        "operators": len(model.graph.operators),
        "edges": len(model.graph.edges),
        "units": model.graph.units,
        "input": input_text(model.graph),
        "sentence": _fastest(model),
        "rows": rows,
        "costs": cost_facts(model.costs),
        "legend": [(style, count[style]) for style in dict.fromkeys(styles.values()) if style in count],
        "gantts": [
            {
                "label": label,
                "latency_ms": schedule.latency_ms,
                **chart_of(f"gantt-{number}-{position}", predicted_chart(schedule, model.graph, styles)),
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
