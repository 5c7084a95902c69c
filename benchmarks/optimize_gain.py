"""What one line gains: every way to run a model, and which one hios.optimize keeps, in one table.

python benchmarks/optimize_gain.py [MODEL ...] [--budget SECONDS]
python benchmarks/optimize_gain.py --start [MODEL ...]
python benchmarks/optimize_gain.py --early [MODEL ...]
python benchmarks/optimize_gain.py --overhead
python benchmarks/optimize_gain.py --load PROCESSES [MODEL ...]

Networks are those of models/, at the sizes of the papers, or of many_branches.py. hios.optimize races all ways that are
installed; the table has their medians of whole calls, in the rounds that neither chose nor checked, how many times as
long as the fastest the kept one takes, and when a way was ready that has 80 % of the gain. Then the model with one
thread, with all, and the kept way take turns again in ROUNDS rounds of random order: medians, 20th and 80th percentile,
and the median of the ratios round by round with its 95 % interval.
``HIOS_CACHE`` says where measurements are kept: give an empty folder to have everything measured anew. The budget is
large by default, so that every way is prepared. ``--start`` prints, for each network in processes of its own, how long
hios.optimize takes with an empty cache and the default budget, from that cache, from one in which the model itself was
chosen, and with a budget of 3 s. ``--early`` prints when a module made with ``wait=False`` and an empty cache takes
which way, and how much faster than the model that is in the end. ``--overhead`` prints what a call costs beside the
operators that it runs.
``--load`` prints, for each network, what hios.optimize takes by default beside so many processes that never wait, how
much longer a call of it takes than one of the best way under the same load, of all ways prepared with the large budget,
and how soon after the load has ended calls one after another come to a final choice.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import hios
from hios.core.schedule import StagedPlan
from hios.files.artifacts import resource_directory
from hios.machine.description import busy_share, usable_cores
from hios.machine.statistics import interval, spread
from hios.optimizing.module import torch_threads
from hios.optimizing.options import Options
from hios.optimizing.preparation import Preparation, Subject
from hios.optimizing.report import Budget, Report, WayReport
from hios.optimizing.tracing import export, extract
from hios.platforms.cpu.engine import Engine, Task

MODELS = ("inception_v3", "squeezenet", "googlenet", "resnet50", "randwire", "nasnet_large", "bert", "t5")
#: Seconds for each model: enough for torch.compile.
BUDGET_S = 600.0
ROUNDS, WARMUP = 36, 3
#: Idle threads of OpenMP spin on for some milliseconds.
SETTLE_S = 0.03
CALLS = 200
#: Starts from a cache, of which the median is printed; budget of a short first one.
STARTS, SHORT_S = 5, 3.0
#: Calls that take longer beside other work are not repeated; seconds after which a choice counts as not settled.
SLOWEST_MS, LONGEST_S = 3000.0, 60.0
#: What a process does that starts; torch is there, and the model is built.
START = """
import json, sys, time
import torch
began = time.perf_counter()
import hios
imported = time.perf_counter() - began
from many_branches import build
model, inputs = build(sys.argv[1])
began = time.perf_counter()
fast = hios.optimize(model, inputs, **json.loads(sys.argv[2]))
optimized = time.perf_counter()
with torch.no_grad():
    fast(*inputs)
called = time.perf_counter()
print(json.dumps([imported + optimized - began, called - optimized, fast.report.chosen, fast.report.cached]))
"""


def timed(call: Callable[[], Any]) -> float:
    """Milliseconds of a call."""
    began = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - began) / 1e6


def built(name: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A network of many_branches.py or of models/, with example inputs."""
    from many_branches import build  # beside this script, which tests import from elsewhere

    return build(name)


def compare(name: str, budget_s: float) -> Report:
    """Print the rows of one network; returns what hios.optimize found."""
    model, inputs = built(name)
    began = time.perf_counter()
    fast = hios.optimize(model, inputs, budget_s=budget_s)
    seconds = time.perf_counter() - began
    cores = len(usable_cores())

    def threaded(threads: int) -> Callable[[], Any]:
        def call() -> Any:
            with torch_threads(threads):
                return model(*inputs)

        return call

    ways = {
        "model, 1 thread": threaded(1),
        f"model, {cores} threads": threaded(cores),
        "hios.optimize": lambda: fast(*inputs),
    }
    taken: dict[str, list[float]] = {way: [] for way in ways}
    order, busy = list(ways), busy_share(usable_cores())
    for number in range(WARMUP + ROUNDS):
        random.Random(number).shuffle(order)
        for way in order:
            time.sleep(SETTLE_S)
            latency = timed(ways[way])
            if number >= WARMUP:
                taken[way].append(latency)
    print(f"{name}: {fast.report.chosen}, found in {seconds:.0f} s; cores {busy:.0%} busy with other work before")
    ours = taken["hios.optimize"]
    for way, latencies in taken.items():
        median, p20, p80 = spread(latencies)
        ratios = [theirs / own for theirs, own in zip(latencies, ours, strict=True)]
        low, high = interval(ratios)
        print(
            f"  {way:<18}{median:>9.2f} ms  {p20:>8.2f} to {p80:<8.2f}  hios.optimize is {spread(ratios)[0]:.2f} times "
            f"as fast ({low:.2f} to {high:.2f})"
        )
    print(fast.report)
    fast.close()
    return fast.report


def table(reports: Mapping[str, Report]) -> str:
    """Medians of every way by network, which one was kept, and its ratio to the fastest, in Markdown.

    A median in brackets is of a way that left the race as clearly slower, of fewer runs.
    """
    labels = list(dict.fromkeys(way.label for report in reports.values() for way in report.ways))
    lines = [["ms", *reports], ["---", *["---:"] * len(reports)]]
    for label in labels:
        ways = [next((way for way in report.ways if way.label == label), None) for report in reports.values()]
        if any(way is not None and way.median_ms is not None for way in ways):
            lines.append([label, *map(_cell, ways)])
    lines.append(["kept", *(report.chosen for report in reports.values())])
    lines.append(["kept over the fastest", *map(_ratio, reports.values())])
    lines.append(["seconds until 80 % of the gain", *map(_gained, reports.values())])
    lines.append(["seconds in all", *(f"{report.seconds:.1f}" for report in reports.values())])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(way: WayReport | None) -> str:
    if way is None or way.median_ms is None:
        return ""
    return f"{way.median_ms:.1f}" if way.outcome == "raced" else f"({way.median_ms:.1f})"


def _ratio(report: Report) -> str:
    medians = {way.label: way.median_ms for way in report.candidates if way.median_ms is not None}
    return f"{medians[report.chosen] / min(medians.values()):.3f}" if report.chosen in medians else ""


def _gained(report: Report) -> str:
    gained_s = report.gained_s()
    return "" if gained_s is None else f"{gained_s:.1f}"


def overhead() -> None:
    """Print what a call of the engine costs, on one worker and on two, back to back and after a pause."""
    model = nn.Sequential(nn.ReLU(), nn.Sigmoid()).eval()
    cores = usable_cores()
    for megabytes in (0.001, 1.0):
        x = torch.randn(1, int(megabytes * 250_000))
        traced = extract(export(model, [x], {}), "overhead", "operator")
        first, second = traced.graph.order
        tasks = {
            "1 worker": Task(StagedPlan(((((first,),), ((second,),)),))),
            "2 workers": Task(StagedPlan(((((first,),),), (((second,),),)))),
        }
        with Engine(traced.graph, traced.weights, tasks, [[cores[0]], [cores[-1]]]) as engine, torch.no_grad():
            for task in tasks:
                for pause in (0.0, 0.05):
                    with torch_threads(1):
                        alone = _typical(functools.partial(model, x), pause)
                    call = _typical(functools.partial(engine.run, task, [x]), pause)
                    print(
                        f"{megabytes:g} MB in and out, {task}, {pause * 1e3:.0f} ms between calls: "
                        f"{call:.3f} ms a call, the model itself {alone:.3f} ms"
                    )


def _typical(call: Callable[[], Any], pause: float) -> float:
    """Median milliseconds of calls with pauses between them."""
    taken = []
    for _ in range(CALLS):
        time.sleep(pause)
        taken.append(timed(call))
    return spread(taken)[0]


@contextlib.contextmanager
def other_work(processes: int) -> Iterator[None]:
    """A context beside processes that never wait; of a shell, as the work of children counts as one's own."""
    command = f"'{sys.executable}' -c 'while True: pass' >/dev/null & echo $!"
    started = [subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE, check=True) for _ in range(processes)]
    try:
        yield
    finally:
        for shell in started:
            os.kill(int(shell.stdout), signal.SIGKILL)


def loaded(name: str, processes: int, budget_s: float) -> None:
    """Print what is chosen for a network beside other work, what that costs, and how soon it is settled afterwards."""
    model, inputs = built(name)
    options = Options(budget_s=budget_s)
    subject = Subject(model.eval(), tuple(inputs), {}, options, options.divisions())
    subject.run_once()
    before = busy_share(usable_cores())
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory() as cache,
        Budget(budget_s, name, 0, None) as budget,
    ):
        prepared = Preparation(subject, budget, Path(folder), final_s=0.0)
        prepared.prepare()
        calls = {label: functools.partial(entry.run, subject.tensors) for label, entry in prepared.ready.items()}
        with other_work(processes):
            began = time.perf_counter()
            fast = hios.optimize(model, inputs, cache=cache)
            seconds, kept = time.perf_counter() - began, fast.report.chosen
            if kept not in calls:
                print(f"{name}: {kept} was not prepared for the comparison", flush=True)
                return
            calls = {label: call for label, call in calls.items() if label == kept or timed(call) < SLOWEST_MS}
            taken: dict[str, list[float]] = {label: [] for label in calls}
            for number in range(WARMUP + ROUNDS // 2):
                for label in random.Random(number).sample(list(calls), len(calls)):
                    time.sleep(SETTLE_S)
                    latency = timed(calls[label])
                    if number >= WARMUP:
                        taken[label].append(latency)
        prepared.close()
        medians = {label: spread(times)[0] for label, times in taken.items()}
        best = min(medians, key=lambda label: medians[label])
        print(
            f"{name}, {processes} busy processes, {before:.0%} other work before: {kept} in {seconds:.0f} s, "
            f"{medians[kept]:.1f} ms; best {best} {medians[best]:.1f} ms, {medians[kept] / medians[best]:.2f} times",
            flush=True,
        )
        print(fast.report, flush=True)
        began = time.perf_counter()
        while fast.report.provisional and time.perf_counter() - began < LONGEST_S:
            fast(*inputs)
        settled = "not settled" if fast.report.provisional else f"settled as {fast.report.chosen}"
        print(f"  {settled} {time.perf_counter() - began:.0f} s after the load had ended", flush=True)
        fast.close()


def early(name: str) -> None:
    """Print when a module that nothing was waited for takes which way; the cores are idle but for the search."""
    model, inputs = built(name)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache,  # the choice may be written after the end
        tempfile.TemporaryDirectory() as folder,
    ):
        package = type(model).__module__.partition(".")[0]  # from which the other process imports the model's class
        if package != "many_branches":  # which is found beside this script
            (Path(folder) / package).symlink_to(resource_directory("models"))
            sys.path.append(folder)
        began, taken = time.perf_counter(), dict[str, float]()
        fast = hios.optimize(model, inputs, wait=False, cache=cache)
        while (report := fast.report).pending or not taken:
            taken.setdefault(report.chosen, time.perf_counter() - began)
            time.sleep(SETTLE_S)
        taken.setdefault(report.chosen, time.perf_counter() - began)
        speedups = {way.label: way.speedup for way in report.ways if way.speedup is not None}
        fast.close()
    for label, seconds in taken.items():
        known = f", {speedups[label]:.2f} times as fast" if label in speedups else ""
        print(f"{name}: {label} after {seconds:.1f} s{known}", flush=True)
    print(f"{name}: settled after {time.perf_counter() - began:.1f} s; {report}", flush=True)


class Start(NamedTuple):
    """A start in a new process: seconds of hios.optimize with its import, of the first call, and what runs the model.

    ``kept`` says whether that was taken from the cache.
    """

    seconds: float
    call_s: float
    chosen: str
    kept: bool


def starts(name: str) -> None:
    """Print how long hios.optimize takes for a network in new processes."""
    busy = busy_share(usable_cores())
    print(f"{name}: cores {busy:.0%} busy with other work before")
    with tempfile.TemporaryDirectory() as cache:
        _print_start(name, "first start, default budget", started(name, cache))
        _print_kept(name, "from the cache", cache)
    with tempfile.TemporaryDirectory() as cache:
        started(name, cache, way="eager")
        _print_kept(name, "from the cache, the model itself", cache, way="eager")
    with tempfile.TemporaryDirectory() as cache:
        _print_start(name, f"first start, budget of {SHORT_S:g} s", started(name, cache, budget_s=SHORT_S))


def _print_kept(name: str, what: str, cache: str, **options: Any) -> None:
    """Print the median of some starts from a cache, or that it holds no choice."""
    made: list[Start] = []
    while len(made) < STARTS:
        made.append(started(name, cache, **options))
        if not made[-1].kept:  # a choice beside other work is not kept
            print(f"{name}: {what}: none, as no choice was kept; run this on an idle machine", flush=True)
            return
    _print_start(name, what, sorted(made)[STARTS // 2])


def _print_start(name: str, what: str, start: Start) -> None:
    print(f"{name}: {what}: {start.seconds:.1f} s, {start.chosen}, first call {start.call_s:.2f} s", flush=True)


def started(name: str, cache: str, **options: Any) -> Start:
    """Optimize a network in a new process.

    Args:
        name: of the network.
        cache: folder of the cache.
        **options: keyword arguments of hios.optimize.
    """
    command = [sys.executable, "-c", START, name, json.dumps(options)]
    path = f"{Path(__file__).parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"  # of many_branches
    environment = {**os.environ, "HIOS_CACHE": cache, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return Start(*json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--budget", type=float, default=BUDGET_S, metavar="SECONDS")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--start", action="store_true")
    parser.add_argument("--early", action="store_true")
    parser.add_argument("--load", type=int, default=0, metavar="PROCESSES")
    given = parser.parse_args()
    if given.overhead:
        overhead()
        return
    if given.start or given.early:
        for name in given.models:
            (starts if given.start else early)(name)
        return
    torch.set_grad_enabled(False)
    if given.load:
        for name in given.models:
            loaded(name, given.load, given.budget)
        return
    reports = {}
    for name in given.models:
        reports[name] = compare(name, given.budget)
        print(table(reports), flush=True)


if __name__ == "__main__":
    main()
