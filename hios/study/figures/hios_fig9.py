"""HIOS, figure 9: latency over the number of edges."""

from hios.study import simulated_series as simulated
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID, _VARIED = "hios_fig9", "edges"


def compare(rows: Rows) -> list[Comparison]:
    """Speedups over sequential and IOS, at both ends of the series."""
    return simulated.comparisons(_ID, rows, lambda own, program: simulated.speedups(own, _VARIED, program))


register(
    Figure(
        id=_ID,
        title="Effect of the number of inter-operator dependencies in the simulation",
        varies="400 to 600 edges between 200 operators; latency of every algorithm on 4 GPUs, mean and sd",
        sessions=("simulation/edges",),
        rows=simulated.rows_over(_VARIED),
        chart=simulated.chart_over(_ID, _VARIED, "edges"),
        compare=compare,
        reason=simulated.reason_over(_VARIED),
    )
)
