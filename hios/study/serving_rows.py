"""What figures of TOP have in common: rows of policies and of experiments, comparisons and charts.

Rows of policies are results of serving; rows of experiments are points of simulations. The paper's systems by their
policies here: `sequential` stands for frameworks that run one operator after another, `ios` for IOS; `pos-strict` and
`pos-relaxed` are POS-like, as POS's code is not public. Numbers of the paper are of a GPU: only simulations with costs
of a GPU are compared with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hios.charts import marks
from hios.formats.serving_result import ResultFile
from hios.formats.study import JAIN, OF_MODEL, VARIANCE, Experiment
from hios.formats.study import TOP as TOP
from hios.serving.objective import by_model, evenness
from hios.study.figure_data import FigureData
from hios.study.published import Comparison, comparisons
from hios.study.rows import Row, Rows, predicted

if TYPE_CHECKING:
    import altair as alt

#: What one task at a time is served by, and synchronous rounds: the paper's baselines.
SINGLE, ROUNDS = ("sequential", "ios"), ("pos-strict", "pos-relaxed")
#: A column: of each model what its values OF_MODEL say.
_BY_MODEL = "tasks per s by model"
#: What stands beside every gain.
BESIDE = (_BY_MODEL, JAIN, VARIANCE)
#: Share of the best throughput from which on it counts as saturated.
SATURATED = 0.95
#: The same of a learning curve: as far above or below the best value.
_CONVERGED = 0.01


def policy_rows(data: FigureData, *, several: bool) -> Rows:
    """A row for every result of scenarios of one model, or of several.

    Where the experiment `systems` trained TOP, its rows are of that; the policy top is among its ablations.
    """
    learned = [row for row in _top_rows(data) if (row["models"] > 1) is several]
    return learned + [
        _row(label, result)
        for label, results in data.serving.items()
        for result in sorted(results, key=lambda result: (result.load, result.simulated))
        if (len(result.models) > 1) is several and not (learned and result.policy == TOP)
    ]


def _top_rows(data: FigureData) -> Rows:
    """Rows of TOP and its ablations as those of policies."""
    return [{"policy": row["system"], "p99 ms": None, **row} for row in point_rows(data, "systems", "load")]


def _row(scenario: str, result: ResultFile) -> Row:
    return {
        "scenario": scenario,
        "models": len(result.models),
        "policy": result.policy,
        "load": result.load,
        "device": result.device or "lanes",
        "mark": marks.PREDICTED.name if result.simulated else marks.MEASURED.name,
        "offered per s": result.offered_per_s,
        "tasks per s": result.done_per_s,
        _BY_MODEL: by_model(result.done_by_model),
        "bound per s": result.bound_per_s,
        "work done %": 100 * result.work_share,
        "device busy %": 100 * result.utilisation,
        VARIANCE: result.queue_variance,
        "queue limit": max(served.queue or 0 for served in result.models.values()) or None,
        "p99 ms": result.total.p99_ms,
        JAIN: result.jain,
    }


def gains(rows: Rows, column: str, over: Iterable[str]) -> dict[float, list[float]]:
    """By how many per cent TOP has more of a column than other policies, predicted; by load."""
    values = {(row["scenario"], row["load"], row["policy"]): float(row[column]) for row in predicted(rows)}
    names = list(over)
    percents: dict[float, list[float]] = {}
    for (scenario, load, policy), value in values.items():
        others = [values.get((scenario, load, name), 0.0) for name in names] if policy == TOP else []
        for other in others:
            if other > 0:
                percents.setdefault(load, []).append(100 * (value / other - 1))
    return dict(sorted(percents.items()))


def on_gpu(rows: Rows, name: str = "") -> bool:
    """Whether rows are predictions for a GPU, as the published numbers are of GPUs; for one of this name, if given."""
    return bool(rows) and all(row["device"] == "gpu" and name.lower() in row.get("gpu", "").lower() for row in rows)


def compared_gains(
    figure: str, statement: str, rows: Rows, column: str, over: Sequence[str], *, all_loads: bool = False
) -> list[Comparison]:
    """The least and the largest gain of TOP in a column beside a published statement; nothing on lanes.

    Every load counts, or the highest alone, at which nothing keeps up.
    """
    by_load = gains(rows, column, over)
    values = [value for load in (by_load if all_loads else list(by_load)[-1:]) for value in by_load[load]]
    return comparisons(figure, {statement: (min(values), max(values)) if values and on_gpu(rows) else None})


def gain_finding(rows: Rows, column: str, over: Sequence[str]) -> str:
    """A sentence on what TOP gains at each load."""
    by_load = gains(rows, column, over)
    others = [f"{name} (POS-like)" if name in ROUNDS else name for name in over]
    if not by_load:
        return f"No scenario has top and {' or '.join(others)} at one load."
    what = "predicted for a GPU" if on_gpu(rows) else "predicted on lanes, so not compared with the paper's GPUs"
    texts = [f"{min(values):+.1f} to {max(values):+.1f} % at load {load:g}" for load, values in by_load.items()]
    behind = [row for row in predicted(rows) if row["models"] > 1 and row["policy"] in (TOP, *over)]
    served = beside_gains(behind, lambda row: f"{row['scenario']}, load {row['load']:g}, {row['policy']}")
    return f"top over {' and '.join(others)} in {column}, {what}: {'; '.join(texts)}.{served}"


def beside_gains(rows: Iterable[Row], place: Callable[[Row], str]) -> str:
    """What the models get in the rows behind a gain, and how evenly; nothing of rows of older files, which lack it."""
    shown = [
        f"{place(row)}: {row[_BY_MODEL]} tasks/s, {evenness(row[JAIN], row[VARIANCE])}" for row in rows if JAIN in row
    ]
    return f" By model: {'; '.join(shown)}." if shown else ""


def why(rows: Rows) -> str:
    """What limits every policy, with numbers: the bound, and what rounds that wait for all models can do at most."""
    own = predicted(rows)
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
            " Strict rounds (POS-like) wait for all models and cannot pass their number times the smallest rate: "
            f"{least['tasks per s']:.4g} of {least['offered per s']:.4g} tasks/s at load {least['load']:g}."
        )
    return (
        f"{text} The paper's systems are not public: policies here are ours, with IOS's stages, untuned to its numbers."
    )


def policy_bars(column: str, title: str) -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes bars of a column by scenario, load and policy."""
    return marks.bar_chart(
        column,
        title,
        place=lambda row: f"{row['scenario']}, load {row['load']:g}, {row['policy']}",
        series="policy",
        words=lambda row: f"{row['policy']}, {row['scenario']}, load {row['load']:g}: {row[column]:.4g}, {row['mark']}",
    )


def point_rows(data: FigureData, experiment: Experiment, x: str) -> Rows:
    """A row for every point of an experiment, with what is varied in the column ``x``."""
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
            "mark": marks.PREDICTED.name,
            **{name: value for name, value in point.values.items() if not name.startswith(OF_MODEL)},
            **_models_of(point.values),
        }
        for point in study.points
    ]


def _models_of(values: Mapping[str, float]) -> Row:
    """The column of what the models get; none where that is not known."""
    rates = {name.removeprefix(OF_MODEL): rate for name, rate in values.items() if name.startswith(OF_MODEL)}
    return {_BY_MODEL: by_model(rates)} if rates else {}


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

    Otherwise the end of what was tried would decide on a verdict: there is no place then, of any curve. Flat curves are
    left out.
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
    """Why learning curves are not compared, and what to set under `study: top:`; empty if they are long enough."""
    followed = [max(over) for over in curves if not is_flat(over)]
    if not followed or min(followed) > published:
        return ""
    return (
        f" No verdict: curves of {min(followed):g} steps cannot show convergence after {published:g} "
        f"(study: top: {key}: {1.5 * published:g} can)."
    )


def point_lines(
    x: str, column: str, title: str, series: Callable[[Row], str], *, log: bool = False
) -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes lines of a column over what is varied."""
    return marks.line_chart(
        x,
        column,
        series=series,
        words=lambda row: f"{series(row)}, {x} {row[x]:g}: {row[column]:.4g} {title}",
        x_axis=lambda rows: {
            "scale": {"type": "log", "base": 2} if log else {"zero": False},
            # Ticks at all values, if these are few.
            "axis": {"values": values} if len(values := sorted({row[x] for row in rows})) <= 10 else {"tickCount": 8},
        },
        y_axis={"title": title},
        size={"width": 420, "height": 260},
    )


def point_bars(place: Callable[[Row], str], column: str, title: str) -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes bars of a column, one for every place in words, by system."""
    return marks.bar_chart(
        column,
        title,
        place=place,
        series="system",
        words=lambda row: f"{place(row)}: {row[column]:.4g} {title}",
    )
