"""TOP, figure 17: variance of the queues' lengths."""

from hios.charts import marks
from hios.study import serving_rows as serving
from hios.study.published import Published, published
from hios.study.registry import Figure, Row, Rows, register
from hios.study.verdicts import Comparison

_ID = "top_fig17"


def largest_variance(queues: int, limit: int) -> float:
    """The population variance of the lengths of queues, half of which are full and the others empty.

    No lengths from 0 to the limit have a larger one.

    Examples:
        >>> largest_variance(3, 949)
        200133.55555555556
    """
    full = queues // 2
    return limit**2 * full * (queues - full) / queues**2


def compare(rows: Rows) -> list[Comparison]:
    """The largest mean variance under top; nothing where queues are too short for more than what is published."""
    stated = published(_ID)["top"]
    own = [row["queue variance"] for row in rows if row["policy"] == serving.TOP and _reaches(row, stated)]
    return [Comparison(stated, max(own))] if own and serving.on_gpu(rows) else []


def _reaches(row: Row, stated: Published) -> bool:
    """Whether the queues of a result could have a variance that differs from the published one."""
    if row["queue limit"] is None or stated.most is None:
        return False
    return largest_variance(row["models"], row["queue limit"]) > stated.most * (1 + stated.tolerance)


def finding(rows: Rows) -> str:
    """The variance under every policy at the highest load."""
    most = max(row["load"] for row in rows)
    shown = [row for row in rows if row["load"] == most and row["mark"] == marks.PREDICTED.name]
    return "Mean variance of the queues at the highest load, predicted: " + "; ".join(
        f"{row['policy']} {row['queue variance']:.3g} ({row['scenario']})" for row in shown
    )


def reason(rows: Rows) -> str:
    """How far the queues' limits allow the variance to grow."""
    text = (
        "Queues here have the limit of the scenario, which bounds the variance; for those of the paper none is stated, "
        "and in overload they grow as long as tasks arrive."
    )
    stated = published(_ID)["top"]
    short = {row["scenario"]: row for row in rows if row["queue limit"] is not None and not _reaches(row, stated)}
    return text + "".join(
        f" In {label} the variance is at most {largest_variance(row['models'], row['queue limit']):.4g}, so it is not "
        f"compared with {stated.most:g}."
        for label, row in short.items()
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
        reason=reason,
    )
)
