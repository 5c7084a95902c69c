"""TOP, figure 14: throughput of single models."""

from hios.study import serving_rows as serving
from hios.study.registry import Figure, register

_ID, _OVER = "top_fig14", serving.SINGLE

register(
    Figure(
        id=_ID,
        title="Throughput of one model under different systems",
        varies="model and policy; tasks completed in a second",
        sessions=("serving",),
        rows=lambda data: serving.policy_rows(data, several=False),
        chart=serving.bar_chart("tasks per s", "tasks per second"),
        compare=serving.compare_gains(_ID, "tasks per s", _OVER),
        finding=serving.finding("tasks per s", _OVER),
        reason=serving.why,
    )
)
