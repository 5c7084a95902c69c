"""HIOS, figure 1: two convolutions beside each other over one after the other."""

from hios.formats.convolutions_file import ConvolutionSize
from hios.study import convolution_rows as sizes
from hios.study.figure_data import FigureData
from hios.study.registry import Figure, Rows, reason, register

_RATIO = "at once over one after the other"


def rows(data: FigureData) -> Rows:
    """A row for every image size: two convolutions at once, on a core each, and one after the other on both cores."""
    return sizes.size_rows(data, _values)


def _values(size: ConvolutionSize) -> dict[str, float]:
    one_after_the_other = 2 * size.both_cores_ms
    return {
        "at once ms": size.at_once_ms,
        "one after the other ms": one_after_the_other,
        _RATIO: size.at_once_ms / one_after_the_other,
    }


def finding(rows: Rows) -> str:
    """The quotient by image size."""
    faster = ", ".join(map(str, sizes.sizes_below(rows, _RATIO, 1))) or "none"
    return (
        "Two convolutions at once, on a core each, over one after the other on both cores: "
        f"{sizes.listed(rows, _RATIO)}; at once is faster at these sizes: {faster}."
    )


register(
    Figure(
        id="hios_fig1",
        title="Two equal convolutions, at once and one after the other",
        varies=(
            "image size 8 to 1024 px; latency of two convolutions (5x5, stride 1, 48 channels) at "
            "once over one after the other"
        ),
        needs=("2 devices",),
        sessions=("convolutions",),
        rows=rows,
        finding=finding,
        chart=sizes.chart_over_sizes(_RATIO, _RATIO, "two convolutions"),
        reason=reason(
            "The paper asks whether one operator fills a GPU. Here the device is two cores: a convolution uses both, "
            "with a thread on each, or one, and leaves the other to the second convolution."
        ),
    )
)
