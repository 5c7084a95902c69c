"""Colors and fonts of all charts.

Everything is drawn in the colors for a light background. On a dark page, `dark_rules` exchanges the neutral colors;
operator types and series look the same on both. Their contrast with text and background is tested (WCAG 2.2, AA).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: An object of a Vega-Lite specification.
Vega = dict[str, Any]
#: Text and lines that carry meaning, less important text, grid lines, and the background with three tints on it.
INK, SOFT, GRID, GROUND, TINT, STAGE_TINT = "#24292f", "#57606a", "#e1e5ea", "#ffffff", "#f6f7f9", "#dfe5ec"
#: Text on the color of an operator type; the same on light and dark pages.
ON_TYPE = "#1b1f24"
#: Outlines of bars, which part them from each other and from a light page; the same on dark ones.
OUTLINE = "#4a525b"
#: The neutral colors on a dark page.
DARK = {
    INK: "#e6e9ed",
    SOFT: "#a3adb8",
    GRID: "#39424c",
    GROUND: "#15191e",
    TINT: "#1d2329",
    STAGE_TINT: "#2c353f",
}

#: Liberation Sans, which vl-convert brings, has the widths of Arial: text measured here fits where a page is read.
FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
FONT_SIZE = 12

#: Lines and points of series, and bars that stand for results: 3 to 1 at least against both backgrounds.
#: Blue, vermilion, green and purple of Okabe and Ito (https://jfly.uni-koeln.de/color/), then grey, violet and brown.
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#6e7781", "#9040f0", "#906030")
#: Lower bounds.
BOUND = "#b5651d"

#: The "light" scheme of Paul Tol, made for filled areas (https://personal.sron.nl/~pault/, version 3.2).
TYPE_COLORS = ("#77aadd", "#ee8866", "#eedd88", "#44bb99", "#ffaabb", "#99ddff", "#bbcc33", "#aaaa00")
_BLUE, _ORANGE, _YELLOW, _GREEN, _PINK, _CYAN, _PEAR, _OLIVE = TYPE_COLORS


@dataclass(frozen=True, slots=True)
class Style:
    """How bars of an operator type look; ``hatched`` types share the color of a plain one."""

    color: str
    hatched: bool = False


def _styles(color: str, plain: str, hatched: str) -> dict[str, Style]:
    return {
        **{name: Style(color) for name in plain.split()},
        **{name: Style(color, hatched=True) for name in hatched.split()},
    }


#: Types by what they do. Those that share a look seldom meet in one network.
_KNOWN = {
    **_styles(_BLUE, "conv2d-relu conv1d-relu conv3d-relu conv2d-silu conv2d-clip", "conv2d conv1d conv3d"),
    **_styles(_CYAN, "relu-sepconv sepconv", "relu-conv2d conv2d_transpose"),
    **_styles(_ORANGE, "matmul linear attention", "softmax log_softmax"),
    **_styles(_YELLOW, "max_pool2d", "avg_pool2d"),
    **_styles(_GREEN, "concat", "split strided_slice take gather_elements pad"),
    **_styles(_PINK, "add", "multiply subtract divide power rsqrt where"),
    **_styles(_PEAR, "relu gelu silu sigmoid tanh clip leakyrelu", "batch_norm layer_norm group_norm rms_norm"),
    **_styles(_OLIVE, "reshape permute_dims broadcast_to", "adaptive_avg_pool2d mean sum max astype"),
}
#: Bars of operators whose types are not known.
UNKNOWN = Style(_BLUE)


def style_of(operator_type: str) -> Style:
    """The style of an operator type: the same in every view of every network.

    Types that no table knows get a look by a checksum of their name.
    """
    known = _KNOWN.get(operator_type)
    if known is not None:
        return known
    number = zlib.crc32(operator_type.encode()) % (2 * len(TYPE_COLORS))
    return Style(TYPE_COLORS[number // 2], hatched=bool(number % 2))


def series_colors(names: Iterable[str]) -> dict[str, str]:
    """A color for every series of a chart, in this order; colors repeat after the seventh."""
    return {name: SERIES[position % len(SERIES)] for position, name in enumerate(names)}


def dark_rules(scope: str) -> str:
    """Style rules that show the neutral colors of the drawings of a CSS selector as they are on a dark page."""
    return "\n".join(
        f'{scope} [{attribute}="{light}"], {scope}[{attribute}="{light}"] {{ {attribute}: {dark}; }}'
        for light, dark in DARK.items()
        for attribute in ("fill", "stroke")
    )


def configuration() -> Vega:
    """The style of charts as the ``config`` of Vega-Lite."""
    texts = {"labelFontSize": FONT_SIZE, "titleFontSize": FONT_SIZE, "labelColor": INK, "titleColor": INK}
    plain = {**texts, "titleFontWeight": "normal"}
    return {
        "background": GROUND,
        "font": FONT,
        "view": {"stroke": None},
        "axis": {**plain, "gridColor": GRID, "domainColor": SOFT, "tickColor": SOFT},
        "legend": {
            **plain,
            "symbolStrokeColor": SOFT,
            "symbolFillColor": SOFT,
            "symbolStrokeWidth": 1.5,
            "symbolSize": 70,
        },
        "title": {
            "color": INK,
            "subtitleColor": SOFT,
            "fontSize": 14,
            "subtitleFontSize": FONT_SIZE,
            "anchor": "start",
        },
        "header": texts,
        "text": {"color": INK, "fontSize": FONT_SIZE},
        "rule": {"color": INK},
        "range": {"category": list(SERIES)},
    }
