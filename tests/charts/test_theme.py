"""Colors can be told apart: from their background, from text on them, from each other, by color-blind readers too."""

from __future__ import annotations

from itertools import combinations

import pytest

from hios.charts import theme

#: Contrast that WCAG 2.2 wants at level AA of text, and of what carries meaning.
TEXT, GRAPHICS = 4.5, 3.0
#: How colors look to those without red, green or blue receptors, on linear RGB: Machado, Oliveira and Fernandes,
#: "A physiologically-based model for simulation of color vision deficiency", IEEE TVCG 15 (2009), severity 1.
DEFICIENCIES = {
    "none": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
_BACKGROUNDS = (theme.GROUND, theme.DARK[theme.GROUND])


def _linear(color: str) -> tuple[float, ...]:
    values = [int(color[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return tuple(value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values)


def _contrast(one: str, other: str) -> float:
    dark, light = sorted(
        0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in map(_linear, (one, other))
    )
    return (light + 0.05) / (dark + 0.05)


def _lab(color: str, deficiency: str) -> tuple[float, float, float]:
    """CIELAB under D65 of a color as readers with a deficiency see it."""
    rgb = [
        min(max(sum(weight * value for weight, value in zip(row, _linear(color), strict=True)), 0.0), 1.0)
        for row in DEFICIENCIES[deficiency]
    ]
    matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(weight * value for weight, value in zip(row, rgb, strict=True)) for row in matrix]
    x, y, z = (
        ratio ** (1 / 3) if ratio > 216 / 24389 else (24389 / 27 * ratio + 16) / 116
        for ratio in (value / white for value, white in zip(xyz, (0.95047, 1.0, 1.08883), strict=True))
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _difference(one: str, other: str, deficiency: str) -> float:
    pairs = zip(_lab(one, deficiency), _lab(other, deficiency), strict=True)
    return sum((first - second) ** 2 for first, second in pairs) ** 0.5


@pytest.mark.parametrize("background", _BACKGROUNDS)
def test_series_stand_out(background: str) -> None:
    """Lines and bars of results have the contrast of graphics on light and dark pages."""
    assert min(_contrast(color, background) for color in (*theme.SERIES, theme.BOUND)) >= GRAPHICS


def test_text_is_readable() -> None:
    """Text and axes have the contrast of text on every neutral background, light and dark."""
    for color in (theme.INK, theme.SOFT):
        for ground in (theme.GROUND, theme.TINT):
            assert _contrast(color, ground) >= TEXT
            assert _contrast(theme.DARK[color], theme.DARK[ground]) >= TEXT
    assert _contrast(theme.INK, theme.STAGE_TINT) >= TEXT
    assert _contrast(theme.DARK[theme.INK], theme.DARK[theme.STAGE_TINT]) >= TEXT


def test_names_are_readable_on_their_bars() -> None:
    """Names on bars have the contrast of text; bars or their outlines have that of graphics, light and dark."""
    for color in theme.TYPE_COLORS:
        assert _contrast(theme.ON_TYPE, color) >= TEXT
        assert _contrast(color, theme.DARK[theme.GROUND]) >= GRAPHICS
    assert _contrast(theme.OUTLINE, theme.GROUND) >= GRAPHICS


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("palette", ["SERIES", "TYPE_COLORS"])
def test_colors_differ(palette: str, deficiency: str) -> None:
    """Any two colors of a palette differ by 10 in CIELAB, four times what an eye notices, as everyone sees them."""
    nearest = min(_difference(*pair, deficiency) for pair in combinations(getattr(theme, palette), 2))
    assert nearest >= 10.0


def test_types_have_one_look() -> None:
    """The look of a type depends on its name alone, and the types of one network look different."""
    networks = {
        "inception_v3": ("conv2d-relu", "concat", "avg_pool2d", "max_pool2d"),
        "squeezenet": ("conv2d-relu", "concat", "add", "conv2d", "max_pool2d", "adaptive_avg_pool2d"),
        "nasnet_large": ("relu-sepconv", "avg_pool2d", "relu-conv2d", "concat", "add", "max_pool2d", "conv2d", "relu"),
        "bert": ("reshape", "add", "matmul", "layer_norm", "multiply", "softmax", "gelu", "mean"),
    }
    for types in networks.values():
        assert len({theme.style_of(name) for name in types}) == len(types)
    assert theme.style_of("a type of my own") == theme.style_of("a type of my own")
    assert len({theme.style_of(f"type {number}") for number in range(500)}) == 2 * len(theme.TYPE_COLORS)


def test_dark_rules_exchange_every_neutral_color() -> None:
    """Each neutral color has a rule for fills and one for strokes, below the given selector."""
    rules = theme.dark_rules("svg.chart").splitlines()
    assert len(rules) == 2 * len(theme.DARK)
    for light, dark in theme.DARK.items():
        assert f'svg.chart [fill="{light}"], svg.chart[fill="{light}"] {{ fill: {dark}; }}' in rules
