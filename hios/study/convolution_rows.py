"""What figures of convolutions alone have in common: rows over the image size, and their chart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from hios.charts import marks
from hios.formats.convolutions_file import ConvolutionSize
from hios.study.figure_data import FigureData

if TYPE_CHECKING:
    import altair as alt

    from hios.study.registry import Row, Rows

_WIDTH, _HEIGHT = 420, 260


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
