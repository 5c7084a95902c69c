"""LIOS, figure 8: LIOS with random choices in its place."""

from hios.study import network_runs as runs
from hios.study import run_findings
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, register

_ALGORITHMS = ("lios", "lios-rand1", "lios-rand2", "lios-rand")


def rows(data: FigureData) -> Rows:
    """A row for every schedule of one device."""
    return runs.schedule_rows(data, _ALGORITHMS, devices=1)


register(
    Figure(
        id="lios_fig8",
        title="LIOS compared with random orders and random streams",
        varies="network and variant; latency of every run (box: quartiles, whiskers: all runs)",
        sessions=("networks",),
        rows=rows,
        finding=run_findings.spreads,
        chart=runs.box_plot,
    )
)
