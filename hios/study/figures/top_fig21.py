"""TOP, figure 21: convergence of GPG."""

from functools import partial

from hios.formats.top_study_file import CURVE
from hios.study import top_rows as top
from hios.study.figure_data import FigureData
from hios.study.published import published
from hios.study.registry import Figure, Rows, reason, register
from hios.study.verdicts import Comparison

_ID, _X, _COLUMN = "top_fig21", "steps", "latency over sequential"


def rows(data: FigureData) -> Rows:
    """The policy's mean latency after a number of steps."""
    return [row for row in top.point_rows(data, "gpg", _X) if row["system"] == CURVE]


def compare(rows: Rows) -> list[Comparison]:
    """Steps until the curve stays within a per cent of its best."""
    stated = published(_ID)["steps"]
    curves = top.by_scenario(rows, CURVE, _X, _COLUMN).values()
    steps = top.settled(curves, partial(top.convergence, falls=True), stated.value or 0.0)
    return [Comparison(stated, max(steps))] if steps and top.on_gpu(rows) else []


def finding(rows: Rows) -> str:
    """Where the curve begins and ends."""
    parts = [
        f"{over[min(over)]:.3f} before learning, {min(over.values()):.3f} at best, within a per cent of that from step "
        f"{top.convergence(over, falls=True):g} of {max(over):g} on"
        for over in top.by_scenario(rows, CURVE, _X, _COLUMN).values()
    ]
    curves = top.by_scenario(rows, CURVE, _X, _COLUMN).values()
    short = top.unsettled(curves, published(_ID)["steps"].value or 0.0, "steps") if top.on_gpu(rows) else ""
    return f"Mean latency of one pass over the sequential one: {top.texts(parts)}.{short}"


register(
    Figure(
        id=_ID,
        title="Convergence of GPG",
        varies="steps of training; mean latency of stages over that of operators one after another",
        sessions=("top/gpg",),
        rows=rows,
        chart=top.line_chart(_X, _COLUMN, "latency over sequential", lambda row: str(row["scenario"])),
        compare=compare,
        finding=finding,
        reason=reason(
            "The paper measures every stage on a GPU, nearly 20 h for its steps; here latencies are those of a cost "
            "model, endings are counted instead of listed, and the reward is the relative latency."
        ),
    )
)
