"""TOP, figure 20: stages of combined blocks on several GPUs."""

from hios.study import top_rows as top
from hios.study.registry import Figure, Rows, reason, register

_ID, _X = "top_fig20", "TFLOPS"
_STAGES, _GROUPS = "stages of a combined block", "groups of a stage"


def finding(rows: Rows) -> str:
    """Stages and groups on the slowest and the fastest GPU."""
    parts = []
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        own = sorted((row for row in rows if row["scenario"] == scenario), key=lambda row: float(row[_X]))
        ends = [
            f"{row['system']} {row[_STAGES]:.2f} stages with {row[_GROUPS]:.2f} groups" for row in (own[0], own[-1])
        ]
        parts.append(f"{scenario}: {', '.join(ends)}")
    return f"Predicted, slowest and fastest GPU, means over combined blocks: {top.texts(parts)}."


register(
    Figure(
        id=_ID,
        title="Stages of combined blocks on several GPUs",
        varies="GPU; number of stages of a combined block, and of groups in a stage",
        sessions=("top/stages",),
        rows=lambda data: top.point_rows(data, "stages", _X),
        chart=top.bar_chart(lambda row: f"{row['scenario']}, {row['system']}", _GROUPS, "groups of a stage, mean"),
        finding=finding,
        reason=reason(
            "The GPUs are those that hios describes, without the paper's Jetsons, and combined blocks are neighboring "
            "blocks. The paper reports fewer stages with more groups on more powerful devices, without a number."
        ),
    )
)
