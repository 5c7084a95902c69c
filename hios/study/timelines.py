"""Predicted timelines of operators that could run side by side, and their launch order (Opara, figures 6 and 7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hios.charts import marks
from hios.core.graph import GraphFile
from hios.core.schedule import ScheduleFile
from hios.formats.partition import GpuPrediction
from hios.study import predicted_rows as predicted
from hios.study.figure_data import PredictedNetwork
from hios.study.rows import Rows, grouped

if TYPE_CHECKING:
    import altair as alt

_START, _FINISH = "start ms", "finish ms"
_WIDTH, _STEP = 330, 20


def timelines_of(*networks: str) -> Callable[[str, PredictedNetwork, GpuPrediction], Rows]:
    """Makes rows of networks whose labels begin with one of these: a row for an operator of the segment and schedule.

    The segment is the most operators that depend on the same ones; of several such sets the first. In GoogLeNet they
    begin the branches of its first block. Rows are in the order of launches, and times begin with the segment.
    """

    def made(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
        segment = frozenset(_segment(network.graph)) if label.startswith(networks) else frozenset()
        schedules = prediction.schedules.items() if segment else ()
        return [row for name, schedule in schedules for row in _timeline(label, name, schedule, segment)]

    return made


def _segment(graph: GraphFile) -> list[str]:
    """The operators whose timeline is shown; empty where none depends on another."""
    before: dict[str, set[str]] = {}
    for edge in graph.edges:
        before.setdefault(edge.target, set()).add(edge.source)
    alike: dict[frozenset[str], list[str]] = {}
    for operator in graph.operators:
        if operator.id in before:
            alike.setdefault(frozenset(before[operator.id]), []).append(operator.id)
    return max(alike.values(), key=len, default=[])


def _timeline(label: str, name: str, schedule: ScheduleFile, segment: frozenset[str]) -> Rows:
    own = [row for row in schedule.placements if row.operator in segment]
    begin = min(row.start_ms for row in own)
    about = {
        **predicted.prediction_row(label, name, schedule.algorithm, schedule.devices),
        "ms": schedule.latency_ms,
        "streams": len({row.stream for row in schedule.placements}),
    }
    return [
        {
            **about,
            "operator": row.operator,
            "stream": row.stream,
            _START: row.start_ms - begin,
            _FINISH: row.finish_ms - begin,
        }
        for row in own
    ]


def at_once(rows: Rows) -> dict[str, float]:
    """The most operators of the segment that run at the same time, by algorithm; none where rows have no timeline."""
    return {
        algorithm: float(max(sum(row[_START] <= at[_START] < row[_FINISH] for row in own) for at in own))
        for algorithm, own in grouped([row for row in rows if _START in row], "algorithm").items()
    }


def words(rows: Rows) -> str:
    """For every GPU and network: how many operators of the segment run at once, and which is launched first."""
    sentences = []
    for (gpu, network), own in grouped(rows, lambda row: (row["hardware"], row["network"])).items():
        by_algorithm = grouped(own, "algorithm")
        count = len(next(iter(by_algorithm.values())))
        texts = [
            f"{most:g} by {name} ({by_algorithm[name][0]['ms']:.3g} ms in all, first "
            f"{by_algorithm[name][0]['operator']})"
            for name, most in at_once(own).items()
        ]
        sentences.append(
            f"Predicted for {gpu}: of the {count} operators of {network} that could run side by side, depending on "
            f"the same ones, so many run at once: {', '.join(texts)}."
        )
    return " ".join(sentences)


def chart(rows: Rows) -> alt.TopLevelMixin:
    """A bar for every operator of the segment, from its start to its finish, on its stream."""
    import altair as alt

    shown = [
        {
            **row,
            "place": f"{row['network']}, {row['schedule']}, stream {row['stream']}",
            "description": f"{row['network']}, {row['schedule']}, stream {row['stream']}: {row['operator']} from "
            f"{row[_START]:.4g} to {row[_FINISH]:.4g} ms, {row['mark']}",
        }
        for row in rows
    ]
    places = list(dict.fromkeys(row["place"] for row in shown))
    looks = marks.colors(list(dict.fromkeys(row["operator"] for row in shown)), "operator")
    drawn: alt.Chart = (
        marks.inline(shown)
        .mark_bar(strokeWidth=1.2)
        .encode(
            alt.X(f"{_START}:Q", title="time since the first of them began, ms"),
            alt.X2(f"{_FINISH}:Q"),
            alt.Y("place:N", sort=places, title=None, axis=alt.Axis(labelLimit=260)),
            *looks.values(),
            marks.dash(shown, legend=True),
            marks.fill(shown),
            alt.Description("description:N"),
        )
        .properties(width=_WIDTH, height=alt.Step(_STEP))
    )
    return drawn
