"""A results folder as pandas data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pandas as pd

from hios.core.costs import Costs, CostsFile, MergeCost, OperatorCost, StageCost, TransferCost
from hios.core.graph import Graph
from hios.core.schedule import Placement, Schedule
from hios.errors import ArtifactError
from hios.files import artifacts
from hios.report.results import (
    ModelPredictions,
    ModelResults,
    is_predicted,
    model_predictions,
    path_ends,
    read_model,
    told_apart,
)
from hios.report.tables import LATENCY_COLUMNS, Row, latency_rows, operator_rows, prediction_rows, table

#: Columns of the data frames with their data types; those of operators are the columns of operators.csv and one more.
_LATENCIES = {name: column.dtype for name, column in LATENCY_COLUMNS.items()}
_OPERATORS = {
    **dict.fromkeys(("model", "operator", "type"), "string"),
    **dict.fromkeys(("time_ms", "p20_ms", "p80_ms", "utilization", "flops", "bytes"), "float64"),
    "predicted_only": "boolean",
}
_PLACEMENTS = {
    **dict.fromkeys(("model", "label", "times", "operator"), "string"),
    **dict.fromkeys(("device", "stream", "stage"), "Int64"),
    **dict.fromkeys(("start_ms", "finish_ms"), "float64"),
    "width": "Int64",
}
_COSTS = {
    **dict.fromkeys(("model", "kind", "operator", "source", "target"), "string"),
    "groups": "object",
    **dict.fromkeys(("time_ms", "p20_ms", "p80_ms", "low_ms", "high_ms"), "float64"),
    "repeats": "Int64",
}


@dataclass(frozen=True)
class Results:
    """The results of one or several networks as data frames.

    They share their key columns and merge on them: ``model`` names a network, ``label`` a schedule of it, and
    ``operator`` one of its operators. What was not measured or does not apply is missing (``NaN`` or ``NA``).

    Attributes:
        latencies: what `hios report` writes as latency.csv. A row for each ``model`` and ``label``; ``kind`` is
            schedule, auto, baseline, reference or ceiling; ``algorithm``, ``parameters`` (JSON), ``devices``,
            ``threads``, ``runs``; ``measured_median_ms`` and the 20th and 80th percentile over the runs,
            ``measured_p20_ms`` and ``measured_p80_ms``; ``speedup`` over the sequential schedule on one device with the
            ends of its 95 % interval, ``speedup_low`` and ``speedup_high``; ``share_of_ceiling`` and
            ``throughput_ratio`` (ratios); ``predicted_ms``, ``prediction_error`` (ratio) and
            ``predicted_lower_bound_ms`` under the cost model; ``scheduling_time_s``; ``largest_difference`` in units
            of the network's output; ``virtual``: whether devices shared cores or GPUs; ``drift``, how many times as
            long the machine's probe took while schedules ran as while costs were measured, with the ends of its 95 %
            interval, ``drift_low`` and ``drift_high``; ``error_beyond_drift``, the prediction error without it
            (ratios); ``predicted_only``: whether the costs are predicted for GPUs that are not here (platform model).
        operators: a row for each ``model`` and ``operator``, in the order of the graph: ``type``, t(v) as ``time_ms``
            with percentiles ``p20_ms`` and ``p80_ms`` over the repeats, ``utilization`` in (0, 1], ``flops`` with a
            multiply-add as two, ``bytes`` read and written; ``predicted_only`` as above.
        placements: a row for each ``model``, ``label``, ``times`` (predicted or measured) and ``operator``, in launch
            order: ``device``, ``stream``, ``stage`` (missing in stream schedules), ``start_ms``, ``finish_ms``;
            ``width``, the number of devices that it takes at once, of which ``device`` is the first.
        costs: a row for each entry of costs.json. ``kind`` is operator, transfer, stage or merge, and says which of
            ``operator``, ``source`` and ``target`` or ``groups`` (tuple of tuples of operators) are there;
            ``time_ms``, its percentiles ``p20_ms`` and ``p80_ms``, the 95 % interval of the median, ``low_ms`` and
            ``high_ms``, and ``repeats``. Transfers of a link model have its times.

    Examples:
        >>> import hios
        >>> results = hios.load_results("results")  # doctest: +SKIP
        >>> results.latencies[["model", "label", "measured_median_ms", "speedup"]]  # doctest: +SKIP
        >>> results.costs.query("kind == 'operator'").groupby("model").time_ms.sum()  # doctest: +SKIP
    """

    latencies: pd.DataFrame
    operators: pd.DataFrame
    placements: pd.DataFrame
    costs: pd.DataFrame


#: A network that was executed, or was not.
_Model = ModelResults | ModelPredictions


def load_results(folder: str | Path) -> Results:
    """Read what the pipeline wrote as pandas data frames.

    Networks without run.json take part with their predictions: their schedules are read from ``schedules/``.

    Args:
        folder: the results folder, such as ``results``, or the folder of one network within it.

    Returns:
        Data frames with times in milliseconds; see `Results`.

    Raises:
        ArtifactError: there is no graph.json, or a file is missing, damaged or does not fit the others.

    Examples:
        >>> import hios
        >>> results = hios.load_results("results")  # doctest: +SKIP
        >>> schedules = results.latencies.query("kind == 'schedule'")  # doctest: +SKIP
        >>> schedules.pivot(index="model", columns="label", values="speedup")  # doctest: +SKIP
        >>> slowest = results.operators.nlargest(10, "time_ms")  # doctest: +SKIP
        >>> slowest.merge(results.placements, on=["model", "operator"])  # doctest: +SKIP
    """
    folder = Path(folder)
    directories = (
        [folder] if (folder / "graph.json").is_file() else sorted(p.parent for p in folder.glob("*/graph.json"))
    )
    if not directories:
        raise ArtifactError(
            f"{folder}: found no graph.json in it or in its folders; allowed: the results folder of the pipeline, or "
            "the folder of a network in it"
        )
    models = told_apart([_read(directory) for directory in directories], path_ends(directories))
    return Results(
        latencies=_frame(_LATENCIES, models, _latencies),
        operators=_frame(_OPERATORS, models, _operators),
        placements=_frame(_PLACEMENTS, models, _placements),
        costs=_frame(_COSTS, models, _costs),
    )


def _read(directory: Path) -> _Model:
    if (directory / "run.json").is_file() and not is_predicted(directory):
        return read_model(directory)
    graph = Graph.read(directory / "graph.json")
    schedules = {path.stem: Schedule.read(path) for path in sorted((directory / "schedules").glob("*.json"))}
    costs = artifacts.load(directory / "costs.json", CostsFile)
    predictions = model_predictions(graph, costs, schedules, str(directory / "costs.json"))
    return replace(predictions, name=graph.name or directory.resolve().name)


def _frame(
    columns: Mapping[str, str], models: Sequence[_Model], rows_of: Callable[[_Model], Iterable[Row]]
) -> pd.DataFrame:
    return table(columns, (row | {"model": model.name} for model in models for row in rows_of(model))).astype(columns)


def _latencies(model: _Model) -> Iterator[Row]:
    if isinstance(model, ModelPredictions):
        rows, platform = prediction_rows(model.name, model.graph, model.schedules, model.costs), model.costs.platform
    else:
        rows, platform = latency_rows(model), model.run.platform
    virtual = platform is not None and bool(platform.virtual)
    for row in rows:
        yield row | {"virtual": virtual, "predicted_only": bool(row.get("predicted_only"))}


def _operators(model: _Model) -> Iterator[Row]:
    for row in operator_rows(model.name, model.graph, model.costs):
        yield row | {
            "utilization": model.costs.operators[row["operator"]].utilization or 1.0,
            "predicted_only": bool(row["predicted_only"]),
        }


def _placements(model: _Model) -> Iterator[Row]:
    if isinstance(model, ModelPredictions):
        for label, schedule in model.schedules.items():
            yield from _rows(label, "predicted", schedule.placements)
        return
    for result in model.run.results:
        yield from _rows(result.label, "predicted", result.predicted)
        yield from _rows(result.label, "measured", result.measured)


def _rows(label: str, times: str, placements: Iterable[Placement]) -> Iterator[Row]:
    for placement in placements:
        width = len(placement.held_devices)
        yield {"label": label, "times": times, **msgspec.structs.asdict(placement), "width": width}


def _costs(model: _Model) -> Iterator[Row]:
    for operator, entry in model.costs.operators.items():
        yield {"kind": "operator", "operator": operator, **_times(entry)}
    for transfer in _transfers(model):
        ends = {"source": transfer.source, "target": transfer.target}
        yield {"kind": "transfer", **ends, **_times(transfer)}
    for stage in model.costs.stages or ():
        yield {"kind": "stage", "groups": stage.groups, **_times(stage)}
    for merge in model.costs.merges or ():
        groups = tuple((operator,) for operator in merge.operators)
        yield {"kind": "merge", "groups": groups, **_times(merge)}


def _transfers(model: _Model) -> Iterable[TransferCost]:
    """The transfers, also where costs.json has a link model instead of them."""
    measured = model.costs.transfers
    if isinstance(measured, tuple):
        return measured
    costs = Costs.of(model.costs, str(Path(model.graph.source).with_name("costs.json")))
    largest: dict[tuple[str, str], float] = {}  # values of two operators are sent at the same time
    for edge in model.graph.edges:
        ends = (edge.source, edge.target)
        largest[ends] = max(largest.get(ends, 0.0), costs.transfer_ms(edge))
    return [TransferCost(source=source, target=target, time_ms=ms) for (source, target), ms in largest.items()]


def _times(entry: OperatorCost | TransferCost | StageCost | MergeCost) -> Row:
    low, high = entry.interval_ms or (None, None)
    return {
        "time_ms": entry.time_ms,
        "p20_ms": entry.p20_ms,
        "p80_ms": entry.p80_ms,
        "repeats": entry.repeats,
        "low_ms": low,
        "high_ms": high,
    }
