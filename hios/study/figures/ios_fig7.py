"""IOS, figure 7: frameworks."""

from hios.study import network_runs as runs
from hios.study import run_findings
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, register


def rows(data: FigureData) -> Rows:
    """A row for the sequential schedule, IOS and every framework that ran."""
    return runs.schedule_rows(data, ("sequential", "ios"), devices=1) + runs.reference_rows(data)


register(
    Figure(
        id="ios_fig7",
        title="Frameworks",
        varies="network and framework; latency",
        sessions=("networks",),
        rows=rows,
        finding=run_findings.speedups,
        chart=runs.bar_chart("schedule"),
        reason=lambda rows: run_findings.stand_ins(rows, "TensorRT, TASO and TVM"),
    )
)
