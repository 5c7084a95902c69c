"""The tables of the report: rows that the page shows rounded and the CSV files hold in full."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from hios.artifacts import Json
from hios.report.hardware import is_virtual
from hios.report.results import ModelResults

#: A table row by column; None where a column does not apply or was not measured.
Row = dict[str, Any]

#: Columns of latency.csv. ``kind`` is schedule, auto, baseline, reference or ceiling; columns without a unit
#: are ratios as run.json defines them, ``speedup_low`` and ``speedup_high`` the ends of the interval of the speedup,
#: ``largest_difference`` is in the units of the network's output; ``virtual`` is True where devices shared cores or
#: GPUs, so that times say little. ``drift`` is how many times as long a fixed probe took as while the costs were
#: measured, ``drift_low`` and ``drift_high`` the ends of its interval.
LATENCY_COLUMNS = (
    "model",
    "kind",
    "label",
    "algorithm",
    "parameters",
    "devices",
    "threads",
    "runs",
    "measured_median_ms",
    "measured_p20_ms",
    "measured_p80_ms",
    "speedup",
    "speedup_low",
    "speedup_high",
    "share_of_ceiling",
    "throughput_ratio",
    "predicted_ms",
    "prediction_error",
    "predicted_lower_bound_ms",
    "scheduling_time_s",
    "largest_difference",
    "virtual",
    "drift",
    "drift_low",
    "drift_high",
    "error_beyond_drift",
)

#: Columns of operators.csv; p20 and p80 over the repeats, flops with a multiply-add as two.
OPERATOR_COLUMNS = ("model", "operator", "type", "time_ms", "p20_ms", "p80_ms", "flops", "bytes")


def latency_rows(model: ModelResults) -> list[Row]:
    """Rows of latency.csv: schedules in the order of run.json, the chosen one, baseline, references, ceiling."""
    return [*schedule_rows(model), *auto_rows(model), *reference_rows(model), *_ceiling_rows(model)]


def schedule_rows(model: ModelResults) -> list[Row]:
    """One row a schedule, in the order of run.json."""
    return [
        {
            **_measured(model, "schedule", result["label"], result["latency_ms"]),
            "algorithm": result["algorithm"],
            "parameters": json.dumps(result["parameters"], sort_keys=True),
            "devices": result["devices"],
            "speedup": result["speedup"],
            **_interval(result),
            "share_of_ceiling": result["share_of_ceiling"],
            "predicted_ms": result["predicted_ms"],
            "prediction_error": result["prediction_error"],
            "predicted_lower_bound_ms": result["lower_bound_ms"],
            "scheduling_time_s": result["scheduling_time_s"],
            "largest_difference": result["largest_difference"],
            **_drift(result),
        }
        for result in model.run["results"]
    ]


def auto_rows(model: ModelResults) -> list[Row]:
    """The row of the fastest of all, chosen by half of the runs and measured in the others; none if not asked for."""
    chosen = model.run.get("chosen")
    if chosen is None:
        return []
    return [
        {
            **dict.fromkeys(LATENCY_COLUMNS),
            **_measured(model, "auto", f"auto: {chosen['label']}", chosen["latency_ms"]),
            "algorithm": chosen["algorithm"],
            "devices": chosen["devices"],
            "threads": chosen["cores"] // chosen["devices"],
            "speedup": chosen["speedup"],
            **_interval(chosen),
        }
    ]


def reference_rows(model: ModelResults) -> list[Row]:
    """The baseline (the sequential schedule on one device), then the references."""
    baseline = model.run["baseline"]["latency_ms"]
    rows = [
        {
            **_measured(model, "baseline", "sequential on one device (baseline)", baseline),
            "algorithm": "sequential",
            "devices": 1,
            "speedup": 1.0,
            **_interval({}),
        }
    ]
    for reference in model.run["references"]:
        latency = reference["latency_ms"]
        rows.append(
            {
                **_measured(model, "reference", _reference_label(reference), latency),
                "threads": reference["threads"],
                "largest_difference": reference.get("largest_difference"),
                "speedup": baseline["median"] / latency["median"] if latency["median"] > 0 else None,
                **_interval(reference),
            }
        )
    return rows


def _ceiling_rows(model: ModelResults) -> list[Row]:
    return [
        {
            **_measured(model, "ceiling", f"{ceiling['devices']} independent copies", ceiling["latency_ms"]),
            "devices": ceiling["devices"],
            "throughput_ratio": ceiling["throughput_ratio"],
        }
        for ceiling in model.run["ceilings"]
    ]


def operator_rows(model: ModelResults) -> list[Row]:
    """One row an operator, in the order of the graph."""
    costs = model.costs["operators"]
    return [
        {
            "model": model.name,
            "operator": operator.id,
            "type": operator.type,
            "time_ms": costs[operator.id]["time_ms"],
            "p20_ms": costs[operator.id].get("p20_ms"),
            "p80_ms": costs[operator.id].get("p80_ms"),
            "flops": operator.details.get("flops"),
            "bytes": operator.details.get("bytes"),
        }
        for operator in model.graph.operators
    ]


def csv_text(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """A CSV table with a header line; an absent value is an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _measured(model: ModelResults, kind: str, label: str, latency: Json) -> Row:
    return {
        "model": model.name,
        "kind": kind,
        "label": label,
        "runs": len(latency["runs"]),
        "measured_median_ms": latency["median"],
        "measured_p20_ms": latency["p20"],
        "measured_p80_ms": latency["p80"],
        "virtual": True if is_virtual(model.run["platform"]) else None,
    }


def _interval(entry: Json) -> Row:
    """Ends of the interval of a speedup; none where rounds were too few, or in files of earlier versions."""
    low, high = entry.get("speedup_interval", (None, None))
    return {"speedup_low": low, "speedup_high": high}


def _drift(result: Json) -> Row:
    """Drift since the costs were measured, with its interval, and the error beyond it; none where it is not known."""
    found = result.get("drift", {})
    return {
        "drift": found.get("value"),
        "drift_low": found.get("low"),
        "drift_high": found.get("high"),
        "error_beyond_drift": result.get("error_beyond_drift"),
    }


def _reference_label(reference: Json) -> str:
    name, threads = str(reference["name"]), reference["threads"]
    # Names of old files may be the same for every number of threads.
    return name if "kind" in reference or "thread" in name else f"{name}, {threads} thread{'' if threads == 1 else 's'}"
