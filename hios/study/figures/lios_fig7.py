"""LIOS, figure 7: box plots of latency by algorithm."""

from hios.study import network_runs as runs
from hios.study import predicted_rows as predicted
from hios.study import run_findings
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "lios_fig7"
_ALGORITHMS = ("sequential", "greedy", "nimble", "ios", "lios")


def rows(data: FigureData) -> Rows:
    """A row for every schedule of one device."""
    return runs.schedule_rows(data, _ALGORITHMS, devices=1)


def compare(rows: Rows) -> list[Comparison]:
    """Speedups of LIOS."""
    return runs.comparisons(_ID, rows, {"speedup": runs.latencies(rows, "lios", "speedup")})


register(
    predicted.beside(
        Figure(
            id=_ID,
            title="Latency of sequential, greedy, Nimble, IOS and LIOS schedules",
            varies="network and algorithm; latency of every run (box: quartiles, whiskers: all runs)",
            sessions=("networks",),
            rows=rows,
            finding=run_findings.speedups,
            chart=runs.box_plot,
            compare=compare,
            reason=run_findings.on_cores(run_findings.one_operator_fills_a_core),
        ),
        ("lios",),
    )
)
