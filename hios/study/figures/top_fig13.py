"""TOP, figure 13: time and latency of stages by GPG and by dynamic programming."""

from hios.charts import marks
from hios.formats.top_study_file import CURVE, DP, GPG_ONE_PASS, LAST_ENDING
from hios.study import top_rows as top
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, reason, register
from hios.study.verdicts import Comparison

_ID, _X, _MS, _SHARE = "top_fig13", "sub-blocks", "search ms", "latency over sequential"
#: Columns that are timed; the latencies beside them are computed from costs.
_TIMED = (_MS, "stage choice ms", "longest stage choice ms")


def rows(data: FigureData) -> Rows:
    """Ways to find stages by the number of sub-blocks: rows of measured times, and rows of predicted latencies."""
    every = [row for row in top.point_rows(data, "gpg", _X) if row["system"] != CURVE]
    latencies = [{key: value for key, value in row.items() if key not in _TIMED} for row in every]
    times = [
        {key: value for key, value in row.items() if key in _TIMED or not key.startswith(_SHARE)}
        | {"mark": marks.MEASURED.name}
        for row in every
        if any(key in row for key in _TIMED)
    ]
    return times + latencies


def compare(rows: Rows) -> list[Comparison]:
    """How many times as long dynamic programming takes as a pass of GPG, with every number of sub-blocks it can do.

    All of them count: dynamic programming is slowest with the most sub-blocks, which alone would favor GPG.
    """
    slow, fast = (_by_size(rows, system, _MS) for system in (DP, GPG_ONE_PASS))
    faster = {f"{size} sub-block{'s' * (size > 1)}": slow[size] / fast[size] for size in sorted(slow) if size in fast}
    return [Comparison(published(_ID)["faster"], faster)] if faster else []


def _by_size(rows: Rows, system: str, column: str) -> dict[int, float]:
    """A column of a system, for the models that the policy was trained on."""
    label = rows[0]["scenario"] if rows else ""
    return {
        row[_X]: row[column] for row in rows if (row["scenario"], row["system"]) == (label, system) and column in row
    }


def finding(rows: Rows) -> str:
    """Times and latencies by the number of sub-blocks; those of the rule that takes the last ending, too."""
    slow, fast, ruled = (_by_size(rows, system, _MS) for system in (DP, GPG_ONE_PASS, LAST_ENDING))
    exact, learned, last = (_by_size(rows, system, _SHARE) for system in (DP, GPG_ONE_PASS, LAST_ENDING))
    parts = []
    for size in slow:
        part = (
            f"{size} sub-blocks {fast[size]:.3g} against {slow[size]:.3g} ms, latency "
            f"{100 * (learned[size] / exact[size] - 1):+.1f} %"
        )
        if size in ruled:
            rule = 100 * (last[size] / exact[size] - 1)
            part += f" (always the last ending, without a policy: {ruled[size]:.3g} ms, {rule:+.1f} %)"
        parts.append(part)
    return f"One pass of GPG against dynamic programming: {top.texts(parts)}."


register(
    Figure(
        id=_ID,
        title="Search time and stage latency of GPG and of dynamic programming",
        varies="number of sub-blocks; time to find the stages of a combined block, measured on one core",
        sessions=("top/gpg",),
        rows=rows,
        chart=top.line_chart(_X, _MS, "milliseconds to find stages", lambda row: str(row["system"])),
        compare=compare,
        finding=finding,
        reason=reason(
            "Both are implemented in hios and use the same costs. Dynamic programming is that of IOS; combinations "
            "with too many transitions for it are left out for both."
        ),
    )
)
