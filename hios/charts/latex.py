"""Tables in LaTeX that compile without changes."""

from __future__ import annotations

import itertools
import math
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

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
