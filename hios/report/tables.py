"""The tables of the report: rows that the page shows rounded and the CSV files hold in full.

Light where no table is made: pandas is imported by `table` alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from hios.charts.rendering import latex_document
from hios.core.costs import CostsFile, predicted_for
from hios.core.graph import Graph
from hios.core.schedule import Placement, Schedule
from hios.files.text_tables import csv_text
from hios.formats.run import Chosen, Latency, ReferenceResult, ScheduleResult
from hios.report.results import ModelResults, sequential_ms

if TYPE_CHECKING:
    import pandas as pd

#: A table row by column; None where a column does not apply or was not measured.
Row = dict[str, Any]
#: What a template shows of something, by the names in it.
View = dict[str, Any]


class Column(NamedTuple):
    """A column of a table: its data type in pandas, and its head in LaTeX; empty where a paper does not show it."""

    dtype: str
    head: str = ""


#: Columns of latency.csv. ``kind`` is schedule, auto, baseline, reference or ceiling; columns without a unit
#: are ratios as run.json defines them, ``speedup_low`` and ``speedup_high`` the ends of the interval of the speedup,
#: ``largest_difference`` is in the units of the network's output; ``virtual`` is True where devices shared cores or
#: GPUs, so that times say little. ``drift`` is how many times as long a fixed probe took as while the costs were
#: measured, ``drift_low`` and ``drift_high`` the ends of its interval.
#: ``predicted_only`` is True where nothing was measured (platform model).
LATENCY_COLUMNS = {
    "model": Column("string", "model"),
    "kind": Column("string"),
    "label": Column("string", "schedule or reference"),
    "algorithm": Column("string"),
    "parameters": Column("string"),
    "devices": Column("Int64", "devices"),
    "threads": Column("Int64"),
    "runs": Column("Int64"),
    "measured_median_ms": Column("float64", "median, ms"),
    "measured_p20_ms": Column("float64", "p20, ms"),
    "measured_p80_ms": Column("float64", "p80, ms"),
    "speedup": Column("float64", "speedup"),
    "speedup_low": Column("float64"),
    "speedup_high": Column("float64"),
    "share_of_ceiling": Column("float64"),
    "throughput_ratio": Column("float64"),
    "predicted_ms": Column("float64", "predicted, ms"),
    "prediction_error": Column("float64", "error"),
    "predicted_lower_bound_ms": Column("float64", "lower bound, ms"),
    "scheduling_time_s": Column("float64"),
    "largest_difference": Column("float64"),
    "virtual": Column("boolean"),
    "drift": Column("float64"),
    "drift_low": Column("float64"),
    "drift_high": Column("float64"),
    "error_beyond_drift": Column("float64"),
    "predicted_only": Column("boolean"),
}

#: Label of the sequential schedule on one device, which speedups refer to.
_BASELINE = "sequential on one device (baseline)"

#: Columns of operators.csv; p20 and p80 over the repeats, flops with a multiply-add as two.
OPERATOR_COLUMNS = {
    "model": Column("string", "model"),
    "operator": Column("string", "operator"),
    "type": Column("string", "type"),
    "time_ms": Column("float64", "time, ms"),
    "p20_ms": Column("float64"),
    "p80_ms": Column("float64"),
    "flops": Column("float64", "FLOP"),
    "bytes": Column("float64", "bytes"),
    "predicted_only": Column("boolean"),
}

#: The files that `table_files` makes.
TABLES = ("latency.csv", "operators.csv", "latency.tex", "operators.tex")


def latency_rows(model: ModelResults) -> list[Row]:
    """Rows of latency.csv: schedules in the order of run.json, the chosen one, baseline, references, ceiling."""
    return [*schedule_rows(model), *auto_rows(model), *reference_rows(model), *_ceiling_rows(model)]


def schedule_rows(model: ModelResults) -> list[Row]:
    """One row a schedule, in the order of run.json."""
    return [
        {
            **_measured(model, "schedule", result.label, result.latency_ms),
            "algorithm": result.algorithm,
            "parameters": json.dumps(result.parameters, sort_keys=True),
            "devices": result.devices,
            "speedup": result.speedup,
            **_interval(result),
            "share_of_ceiling": result.share_of_ceiling,
            "predicted_ms": result.predicted_ms,
            "prediction_error": result.prediction_error,
            "predicted_lower_bound_ms": result.lower_bound_ms,
            "scheduling_time_s": result.scheduling_time_s,
            "largest_difference": result.largest_difference,
            **_drift(result),
        }
        for result in model.run.results
    ]


def auto_rows(model: ModelResults) -> list[Row]:
    """The row of the fastest of all, chosen by half of the runs and measured in the others; none if not asked for."""
    chosen = model.run.chosen
    if chosen is None:
        return []
    return [
        {
            **dict.fromkeys(LATENCY_COLUMNS),
            **_measured(model, "auto", f"auto: {chosen.label}", chosen.latency_ms),
            "algorithm": chosen.algorithm,
            "devices": chosen.devices,
            "threads": chosen.cores // chosen.devices,
            "speedup": chosen.speedup,
            **_interval(chosen),
        }
    ]


def reference_rows(model: ModelResults) -> list[Row]:
    """The baseline (the sequential schedule on one device), then the references."""
    baseline = model.run.baseline.latency_ms
    rows = [
        {
            **_measured(model, "baseline", _BASELINE, baseline),
            "algorithm": "sequential",
            "devices": 1,
            "speedup": 1.0,
            **_interval(None),
        }
    ]
    for reference in model.run.references:
        latency = reference.latency_ms
        rows.append(
            {
                **_measured(model, "reference", _reference_label(reference), latency),
                "threads": reference.threads,
                "largest_difference": reference.largest_difference,
                "speedup": baseline.median / latency.median if latency.median > 0 else None,
                **_interval(reference),
            }
        )
    return rows


def _ceiling_rows(model: ModelResults) -> list[Row]:
    return [
        {
            **_measured(model, "ceiling", f"{ceiling.devices} independent copies", ceiling.latency_ms),
            "devices": ceiling.devices,
            "throughput_ratio": ceiling.throughput_ratio,
        }
        for ceiling in model.run.ceilings
    ]


def prediction_rows(name: str, graph: Graph, schedules: Mapping[str, Schedule], costs: CostsFile) -> list[Row]:
    """Rows of latency.csv of a network of which nothing was run: the schedules, and nothing measured.

    Where the platform predicts its costs, the sequential schedule on one device follows, which speedups refer to.
    """
    predicted = predicted_for(costs.platform) is not None
    absent = dict.fromkeys(LATENCY_COLUMNS)
    rows: list[Row] = [
        {
            **absent,
            "model": name,
            "kind": "schedule",
            "label": label,
            "algorithm": schedule.algorithm,
            "parameters": json.dumps(dict(schedule.parameters), sort_keys=True),
            "devices": schedule.devices,
            "predicted_ms": schedule.latency_ms,
            "predicted_lower_bound_ms": schedule.lower_bound_ms,
            "scheduling_time_s": schedule.scheduling_time_s,
            "predicted_only": predicted,
        }
        for label, schedule in schedules.items()
    ]
    if predicted:
        baseline = {"algorithm": "sequential", "devices": 1, "predicted_ms": sequential_ms(graph, costs)}
        rows.append(
            {**absent, "model": name, "kind": "baseline", "label": _BASELINE, **baseline, "predicted_only": True}
        )
    return rows


def operator_rows(name: str, graph: Graph, contents: CostsFile) -> list[Row]:
    """One row an operator, in the order of the graph."""
    costs = contents.operators
    predicted = True if predicted_for(contents.platform) is not None else None
    return [
        {
            "model": name,
            "operator": operator.id,
            "type": operator.type,
            "time_ms": costs[operator.id].time_ms,
            "p20_ms": costs[operator.id].p20_ms,
            "p80_ms": costs[operator.id].p80_ms,
            "flops": operator.flops,
            "bytes": operator.bytes,
            "predicted_only": predicted,
        }
        for operator in graph.operators
    ]


def table(columns: Iterable[str], rows: Iterable[Row]) -> pd.DataFrame:
    """Rows as a data frame of objects, in which columns of whole numbers with gaps stay whole numbers."""
    import pandas as pd

    return pd.DataFrame(list(rows), columns=list(columns), dtype="object")


def placement_rows(
    type_of: Callable[[str], str], predicted: Sequence[Placement], measured: Sequence[Placement]
) -> list[Row]:
    """What a Gantt chart shows, one row an operator, in the order in which they start, as predicted if they are."""
    ran = {row.operator: row for row in measured}
    rows = []
    for row in sorted(predicted or measured, key=lambda row: (row.start_ms, row.device, row.stream)):
        run = ran.get(row.operator)
        rows.append(
            {
                "operator": row.operator,
                "type": type_of(row.operator),
                "device": row.device,
                "stream": row.stream,
                "stage": row.stage,
                "predicted_start_ms": row.start_ms if predicted else None,
                "predicted_finish_ms": row.finish_ms if predicted else None,
                "measured_start_ms": None if run is None else run.start_ms,
                "measured_finish_ms": None if run is None else run.finish_ms,
            }
        )
    return rows


def _measured(model: ModelResults, kind: str, label: str, latency: Latency) -> Row:
    return {
        "model": model.name,
        "kind": kind,
        "label": label,
        "runs": len(latency.runs),
        "measured_median_ms": latency.median,
        "measured_p20_ms": latency.p20,
        "measured_p80_ms": latency.p80,
        "virtual": True if model.run.platform.virtual else None,
    }


def _interval(entry: ScheduleResult | ReferenceResult | Chosen | None) -> Row:
    """Ends of the interval of a speedup; none where rounds were too few, or in files of earlier versions."""
    ends = None if entry is None else entry.speedup_interval
    low, high = ends or (None, None)
    return {"speedup_low": low, "speedup_high": high}


def _drift(result: ScheduleResult) -> Row:
    """Drift since the costs were measured, with its interval, and the error beyond it; none where it is not known."""
    ends = (None, None, None) if result.drift is None else (result.drift.value, result.drift.low, result.drift.high)
    columns = ("drift", "drift_low", "drift_high")
    return {**dict(zip(columns, ends, strict=True)), "error_beyond_drift": result.error_beyond_drift}


def _reference_label(reference: ReferenceResult) -> str:
    name, threads = reference.name, reference.threads
    # Names of old files may be the same for every number of threads.
    if reference.kind is not None or "thread" in name:
        return name
    return f"{name}, {threads} thread{'' if threads == 1 else 's'}"


def table_files(latencies: pd.DataFrame, operators: pd.DataFrame) -> dict[str, str]:
    """The files of the two tables, by name: CSV in full, and LaTeX of what a paper shows of them, with four digits."""
    latency_caption = (
        "Latency of every schedule and reference, measured and predicted; error is predicted over measured less 1."
    )
    operators_caption = "Operators of every model, each alone on one device; a multiply-add counts as two FLOP."
    tables = (
        _csv(latencies),
        _csv(operators),
        latex_document(_rounded(latencies, LATENCY_COLUMNS), latency_caption, "tab:latency"),
        latex_document(_rounded(operators, OPERATOR_COLUMNS), operators_caption, "tab:operators"),
    )
    return dict(zip(TABLES, tables, strict=True))


def _csv(frame: pd.DataFrame) -> str:
    """A table as CSV; absent values are empty fields."""
    return csv_text(list(frame.columns), frame.where(frame.notna(), None).to_dict("records"))


def _rounded(frame: pd.DataFrame, columns: Mapping[str, Column]) -> pd.DataFrame:
    heads = {name: column.head for name, column in columns.items() if column.head}
    shown = frame[list(heads)].rename(columns=heads).astype("object")
    return shown.map(lambda value: float(f"{value:.4g}") if isinstance(value, float) else value)
