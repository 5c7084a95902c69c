"""LoadGen against our load generator: both send tasks of one model to the same server, and see the same.

    pip install mlcommons-loadgen==6.0.17
    python benchmarks/loadgen.py SCENARIO [--policy one-per-lane] [--rounds 6] [--virtual]

SCENARIO has one model, with weights, and Poisson arrivals. LoadGen's server scenario sends tasks at its rate for its
duration, and then ours sends as many at the same distances, in so many rounds. Every second round has the arrivals of
the one before and begins with ours. Printed are medians over the rounds, and the median of the gaps within a round with
the least and the largest. Goal: throughput and median latency within 3 %. What LoadGen prints here is no MLPerf result.
"""

from __future__ import annotations

import argparse
import functools
import re
import statistics
import sys
import tempfile
import threading
import time
from array import array
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from torch import Tensor

from hios.files.option_defaults import TOLERANCE
from hios.frontends.example_inputs import example_inputs
from hios.serving.load_generator import ReferenceSample, Repeat
from hios.serving.scenario import Scenario, Trace
from hios.serving.server import Server

GOAL = 0.03
#: Lines of LoadGen's summary, what they are called here, and what they are divided by.
LINES = {
    "tasks/s": ("Completed samples per second", 1.0),
    "mean ms": ("Mean latency (ns)", 1e6),
    "median ms": ("50.00 percentile latency (ns)", 1e6),
    "p99 ms": ("99.00 percentile latency (ns)", 1e6),
}


def by_loadgen(
    server: Server, label: str, inputs: Sequence[Tensor], rate: float, duration_s: float, seed: int
) -> tuple[dict[str, float], Trace]:
    """What LoadGen's server scenario measures, and the tasks that it sent."""
    import mlperf_loadgen as loadgen

    kept: list[Any] = []  # futures whose callbacks answer from the server's thread
    sent_s: list[float] = []
    failures: list[str] = []
    answered = threading.Lock()

    def issue(queries: Sequence[Any]) -> None:
        for query in queries:
            sent_s.append(time.perf_counter())
            answer = server.submit(label, inputs)
            answer.add_done_callback(functools.partial(complete, query.id))

    def complete(query: int, done: Future[list[Tensor]]) -> None:
        # LoadGen waits for every query, so one that failed is answered too.
        if (error := done.exception()) is not None:
            failures.append(str(error))
        response = loadgen.QuerySampleResponse(query, 0, 0)
        with answered:
            kept.append(response)
        loadgen.QuerySamplesComplete([response])

    settings = loadgen.TestSettings()
    settings.scenario = loadgen.TestScenario.Server
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.server_target_qps = rate
    settings.server_target_latency_ns = 10**12
    settings.min_duration_ms = settings.max_duration_ms = int(duration_s * 1e3)
    settings.min_query_count = 1
    settings.schedule_rng_seed = seed
    with tempfile.TemporaryDirectory() as folder:
        outputs = loadgen.LogOutputSettings()
        outputs.outdir, outputs.copy_summary_to_stdout = folder, False
        logs = loadgen.LogSettings()
        logs.log_output = outputs
        system = loadgen.ConstructSUT(issue, lambda: None)
        library = loadgen.ConstructQSL(1, 1, lambda samples: None, lambda samples: None)
        loadgen.StartTestWithLogSettings(system, library, settings, logs)
        loadgen.DestroyQSL(library)
        loadgen.DestroySUT(system)
        summary = Path(folder, "mlperf_log_summary.txt").read_text(encoding="utf-8")
    if failures:
        raise SystemExit(f"{len(failures)} queries failed, the first: {failures[0]}; allowed: none")
    values = {}
    for name, (line, scale) in LINES.items():
        match = re.search(rf"^{re.escape(line)}\s*:\s*([\d.]+)", summary, re.MULTILINE)
        if match is None:
            raise SystemExit(f"LoadGen's summary has no line {line}:\n{summary}")
        values[name] = float(match[1]) / scale
    return values, Trace(array("d", (own_s - sent_s[0] for own_s in sent_s)), array("q", bytes(8 * len(sent_s))))


def by_hios(server: Server, label: str, inputs: list[Tensor], duration_s: float, trace: Trace) -> dict[str, float]:
    """What our load generator measures for the same tasks."""
    import numpy as np

    alone = server.infer(label, inputs)
    samples = {label: [ReferenceSample(inputs, alone, alone)]}
    (tally,) = Repeat(server, trace, duration_s, samples, TOLERANCE).run().tallies
    if tally.failed or not tally.latencies_ms:
        raise SystemExit(
            f"{tally.failed} tasks of hios failed, {len(tally.latencies_ms)} completed; allowed: no failures"
        )
    latencies = np.array(tally.latencies_ms)
    median, high = np.percentile(latencies, [50, 99])
    return {
        "tasks/s": len(latencies) / duration_s,
        "mean ms": float(latencies.mean()),
        "median ms": float(median),
        "p99 ms": float(high),
    }


def main() -> None:
    """Print what both measure."""
    parser = argparse.ArgumentParser(description="LoadGen against our load generator.")
    parser.add_argument("scenario")
    parser.add_argument("--policy", default="one-per-lane")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--virtual", action="store_true", help="let lanes share cores")
    options = parser.parse_args()
    if options.rounds < 1:
        sys.exit(f"--rounds: found {options.rounds}; allowed: at least 1")
    scenario = Scenario.read(options.scenario)
    if len(scenario.models) > 1:
        sys.exit(f"{options.scenario}: found {len(scenario.models)} models; allowed: one")
    (model,) = scenario.models
    inputs = list(example_inputs(model.problem.graph.inputs, 0))
    with Server(scenario, options.policy, virtual=options.virtual) as server:
        for _ in range(10):
            server.infer(model.label, inputs)
        by_theirs = functools.partial(by_loadgen, server, model.label, inputs, model.rate, scenario.duration_s)
        by_ours = functools.partial(by_hios, server, model.label, inputs)
        rounds = []
        for number in range(options.rounds):
            if number % 2 == 0:
                measured, trace = by_theirs(number)
                seconds = len(trace) / measured["tasks/s"]  # until LoadGen had the last answer
                rounds.append({"theirs": measured, "ours": by_ours(seconds, trace)})
            else:
                measured = by_ours(seconds, trace)
                rounds.append({"theirs": by_theirs(number - 1)[0], "ours": measured})
    print(f"{'':12}{'LoadGen':>10}{'hios load':>11}{'gap':>9}{'least':>9}{'largest':>9}")
    for name in LINES:
        theirs, ours = (statistics.median(row[who][name] for row in rounds) for who in ("theirs", "ours"))
        gaps = [row["ours"][name] / row["theirs"][name] - 1 for row in rounds]
        gap = statistics.median(gaps)
        judged = "" if name not in ("tasks/s", "median ms") else "ok" if abs(gap) <= GOAL else f"above {GOAL:.0%}"
        print(f"{name:12}{theirs:10.3f}{ours:11.3f}{gap:+9.1%}{min(gaps):+9.1%}{max(gaps):+9.1%}  {judged}")


if __name__ == "__main__":
    main()
