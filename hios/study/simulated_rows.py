"""What figures 7 to 11 of HIOS have in common: latencies and speedups over one parameter of the simulation."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from hios.charts import marks
from hios.formats.study import SimulationFile
from hios.study.figure_data import FigureData
from hios.study.published import Comparison, published
from hios.study.published import comparisons as compared
from hios.study.registry import Drawing
from hios.study.rows import Row, Rows

if TYPE_CHECKING:
    import altair as alt

HIOS, RELEASED = "hios", "released program"
#: Shown beside the paper's algorithms; heft and the inter-GPU parts are in the table alone, for colors run out.
_SHOWN = ("sequential", "ios", "hios-mr", "hios-lp", "hios-opt")
_COMPARED = ("hios-lp", "hios-mr")
_WIDTH, _HEIGHT = 330, 260
#: From rows, what varies, and a program: for every statement, by name, values by what varies.
Numbers = Callable[[Rows, str, str], Mapping[str, Mapping[str, float]]]


def drawing(figure: str, varied: str, title: str, numbers: Numbers) -> Drawing:
    """How a figure over one parameter of the simulation is drawn; ``title`` is that of its axis."""
    return {
        "rows": lambda data: rows_over(data, varied),
        "chart": lambda rows: chart_over(rows, figure, varied, title),
        "compare": lambda rows: comparisons(figure, rows, varied, numbers),
        "explain": lambda rows: reason_over(rows, varied),
    }


def rows_over(data: FigureData, name: str) -> Rows:
    """The table of the series in which ``name`` varies: a row for every value, algorithm and program.

    Latencies are means over instances with their standard deviation, in milliseconds; speedups are quotients of means,
    as the paper's. The bound is the mean of the bounds.
    """
    files = sorted(data.simulations, key=lambda file: float(getattr(file.setting, name)))
    return [row for file in files for row in _rows_of(file, name)]


def _rows_of(file: SimulationFile, name: str) -> Rows:
    value = getattr(file.setting, name)
    of_hios = _by_algorithm([instance.latency_ms for instance in file.instances])
    of_released = _by_algorithm([{**instance.even_layers_ms, **instance.released_ms} for instance in file.instances])
    rows = [
        {name: value, "algorithm": algorithm, "program": program, **_numbers(marks.PREDICTED, numbers, latencies)}
        for program, latencies in ((HIOS, of_hios), (RELEASED, of_released))
        for algorithm, numbers in latencies.items()
    ]
    bounds = _numbers(marks.BOUND, [instance.bound_ms for instance in file.instances], of_hios)
    return [*rows, {name: value, "algorithm": "hios-opt", "program": HIOS, **bounds}]


def _by_algorithm(instances: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    return {algorithm: [latencies[algorithm] for latencies in instances] for algorithm in instances[0]}


def _numbers(mark: marks.Mark, numbers: Sequence[float], latencies: Mapping[str, Sequence[float]]) -> Row:
    """The columns of numbers in a row; speedups are over latencies by algorithm."""
    mean = statistics.mean(numbers)
    return {
        "mark": mark.name,
        "instances": len(numbers),
        "mean ms": mean,
        "sd ms": statistics.stdev(numbers) if len(numbers) > 1 else None,
        **{f"speedup over {base}": statistics.mean(latencies[base]) / mean for base in ("sequential", "ios")},
    }


def values_of(rows: Rows, name: str, algorithm: str, column: str, program: str = HIOS) -> dict[str, float]:
    """The values of a column for one algorithm, by the value of the parameter that varies, as text."""
    return {
        f"{row[name]:g}": row[column]
        for row in rows
        if (row["algorithm"], row["program"], row["mark"]) == (algorithm, program, marks.PREDICTED.name)
    }


def quotients(rows: Rows, name: str, slower: str, faster: str, program: str = HIOS) -> dict[str, float]:
    """Mean latency of one algorithm over that of another, by the value of what varies."""
    above, below = (values_of(rows, name, algorithm, "mean ms", program) for algorithm in (slower, faster))
    return {value: above[value] / below[value] for value in above}


def comparisons(figure: str, rows: Rows, varied: str, numbers: Numbers) -> list[Comparison]:
    """Each published statement beside the equations' number and that of the released program."""
    return [one for program in (HIOS, RELEASED) for one in compared(figure, numbers(rows, varied, program), program)]


def reason_over(rows: Rows, name: str) -> str:
    """The sentence on why hios and the paper differ, which the third line of every figure shows."""
    ranges = []
    for program in (HIOS, RELEASED):
        values = values_of(rows, name, "hios-lp", "speedup over sequential", program).values()
        ranges.append(f"{min(values):.2f} to {max(values):.2f}")
    return (
        f"By the paper's equations HIOS-LP is {ranges[0]} times as fast as sequential scheduling; with the "
        f"deviations of the program behind the paper's numbers it is {ranges[1]} times as fast."
    )


def speedups(rows: Rows, name: str, program: str) -> dict[str, dict[str, float]]:
    """The speedups that figures 7, 9 and 11 state, by name of the statement."""
    return {
        f"{short}_over_{base}": values_of(rows, name, algorithm, f"speedup over {base}", program)
        for short, algorithm in (("lp", "hios-lp"), ("mr", "hios-mr"))
        for base in ("sequential", "ios")
    }


def chart_over(rows: Rows, figure: str, name: str, title: str) -> alt.TopLevelMixin:
    """Latencies with their standard deviation, and speedups over sequential beside published ones."""
    import altair as alt

    values = sorted({row[name] for row in rows})
    x = alt.X(f"{name}:Q", title=title, scale=alt.Scale(zero=False), axis=alt.Axis(values=values))
    left = [
        {**row, "description": _words(row, name)}
        for row in rows
        if row["program"] == HIOS and row["algorithm"] in _SHOWN
    ]
    deviations = [
        {**row, "low": row["mean ms"] - row["sd ms"], "high": row["mean ms"] + row["sd ms"]}
        for row in left
        if row["sd ms"] is not None and row["mark"] == marks.PREDICTED.name
    ]
    lines = marks.lines(left, x=x, y=alt.Y("mean ms:Q", title="latency, ms (mean, sd)"), series="algorithm")
    looks = marks.colors(list(dict.fromkeys(row["algorithm"] for row in left)), "algorithm")
    spread = alt.Chart(alt.InlineData(values=deviations)).mark_rule(aria=False)
    spread = spread.encode(x, alt.Y("low:Q"), alt.Y2("high:Q"), looks["stroke"])
    right = _speedup_rows(figure, rows, name)
    ratio = alt.Y("speedup:Q", title="speedup over sequential")
    panels = [
        alt.layer(*([spread] if deviations else []), lines).properties(width=_WIDTH, height=_HEIGHT),
        marks.lines(right, x=x, y=ratio, series="series").properties(width=_WIDTH, height=_HEIGHT),
    ]
    drawn: alt.HConcatChart = alt.hconcat(*panels).resolve_scale(
        stroke="independent", fill="independent", shape="independent", strokeDash="independent"
    )
    return drawn


def _words(row: Row, name: str) -> str:
    spread = "" if row["sd ms"] is None else f" ± {row['sd ms']:.1f}"
    kind = "bound" if row["mark"] == marks.BOUND.name else "predicted"
    return f"{row['algorithm']}, {row[name]:g} {name}: {row['mean ms']:.1f}{spread} ms, {kind}"


def _speedup_rows(figure: str, rows: Rows, name: str) -> Rows:
    """Speedups of the compared algorithms by both programs, and the published ones where they are stated."""
    drawn: Rows = []
    for program in (HIOS, RELEASED):
        for algorithm in _COMPARED:
            series = algorithm if program == HIOS else f"{algorithm}, {program}"
            for value, speedup in values_of(rows, name, algorithm, "speedup over sequential", program).items():
                words = f"{series}, {value} {name}: {speedup:.2f}, predicted"
                drawn.append(_point(name, float(value), series, speedup, marks.PREDICTED.name, words))
    for statement, algorithm in (("lp_over_sequential", "hios-lp"), ("mr_over_sequential", "hios-mr")):
        entry = published(figure).get(statement)
        for case, speedup in (entry.cases if entry is not None else {}).items():
            words = f"{algorithm}, {case} {name}: {speedup:g}, published"
            drawn.append(_point(name, float(case), algorithm, speedup, marks.PUBLISHED.name, words))
    return drawn


def _point(name: str, value: float, series: str, speedup: float, mark: str, words: str) -> Row:
    return {name: value, "series": series, "speedup": speedup, "mark": mark, "description": words}
