"""TOP, figure 13: time and latency of stages by GPG and by dynamic programming."""

from hios.charts import marks
from hios.formats.top_study_file import DP, GPG_ONE_PASS
from hios.study import top_rows as top
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, reason, register
from hios.study.verdicts import Comparison

_ID, _X, _MS, _SHARE = "top_fig13", "sub-blocks", "search ms", "latency over sequential"


def rows(data: FigureData) -> Rows:
    """Ways to find stages by the number of sub-blocks; their times are measured, latencies those of the costs."""
    every = top.point_rows(data, "gpg", _X, mark=marks.MEASURED)
    return [row for row in every if _MS in row]


def compare(rows: Rows) -> list[Comparison]:
    """How many times as long dynamic programming takes as a pass of GPG, with the most sub-blocks that it can do."""
    slow, fast = (_by_size(rows, system, _MS) for system in (DP, GPG_ONE_PASS))
    most = max(slow, default=0)
    return [Comparison(published(_ID)["faster"], slow[most] / fast[most])] if most else []


def _by_size(rows: Rows, system: str, column: str) -> dict[int, float]:
    return {row[_X]: row[column] for row in rows if row["system"] == system}


def finding(rows: Rows) -> str:
    """Times and latencies by the number of sub-blocks."""
    slow, fast = (_by_size(rows, system, _MS) for system in (DP, GPG_ONE_PASS))
    exact, learned = (_by_size(rows, system, _SHARE) for system in (DP, GPG_ONE_PASS))
    parts = [
        f"{size} sub-blocks {fast[size]:.3g} against {slow[size]:.3g} ms, latency "
        f"{100 * (learned[size] / exact[size] - 1):+.1f} %"
        for size in slow
    ]
    return f"One pass of GPG against dynamic programming: {top.texts(parts)}."


register(
    Figure(
        id=_ID,
        title="Time and latency of stages by GPG and by dynamic programming",
        varies="number of sub-blocks; time to find the stages of a combined block, measured on one core",
        sessions=("top/gpg",),
        rows=rows,
        chart=top.line_chart(_X, _MS, "milliseconds to find stages", lambda row: str(row["system"])),
        compare=compare,
        finding=finding,
        reason=reason(
            "Both are this program's, on the same costs: dynamic programming is IOS's, which stops being possible "
            "where combinations have too many transitions; those are left out for all."
        ),
    )
)
