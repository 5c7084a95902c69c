"""Tables as CSV files that are safe to open in spreadsheets (no cell is taken for a formula), and as text.

And how many decimals their times have.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import Any

#: First characters of a formula, and of text that is already guarded.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")

#: Decimals from how many milliseconds on: four digits of the shortest latency of a table.
_DECIMALS_FROM_MS = ((1000.0, 0), (100.0, 1), (10.0, 2))

#: Ends the lines that csv makes: it quotes cells that hold one of these characters, and no others with line breaks.
_END = "\r\n"


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    r"""A table with a header line, its lines ended by ``\n``.

    Rows are cells by column: None is an empty field, and keys that are not columns are left out.
    """
    lines = _Lines()
    writer = csv.writer(lines, lineterminator=_END)
    writer.writerow(columns)
    for row in rows:
        cells = (row.get(name) for name in columns)
        writer.writerow([guarded(cell) if isinstance(cell, str) else cell for cell in cells])
    return "".join(lines)


class _Lines(list[str]):
    """The target of a csv writer: a list of lines."""

    def write(self, line: str) -> None:
        self.append(f"{line.removesuffix(_END)}\n")


def decimals_for(shortest_ms: float) -> int:
    """Decimals of the times of a table in milliseconds."""
    return next((decimals for least, decimals in _DECIMALS_FROM_MS if shortest_ms >= least), 3)


def guarded(text: str) -> str:
    """Text with an apostrophe before anything that a spreadsheet would run as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """The inverse of `guarded`."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text


def aligned(rows: Sequence[Sequence[str]], alignments: str) -> list[str]:
    """Lines of a table: columns two blanks apart, each as wide as its longest cell; rows may end before the last one.

    ``alignments`` is ``<`` (left) or ``>`` (right) by column; the last one is that of all further columns.
    """
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(max(map(len, rows)))]
    columns = list(zip(chain(alignments, repeat(alignments[-1])), widths, strict=False))
    return [
        "  ".join(f"{cell:{align}{width}}" for cell, (align, width) in zip(row, columns, strict=False)).rstrip()
        for row in rows
    ]
