"""Where the time of an inference on one core goes, beside ONNX Runtime with one thread.

    python benchmarks/one_core.py RESULTS/MODEL [RUNS]

RESULTS/MODEL is a folder of the pipeline with program.pt2, graph.json and weights.safetensors. The sequential schedule
runs on the first core, called as the engine does; ONNX Runtime runs in a process of its own on the same core; they take
turns in random order. Printed are medians in milliseconds, from the whole call down to what operators consist of:

- the call: copies of inputs and outputs into and out of shared memory, waking the worker and its answer, and the rest
  between and in operators, as the worker's clock has it;
- operators by what they do; of ONNX Runtime its nodes, from its own profile, and what is between them;
- of the operators that are convolutions, the time in oneDNN's convolutions and in its changes of layout, which it
  prints itself, in runs of their own; what remains is torch: starting the operator, memory of its result, activations
  that oneDNN does not fuse.

Both profiles cost a little time themselves, so parts may add up to slightly more than the whole; and they are taken
after the calls, so on a machine that does other things parts and whole need not fit.
"""

from __future__ import annotations

import argparse
import logging
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import primitive_times
import torch
from primitive_times import kind_of
from torch import Tensor

from hios import Graph
from hios.core.graph import Operator
from hios.core.schedule import StagedPlan
from hios.frontends import program as programs
from hios.kernels.merged import torch_dtype
from hios.machine.description import busy_share, usable_cores
from hios.optimizing import runtimes
from hios.platforms.cpu import worker
from hios.platforms.cpu.devices import SETTLE_S, device_cores
from hios.platforms.program import ArenaPlan, Row
from hios.platforms.workloads import arena_tensor, copy_alone
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool

RUNS, WARMUP = 36, 3
NEEDED = ("program.pt2", "graph.json", "weights.safetensors")
TIMEOUT_S = 300.0
#: Lines of the table that are no kinds of operators.
CALL, COPIES, WAKING, RUN, BETWEEN, OPERATORS = "call", "copies", "waking", "run", "between", "operators"
FRAME = {CALL, COPIES, WAKING, RUN, BETWEEN, OPERATORS}
#: Prefix of what oneDNN says.
ONEDNN = "oneDNN "
#: What convolutions take beside.
AROUND = ONEDNN + "around"

#: Milliseconds by line, of one run.
Times = Mapping[str, float]


class Ours:
    """The sequential schedule in the first worker of a pool."""

    def __init__(
        self, pool: WorkerPool, arena: Arena, layout: ArenaPlan, folder: Path, values: Sequence[Tensor]
    ) -> None:
        self._pool = pool
        graph = layout.graph
        self._kind = {operator.id: _kind(operator) for operator in graph.operators}
        self._inputs = [arena_tensor(arena, buffer) for buffer in layout.inputs.values()]
        self._outputs = [arena_tensor(arena, buffer) for buffer in layout.outputs]
        self._given = values
        self._epoch = 0
        (program,) = layout.program(StagedPlan((tuple(((operator,),) for operator in graph.order),)))
        files = {"graph": str(folder / "graph.json"), "weights": str(folder / "weights.safetensors")}
        pool.call(0, worker.load, **files, inputs=layout.inputs, timeout_s=TIMEOUT_S)
        pool.call(0, worker.prepare, name="sequential", program=program)

    def run(self) -> Times:
        """One call, as `hios.platforms.cpu.engine.Engine.run` makes it."""
        self._epoch += 1
        called = time.perf_counter_ns()
        for value, buffer in zip(self._given, self._inputs, strict=True):
            copy_alone(value, buffer)
        copied = time.perf_counter_ns()
        began, end, rows = self._pool.call(0, worker.run, name="sequential", epoch=self._epoch)
        answered = time.perf_counter_ns()
        for buffer in self._outputs:
            copy_alone(buffer, torch.empty_like(buffer))
        returned = time.perf_counter_ns()
        times = self._by_kind(rows)
        times[OPERATORS] = sum(times.values())
        times[CALL], times[RUN] = returned - called, end - began
        times[COPIES] = (copied - called) + (returned - answered)
        times[WAKING] = answered - copied - times[RUN]
        times[BETWEEN] = times[RUN] - times[OPERATORS]
        return {line: nanoseconds / 1e6 for line, nanoseconds in times.items()}

    def primitives(self) -> Times:
        """What oneDNN says of one run, and what that leaves of the convolutions."""
        self._epoch += 1
        said, rows = self._pool.call(0, primitive_times.time_primitives, name="sequential", epoch=self._epoch)
        rest = self._by_kind(rows)["convolution"] / 1e6 - said.get("convolution", 0.0) - said.get("layout", 0.0)
        return {AROUND: rest, **{ONEDNN + kind: time_ms for kind, time_ms in said.items()}}

    def _by_kind(self, rows: Iterable[Row]) -> dict[str, float]:
        """Nanoseconds of operators."""
        times: dict[str, float] = defaultdict(float)
        for operator, _, _, start, finish in rows:
            times[self._kind[operator]] += finish - start
        return times


def _values(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Random numbers; where they are integers 0, which is an index of any table."""
    return torch.randn(shape, dtype=dtype) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype)


def _kind(operator: Operator) -> str:
    """What an operator does; one that begins with an activation, as in NASNet, is the convolution that follows."""
    kinds = [kind_of(call.function) for call in operator.calls] or [kind_of(operator.type)]
    return "convolution" if "convolution" in kinds else kinds[0]


def medians(runs: Sequence[Times]) -> dict[str, float]:
    """The median of every line; what a run lacks took no time in it."""
    lines = dict.fromkeys(line for run in runs for line in run)
    return {line: statistics.median(run.get(line, 0.0) for run in runs) for line in lines}


def table(ours: Times, theirs: Times) -> Iterator[str]:
    """The rows: the call, its parts, and operators by what they do, the longest first."""
    yield f"{'ms':<44}{'hios':>9}{'ONNX Runtime':>14}"
    yield _row("whole call", ours[CALL], theirs[CALL])
    yield _row("  inputs and outputs copied", ours[COPIES], None)
    yield _row("  worker woken, and its answer", ours[WAKING], None)
    yield _row("  between operators", ours[BETWEEN], theirs[BETWEEN])
    yield _row("  operators", ours[OPERATORS], theirs[OPERATORS])
    kinds = {line for line in (*ours, *theirs) if line not in FRAME and not line.startswith(ONEDNN)}
    for kind in sorted(kinds, key=lambda kind: (-max(ours.get(kind, 0.0), theirs.get(kind, 0.0)), kind)):
        yield _row(f"    {kind}", ours.get(kind), theirs.get(kind))
        if kind == "convolution" and kind in ours:
            yield _row("      oneDNN's convolutions", ours.get(ONEDNN + kind, 0.0), None)
            yield _row("      oneDNN's changes of layout", ours.get(ONEDNN + "layout", 0.0), None)
            yield _row("      torch around them", ours[AROUND], None)


def _row(name: str, ours: float | None, theirs: float | None) -> str:
    texts = ["" if time_ms is None else f"{time_ms:.2f}" for time_ms in (ours, theirs)]
    return f"{name:<44}{texts[0]:>9}{texts[1]:>14}"


def measure(folder: Path, runs: int) -> tuple[Times, Times]:
    """Medians of hios and of ONNX Runtime."""
    graph = Graph.read(folder / "graph.json")
    layout = ArenaPlan(graph, 1)
    core = device_cores(1)[0][:1]
    arena = Arena(layout.flags, layout.size)
    ours: list[Times] = []
    calls: list[float] = []
    with tempfile.TemporaryDirectory() as converted, WorkerPool([core, core], arena, TIMEOUT_S) as pool:
        path = Path(converted) / "model.onnx"
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it names all packages that it could use
        runtimes.convert("onnxruntime", programs.load(folder / "program.pt2"), path, threads=1)
        values = [_values(entry.shape, torch_dtype(entry.dtype)) for entry in graph.inputs]
        pool.call(1, primitive_times.load_onnx, path=str(path), values=[value.numpy() for value in values])
        engine = Ours(pool, arena, layout, folder, values)
        engines = [lambda: ours.append(engine.run()), lambda: calls.append(pool.call(1, primitive_times.time_onnx))]
        for _ in range(WARMUP + runs):
            random.shuffle(engines)
            for run_once in engines:
                time.sleep(SETTLE_S)
                run_once()
        said = [engine.primitives() for _ in range(runs)]
        nodes = medians(pool.call(1, primitive_times.profile_onnx, runs=runs, warmup=WARMUP))
    operators = sum(time_ms for kind, time_ms in nodes.items() if kind != BETWEEN)
    theirs = {**nodes, CALL: statistics.median(calls[WARMUP:]), OPERATORS: operators}
    return {**medians(ours[WARMUP:]), **medians(said)}, theirs


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table of a network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="RESULTS/MODEL")
    parser.add_argument("runs", nargs="?", type=int, default=RUNS, metavar="RUNS")
    given = parser.parse_args(arguments)
    if given.runs < 1:
        sys.exit(f"RUNS: found {given.runs}; allowed: a whole number of at least 1")
    folder, runs = given.folder, given.runs
    for name in NEEDED:
        if not (folder / name).exists():
            sys.exit(f"{folder}: found no {name}; required: the results of the pipeline for one network")
    busy = busy_share(usable_cores())
    ours, theirs = measure(folder, runs)
    print(f"{folder.name}, one core, medians of {runs} runs; cores {busy:.0%} busy with other work before")
    print("\n".join(table(ours, theirs)))


if __name__ == "__main__":
    main()
