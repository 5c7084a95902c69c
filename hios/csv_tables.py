"""Tables as CSV files that are safe to open in spreadsheets: no cell is taken for a formula."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

#: First characters of a formula, and of text that is already guarded.
_FORMULA = re.compile(r"'*[=+\-@\t\r]")

#: Ends the lines that csv makes: it quotes cells that hold one of these characters, and no others with line breaks.
_END = "\r\n"


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    r"""A table with a header line, its lines ended by ``\n``.

    Args:
        columns: names, in order.
        rows: cells by column. None is an empty field; keys that are not columns are left out.
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


def guarded(text: str) -> str:
    """Text with an apostrophe before anything that a spreadsheet would run as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """The inverse of `guarded`."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text[1:]) else text
