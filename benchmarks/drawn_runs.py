"""Runs whose latencies are drawn from a seed instead of measured: for benchmarks and tests of what reads them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from hios import Graph, Schedule
from hios.core import drift
from hios.core.drift import RunProbe
from hios.formats.run import Baseline, Ceiling, Latency, ReferenceResult, Run, RunPlatform, ScheduleResult
from hios.machine.statistics import speedup_interval, spread


def drawn_run(
    graph: Graph,
    schedules: Mapping[str, Schedule],
    chance: random.Random,
    *,
    runs: int,
    devices: Sequence[int],
    references: Mapping[str, float] | None = None,
    probe: RunProbe | None = None,
) -> Run:
    """A run in which everything takes about 10 % longer than predicted.

    Args:
        graph: what ran.
        schedules: by label, ``sequential-1`` among them.
        chance: latencies are drawn from it.
        runs: of each competitor.
        devices: the numbers of devices above 1, each of which gets a ceiling.
        references: other ways to run the graph by name, with their latency over that of the sequential schedule.
        probe: speed of the machine meanwhile; schedules then have their drift.
    """

    def latency(median: float) -> Latency:
        drawn = tuple(median * chance.lognormvariate(0, 0.05) for _ in range(runs))
        return Latency(*spread(drawn), drawn)

    baseline = latency(schedules["sequential-1"].latency_ms)
    copies = {count: latency(1.1 * baseline.median) for count in devices}
    ceilings = tuple(Ceiling(count, copy, count * baseline.median / copy.median) for count, copy in copies.items())
    ratios = {1: 1.0, **{ceiling.devices: ceiling.throughput_ratio for ceiling in ceilings}}
    others = {name: latency(factor * baseline.median) for name, factor in (references or {}).items()}
    return Run(
        graph=graph.name,
        platform=RunPlatform(
            "cpu",
            devices=max(devices),
            cores=tuple((core,) for core in range(max(devices))),
            processor="none",
            load_average=0.0,
            busy_share=0.0,
        ),
        versions=dict.fromkeys(("python", "kernel", "hios", "torch"), "0"),
        measured_at="2026-01-01T00:00:00Z",
        checked_against="eager",
        seed=0,
        runs=runs,
        warmup=1,
        tolerance=1e-4,
        ceilings=ceilings,
        references=tuple(
            ReferenceResult(
                name,
                1,
                measured,
                speedup=baseline.median / measured.median,
                speedup_interval=speedup_interval(baseline.runs, measured.runs),
            )
            for name, measured in others.items()
        ),
        baseline=Baseline(baseline),
        results=tuple(
            _result(label, made, latency(1.1 * made.latency_ms), baseline, ratios[made.devices], probe)
            for label, made in schedules.items()
        ),
        probe=probe,
    )


def _result(
    label: str, made: Schedule, measured: Latency, baseline: Latency, ratio: float, probe: RunProbe | None
) -> ScheduleResult:
    speedup = baseline.median / measured.median
    drifted = None if probe is None else drift.since(made.probe, probe.version, probe.samples, made.devices)
    return ScheduleResult(
        label=label,
        algorithm=made.algorithm,
        parameters=dict(made.parameters),
        devices=made.devices,
        predicted_ms=made.latency_ms,
        lower_bound_ms=made.lower_bound_ms,
        scheduling_time_s=made.scheduling_time_s,
        latency_ms=measured,
        prediction_error=(made.latency_ms - measured.median) / measured.median,
        speedup=speedup,
        share_of_ceiling=speedup / ratio,
        largest_difference=0.0,
        predicted=made.placements,
        measured=made.placements,
        speedup_interval=speedup_interval(baseline.runs, measured.runs),
        drift=drifted,
        error_beyond_drift=None if drifted is None else drift.error_beyond(drifted, made.latency_ms, measured.median),
        allocation_time_s=made.allocation_time_s,
    )
