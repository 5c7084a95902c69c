"""TOP, figure 17: variance of the queues' lengths."""

from hios.charts import marks
from hios.study import serving_rows as serving
from hios.study.published import published
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "top_fig17"


def compare(rows: Rows) -> list[Comparison]:
    """The largest mean variance under top."""
    own = [row["queue variance"] for row in rows if row["policy"] == serving.TOP]
    return [Comparison(published(_ID)["top"], max(own))] if own and serving.on_gpu(rows) else []


def finding(rows: Rows) -> str:
    """The variance under every policy at the highest load."""
    most = max(row["load"] for row in rows)
    shown = [row for row in rows if row["load"] == most and row["mark"] == marks.PREDICTED.name]
    return "Mean variance of the queues at the highest load, predicted: " + "; ".join(
        f"{row['policy']} {row['queue variance']:.3g} ({row['scenario']})" for row in shown
    )


register(
    Figure(
        id=_ID,
        title="Variance of queue lengths",
        varies="scenario, load and policy; mean over time of the population variance",
        sessions=("serving",),
        rows=lambda data: serving.policy_rows(data, several=True),
        chart=serving.bar_chart("queue variance", "variance of the queues' lengths"),
        compare=compare,
        finding=finding,
        reason=lambda rows: (
            "Queues here have the limit of the scenario, which bounds the variance; those of the paper grow without "
            "limit."
        ),
    )
)
