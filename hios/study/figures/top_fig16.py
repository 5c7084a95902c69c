"""TOP, figure 16: utilisation."""

from hios.study import serving_rows as serving
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, register
from hios.study.serving_rows import gains, on_gpu
from hios.study.verdicts import Comparison

_ID = "top_fig16"


def rows(data: FigureData) -> Rows:
    """Results of one model, then of several."""
    return [{**row, "models": count} for count in ("one", "several") for row in _of(data, count)]


def _of(data: FigureData, count: str) -> Rows:
    return serving.policy_rows(data, several=count == "several")


def compare(rows: Rows) -> list[Comparison]:
    """What top gains over IOS with one model, and over POS with several."""
    found = []
    for count, over, key in (("one", ("ios",), "over_ios"), ("several", serving.ROUNDS, "over_pos")):
        own = [row for row in rows if row["models"] == count]
        values = gains(own, "utilisation %", over) if on_gpu(own) else []
        found += [Comparison(published(_ID)[key], (min(values), max(values)))] if values else []
    return found


register(
    Figure(
        id=_ID,
        title="Utilisation of the device",
        varies="scenario, load and policy; share of the time in which the device is busy",
        sessions=("serving",),
        rows=rows,
        chart=serving.bar_chart("utilisation %", "device busy, %"),
        compare=compare,
        finding=serving.finding("utilisation %", ("ios", *serving.ROUNDS)),
        reason=lambda rows: "The paper counts active warps of a GPU, and this the time in which anything runs.",
    )
)
