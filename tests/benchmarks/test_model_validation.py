"""The published latencies that predictions are compared with, and the document that shows them."""

from __future__ import annotations

from pathlib import Path

import benchmarks.model_validation as validation


def test_rows_in_the_documents() -> None:
    """docs/gpus.md shows the rows in the order in which the benchmark prints them, with the published numbers."""
    text = (Path(validation.__file__).parents[1] / "docs" / "gpus.md").read_text(encoding="utf-8")
    table = text.split("    paper   GPU ")[1].split("\n\n")[0].splitlines()[1:]
    shown = [tuple(line.split()[:5]) for line in table]
    rows = validation._rows()
    assert shown == [(row.paper, row.gpu, row.network, str(row.batch), f"{row.published_ms:.2f}") for row in rows]
    assert [row.fitted for row in rows] == [row.paper != "Nimble" for row in rows]
