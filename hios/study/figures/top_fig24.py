"""TOP, figure 24: copies of one model."""

from hios.formats.top_study_file import COPIES_THAT_FIT
from hios.study import top_rows as top
from hios.study.registry import Figure, Rows, reason, register

_ID, _X, _COLUMN = "top_fig24", "copies", "tasks per s"


def finding(rows: Rows) -> str:
    """What the most copies gain over one."""
    parts = []
    for system in ("sequential", top.TOP):
        for scenario, over in top.by_scenario(rows, system, _X, _COLUMN).items():
            gain = 100 * (over[max(over)] / over[min(over)] - 1)
            parts.append(f"{scenario} under {system} {gain:+.1f} % with {max(over):g} copies")
    parts += top.fitting(rows, COPIES_THAT_FIT, "copies")
    return f"Predicted, overloaded: {top.texts(parts)}."


register(
    Figure(
        id=_ID,
        title="Copies of one model",
        varies="number of copies that share the tasks of a model; tasks completed in a second, overloaded",
        sessions=("top/copies",),
        rows=lambda data: top.point_rows(data, "copies", _X),
        chart=top.line_chart(_X, _COLUMN, "tasks per second", lambda row: f"{row['scenario']}, {row['system']}"),
        finding=finding,
        reason=reason(
            "Under top the blocks of a single copy run one by one, so part of the gain of copies is the gain of "
            "combining blocks (figure 18). The paper states no number. It compares with copies that the GPU itself "
            "schedules, which no policy here models: sequential runs one task at a time. Memory is that of weights and "
            "of values in a pipeline of blocks, without workspaces of libraries."
        ),
    )
)
