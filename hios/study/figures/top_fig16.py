"""TOP, figure 16: utilisation."""

from hios.study import serving_rows as serving
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID, _COLUMN = "top_fig16", "work done %"


def rows(data: FigureData) -> Rows:
    """Results of one model, then of several."""
    return serving.policy_rows(data, several=False) + serving.policy_rows(data, several=True)


def compare(rows: Rows) -> list[Comparison]:
    """What top gains over IOS with one model, and over POS with several."""
    comparisons = []
    for several, over, key in ((False, ("ios",), "over_ios"), (True, serving.ROUNDS, "over_pos")):
        own = [row for row in rows if (row["models"] > 1) is several]
        values = serving.range_of(serving.gains(own, _COLUMN, over), all_loads=several)
        if values is not None and serving.on_gpu(own):
            comparisons.append(Comparison(published(_ID)[key], values))
    return comparisons


register(
    Figure(
        id=_ID,
        title="Device utilisation",
        varies="scenario, load and policy; least device time of the completed tasks over all time",
        sessions=("serving",),
        rows=rows,
        chart=serving.bar_chart(_COLUMN, "work done, %"),
        compare=compare,
        finding=serving.finding(_COLUMN, ("ios", *serving.ROUNDS)),
        reason=lambda rows: (
            "The paper counts active warps of a GPU; here utilisation is the completed work, in the least device time "
            "that it needs. In overload the device is always busy under every policy that never waits."
        ),
    )
)
