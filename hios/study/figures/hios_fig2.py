"""HIOS, figure 2: transfers over convolutions."""

from hios.formats.convolutions_file import ConvolutionSize
from hios.study import convolution_rows as sizes
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, reason, register

_RATIO = "hand-over over convolution"


def rows(data: FigureData) -> Rows:
    """A row for every image size: a convolution on one core, and handing its output over to another."""
    return sizes.size_rows(data, _values)


def _values(size: ConvolutionSize) -> dict[str, float]:
    return {
        "convolution ms": size.alone_ms,
        "hand-over ms": size.hand_over_ms,
        "output bytes": size.output_bytes,
        _RATIO: size.hand_over_ms / size.alone_ms,
    }


def finding(rows: Rows) -> str:
    """The quotient by image size."""
    return f"Handing the output of a convolution over takes this share of its time: {sizes.listed(rows, _RATIO)}."


register(
    Figure(
        id="hios_fig2",
        title="Transfer time over the time of a convolution",
        varies="image size; time of a transfer between two devices over the time of the convolution that it follows",
        needs=("2 devices",),
        sessions=("convolutions",),
        rows=rows,
        finding=finding,
        chart=sizes.chart_over_sizes(_RATIO, _RATIO, "shared memory"),
        reason=reason("Here the link is shared memory between two processes; NVLink and PCIe need two GPUs."),
    )
)
