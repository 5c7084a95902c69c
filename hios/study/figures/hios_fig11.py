"""HIOS, figure 11: latency over the time of transfers."""

from hios.study import simulated_series as simulated
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID, _VARIED = "hios_fig11", "p"


def compare(rows: Rows) -> list[Comparison]:
    """Speedups over sequential and IOS, at both ends of the series."""
    return simulated.comparisons(_ID, rows, lambda own, program: simulated.speedups(own, _VARIED, program))


register(
    Figure(
        id=_ID,
        title="Communication overheads among GPUs in the simulation",
        varies="transfers of 0.4 to 1.2 of an operator's time; latency of every algorithm on 4 GPUs, mean and sd",
        sessions=("simulation/p",),
        rows=simulated.rows_over(_VARIED),
        chart=simulated.chart_over(_ID, _VARIED, "transfer time over operator time, p"),
        compare=compare,
        reason=simulated.reason_over(_VARIED),
    )
)
