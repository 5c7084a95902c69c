"""HIOS, figure 10: latency over the number of layers."""

from hios.study import simulated_series as simulated
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID, _VARIED = "hios_fig10", "layers"


def _numbers(rows: Rows, program: str) -> dict[str, dict[str, float]]:
    """Latencies by the number of layers, by name of the statement."""
    algorithms = {"sequential": "sequential", "ios": "ios", "mr": "hios-mr", "lp": "hios-lp"}
    return {
        name: simulated.values_of(rows, _VARIED, algorithm, "mean ms", program)
        for name, algorithm in algorithms.items()
    }


def compare(rows: Rows) -> list[Comparison]:
    """Latencies over the whole series, and of HIOS-LP at both ends."""
    return simulated.comparisons(_ID, rows, _numbers)


register(
    Figure(
        id=_ID,
        title="Degree of parallelism in the simulation",
        varies="6 to 22 layers of 200 operators; latency of every algorithm on 4 GPUs, mean and sd",
        sessions=("simulation/layers",),
        rows=simulated.rows_over(_VARIED),
        chart=simulated.chart_over(_ID, _VARIED, "layers"),
        compare=compare,
        reason=simulated.reason_over(_VARIED),
    )
)
