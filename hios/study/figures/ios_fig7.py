"""IOS, figure 7: frameworks."""

from hios.study import network_runs as runs
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, reason, register


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
        chart=runs.bar_chart("schedule"),
        reason=reason(
            "Where TensorRT, TASO and TVM cannot run, PyTorch, torch.compile and ONNX Runtime stand in their place."
        ),
    )
)
