"""What all charts share: the look of figures and axes, as arguments of plotly. All times in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INK = "#24292f"
#: Height of a lane or bar in pixels.
ROW_PX = 30
_GRID = "#e4e7eb"
_FONT = {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 12, "color": INK}
#: 0.1 microseconds: finer than any clock here, and a third of the bytes of full precision.
_DECIMALS = 4


#: Arguments of plotly.
Properties = dict[str, Any]


def layout(height: int, top: int) -> Properties:
    """Layout of a figure of a height, with a margin at the top, both in pixels."""
    return {
        "template": "none",
        "font": _FONT,
        "height": height,
        "margin": {"l": 10, "r": 16, "t": top, "b": 58},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": "#8a939d", "font": _FONT},
    }


def time_axis(title: str) -> Properties:
    """A horizontal axis of milliseconds."""
    return {
        "title": {"text": title, "standoff": 8},
        "gridcolor": _GRID,
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": _GRID,
        "tickformat": ",~f",
    }


def row_axis(names: Mapping[int, str], first: float, last: float) -> Properties:
    """Rows from top to bottom, which plotly counts upwards; zooming concerns time only."""
    return {
        "tickvals": list(names),
        "ticktext": list(names.values()),
        "ticklabelstandoff": 6,
        "range": [last, first],
        "automargin": True,
        "fixedrange": True,
        "showgrid": False,
        "zeroline": False,
    }


def short(time_ms: float) -> float:
    """A time with as many decimals as a chart needs."""
    return round(time_ms, _DECIMALS)
