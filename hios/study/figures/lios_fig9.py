"""LIOS, figure 9: LIOS and TensorRT."""

from hios.study import network_runs as runs
from hios.study import run_findings
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, register


def rows(data: FigureData) -> Rows:
    """A row for LIOS and every other way in which the networks ran."""
    return runs.schedule_rows(data, ("lios",), devices=1) + runs.reference_rows(data)


register(
    Figure(
        id="lios_fig9",
        title="Latency with LIOS and with frameworks",
        varies="network; latency of every run (box: quartiles, whiskers: all runs)",
        sessions=("networks",),
        rows=rows,
        finding=run_findings.speedups,
        chart=runs.box_plot,
        also=("lios_tab7",),
        reason=lambda rows: run_findings.stand_ins(rows, "TensorRT"),
    )
)
