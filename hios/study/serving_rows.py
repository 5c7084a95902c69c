"""What figures of TOP have in common: rows of policies from results of serving, comparisons and charts.

The paper's systems by their policies here: `sequential` stands for frameworks that run one operator after another,
`ios` for IOS, `pos-strict` and `pos-relaxed` for POS, of which no code is public. Numbers of the paper are of a GPU:
only simulations with costs of a GPU are compared with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from hios.charts import marks
from hios.formats.serving_result_file import ResultFile
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.verdicts import Comparison

if TYPE_CHECKING:
    import altair as alt

    from hios.study.registry import Row, Rows

_WIDTH, _STEP = 420, 22
#: What one task at a time is served by, and synchronous rounds: the paper's baselines.
SINGLE, ROUNDS = ("sequential", "ios"), ("pos-strict", "pos-relaxed")
#: TOP as published: combined blocks one at a time.
TOP = "top"


def policy_rows(data: FigureData, *, several: bool) -> Rows:
    """A row for every result of scenarios of one model, or of several.

    Args:
        data: with results of serving.
        several: whether scenarios of several models are wanted.
    """
    return [
        _row(label, result)
        for label, results in data.serving.items()
        for result in sorted(results, key=lambda result: (result.load, result.simulated))
        if (len(result.models) > 1) is several
    ]


def _row(scenario: str, result: ResultFile) -> Row:
    done = result.total.completed / (result.duration_s * result.repeats)
    return {
        "scenario": scenario,
        "models": len(result.models),
        "policy": result.policy,
        "load": result.load,
        "device": result.device or "lanes",
        "mark": marks.PREDICTED.name if result.simulated else marks.MEASURED.name,
        "offered per s": result.total.offered / (result.duration_s * result.repeats),
        "tasks per s": done,
        "bound per s": result.bound_per_s,
        "work done %": 100 * result.work_share,
        "device busy %": 100 * result.utilisation,
        "queue variance": result.queue_variance,
        "queue limit": max(served.queue or 0 for served in result.models.values()) or None,
        "p99 ms": result.total.p99_ms,
        "Jain's index": result.jain,
    }


def gains(rows: Rows, column: str, over: Iterable[str]) -> dict[float, list[float]]:
    """By how many per cent TOP has more of a column than other policies, predicted; by load.

    Args:
        rows: of policies.
        column: a number above 0.
        over: names of the policies.
    """
    values = {
        (row["scenario"], row["load"], row["policy"]): float(row[column])
        for row in rows
        if row["mark"] == marks.PREDICTED.name
    }
    names = list(over)
    percents: dict[float, list[float]] = {}
    for (scenario, load, policy), value in values.items():
        others = [values.get((scenario, load, name), 0.0) for name in names] if policy == TOP else []
        for other in others:
            if other > 0:
                percents.setdefault(load, []).append(100 * (value / other - 1))
    return dict(sorted(percents.items()))


def range_of(by_load: dict[float, list[float]], *, all_loads: bool) -> tuple[float, float] | None:
    """The least and the largest gain, at all loads or at the highest; None without any."""
    values = [value for load in (by_load if all_loads else list(by_load)[-1:]) for value in by_load[load]]
    return (min(values), max(values)) if values else None


def on_gpu(rows: Rows) -> bool:
    """Whether rows are predictions for a GPU, as the published numbers are of GPUs."""
    return bool(rows) and all(row["device"] == "gpu" for row in rows)


def compare_gains(
    figure: str, column: str, over: Sequence[str], *, all_loads: bool = False
) -> Callable[[Rows], list[Comparison]]:
    """Compares the gain of TOP in a column with the statement ``gain`` of a figure.

    Args:
        figure: id in published.yaml.
        column: of the rows.
        over: policies that stand for the paper's baselines.
        all_loads: whether every load counts, or the highest, at which nothing keeps up.
    """

    def compare(rows: Rows) -> list[Comparison]:
        gain = range_of(gains(rows, column, over), all_loads=all_loads) if on_gpu(rows) else None
        return [] if gain is None else [Comparison(published(figure)["gain"], gain)]

    return compare


def finding(column: str, over: Sequence[str]) -> Callable[[Rows], str]:
    """Makes a sentence on what TOP gains at each load."""

    def say(rows: Rows) -> str:
        by_load = gains(rows, column, over)
        if not by_load:
            return f"No scenario has top and {' or '.join(over)} at one load."
        what = "predicted for a GPU" if on_gpu(rows) else "predicted on lanes, so not compared with the paper's GPUs"
        texts = [f"{min(values):+.1f} to {max(values):+.1f} % at load {load:g}" for load, values in by_load.items()]
        return f"top over {' and '.join(over)} in {column}, {what}: {'; '.join(texts)}."

    return say


def why(rows: Rows) -> str:
    """What limits every policy, with numbers: the bound, and what rounds that wait for all models can do at most."""
    own = [row for row in rows if row["mark"] == marks.PREDICTED.name]
    if not own:
        return ""
    most = max(row["load"] for row in own)
    shown = [row for row in own if row["load"] == most]
    best = max(shown, key=lambda row: float(row["tasks per s"]))
    text = (
        f"No policy can complete more than {best['bound per s']:.4g} of the {best['offered per s']:.4g} tasks/s that "
        f"arrive in {best['scenario']} at load {most:g}; {best['policy']} completes {best['tasks per s']:.4g}."
    )
    waiting = [row for row in own if row["policy"] == "pos-strict" and row["models"] > 1]
    if waiting:
        least = min(waiting, key=lambda row: float(row["load"]))
        text += (
            " Strict rounds wait for all models and cannot pass their number times the smallest rate: "
            f"{least['tasks per s']:.4g} of {least['offered per s']:.4g} tasks/s at load {least['load']:g}."
        )
    return (
        f"{text} The paper's systems are not public: policies here are ours, with IOS's stages, untuned to its numbers."
    )


def bar_chart(column: str, title: str) -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes bars of a column by scenario, load and policy."""

    def draw(rows: Rows) -> alt.TopLevelMixin:
        import altair as alt

        shown = [
            {
                **row,
                "place": f"{row['scenario']}, load {row['load']:g}, {row['policy']}",
                "description": f"{row['policy']}, {row['scenario']}, load {row['load']:g}: {row[column]:.4g}, "
                f"{row['mark']}",
            }
            for row in rows
        ]
        places = list(dict.fromkeys(row["place"] for row in shown))
        y = alt.Y("place:N", sort=places, title=None, axis=alt.Axis(labelLimit=320))
        x = alt.X(f"{column}:Q", title=title, axis=alt.Axis(tickCount=8))
        drawn: alt.Chart = marks.bars(shown, x=x, y=y, series="policy", beside=alt.YOffset("mark:N"))
        return drawn.properties(width=_WIDTH, height=alt.Step(_STEP))

    return draw
