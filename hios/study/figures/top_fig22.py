"""TOP, figure 22: convergence of MADDPG."""

from functools import partial

from hios.formats.top_study_file import CURVE, RANDOM_SEARCH
from hios.study import top_rows as top
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, reason, register
from hios.study.verdicts import Comparison

_ID, _X, _COLUMN = "top_fig22", "steps", "goodput per s"


def rows(data: FigureData) -> Rows:
    """Goodput after a number of steps on traces that judge; that of all policies on held-out traces at the end."""
    return top.point_rows(data, "launcher", _X)


def compare(rows: Rows) -> list[Comparison]:
    """Steps until the curve stays within a per cent of its best, where there is anything to learn."""
    stated = published(_ID)["steps"]
    curves = top.by_scenario(rows, CURVE, _X, _COLUMN).values()
    steps = top.settled(curves, partial(top.convergence, falls=False), stated.value or 0.0)
    return [Comparison(stated, max(steps))] if steps and top.on_gpu(rows) else []


def finding(rows: Rows) -> str:
    """Where curves begin and end, and which policy is best on held-out traces."""
    parts = []
    for scenario, over in top.by_scenario(rows, CURVE, _X, _COLUMN).items():
        ends = [row for row in rows if row["scenario"] == scenario and row["system"] != CURVE]
        best = max(ends, key=lambda row: float(row[_COLUMN]))
        first, last, most = over[min(over)], over[max(over)], max(over.values())
        curve = f"from {first:.4g} to {last:.4g} a second"
        if most > last:
            curve += f", at most {most:.4g}"
        if top.is_flat(over):
            curve += " (hardly any change, so where it converges means nothing)"
        drawn = ", ".join(f"{row[_COLUMN]:.4g}" for row in ends if row["system"] == RANDOM_SEARCH)
        beside = f", random search with as many steps has {drawn}" if drawn and best["system"] != RANDOM_SEARCH else ""
        parts.append(f"{scenario} {curve}; best on other traces is {best['system']} with {best[_COLUMN]:.4g}{beside}")
    curves = top.by_scenario(rows, CURVE, _X, _COLUMN).values()
    short = top.unsettled(curves, published(_ID)["steps"].value or 0.0, "launcher_steps") if top.on_gpu(rows) else ""
    return f"Goodput of the learned launcher while it learns, simulated: {top.texts(parts)}.{short}"


register(
    Figure(
        id=_ID,
        title="Convergence of MADDPG",
        varies="steps of training; goodput of the launcher, and of all policies and random search at the end; also in "
        "overload",
        sessions=("top/launcher",),
        rows=rows,
        chart=top.line_chart(_X, _COLUMN, "goodput per second", lambda row: f"{row['scenario']}, {row['system']}"),
        compare=compare,
        finding=finding,
        reason=reason(
            "In the paper one reward takes 10 s on a GPU, so that its steps take about a week; here the launcher, in "
            "its smallest size, learns in the simulator, starting from the best of the random decisions that fill its "
            "memory. Goodput can grow only where no system keeps up (overloaded, without deadlines)."
        ),
    )
)
