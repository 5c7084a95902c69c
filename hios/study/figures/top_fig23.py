"""TOP, figure 23: several models on the same input."""

from hios.study import top_rows as top
from hios.study.registry import Figure, Rows, reason, register

_ID, _COLUMN = "top_fig23", "synchronous tasks per s"


def finding(rows: Rows) -> str:
    """What TOP gains over synchronous rounds."""
    parts = []
    for scenario in dict.fromkeys(row["scenario"] for row in rows):
        values = {row["system"]: row[_COLUMN] for row in rows if row["scenario"] == scenario}
        others = [
            f"{100 * (values[top.TOP] / values[system] - 1):+.1f} % over {system}"
            for system in ("pos-strict", "ios", "sequential")
            if values.get(system)
        ]
        parts.append(f"{scenario}: top {values[top.TOP]:.4g} a second, {', '.join(others)}")
    return f"Predicted: {top.texts(parts)}."


register(
    Figure(
        id=_ID,
        title="Several models on the same input",
        varies="system; highest frequency of tasks that all models take, at which no queue grows",
        sessions=("top/together",),
        rows=lambda data: top.point_rows(data, "together", "models at once"),
        chart=top.bar_chart(lambda row: f"{row['scenario']}, {row['system']}", _COLUMN, "synchronous tasks per second"),
        finding=finding,
        reason=reason(
            "The paper states no number. Every task goes to all models at once, so all queues advance at the same "
            "rate; POS runs rounds of IOS's stages of whole models, TOP a pipeline of blocks."
        ),
    )
)
