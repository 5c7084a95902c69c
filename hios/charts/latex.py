"""Tables as LaTeX documents that compile without changes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

_DOCUMENT = r"""% Compiles as it is. To use the table in a paper, copy the lines from \begin{longtable} to
% \end{longtable}; it needs the packages booktabs and longtable.
\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage{textcomp}
\usepackage{booktabs}
\usepackage{longtable}
\usepackage[landscape,margin=12mm]{geometry}
\begin{document}
\small
%s\end{document}
"""


def latex_document(frame: pd.DataFrame, caption: str, label: str) -> str:
    """A table as a document in LaTeX with the rules of booktabs.

    Args:
        frame: texts and numbers as they are to be shown; absent values become dashes.
        caption: plain text.
        label: for references in LaTeX.
    """
    import pandas as pd

    texts = pd.DataFrame([[_text(value) for value in row] for row in frame.itertuples(index=False)], dtype="object")
    texts.columns = pd.Index([_escaped(str(column)) for column in frame.columns])
    numeric = [all(isinstance(value, int | float) or pd.isna(value) for value in frame[name]) for name in frame.columns]
    alignment = "".join("r" if number else "l" for number in numeric)
    table = texts.to_latex(
        index=False, escape=False, longtable=True, column_format=alignment, caption=_escaped(caption), label=label
    )
    return _DOCUMENT.replace("%s", table)


def _text(value: object) -> str:
    absent = value is None or (isinstance(value, float) and math.isnan(value))
    return "--" if absent else _escaped(str(value))


_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "µ": r"\textmu{}",
    "×": r"\texttimes{}",  # noqa: RUF001
    "–": "--",  # noqa: RUF001
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def _escaped(text: str) -> str:
    """Text with LaTeX's special characters escaped; characters missing in its fonts become question marks."""
    return "".join(
        _SPECIAL.get(character, character if character.isascii() and character.isprintable() else "?")
        for character in text
    )
