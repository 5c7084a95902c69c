"""What a session prints."""

from __future__ import annotations

from typing import Any

import pytest

from hios.runtime.table import latency_table


def _run(scale: float, algorithm: str) -> dict[str, Any]:
    """Contents of run.json as far as the table reads them; latencies are multiples of ``scale`` milliseconds."""

    def latency(median: float) -> dict[str, float]:
        return {"median": scale * median, "p20": scale * median * 0.9, "p80": scale * median * 1.5}

    return {
        "platform": {"name": "cpu"},
        "baseline": {"latency_ms": latency(2)},
        "results": [{"label": "mine", "algorithm": algorithm, "devices": 1, "latency_ms": latency(1), "speedup": 2.0}],
        "references": [{"name": "eager PyTorch, 1 thread", "threads": 1, "latency_ms": latency(4), "speedup": 0.5}],
        "ceilings": [{"devices": 2, "latency_ms": latency(2.5), "throughput_ratio": 1.6}],
    }


def test_table() -> None:
    """Schedules, references and ceilings under each other, with the sequential schedule where it is not among them."""
    assert latency_table(_run(10, "greedy")).splitlines() == [
        "                                median ms      p20 to p80  speedup",
        "sequential on one device            20.00  18.00 to 30.00  1.00",
        "mine                                10.00   9.00 to 15.00  2.00",
        "eager PyTorch, 1 thread             40.00  36.00 to 60.00  0.50",
        "2 independent copies (ceiling)      25.00  22.50 to 37.50  1.60 in throughput",
    ]
    assert "sequential on one device" not in latency_table(_run(10, "sequential"))


def test_intervals() -> None:
    """Speedups stand with their intervals, and the heading says what they are; one without has none."""
    run = _run(10, "greedy")
    run["results"][0]["speedup_interval"] = [1.889, 2.1]
    head, _, mine, eager, _ = latency_table(run).splitlines()
    assert head.endswith("  speedup (95 %)")
    assert mine.endswith("  2.00 (1.89 to 2.10)")
    assert eager.endswith("  0.50")
    run["results"][0] |= {"speedup": 1.0, "speedup_interval": [1, 1]}  # the sequential schedule over itself
    assert latency_table(run).splitlines()[2].endswith("  1.00")


def test_virtual_devices() -> None:
    """Where devices share cores or GPUs, the last line says what times are worth; elsewhere nothing does."""
    for platform, said in (({"virtual": True}, True), ({"virtual": False}, False), ({}, False)):
        last = latency_table(_run(10, "greedy") | {"platform": platform}).splitlines()[-1]
        assert (last == "virtual devices: times say little") == said


def test_chosen() -> None:
    """What was chosen stands behind the schedules, with what it is and its own runs."""
    chosen = {"label": "mine", "latency_ms": {"median": 10.4, "p20": 10.0, "p80": 11.0}, "speedup": 1.92}
    lines = latency_table(_run(10, "greedy") | {"chosen": chosen}).splitlines()
    assert lines[3] == "auto: mine                          10.40  10.00 to 11.00  1.92"


@pytest.mark.parametrize(("scale", "median"), [(0.1234567, "0.123"), (12.34567, "12.35"), (1234.567, "1235")])
def test_digits(scale: float, median: str) -> None:
    """Times have as many decimals as the shortest median needs for four digits, three at most."""
    assert f" {median} " in latency_table(_run(scale, "greedy"))
