"""What figures of TOP's experiments have in common: rows of points, saturation, and charts.

All of it is simulated. Numbers of the paper are of GPUs: only experiments with costs of a GPU are compared with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from hios.charts import marks
from hios.formats.top_study_file import Experiment
from hios.study.figure_data import FigureData
from hios.study.serving_rows import TOP as TOP

if TYPE_CHECKING:
    import altair as alt

    from hios.study.registry import Row, Rows

_WIDTH, _HEIGHT, _STEP = 420, 260, 22
#: Share of the best throughput from which on it counts as saturated.
SATURATED = 0.95
#: The same of a learning curve: as far above or below the best value.
_CONVERGED = 0.01


def point_rows(data: FigureData, experiment: Experiment, x: str, *, mark: marks.Mark = marks.PREDICTED) -> Rows:
    """A row for every point of an experiment.

    Args:
        data: with the experiment.
        experiment: its name.
        x: what is varied, the name of its column.
        mark: of its numbers.
    """
    if experiment not in data.top:
        return []
    study = data.top[experiment]
    return [
        {
            "scenario": point.scenario,
            "models": point.models,
            "system": point.system,
            "device": study.device,
            "gpu": study.gpu or "",
            x: int(point.x) if point.x.is_integer() else point.x,
            "mark": mark.name,
            **point.values,
        }
        for point in study.points
    ]


def on_gpu(rows: Rows, name: str = "") -> bool:
    """Whether rows are predictions for a GPU, as the published numbers are of GPUs; for one of this name, if given."""
    return bool(rows) and all(row["device"] == "gpu" and name.lower() in row["gpu"].lower() for row in rows)


def by_scenario(rows: Rows, system: str, x: str, column: str) -> dict[str, dict[float, float]]:
    """A column over what is varied, of one system; by scenario."""
    curves: dict[str, dict[float, float]] = {}
    for row in rows:
        if row["system"] == system and column in row:
            curves.setdefault(row["scenario"], {})[row[x]] = row[column]
    return curves


def saturation(over: Mapping[float, float]) -> float:
    """The least value of what is varied at which nearly the best throughput is reached."""
    best = max(over.values())
    return min(x for x, value in over.items() if value >= SATURATED * best)


def convergence(over: Mapping[float, float], *, falls: bool) -> float:
    """The first step from which on a curve stays within a per cent of its best value."""
    best = (min if falls else max)(over.values())
    near = [abs(value - best) <= _CONVERGED * abs(best) for value in over.values()]
    steps = list(over)
    last_far = max((place for place, close in enumerate(near) if not close), default=-1)
    return steps[min(last_far + 1, len(steps) - 1)]


def settled(
    curves: Iterable[Mapping[float, float]], place: Callable[[Mapping[float, float]], float], published: float
) -> list[float]:
    """Where curves saturate or converge, if what was tried goes beyond that and beyond the published value.

    Otherwise the end of what was tried would decide on a verdict. Flat curves are left out.

    Args:
        curves: each over what is varied.
        place: where one saturates or converges.
        published: value that is compared with.

    Returns:
        A place for every curve; nothing if one of them was not followed far enough.
    """
    followed = [over for over in curves if not is_flat(over)]
    places = [place(over) for over in followed]
    enough = all(max(over) > max(at, published) for over, at in zip(followed, places, strict=True))
    return places if enough else []


def is_flat(over: Mapping[float, float]) -> bool:
    """Whether a curve hardly changes, so that where it converges means nothing."""
    return max(over.values()) - min(over.values()) <= _CONVERGED * abs(max(over.values()))


def fitting(rows: Rows, column: str, what: str) -> list[str]:
    """What the memory of the GPU has room for, by scenario; nothing where it is not known."""
    most = {row["scenario"]: row[column] for row in rows if column in row}
    return [f"up to {number:.0f} {what} of {scenario} fit into the memory" for scenario, number in most.items()]


def unsettled(curves: Iterable[Mapping[float, float]], published: float, key: str) -> str:
    """Why learning curves are not compared, and what to set; empty if they are long enough.

    Args:
        curves: each over steps.
        published: steps until convergence, in the paper.
        key: name of the number of steps under `study: top:`.
    """
    followed = [max(over) for over in curves if not is_flat(over)]
    if not followed or min(followed) > published:
        return ""
    return (
        f" No verdict: curves of {min(followed):g} steps cannot show convergence after {published:g} "
        f"(study: top: {key}: {1.5 * published:g} can)."
    )


def line_chart(
    x: str, column: str, title: str, series: Callable[[Row], str], *, log: bool = False
) -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes lines of a column over what is varied.

    Args:
        x: column that is varied, and title of its axis.
        column: what is plotted.
        title: of its axis.
        series: name of the line of a row.
        log: whether the horizontal axis is logarithmic.
    """

    def draw(rows: Rows) -> alt.TopLevelMixin:
        import altair as alt

        shown = [
            {**row, "series": series(row), "description": f"{series(row)}, {x} {row[x]:g}: {row[column]:.4g} {title}"}
            for row in rows
            if column in row
        ]
        scale = alt.Scale(type="log", base=2) if log else alt.Scale(zero=False)
        values = sorted({row[x] for row in shown})
        axis = alt.Axis(values=values) if len(values) <= 10 else alt.Axis(tickCount=8)
        drawn = marks.lines(
            shown, x=alt.X(f"{x}:Q", scale=scale, axis=axis), y=alt.Y(f"{column}:Q", title=title), series="series"
        )
        layered: alt.TopLevelMixin = drawn.properties(width=_WIDTH, height=_HEIGHT)
        return layered

    return draw


def bar_chart(place: Callable[[Row], str], column: str, title: str) -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes bars of a column, one for every place, by system.

    Args:
        place: of a row, in words.
        column: what is plotted.
        title: of its axis.
    """

    def draw(rows: Rows) -> alt.TopLevelMixin:
        import altair as alt

        shown = [
            {**row, "place": place(row), "description": f"{place(row)}: {row[column]:.4g} {title}"}
            for row in rows
            if column in row
        ]
        y = alt.Y("place:N", sort=[row["place"] for row in shown], title=None, axis=alt.Axis(labelLimit=320))
        x = alt.X(f"{column}:Q", title=title, axis=alt.Axis(tickCount=8))
        drawn = marks.bars(shown, x=x, y=y, series="system", beside=alt.YOffset("mark:N"))
        return drawn.properties(width=_WIDTH, height=alt.Step(_STEP))

    return draw


def texts(parts: Iterable[str]) -> str:
    """Findings of several scenarios in a row."""
    return "; ".join(parts)
