"""Charts as SVG and PDF: marks, descriptions, hatched fills, fonts, the same bytes twice; text in tables of LaTeX."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest

from hios.charts import marks
from hios.charts.rendering import escaped, fill_of, latex_document, svg_to_pdf, to_svg
from hios.charts.theme import FONT, SERIES, Style
from tests.charts.latex_compiler import compile_latex, needs_pdflatex

alt = pytest.importorskip("altair", reason="needs the extra report")

#: The namespace of elements.
SVG = "{http://www.w3.org/2000/svg}"


def _rows(names: tuple[str, ...] = ("measured here", "predicted", "published", "bound")) -> list[dict[str, Any]]:
    """Two series of three points for each mark."""
    return [
        {"mark": name, "algorithm": algorithm, "x": x, "y": x * (place + 1), "description": f"{algorithm}, {name}, {x}"}
        for name in names
        for place, algorithm in enumerate(("ios", "hios-lp"))
        for x in (1.0, 2.0, 3.0)
    ]


def _parsed(text: str) -> Element:
    return fromstring(text)  # noqa: S314  our own drawing


def _lines(rows: list[dict[str, Any]]) -> Any:
    chart = marks.lines(rows, x=alt.X("x:Q"), y=alt.Y("y:Q"), series="algorithm")
    return chart.properties(width=300, height=200, description="Latency & devices")


def test_marks_differ_in_shape_dash_and_fill() -> None:
    """No two marks share shape or dash; what was measured alone is filled."""
    assert len({mark.shape for mark in marks.MARKS}) == len({mark.dash for mark in marks.MARKS}) == 4
    assert [mark.filled for mark in marks.MARKS] == [True, False, False, False]
    assert all(f"{mark.name} (" in marks.explanation() for mark in marks.MARKS)


def test_docs_explain_the_marks() -> None:
    """docs/report.md has a row for every mark, with its meaning."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE)
    assert [row for row in rows if row[0] != "mark"] == [(mark.name, mark.meaning) for mark in marks.MARKS]


def test_points_look_as_their_marks_say() -> None:
    """Every point has its description; measured ones are filled, others not, and lines are dashed by mark."""
    root = _parsed(to_svg(_lines(_rows()), "chart"))
    fills: dict[str, set[str | None]] = {}
    for item in root.iter(f"{SVG}path"):
        if description := item.get("data-hover"):
            fills.setdefault(description.split(", ")[1], set()).add(item.get("fill-opacity"))
    assert fills.pop("measured here") <= {None, "1"}
    assert fills == {"predicted": {"0"}, "published": {"0"}, "bound": {"0"}}
    dashes = {item.get("stroke-dasharray") for item in root.iter(f"{SVG}path")}
    assert {"6,4", "1,3", "10,3,2,3"} <= dashes
    colors = {item.get("stroke") for item in root.iter(f"{SVG}path") if item.get("data-hover")}
    assert colors == set(SERIES[:2])


def test_legend_explains_the_marks_that_occur() -> None:
    """The legend names the marks of the rows and no other."""
    text = to_svg(_lines(_rows(("measured here", "bound"))), "chart")
    assert ">measured here</text>" in text
    assert ">bound</text>" in text
    assert ">predicted</text>" not in text


def test_unknown_marks_are_refused() -> None:
    """A mark other than the four is an error."""
    with pytest.raises(ValueError, match=r"mark: found \['guessed'\]; allowed: measured here, predicted"):
        marks.shape(_rows(("guessed",)))


def test_bars_are_outlines_unless_measured() -> None:
    """Predicted bars are outlines with dashes."""
    chart = marks.bars(
        _rows(("measured here", "predicted"))[::3],
        x=alt.X("y:Q"),
        y=alt.Y("algorithm:N"),
        series="algorithm",
        beside=alt.YOffset("mark:N"),
    ).properties(description="Bars")
    bars = [item for item in _parsed(to_svg(chart, "bars")).iter(f"{SVG}path") if item.get("data-hover")]
    assert {(item.get("stroke-dasharray") or "", item.get("fill-opacity") or "1") for item in bars} == {
        ("", "1"),
        ("6,4", "0"),
    }


def test_svg_is_described_and_self_contained() -> None:
    """One image with one description, nothing loaded, no script, and identities that are unique on a page."""
    text = to_svg(_lines(_rows()), "first")
    root = _parsed(text)
    assert (root.get("role"), root.get("aria-label"), root.get("id")) == ("img", "Latency & devices", "first")
    assert not re.search(r"<script|href|@import|src=|aria-roledescription", text)
    assert (
        set(re.findall(r' id="([^"]+)"', text)) & set(re.findall(r' id="([^"]+)"', to_svg(_lines(_rows()), "b")))
        == set()
    )


def test_charts_need_a_description() -> None:
    """A chart without words for those who do not see it is not drawn."""
    with pytest.raises(ValueError, match="figure: a chart needs a description"):
        to_svg(_lines(_rows()).properties(description=""), "figure")


def test_hatched_fills() -> None:
    """A hatched type gets its pattern, under the identity of the drawing."""
    rows = [{"x": 1, "fill": fill_of(Style("#77aadd", hatched=True))}, {"x": 2, "fill": fill_of(Style("#44bb99"))}]
    chart = alt.Chart(alt.Data(values=rows)).mark_bar().encode(x="x:Q", fill=alt.Fill("fill:N", scale=None))
    text = to_svg(chart.properties(description="bars"), "types")
    assert text.count('<pattern id="types-hatch-77aadd"') == 1
    assert 'fill="url(#types-hatch-77aadd)"' in text
    assert 'fill="#44bb99"' in text


_FONTS = ('font-weight="bold"', 'font-style="italic"')


def test_drawing_twice_gives_the_same_bytes() -> None:
    """SVG and PDF of the same rows are byte-identical."""
    first, second = (to_svg(_lines(_rows()), "a") for _ in range(2))
    assert first == second
    assert svg_to_pdf(first) == svg_to_pdf(second)


def test_fonts_of_a_pdf_are_in_order() -> None:
    """A drawing in several fonts, which vl-convert orders anew every time, has the same bytes every time."""
    words = (f'<text y="{20 * place}" {style}>words</text>' for place, style in enumerate(("", *_FONTS), 1))
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="90" height="90" font-family="{FONT}">{"".join(words)}</svg>'
    (pdf,) = {svg_to_pdf(svg) for _ in range(10)}
    table = pdf[int(pdf.rpartition(b"startxref\n")[2].split()[0]) :].splitlines()
    places = [int(line.split()[0]) for line in table[3 : 2 + int(table[1].split()[1])]]
    assert [pdf[place:].split()[:3] for place in places] == [
        [b"%d" % n, b"0", b"obj"] for n in range(1, 1 + len(places))
    ]


def test_pdf_is_one_page_with_its_fonts_and_text() -> None:
    """One page; every font is embedded, and a table maps its glyphs to characters, so that text can be selected."""
    pdf = svg_to_pdf(to_svg(_lines(_rows()), "chart"))
    parts = [pdf]
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        try:
            parts.append(zlib.decompress(stream))
        except zlib.error:  # a stream that is not compressed is in the file as it is
            continue
    text = b"\n".join(parts)
    assert len(re.findall(rb"/Type\s*/Page\b", text)) == 1
    fonts = re.findall(rb"/Type\s*/FontDescriptor\b", text)
    assert fonts
    assert len(re.findall(rb"/FontFile[23]?\b", text)) == len(fonts)
    assert len(re.findall(rb"/ToUnicode\b", text)) == len(re.findall(rb"/Subtype\s*/Type0\b", text)) > 0
    assert FONT.split(",")[0].replace(" ", "").encode() in text


def test_many_items_share_what_is_equal() -> None:
    """Attributes that all bars of a chart have in common are those of their group; each bar keeps what is its own."""
    rows = [
        {"x": number, "fill": "#44bb99" if number % 2 else "#77aadd", "description": f'{number}, stroke="none" '}
        for number in range(20)
    ]
    chart = alt.Chart(alt.Data(values=rows)).mark_bar(stroke="#123456", strokeDash=[3, 2])
    chart = chart.encode(x="x:O", fill=alt.Fill("fill:N", scale=None), description="description:N")
    root = _parsed(to_svg(chart.properties(description="many"), "many"))
    (group,) = [group for group in root.iter(f"{SVG}g") if any(item.get("data-hover") for item in group)]
    assert (group.get("stroke"), group.get("stroke-dasharray"), group.get("fill")) == ("#123456", "3,2", None)
    assert [(item.get("stroke"), item.get("stroke-dasharray")) for item in group] == [(None, None)] * 20
    assert [item.get("fill") for item in group] == [row["fill"] for row in rows]
    assert [item.get("data-hover") for item in group] == [row["description"] for row in rows]


#: Names that a network, an algorithm or a file may have, and what stands for them.
HOSTILE = {
    "a_b&c%d#e$f~g^h\\i{j}": r"a\_b\&c\%d\#e\$f\textasciitilde{}g\textasciicircum{}h\textbackslash{}i\{j\}",
    "5 µs × 3 ≥ 2": r"5 $\mu$s $\times$ 3 $\geq$ 2",  # noqa: RUF001
    "été, über, çñ": r"\'{e}t\'{e}, \"{u}ber, \c{c}\~{n}",
    "漢字": "??",
    "<a|b>": r"\textless{}a\textbar{}b\textgreater{}",
    "--platform": "-{}-platform",
    'say "no"': "say ''no''",
    "[64]": "{}[64]",
    "*": "{}*",
    "two\nlines\tand\x00": "two lines and ",
    r"\input{secret}": r"\textbackslash{}input\{secret\}",
    "": "",
}


@pytest.mark.parametrize(("text", "latex"), HOSTILE.items())
def test_escaped(text: str, latex: str) -> None:
    """What LaTeX takes for something else stands for itself, by commands that need no package."""
    assert escaped(text) == latex


def test_escaped_text_is_ascii() -> None:
    """So it needs no encoding of fonts or of the file; every character of the alphabets that Latin has gives one."""
    text = "".join(map(chr, range(0x250)))
    assert escaped(text).isascii()
    assert escaped(text).isprintable()


@needs_pdflatex
def test_document_compiles(tmp_path: Path) -> None:
    """A table with hostile names in cells, heads and caption."""
    pd = pytest.importorskip("pandas", reason="needs the extra report")
    names = list(HOSTILE)
    latin = [chr(number) for number in range(0x20, 0x250)]
    frame = pd.DataFrame({name: [text, 1.5, None] for name, text in zip(names, reversed(names), strict=True)})
    letters = pd.DataFrame({"[character]": latin, "*": range(len(latin))})
    for number, table in enumerate((frame, letters)):
        document = tmp_path / f"table{number}.tex"
        document.write_text(latex_document(table, " ".join(names), "tab:hostile"), encoding="utf-8")
        compile_latex(document)
