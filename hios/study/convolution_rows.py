"""What figures of convolutions alone have in common: rows over the image size, a chart, and predictions for GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hios.charts import marks
from hios.formats.convolutions_file import ConvolutionSize
from hios.platforms.model.descriptions import Gpu, Link
from hios.platforms.model.kernel_work import Contraction
from hios.platforms.model.roofline import DEFAULT_EFFICIENCY, predict
from hios.study.figure_data import FigureData

if TYPE_CHECKING:
    import altair as alt

    from hios.study.registry import Row, Rows

_WIDTH, _HEIGHT = 420, 260
#: Height and width of HIOS's convolution, and bytes of a number.
_KERNEL, _BYTES = 5, 4


def size_rows(data: FigureData, values: Callable[[ConvolutionSize], Row]) -> Rows:
    """A row for every image size, with some values of it."""
    return [
        {
            "image size": size.image_size,
            "channels": file.channels,
            "platform": file.platform.name,
            "mark": marks.MEASURED.name,
            **values(size),
        }
        for file in data.convolutions
        for size in file.sizes
    ]


def chart_over_sizes(column: str, title: str, series: str) -> Callable[[Rows], alt.TopLevelMixin]:
    """Makes a line over the image size, both axes logarithmic.

    Args:
        column: what is plotted.
        title: of its axis.
        series: what the line is called, or the column that names several.
    """

    def draw(rows: Rows) -> alt.TopLevelMixin:
        import altair as alt

        shown = [{**row, "series": row.get(series, series), "description": _words(row, column, title)} for row in rows]
        sizes = list(dict.fromkeys(row["image size"] for row in rows))
        x = alt.X(
            "image size:Q", title="image size, px", scale=alt.Scale(type="log", base=2), axis=alt.Axis(values=sizes)
        )
        y = alt.Y(f"{column}:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=12))
        drawn = marks.lines(shown, x=x, y=y, series="series")
        layered: alt.TopLevelMixin = drawn.properties(width=_WIDTH, height=_HEIGHT)
        return layered

    return draw


def _words(row: Row, column: str, title: str) -> str:
    return f"{row['image size']} px: {title} {row[column]:.3g}, {row['mark']}"


def listed(rows: Rows, column: str) -> str:
    """A column by image size, in words."""
    return ", ".join(f"{row[column]:.2f} at {row['image size']} px" for row in rows)


def sizes_below(rows: Rows, column: str, limit: float) -> Iterator[int]:
    """The image sizes at which a column is below a limit."""
    return (row["image size"] for row in rows if row[column] < limit)


@dataclass(frozen=True, slots=True)
class PredictedConvolution:
    """A convolution on a GPU, and moving its output to another one.

    Attributes:
        alone_ms: of the convolution, with the pause before the next kernel.
        transfer_ms: of its output.
        output_bytes: of its output.
        utilization: share of the GPU that it occupies.
    """

    alone_ms: float
    transfer_ms: float
    output_bytes: int
    utilization: float


def predicted_convolution(pixels: int, channels: int, gpu: Gpu, link: Link) -> PredictedConvolution:
    """A convolution 5x5 of stride 1 in float32 on a GPU.

    Args:
        pixels: height and width of the image.
        channels: of image and output.
        gpu: that it runs on.
        link: over which its output is moved.
    """
    size = _BYTES * channels * pixels**2
    terms = channels * _KERNEL**2
    kernels = predict(
        Contraction(1, pixels**2, channels, terms, 2 * size, (_KERNEL, _KERNEL), True, "float32"),
        gpu,
        DEFAULT_EFFICIENCY,
    )
    return PredictedConvolution(
        (kernels.us + DEFAULT_EFFICIENCY.launch_us) / 1e3, link.time_ms(size), size, kernels.utilization
    )
