"""LIOS, table VII: LIOS, TensorRT and Apollo."""

from hios.study import network_runs as runs
from hios.study import run_findings
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "lios_tab7"


def rows(data: FigureData) -> Rows:
    """A row for LIOS and every other way in which the networks ran."""
    return runs.schedule_rows(data, ("lios",), devices=1) + runs.reference_rows(data)


def compare(rows: Rows) -> list[Comparison]:
    """Milliseconds by LIOS and TensorRT."""
    numbers = {name: runs.latencies(rows, name) for name in ("lios", "tensorrt")}
    return runs.comparisons(_ID, rows, numbers)


register(
    Figure(
        id=_ID,
        title="Average latency with LIOS and with frameworks",
        varies="network and framework; latency",
        sessions=("networks",),
        rows=rows,
        finding=run_findings.speedups,
        chart=runs.bar_chart("schedule"),
        compare=compare,
        reason=lambda rows: run_findings.stand_ins(rows, "TensorRT and Apollo"),
    )
)
