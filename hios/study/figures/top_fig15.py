"""TOP, figure 15: throughput of several models."""

from hios.study import serving_rows as serving
from hios.study.registry import Figure, register

_ID, _OVER = "top_fig15", serving.ROUNDS

register(
    Figure(
        id=_ID,
        title="Throughput of several models under different systems",
        varies="scenario, load and policy; tasks completed in a second",
        sessions=("serving",),
        rows=lambda data: serving.policy_rows(data, several=True),
        chart=serving.bar_chart("tasks per s", "tasks per second"),
        compare=serving.compare_gains(_ID, "tasks per s", _OVER, all_loads=True),
        finding=serving.finding("tasks per s", _OVER),
        reason=serving.why,
    )
)
