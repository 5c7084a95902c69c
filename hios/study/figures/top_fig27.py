"""TOP, figure 27: throughput of the systems over the batch size."""

from hios.formats.top_study_file import BATCH_THAT_FITS
from hios.study import top_rows as top
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, reason, register
from hios.study.verdicts import Comparison

_ID, _X, _COLUMN = "top_fig27", "batch", "inputs per s"


def rows(data: FigureData) -> Rows:
    """Scenarios of one model, whose systems can be compared."""
    return [row for row in top.point_rows(data, "batches", _X) if row["models"] == 1]


def compare(rows: Rows) -> list[Comparison]:
    """Where throughput saturates, of the model that does so last."""
    stated = published(_ID)["saturation"]
    curves = top.by_scenario(rows, top.TOP, _X, _COLUMN).values()
    sizes = top.settled(curves, top.saturation, stated.value or 0.0)
    return [Comparison(stated, max(sizes))] if sizes and top.on_gpu(rows, "A100") else []


def finding(rows: Rows) -> str:
    """What TOP gains over IOS with the smallest and the largest batch."""
    parts = []
    for scenario, over in top.by_scenario(rows, top.TOP, _X, _COLUMN).items():
        others = top.by_scenario(rows, "ios", _X, _COLUMN)[scenario]
        ends = [
            f"{100 * (over[size] / others[size] - 1):+.1f} % with batch {size:g}" for size in (min(over), max(over))
        ]
        parts.append(f"{scenario} {', '.join(ends)}, saturates at {top.saturation(over):g}")
    parts += top.fitting(rows, BATCH_THAT_FITS, "inputs of a batch")
    return f"top over ios, predicted, overloaded: {top.texts(parts)}."


register(
    Figure(
        id=_ID,
        title="Throughput of the systems by batch size",
        varies="inputs of a batch, and system; inputs completed in a second by one model, overloaded",
        sessions=("top/batches",),
        rows=rows,
        chart=top.bar_chart(
            lambda row: f"{row['scenario']}, batch {row[_X]}, {row['system']}", _COLUMN, "inputs per second"
        ),
        compare=compare,
        finding=finding,
        reason=reason(
            "Large batches fill a GPU operator by operator, so that running operators beside each other gains less; "
            "the frameworks of the paper stand here as sequential and ios."
        ),
    )
)
