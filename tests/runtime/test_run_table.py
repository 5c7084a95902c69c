"""The table that a session prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from hios.core.drift import Estimate
from hios.formats.run import (
    Baseline,
    Ceiling,
    Chosen,
    Latency,
    ReferenceResult,
    Run,
    RunPlatform,
    ScheduleResult,
    SegmentResult,
)
from hios.runtime.predictions import in_words, other_work_in_words
from hios.runtime.run_table import latency_table


def _run(scale: float, algorithm: str, *, result: Mapping[str, Any] | None = None, **changes: Any) -> Run:
    """A run whose latencies are multiples of ``scale`` milliseconds."""

    def latency(median: float) -> Latency:
        return Latency(scale * median, scale * median * 0.9, scale * median * 1.5, ())

    mine = ScheduleResult("mine", algorithm, {}, 1, 1.0, 1.0, 0.0, latency(1), 0.0, 2.0, 1.0, 0.0, (), ())
    run = Run(
        graph="net",
        platform=RunPlatform("cpu"),
        versions={},
        seed=0,
        runs=1,
        warmup=0,
        tolerance=1e-4,
        baseline=Baseline(latency(2)),
        results=(msgspec.structs.replace(mine, **(result or {})),),
        references=(ReferenceResult("eager PyTorch, 1 thread", 1, latency(4), speedup=0.5),),
        ceilings=(Ceiling(2, latency(2.5), 1.6),),
    )
    return msgspec.structs.replace(run, **changes)


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
    speedup = {"speedup_interval": (1.889, 2.1)}
    head, _, mine, eager, _ = latency_table(_run(10, "greedy", result=speedup)).splitlines()
    assert head.endswith("  speedup (95 %)")
    assert mine.endswith("  2.00 (1.89 to 2.10)")
    assert eager.endswith("  0.50")
    itself = {"speedup": 1.0, "speedup_interval": (1.0, 1.0)}  # the sequential schedule over itself
    assert latency_table(_run(10, "greedy", result=itself)).splitlines()[2].endswith("  1.00")


def test_segments() -> None:
    """The last line says what ran segments, and that predictions are of operators; also where nothing was cut."""
    own = tuple(SegmentResult(0, ("a",), runtime, {}) for runtime in ("packed", "openvino", "openvino"))
    last = latency_table(_run(10, "greedy", engine="segments", result={"segments": own})).splitlines()[-1]
    assert last == "Devices ran segments (2 in OpenVINO, 1 by operators); predictions are of single operators."
    last = latency_table(_run(10, "greedy", engine="segments", result={"segments": ()})).splitlines()[-1]
    assert last.startswith("Devices ran no segments, as no schedule could be cut; ")
    assert "segments" not in latency_table(_run(10, "greedy", engine="operators"))


def test_predictions() -> None:
    """Where the speed when profiled is known, predictions stand with drift and the error beyond it, and in words."""
    result = {
        "predicted_ms": 9.0,
        "prediction_error": -0.1,
        "drift": Estimate(1.06, 1.05, 1.07),
        "error_beyond_drift": -0.046,
    }
    head, baseline, mine, *_, legend, said = latency_table(_run(10, "greedy", result=result)).splitlines()
    assert head.endswith("  speedup             predicted ms  drift  error beyond drift")
    assert mine.endswith("  2.00                        9.00  +6.0%               -4.6%")
    assert baseline.endswith("  1.00")
    assert legend.startswith("drift: how much slower (+) or faster (-) the machine ran than while it was profiled; ")
    assert said == (
        "The machine was 6.0% slower than when it was profiled. Predictions are off by 10.0% in the median and 10.0% "
        "at most; beyond that drift by 4.6% and 4.6%."
    )


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ((1.06, 1.0604), "6.0% slower"),
        ((1.061, 1.05), "5.0 to 6.1% slower"),
        ((0.9, 0.92), "8.0 to 10.0% faster"),
        ((0.99, 1.02), "between 1.0% faster and 2.0% slower"),
        ((1.0, 1.0), "as fast as"),
        ((0.9999, 1.0003), "as fast as"),
    ],
)
def test_drift_in_words(factors: tuple[float, ...], said: str) -> None:
    """The drifts of all schedules in one phrase."""
    run = _run(10, "greedy", result={"error_beyond_drift": 0.0})
    results = [msgspec.structs.replace(run.results[0], drift=Estimate(factor, 1, 1)) for factor in factors]
    sentence = in_words(msgspec.structs.replace(run, results=tuple(results)))
    assert sentence is not None
    assert sentence.startswith(f"The machine was {said}")


def test_virtual_devices() -> None:
    """If devices share cores or GPUs, the last line says that times mean little; otherwise there is no such line."""
    for virtual, said in ((True, True), (False, False), (None, False)):
        platform = RunPlatform("cpu", virtual=virtual)
        last = latency_table(_run(10, "greedy", platform=platform)).splitlines()[-1]
        assert (last == "virtual devices: times say little") == said


def test_chosen() -> None:
    """The choice is listed after the schedules, with its description and its own runs."""
    chosen = Chosen("mine", "greedy", 1, 1, 3, Latency(10.4, 10.0, 11.0, ()), 1.92)
    lines = latency_table(_run(10, "greedy", chosen=chosen)).splitlines()
    assert lines[3] == "auto: mine                          10.40  10.00 to 11.00  1.92"


@pytest.mark.parametrize(("scale", "median"), [(0.1234567, "0.123"), (12.34567, "12.35"), (1234.567, "1235")])
def test_digits(scale: float, median: str) -> None:
    """Times have as many decimals as the shortest median needs for four digits, three at most."""
    assert f" {median} " in latency_table(_run(scale, "greedy"))


def test_other_work() -> None:
    """What other work took of the cores' time is said under the table, in the words of the report."""
    said = other_work_in_words(_run(10, "greedy", platform=RunPlatform("cpu", busy_share=0.43)))
    assert said is not None
    assert said.startswith(
        "The cores were busy with other work right before the measurement of net (43% of their time)"
    )
    busy = latency_table(_run(10, "greedy", platform=RunPlatform("cpu", busy_share=0.43)))
    assert busy.splitlines()[-1] == said
    assert "busy" not in latency_table(_run(10, "greedy", platform=RunPlatform("cpu", busy_share=0.05)))
