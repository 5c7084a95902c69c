"""HIOS, figure 7: latency over the number of GPUs."""

from hios.study import simulated_series as simulated
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID, _VARIED = "hios_fig7", "devices"


def compare(rows: Rows) -> list[Comparison]:
    """Speedups over sequential and IOS, at both ends of the series."""
    return simulated.comparisons(_ID, rows, lambda own, program: simulated.speedups(own, _VARIED, program))


register(
    Figure(
        id=_ID,
        title="Effect of the number of GPUs in the simulation",
        varies="2 to 12 GPUs; latency of every algorithm on graphs of 200 operators, mean and sd",
        sessions=("simulation/devices",),
        rows=simulated.rows_over(_VARIED),
        chart=simulated.chart_over(_ID, _VARIED, "GPUs"),
        compare=compare,
        reason=simulated.reason_over(_VARIED),
    )
)
