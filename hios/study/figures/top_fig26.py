"""TOP, figure 26: throughput and utilisation over the batch size."""

from hios.formats.top_study_file import BATCH_THAT_FITS
from hios.study import top_rows as top
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, reason, register
from hios.study.verdicts import Comparison

_ID, _X, _COLUMN, _FILLED = "top_fig26", "batch", "inputs per s", "filled %"


def rows(data: FigureData) -> Rows:
    """Scenarios of several models under top."""
    return [row for row in top.point_rows(data, "batches", _X) if row["models"] > 1 and row["system"] == top.TOP]


def compare(rows: Rows) -> list[Comparison]:
    """Where throughput saturates, and how full the GPU is with the largest batch."""
    if not top.on_gpu(rows, "A100"):
        return []
    stated = published(_ID)
    curves = top.by_scenario(rows, top.TOP, _X, _COLUMN).values()
    sizes = top.settled(curves, top.saturation, stated["saturation"].value or 0.0)
    filled = [over[max(over)] for over in top.by_scenario(rows, top.TOP, _X, _FILLED).values()]
    utilization = [Comparison(stated["utilisation"], max(filled))] if filled else []
    return [*([Comparison(stated["saturation"], max(sizes))] if sizes else []), *utilization]


def finding(rows: Rows) -> str:
    """Throughput and utilization of the smallest and largest batch."""
    parts = []
    for scenario, over in top.by_scenario(rows, top.TOP, _X, _COLUMN).items():
        filled = top.by_scenario(rows, top.TOP, _X, _FILLED)[scenario]
        ends = [
            f"batch {size:g} {over[size]:.4g} inputs/s, {filled[size]:.0f} % filled" for size in (min(over), max(over))
        ]
        parts.append(f"{scenario}: {', '.join(ends)}")
    parts += top.fitting(rows, BATCH_THAT_FITS, "inputs of a batch")
    return f"Predicted, overloaded: {top.texts(parts)}."


register(
    Figure(
        id=_ID,
        title="Throughput and utilisation by batch size",
        varies="inputs of a batch, which is one task; inputs completed in a second by top, overloaded",
        sessions=("top/batches",),
        rows=rows,
        chart=top.line_chart(_X, _COLUMN, "inputs per second", lambda row: str(row["scenario"]), log=True),
        compare=compare,
        finding=finding,
        reason=reason(
            "The paper counts active warps; here utilisation is the sum of t(v) u(v) of the completed tasks over time. "
            "Costs of batches are predicted from the graph with that many inputs."
        ),
    )
)
