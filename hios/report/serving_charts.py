"""Charts of the serving part: goodput of the policies, and their 99th percentiles over load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hios.charts import marks
from hios.charts.rendering import to_svg
from hios.report.serving_results import ServedScenario, serving_rows
from hios.report.tables import View

#: Pixels: the plot, and a bar.
_WIDTH, _BAR, _HEIGHT = 760, 16, 260
_BOUND = "no policy can pass"


def serving_charts(scenario: ServedScenario, identity: str) -> list[str]:
    """Charts as SVG: goodput, and p99 over load where there are several loads.

    Args:
        scenario: with its results.
        identity: of the drawings among all of a page.
    """
    rows = serving_rows(scenario)
    charts = [_goodput(scenario.label, rows, f"{identity}-goodput")]
    if len({row["load"] for row in rows}) > 1 and any(row["p99"] is not None for row in rows):
        charts.append(_percentiles(scenario.label, rows, f"{identity}-p99"))
    return charts


def _goodput(label: str, rows: Sequence[View], identity: str) -> str:
    import altair as alt

    shown = [
        {
            "place": f"{row['policy']}, load {row['load']:g}",
            "policy": row["policy"],
            "goodput": row["goodput"],
            "mark": row["mark"],
            "description": f"{row['policy']}, load {row['load']:g}\n{row['mark']}: {row['goodput']:.3g} tasks/s within "
            f"their SLO",
        }
        for row in rows
    ]
    bounds = {row["load"]: row["bound"] for row in rows}
    shown += [
        {
            "place": f"{_BOUND}, load {load:g}",
            "policy": _BOUND,
            "goodput": bound,
            "mark": marks.BOUND.name,
            "description": f"no policy completes more than {bound:.3g} tasks/s at load {load:g}",
        }
        for load, bound in bounds.items()
    ]
    loads = list(bounds)
    places = list(dict.fromkeys(f"{name}, load {load:g}" for load in loads for name in _names(rows, load)))
    beside = alt.YOffset("mark:N", scale=alt.Scale(domain=[mark.name for mark in marks.used(shown)]))
    y = alt.Y("place:N", title=None, sort=None, scale=alt.Scale(domain=places), axis=alt.Axis(labelLimit=320))
    chart = marks.bars(
        shown,
        x=alt.X("goodput:Q", title="tasks within their SLO, per second", axis=alt.Axis(tickCount=8)),
        y=y,
        series="policy",
        beside=beside,
    )
    return _drawn(chart, f"Tasks within their SLO of every policy, scenario {label}", identity, len(shown) * _BAR)


def _names(rows: Sequence[View], load: float) -> list[str]:
    """Policies of a load, then its bound."""
    return [*(row["policy"] for row in rows if row["load"] == load), _BOUND]


def _percentiles(label: str, rows: Sequence[View], identity: str) -> str:
    import altair as alt

    shown = [
        {
            "policy": row["policy"],
            "load": row["load"],
            "p99": row["p99"],
            "mark": row["mark"],
            "description": f"{row['policy']}, load {row['load']:g}\n{row['mark']}: {row['p99']:.4g} ms",
        }
        for row in rows
        if row["p99"] is not None and row["p99"] > 0
    ]
    x = alt.X(
        "load:Q",
        title="load",
        scale=alt.Scale(zero=False, padding=20),
        axis=alt.Axis(values=sorted({row["load"] for row in rows})),
    )
    y = alt.Y("p99:Q", title="99th percentile, ms", scale=alt.Scale(type="log"))
    chart = marks.lines(shown, x=x, y=y, series="policy")
    return _drawn(chart, f"99th percentile of the latency over load, scenario {label}", identity, _HEIGHT)


def _drawn(chart: Any, description: str, identity: str, height: int) -> str:
    return to_svg(chart.properties(width=_WIDTH, height=height, description=description), identity)
