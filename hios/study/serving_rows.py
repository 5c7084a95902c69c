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
        "policy": result.policy,
        "load": result.load,
        "device": result.device or "lanes",
        "mark": marks.PREDICTED.name if result.simulated else marks.MEASURED.name,
        "offered per s": result.total.offered / (result.duration_s * result.repeats),
        "tasks per s": done,
        "bound per s": result.bound_per_s,
        "utilisation %": 100 * result.utilisation,
        "queue variance": result.queue_variance,
        "p99 ms": result.total.p99_ms,
        "Jain's index": result.jain,
    }


def gains(rows: Rows, column: str, over: Iterable[str]) -> list[float]:
    """By how many per cent TOP has more of a column than other policies, at the highest load of every scenario.

    Args:
        rows: of policies.
        column: a number above 0.
        over: names of the policies.
    """
    found = []
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        own = [row for row in rows if row["scenario"] == scenario and row["mark"] == marks.PREDICTED.name]
        most = max((row["load"] for row in own), default=0.0)
        values = {row["policy"]: row[column] for row in own if row["load"] == most}
        found += [
            100 * (values[TOP] / values[name] - 1) for name in over if TOP in values and values.get(name, 0.0) > 0
        ]
    return found


def on_gpu(rows: Rows) -> bool:
    """Whether rows are predictions for a GPU, as the published numbers are of GPUs."""
    return bool(rows) and all(row["device"] == "gpu" for row in rows)


def compare_gains(figure: str, column: str, over: Sequence[str]) -> Callable[[Rows], list[Comparison]]:
    """Compares the gain of TOP in a column with the statement ``gain`` of a figure.

    Args:
        figure: id in published.yaml.
        column: of the rows.
        over: policies that stand for the paper's baselines.
    """

    def compare(rows: Rows) -> list[Comparison]:
        found = gains(rows, column, over) if on_gpu(rows) else []
        return [Comparison(published(figure)["gain"], (min(found), max(found)))] if found else []

    return compare


def finding(column: str, over: Sequence[str]) -> Callable[[Rows], str]:
    """Makes a sentence on what TOP gains, and how far every policy is from the bound."""

    def say(rows: Rows) -> str:
        found = gains(rows, column, over)
        what = "on lanes, so not compared with the paper's GPUs" if not on_gpu(rows) else "predicted for a GPU"
        if not found:
            return f"No scenario has top and {' or '.join(over)} at one load."
        low, high = min(found), max(found)
        return f"top over {' and '.join(over)} at the highest load, {what}: {low:+.1f} to {high:+.1f} % ({column})."

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
    if any(row["policy"] == "pos-strict" for row in shown):
        text += " Strict rounds wait for all models and cannot pass their number times the smallest rate."
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
