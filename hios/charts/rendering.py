"""Altair charts as SVG and PDF by vl-convert: no browser, no network, reproducible bytes.

An SVG is complete without scripts. What an item's ``description`` says becomes its ``data-hover``, which the script of
the report shows at the pointer; the drawing as a whole is one image with one description for screen readers.
Tables become documents in LaTeX that compile without changes.
"""

from __future__ import annotations

import contextlib
import html
import itertools
import math
import re
import unicodedata
from collections.abc import Iterator
from typing import TYPE_CHECKING

from hios.charts.marks import MEASURED
from hios.charts.theme import FONT, ON_TYPE, Style, Vega, configuration

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

_DECIMALS = 2
_NUMBERS = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
_GEOMETRY = re.compile(r'(?<= )(d|transform|x|y|x1|x2|y1|y2|width|height)="([^"]*)"')
#: Roles of items, the font (the drawing states it once), default values, and empty backgrounds of groups.
_NEEDLESS = re.compile(
    r' (?:role|aria-roledescription|aria-hidden|pointer-events|font-family)="[^"]*"| (?:opacity|stroke-width)="1"'
    r'|<path(?: aria-hidden="true")? class="background"(?: aria-hidden="true")? d="M0,0h0v0h0Z"[^>]*/>'
    r'|<path class="foreground"[^>]* d="" display="none"/>'
)
#: Labels of items, and those that Vega generates for groups (axes, legends, titles).
_LABELS = re.compile(r' aria-label="([^"]*)"')
_GROUP_LABELS = re.compile(r'(<g(?: [\w-]+="[^"]*")*?) aria-label="[^"]*"')
#: Groups that hold only items, their items, and attributes that items inherit from their group.
_ITEMS = re.compile(
    r'(<g class="mark-[^"<>]*")>((?:<(?:path|text|rect|line)(?: [\w-]+="[^"<>]*")*(?:/>|>[^<]*</\w+>))+)</g>'
)
_ITEM = re.compile(r"<(?:path|text|rect|line) [^<>]*>")
_INHERITED = re.compile(
    r" (?:fill|stroke|stroke-width|stroke-dasharray|fill-opacity|stroke-opacity|font-size|font-weight|text-anchor)="
    r'"[^"]*"'
)
#: A group with this many items states what all of them share.
_MANY = 8
_IDENTITIES = re.compile(r'(?<= id=")([^"]+)(?=")')
_ROOT = re.compile(r"<svg [^>]*?width=\"(?P<width>[\d.]+)\" height=\"(?P<height>[\d.]+)\"[^>]*>")
#: The head of a dictionary of resources in a PDF, and its lines; numbers of objects, where they begin and are named.
_RESOURCES = re.compile(rb"(/\w+ <<\n)((?: +/\w+ \d+ 0 R\n){2,})")
_NUMBER = re.compile(rb"\b(\d+)(?= 0 (?:obj|R)\b)")
_HATCH = re.compile(r"url\(#hatch-([0-9a-f]{6})\)")


def fill_of(style: Style) -> str:
    """The fill of an operator type, as the value of a color."""
    return f"url(#hatch-{style.color[1:]})" if style.hatched else style.color


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    """Disables the check of charts against the schema of Vega-Lite, which takes longer than drawing them."""
    import altair

    with altair.utils.schemapi.debug_mode(False):
        yield


def to_svg(chart: alt.TopLevelMixin, identity: str) -> str:
    """A chart as an SVG document in the style of the theme.

    Args:
        chart: with a ``description`` of what it shows, for those who do not see it; a ValueError without one.
        identity: of the drawing among all of a page; letters, digits, - and _.
    """
    import altair
    import vl_convert

    specification: Vega = chart.to_dict(validate=altair.utils.schemapi.DEBUG_MODE)
    description = specification.pop("description", "")
    if not description:
        raise ValueError(f"{identity}: a chart needs a description")
    own = {key: value for key, value in specification.get("config", {}).items() if key != "view"}  # Altair sets it
    specification["config"] = configuration() | own
    version = altair.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
    drawing = vl_convert.vegalite_to_vega(specification, vl_version=version)
    _fill_legends(drawing)
    return _cleaned(vl_convert.vega_to_svg(drawing), identity, description)


def svg_to_pdf(svg: str) -> bytes:
    """A drawing of `to_svg` as a PDF of one page, with embedded fonts and text as text."""
    import vl_convert

    return _renumbered(_RESOURCES.sub(_sorted_lines, bytes(vl_convert.svg_to_pdf(svg))))


def _sorted_lines(match: re.Match[bytes]) -> bytes:
    """The names of a page's resources in order; vl-convert writes them in another order every time."""
    return match[1] + b"".join(sorted(match[2].splitlines(keepends=True)))


def _renumbered(pdf: bytes) -> bytes:
    """A PDF with its objects in the order in which they are named; vl-convert orders fonts anew every time."""
    end = pdf.rindex(b"xref\n0 ")
    table, _, trailer = pdf[end:].partition(b"trailer\n")
    begins = sorted(int(line[:10]) for line in table.splitlines()[3:])
    # What follows "stream" is no text.
    parts = [pdf[begin:until].partition(b"stream\n") for begin, until in itertools.pairwise([*begins, end])]
    objects = {_NUMBER.findall(head)[0]: (head, mark + stream) for head, mark, stream in parts}
    named = dict.fromkeys(_NUMBER.findall(trailer))
    waiting = list(named)
    while waiting:
        new = [number for number in _NUMBER.findall(objects[waiting.pop(0)][0]) if number not in named]
        named |= dict.fromkeys(new)
        waiting += new
    numbers = {number: b"%d" % place for place, number in enumerate(named, 1)}
    made, places = pdf[: begins[0]], []
    for number in named:
        places.append(b"%010d 00000 n \n" % len(made))
        made += b"".join((_NUMBER.sub(lambda match: numbers[match[1]], objects[number][0]), objects[number][1]))
    rest = _NUMBER.sub(lambda match: numbers[match[1]], trailer.partition(b"startxref")[0])
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (1 + len(named))
    return made + head + b"".join(places) + b"trailer\n" + rest + b"startxref\n%d\n%%%%EOF" % len(made)


def _fill_legends(drawing: Vega) -> None:
    """In the legends of marks, fill only the symbol of measurements; Vega-Lite cannot express that."""
    for legend in drawing.get("legends", ()):
        if legend.keys() & {"shape", "strokeDash"}:
            update = legend.setdefault("encode", {}).setdefault("symbols", {}).setdefault("update", {})
            update["fillOpacity"] = [{"test": f"datum.value === '{MEASURED.name}'", "value": 1}, {"value": 0}]
    for part in drawing.get("marks", ()):
        _fill_legends(part)


def _cleaned(drawn: str, identity: str, description: str) -> str:
    """Fewer decimals and no roles of items, names that are unique on a page, and one description for the whole."""
    text = _NEEDLESS.sub("", drawn)
    text = _LABELS.sub(r' data-hover="\1"', _GROUP_LABELS.sub(r"\1", text))
    text = _GEOMETRY.sub(lambda match: f'{match[1]}="{_NUMBERS.sub(_shorter, match[2])}"', text)
    text = _ITEMS.sub(_sharing, text)
    # Vega numbers names over the lifetime of the process; here numbers begin at 0 in every drawing.
    for number, name in enumerate(dict.fromkeys(_IDENTITIES.findall(text))):
        text = text.replace(f'id="{name}"', f'id="{identity}-{number}"')
        text = text.replace(f"url(#{name})", f"url(#{identity}-{number})")
    hatches = "".join(_hatch(identity, color) for color in dict.fromkeys(_HATCH.findall(text)))
    text = _HATCH.sub(lambda match: f"url(#{identity}-hatch-{match[1]})", text)
    root = _ROOT.search(text)
    if root is None:
        raise ValueError(f"{identity}: vl-convert wrote no SVG")
    width, height = root["width"], root["height"]
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" id="{identity}" role="img" '
        f'aria-label="{html.escape(description)}" font-family="{FONT}" {size}>'
    )
    return head + (f"<defs>{hatches}</defs>" if hatches else "") + text[root.end() :]


def _sharing(match: re.Match[str]) -> str:
    """A group that states what all its items share: a Gantt chart has hundreds of bars with the same stroke."""
    group, items = match[1], match[2]
    looks = [frozenset(_INHERITED.findall(item)) for item in _ITEM.findall(items)]
    shared = frozenset.intersection(*looks) if len(looks) >= _MANY else frozenset()
    if shared:
        own = re.compile("|".join(map(re.escape, sorted(shared, key=len, reverse=True))))
        items = _ITEM.sub(lambda item: own.sub("", item[0]), items)
    return f"{group}{''.join(sorted(shared))}>{items}</g>"


def _shorter(match: re.Match[str]) -> str:
    return f"{float(match[0]):.{_DECIMALS}f}".rstrip("0").rstrip(".")


def _hatch(identity: str, color: str) -> str:
    return (
        f'<pattern id="{identity}-hatch-{color}" width="5" height="5" patternUnits="userSpaceOnUse">'
        f'<rect width="5" height="5" fill="#{color}"/>'
        f'<path d="M-1,1l2,-2M0,5l5,-5M4,6l2,-2" stroke="{ON_TYPE}" stroke-opacity=".55" stroke-width=".8"/></pattern>'
    )


_DOCUMENT = r"""% Compiles as it is. To use the table in a paper, copy the lines from \begin{longtable} to
% \end{longtable}; it needs the packages booktabs and longtable.
\documentclass{article}
\usepackage{booktabs}
\usepackage{longtable}
\usepackage[landscape,margin=12mm]{geometry}
\begin{document}
\small
%s\end{document}
"""


def latex_document(frame: pd.DataFrame, caption: str, label: str) -> str:
    """A table as a document in LaTeX with the rules of booktabs; absent values become dashes."""
    import pandas as pd

    texts = pd.DataFrame([[_text(value) for value in row] for row in frame.itertuples(index=False)], dtype="object")
    texts.columns = pd.Index([escaped(str(column)) for column in frame.columns])
    numeric = [all(isinstance(value, int | float) or pd.isna(value) for value in frame[name]) for name in frame.columns]
    alignment = "".join("r" if number else "l" for number in numeric)
    table = texts.to_latex(
        index=False, escape=False, longtable=True, column_format=alignment, caption=escaped(caption), label=label
    )
    return _DOCUMENT.replace("%s", table)


def _text(value: object) -> str:
    absent = value is None or (isinstance(value, float) and math.isnan(value))
    return "--" if absent else escaped(str(value))


#: Characters that LaTeX takes for something else, or that its default fonts have no glyph for; in math where that needs
#: no package.
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "µ": r"$\mu$",
    "μ": r"$\mu$",
    "×": r"$\times$",  # noqa: RUF001
    "·": r"$\cdot$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "≠": r"$\neq$",
    "≈": r"$\approx$",
    "→": r"$\to$",
    "∞": r"$\infty$",
    "°": r"$^\circ$",
    "²": "$^2$",
    "³": "$^3$",
    "–": "--",  # noqa: RUF001
    "—": "---",
    "…": r"\ldots{}",
    "’": "'",  # noqa: RUF001
    "ß": r"\ss{}",
    "ø": r"\o{}",
    "Ø": r"\O{}",
    "æ": r"\ae{}",
    "Æ": r"\AE{}",
    "ł": r"\l{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
#: Accents by the combining character that Unicode takes letters apart into.
_ACCENTS = {
    "\u0300": "`",
    "\u0301": "'",
    "\u0302": "^",
    "\u0303": "~",
    "\u0304": "=",
    "\u0306": "u",
    "\u0307": ".",
    "\u0308": '"',
    "\u030a": "r",
    "\u030b": "H",
    "\u030c": "v",
    "\u0327": "c",
}


def escaped(text: str) -> str:
    """Text as LaTeX that stands for it in a cell of a table, without any package.

    Characters that need one become question marks, and line breaks spaces.
    """
    # Two hyphens would become a dash, and a cell that begins with [ or * an argument of the \\ or rule before it.
    latex = "".join("{}-" if pair == ("-", "-") else _character(pair[1]) for pair in itertools.pairwise(f" {text}"))
    return f"{{}}{latex}" if latex.startswith(("[", "*")) else latex


def _character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character.isascii():
        return character if character.isprintable() else " "
    parts = unicodedata.normalize("NFD", character)
    letter, accent = parts[0], _ACCENTS.get(parts[1:])
    if letter.isascii() and accent is not None:
        return f"\\{accent}{{{letter}}}"
    return "?"
