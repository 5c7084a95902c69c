"""HIOS, figure 13: six schedules."""

from hios.study import network_runs as runs
from hios.study import run_findings
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, register

_ALGORITHMS = ("sequential", "ios", "hios-mr-inter", "hios-mr", "hios-lp-inter", "hios-lp")


def rows(data: FigureData) -> Rows:
    """A row for every schedule of the six algorithms."""
    return runs.schedule_rows(data, _ALGORITHMS)


def why(rows: Rows) -> str:
    """What grouping changes."""
    return run_findings.gain_of_groups(rows, "hios-lp")


register(
    Figure(
        id="hios_fig13",
        title="Inter-GPU and intra-GPU part of the gain",
        varies="algorithm; latency of both benchmarks, with and without grouping on a device",
        needs=("2 devices",),
        sessions=("networks",),
        rows=rows,
        finding=run_findings.speedups,
        chart=runs.bar_chart("schedule"),
        reason=why,
    )
)
