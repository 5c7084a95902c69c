"""Text in tables of LaTeX: escaped, and it compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from hios.charts.rendering import escaped, latex_document
from tests.charts.latex_compiler import compile_latex, needs_pdflatex

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
