"""LIOS, figure 4: how the latency by IOS changes from run to run."""

from hios.study import network_runs as runs
from hios.study import run_findings
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, register


def rows(data: FigureData) -> Rows:
    """A row for every network's schedule by IOS."""
    return runs.schedule_rows(data, ("ios",), devices=1)


register(
    Figure(
        id="lios_fig4",
        title="Variation of the latency under IOS",
        varies="network; latency of every run (box: quartiles, whiskers: all runs; the paper: NASNet, 50 runs)",
        sessions=("networks",),
        rows=rows,
        finding=run_findings.spreads,
        chart=runs.box_plot,
    )
)
