"""TOP, figure 18: throughput over the size of combined blocks."""

from hios.study import top_rows as top
from hios.study.published import published
from hios.study.registry import Figure, Row, Rows, reason, register
from hios.study.verdicts import Comparison

_ID, _X, _COLUMN = "top_fig18", "sub-blocks", "tasks per s"


def compare(rows: Rows) -> list[Comparison]:
    """The size at which throughput saturates, of the scenario in which it does so last; of the A100's statement."""
    stated = published(_ID)["saturation"]
    curves = top.by_scenario(rows, top.TOP, _X, _COLUMN).values()
    sizes = top.settled(curves, top.saturation, stated.cases["A100"])
    return [Comparison(stated, {"A100": max(sizes)})] if sizes and top.on_gpu(rows, "A100") else []


def finding(rows: Rows) -> str:
    """Where throughput saturates, and what the best size gains over H = 1."""
    parts = [
        f"{scenario} saturates at H = {top.saturation(over):g}, "
        f"{100 * (max(over.values()) / over[1] - 1):+.0f} % over H = 1"
        for scenario, over in top.by_scenario(rows, top.TOP, _X, _COLUMN).items()
    ]
    best = {
        system: top.by_scenario(rows, system, _X, _COLUMN) for system in dict.fromkeys(row["system"] for row in rows)
    }
    for system, scenarios in best.items():
        for scenario, over in scenarios.items() if system != top.TOP else ():
            gain = 100 * (max(over.values()) / max(best[top.TOP][scenario].values()) - 1)
            parts.append(f"{scenario}, {system} {gain:+.1f} % over top at their best sizes")
    return f"Predicted, overloaded: {top.texts(parts)}."


def _series(row: Row) -> str:
    return str(row["scenario"]) if row["system"] == top.TOP else f"{row['scenario']}, {row['system']}"


register(
    Figure(
        id=_ID,
        title="Throughput by size of combined blocks",
        varies="largest number of sub-blocks H; tasks completed in a second by top, overloaded",
        sessions=("top/sizes",),
        rows=lambda data: top.point_rows(data, "sizes", _X),
        chart=top.line_chart(_X, _COLUMN, "tasks per second", _series),
        compare=compare,
        finding=finding,
        reason=reason(
            "The paper learns which blocks to combine; here neighboring blocks of a model are combined, or blocks of "
            "all models by their time. The GPU's description has no limits on memory or launches, which would make "
            "larger combinations worse."
        ),
    )
)
