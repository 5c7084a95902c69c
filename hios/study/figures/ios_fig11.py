"""IOS, figure 11: throughput over batch sizes."""

from __future__ import annotations

from hios.charts import marks
from hios.study import network_runs as runs
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "ios_fig11"
_ALGORITHMS = ("sequential", "ios")


def rows(data: FigureData) -> Rows:
    """A row for every batch size, schedule for it and mark, with images a second."""
    return [row for row in runs.batch_rows(data, _ALGORITHMS) if row["made for batch"] == row["batch"]]


def compare(rows: Rows) -> list[Comparison]:
    """Milliseconds by batch size; of GPUs alone."""
    if not runs.on_gpu(rows):
        return []
    stated = published(_ID)
    return [
        Comparison(stated[name], numbers)
        for name in _ALGORITHMS
        if (
            numbers := {
                str(row["batch"]): row["ms"]
                for row in rows
                if (row["network"], row["algorithm"], row["mark"]) == ("inception_v3", name, marks.MEASURED.name)
            }
        )
    ]


def finding(rows: Rows) -> str:
    """What IOS gains with the smallest and with the largest batch."""
    texts = []
    for network in dict.fromkeys(row["network"] for row in rows):
        own = [row for row in rows if row["network"] == network and row["algorithm"] == "ios" and row["speedup"]]
        gains = {row["batch"]: row["speedup"] for row in own}
        if gains:
            ends = (min(gains), max(gains))
            texts += [f"{network} with batch {batch} {gains[batch]:.2f}" for batch in dict.fromkeys(ends)]
    return f"Speedup of IOS over the sequential schedule: {', '.join(texts)}." if texts else ""


register(
    Figure(
        id=_ID,
        title="Throughput of Inception-v3 for different batch sizes",
        varies="batch size; throughput of the sequential schedule and of IOS, measured and predicted",
        sessions=("batches",),
        rows=rows,
        chart=runs.throughput_chart,
        compare=compare,
        finding=finding,
    )
)
