"""Tables as CSV files."""

from __future__ import annotations

import csv
import io

import pytest

from hios.files.text_tables import aligned, csv_text, unguarded


def test_cells_come_back() -> None:
    """Numbers are written in full, and whatever is in a cell is that cell when it is read."""
    values = [1, 1.0, 0.1 + 0.2, 1e22, 123456789012345678, True, "", 'a "b", c', "two\nlines", "NA", "ü"]
    values += ["one\rcell", "one\r\ncell", "ends with\r", "\n"]
    rows = [{"value": value, "number": number, "other": "x"} for number, value in enumerate(values)]
    text = csv_text(("value", "number"), [*rows, {"value": None}])
    header, *read = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert header == ["value", "number"]
    assert read == [*([str(value), str(number)] for number, value in enumerate(values)), ["", ""]]


def test_lines_end_alike() -> None:
    """Lines end by a line feed alone, and a table without rows has its header."""
    assert csv_text(("first", "second"), [{"first": 1, "second": "a\r"}]) == 'first,second\n1,"a\r"\n'
    assert csv_text(("first",), []) == "first\n"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''-1"])
def test_text_is_no_formula(text: str) -> None:
    """What a spreadsheet would run gets an apostrophe, which hios verify takes off; other text and numbers none."""
    written = csv_text(("text", "number", "plain"), [{"text": text, "number": -1.5, "plain": "a=b"}])
    (row,) = csv.DictReader(io.StringIO(written, newline=""), strict=True)
    assert row == {"text": f"'{text}", "number": "-1.5", "plain": "a=b"}
    assert unguarded(row["text"]) == text
    assert unguarded("it's") == "it's"


def test_columns_of_a_table_are_aligned() -> None:
    """The last alignment is that of all further columns; rows may be short, and no line ends in blanks."""
    rows = [["", "ms", "ratio"], ["first", "10.5", "1"], ["b", "2"]]
    assert aligned(rows, "<>") == ["         ms  ratio", "first  10.5      1", "b         2"]
    assert aligned([["a", ""], ["b", ""]], "<") == ["a", "b"]
