"""HIOS, figure 8: latency over the number of operators."""

from hios.study import simulated_series as simulated
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID, _VARIED = "hios_fig8", "operators"


def _numbers(rows: Rows, program: str) -> dict[str, dict[str, float]]:
    """Values by the number of operators, by name of the statement."""
    speedups = simulated.speedups(rows, _VARIED, program)
    numbers = {name: speedups[name] for name in ("lp_over_sequential", "lp_over_ios")}
    numbers["lp_over_mr"] = simulated.quotients(rows, _VARIED, "hios-mr", "hios-lp", program)
    numbers["lp_over_inter"] = simulated.quotients(rows, _VARIED, "hios-lp-inter", "hios-lp", program)
    for name, algorithm in (("groups_cut_lp", "hios-lp"), ("groups_cut_mr", "hios-mr")):
        left = simulated.quotients(rows, _VARIED, algorithm, f"{algorithm}-inter", program)
        numbers[name] = {value: 100 * (1 - share) for value, share in left.items()}
    return numbers


def compare(rows: Rows) -> list[Comparison]:
    """Speedups, and what grouping cuts, over the whole series."""
    return simulated.comparisons(_ID, rows, _numbers)


register(
    Figure(
        id=_ID,
        title="Effect of the number of operators in the simulation",
        varies="100 to 400 operators with twice as many edges; latency of every algorithm on 4 GPUs, mean and sd",
        sessions=("simulation/operators",),
        rows=simulated.rows_over(_VARIED),
        chart=simulated.chart_over(_ID, _VARIED, "operators"),
        compare=compare,
        reason=simulated.reason_over(_VARIED),
    )
)
