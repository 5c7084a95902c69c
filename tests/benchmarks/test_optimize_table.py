"""The table of all ways to run the networks."""

from __future__ import annotations

from benchmarks.optimize_gain import table
from hios.optimizing.report import Report, WayReport


def _report(chosen: str, **medians: float) -> Report:
    ways = [WayReport(label, "eager", median_ms=median) for label, median in medians.items()]
    slow = WayReport("slow", "compile", "slower", median_ms=99.0)
    return Report("Net", chosen, "because", (*ways, slow, WayReport("absent", "openvino", "not started", "no time")))


def test_table() -> None:
    """A column a network: medians of every way, those that left early in brackets, and the kept one's ratio."""
    assert table({"one": _report("b", a=10.0, b=5.1, c=5.0), "two": _report("a", a=20.0)}).splitlines() == [
        "| ms | one | two |",
        "| --- | ---: | ---: |",
        "| a | 10.0 | 20.0 |",
        "| b | 5.1 |  |",
        "| c | 5.0 |  |",
        "| slow | (99.0) | (99.0) |",
        "| kept | b | a |",
        "| kept over the fastest | 1.020 | 1.000 |",
    ]
