"""Metrics as text of Prometheus."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.scripts import printed

pytest.importorskip("torch")
from hios.serving.admission import Counts
from hios.serving.load_generator import Progress
from hios.serving.metrics import MetricsFile


def server() -> Any:
    """What a server says of itself."""
    counts = {"left": Counts(offered=70, completed=30, dropped=20, waiting=1, in_flight=1), "right": Counts()}
    return SimpleNamespace(counts=counts, busy_s=1.5, control_s=0.25, lanes_up=2)


def values(path: Path) -> dict[str, float]:
    """Samples by name and labels; every line is a comment or a sample."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("# ")]
    assert all(re.fullmatch(r'[a-z_]+(\{[a-z]+="[^"]+"(,[a-z]+="[^"]+")*\})? [0-9.e+-]+', line) for line in lines)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def _progress(passed_s: float, latencies_ms: list[float], sent: int, **ended: int) -> Progress:
    """What happened to the tasks of one model of two."""
    by_label = {"left": Counter(completed=len(latencies_ms), **ended), "right": Counter[str]()}
    return Progress(passed_s, 2.0, {"left": latencies_ms, "right": []}, by_label, Counter(left=sent))


def test_counts_and_latencies(tmp_path: Path) -> None:
    """Tasks of the load by model and end, whatever else the server ran; buckets add up, over several looks too."""
    metrics = MetricsFile(tmp_path / "metrics.prom")
    metrics.show(server(), _progress(1.0, [0.5, 30.0], 6, dropped=1, failed=1))
    metrics.show(server(), _progress(1.5, [20_000.0], 1, dropped=1))
    assert not (tmp_path / "metrics.prom").exists()
    metrics.write()
    samples = values(tmp_path / "metrics.prom")
    ends = ("completed", "dropped", "expired", "failed")
    assert [samples[f'hios_tasks_total{{model="left",outcome="{end}"}}'] for end in ends] == [3, 2, 0, 1]
    assert samples['hios_tasks_total{model="right",outcome="completed"}'] == 0
    assert samples['hios_tasks_offered_total{model="left"}'] == 7
    assert samples['hios_tasks_waiting{model="left"}'] == 1
    assert samples['hios_latency_seconds_bucket{model="left",le="0.001"}'] == 1
    assert samples['hios_latency_seconds_bucket{model="left",le="0.05"}'] == 2
    assert samples['hios_latency_seconds_bucket{model="left",le="10"}'] == 2
    assert samples['hios_latency_seconds_bucket{model="left",le="+Inf"}'] == 3
    assert samples['hios_latency_seconds_count{model="left"}'] == 3
    assert samples['hios_latency_seconds_sum{model="left"}'] == pytest.approx(20.0305)
    assert (samples["hios_lanes_busy_seconds_total"], samples["hios_lanes_up"]) == (1.5, 2)


def test_numbers_have_all_their_digits(tmp_path: Path) -> None:
    """Rates of counters that have run for weeks would otherwise be steps."""
    metrics = MetricsFile(tmp_path / "metrics.prom")
    own = server()
    own.busy_s = 12_345_678.25
    metrics.show(own, _progress(1.0, [123_456_789.5], 1))
    metrics.write()
    samples = values(tmp_path / "metrics.prom")
    assert samples["hios_lanes_busy_seconds_total"] == 12_345_678.25
    assert samples['hios_latency_seconds_sum{model="left"}'] == pytest.approx(123_456.7895, rel=1e-12)


def test_a_signal_asks_for_them(tmp_path: Path) -> None:
    """SIGUSR1 writes at the next look, once; in a process of its own, whose signals no other test has touched."""
    path = tmp_path / "metrics.prom"
    program = f"""
import signal
from pathlib import Path
from hios.serving.load_generator import Progress
from hios.serving.metrics import MetricsFile
from tests.serving.test_metrics_file import server
path = Path({str(path)!r})
metrics = MetricsFile(path)
metrics.listen()
signal.raise_signal(signal.SIGUSR1)
metrics.show(server(), Progress(1.0, 2.0))
print(path.read_text(encoding="utf-8"), end="")
path.unlink()
metrics.show(server(), Progress(1.0, 2.0))
"""
    written = printed("-c", program)
    assert not path.exists()
    path.write_text(written, encoding="utf-8")
    assert values(path)['hios_tasks_waiting{model="left"}'] == 1
