"""Measure what `hios.serving.calibration` needs: real servers of the scenario's models, one task after another.

Alone on a lane, tasks give the factor of each model; two models on two lanes at once, their slow-down; and the spread
of all these times is the jitter. One task at a time over all lanes, whole (ios) and block by block (top), gives the
overheads: least squares with constants that are not negative. If costs have times on all lanes, so do tasks with a
thread on each; what the same takes longer block by block (top-open) is an overhead of these runs.

All of this is measured in short rounds. What is compared, such as a model beside another and alone, is compared within
a round, and constants are medians over the rounds: a shared machine changes its speed from one minute to the next.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import numpy as np
from torch import Tensor

from hios.errors import HiosError
from hios.files import option_defaults
from hios.files.versions import versions
from hios.formats.scenario import Overheads
from hios.formats.serving_result import CalibrationFile, PairFactor
from hios.frontends.example_inputs import example_inputs
from hios.platforms.cpu.devices import describe
from hios.serving.calibration import calibrated
from hios.serving.instances import LiveRun
from hios.serving.lane import Answer
from hios.serving.policies import pipeline_of
from hios.serving.scenario import Scenario
from hios.serving.server import Server
from hios.serving.top_pipeline import can_thread

#: Seconds of runs in all, and the share of them for tasks alone, for pairs, and for the policies that use all lanes.
BUDGET_S = 45.0
_ALONE, _PAIRS, _LANES = 0.3, 0.4, 0.3
_ROUNDS, _WARMUP, _LEAST = 5, 3, 2
_QUANTILES = 101
_OVER_LANES = ("ios", "top")
_THREADS, _BLOCKS = "threads", "top-open"
_CONSTANTS = ("task_ms", "run_ms", "stage_ms", "hand_over_ms")


@dataclass
class _Watch:
    """Times of runs of a server, by model, while it is recording."""

    times_ms: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    recording: bool = False

    def add(self, lane: int, run: LiveRun, places: tuple[int, ...], answer: Answer) -> None:
        """Record a run of a lane; called by the server."""
        if self.recording:
            (model, _), *_ = (run.members[place] for place in places)
            self.times_ms[model].append((answer.ended_ns - answer.began_ns) / 1e6)

    def take(self) -> dict[int, list[float]]:
        """What was recorded, which is then forgotten."""
        taken, self.times_ms = self.times_ms, defaultdict(list)
        return taken


def calibrate(
    scenario: Scenario,
    *,
    budget_s: float = BUDGET_S,
    virtual: bool = False,
    timeout_s: float = option_defaults.TIMEOUT_S,
    show: Callable[[str], None] = lambda text: None,
) -> CalibrationFile:
    """Measure the constants of a scenario's models on its lanes, which may share cores if they are ``virtual``.

    All runs together take ``budget_s``; more if models are slow, as each runs a few times in every round. None may take
    longer than ``timeout_s``. ``show`` is told what is measured.

    Raises:
        HiosError: a model cannot be run, or has operators without time.
    """
    began, clock = datetime.now(UTC), time.perf_counter()
    if empty := [model.label for model in scenario.models if sum(model.problem.time) <= 0]:
        raise HiosError(
            f"{scenario.source}: models.{empty[0]}.costs: found no time; required to calibrate: times above 0"
        )
    tasks = [list(example_inputs(model.problem.graph.inputs, scenario.file.seed)) for model in scenario.models]
    count, watch = len(scenario.models), _Watch()
    with contextlib.ExitStack() as stack:
        alone = stack.enter_context(
            Server(scenario, "one-per-lane", launcher="open", virtual=virtual, timeout_s=timeout_s, watch=watch.add)
        )
        over = {
            name: stack.enter_context(Server(scenario, name, launcher="open", virtual=virtual, timeout_s=timeout_s))
            for name in (*_OVER_LANES, *_with_threads(scenario))
        }
        for server in (alone, *over.values()):
            stack.enter_context(server.without_deadlines())
            for number, task in enumerate(tasks):
                for _ in range(_WARMUP):
                    server.infer(scenario.models[number].label, task)
        rounds = []
        for number in range(_ROUNDS):
            show(f"each model alone, beside each other, and over all lanes: round {number + 1} of {_ROUNDS}")
            rounds.append(_round(alone, over, tasks, budget_s / _ROUNDS, watch))
    typical = [statistics.median(own.alone(number) for own in rounds) for number in range(count)]
    factors = [time_ms / sum(model.problem.time) for time_ms, model in zip(typical, scenario.models, strict=True)]
    rows = [
        (_coefficients(scenario, name, number), _relative(rounds, name, number) * typical[number], factors[number])
        for name in ("one-per-lane", *_OVER_LANES)
        for number in range(count)
    ]
    overheads = fitted([(row[1:], latency - factor * row[0]) for row, latency, factor in rows])
    labels = [model.label for model in scenario.models]
    around = overheads[0] + overheads[1]  # of a task and its run
    threads = {
        label: max(_relative(rounds, _THREADS, number) - around / typical[number], 1 / scenario.lanes)
        for number, label in enumerate(labels)
        if _THREADS in over
    }
    made = CalibrationFile(
        lanes=scenario.lanes,
        models=dict(zip(labels, factors, strict=True)),
        overheads=Overheads(**dict(zip(_CONSTANTS, overheads, strict=True))),
        threads=threads,
        corun=tuple(
            PairFactor(labels[model], labels[beside], _slow_down(rounds, model, beside))
            for model, beside in sorted(rounds[0].pairs)
        ),
        jitter=jitter_of([times for own in rounds for times in (*own.times, *own.pairs.values())]),
        seconds=time.perf_counter() - clock,
        measured_at=f"{began:%Y-%m-%dT%H:%M:%SZ}",
        platform=describe(scenario.lanes, virtual=virtual),
        versions=versions(),
    )
    if _BLOCKS not in over:
        return made
    latencies = [_relative(rounds, _BLOCKS, number) * typical[number] for number in range(count)]
    more = msgspec.structs.replace(made.overheads, threads_run_ms=threads_run_ms(calibrated(scenario, made), latencies))
    return msgspec.structs.replace(made, overheads=more)


def threads_run_ms(scenario: Scenario, latencies: Sequence[float]) -> float:
    """How much longer a run of a block with a thread on every lane takes than simulated, at least 0; milliseconds.

    The median over the models that have such runs, 0 without any. The scenario is calibrated but for this;
    ``latencies`` are measured milliseconds of a task of each model under top-open, when nothing else runs.
    """
    pipeline = pipeline_of(scenario, _BLOCKS)
    more = []
    for number, measured in enumerate(latencies):
        alone = pipeline.runs_alone(number) if pipeline.has_threads else []
        if runs := sum(pipeline.threaded[combined][present] for combined, present, _ in alone):
            more.append((measured - 1e3 * pipeline.alone_s(number)) / runs)
    return max(0.0, statistics.median(more)) if more else 0.0


@dataclass(frozen=True)
class _Round:
    """What is measured within a few seconds, in which the machine's speed hardly changes; milliseconds.

    Runs of each model alone; runs of a model while another runs, by both; tasks one at a time, by policy and model.
    """

    times: list[list[float]]
    pairs: dict[tuple[int, int], list[float]]
    latencies: dict[tuple[str, int], list[float]]

    def alone(self, number: int) -> float:
        """Typical time of a model alone on a lane."""
        return statistics.median(self.times[number])


def _round(
    alone: Server, over: Mapping[str, Server], tasks: Sequence[Sequence[Tensor]], seconds: float, watch: _Watch
) -> _Round:
    """Measure everything once."""
    count = len(tasks)
    measured = _Round([], {}, {})
    for number in range(count):
        watch.recording = True
        measured.latencies["one-per-lane", number] = _one_at_a_time(
            alone, number, tasks[number], seconds * _ALONE / count
        )
        watch.recording = False
        measured.times.append(watch.take()[number])
        for name, server in over.items():
            share = seconds * _LANES / len(over) / count
            measured.latencies[name, number] = _one_at_a_time(server, number, tasks[number], share)
    both = list(itertools.combinations_with_replacement(range(count), 2)) if alone.scenario.lanes > 1 else []
    for pair in both:
        measured.pairs.update(_beside(alone, pair, tasks, seconds * _PAIRS / len(both), watch))
    return measured


def _with_threads(scenario: Scenario) -> tuple[str, ...]:
    """The policies with a thread on every lane, for whole tasks and for blocks, if costs have the times for that."""
    if scenario.lanes == 1:
        return ()
    try:
        pipeline_of(scenario, _THREADS)
    except HiosError:
        return ()
    return (_THREADS, _BLOCKS) if can_thread(scenario) and scenario.file.top.threads else (_THREADS,)


def _slow_down(rounds: Sequence[_Round], model: int, beside: int) -> float:
    """How many times as long a model takes while another runs; at least 1, as nothing gets faster by that."""
    ratios = [statistics.median(own.pairs[model, beside]) / own.alone(model) for own in rounds]
    return max(1.0, statistics.median(ratios))


def _relative(rounds: Sequence[_Round], name: str, number: int) -> float:
    """Latency of a task of a model under a policy, over the time of its operators alone on a lane."""
    return statistics.median(statistics.median(own.latencies[name, number]) / own.alone(number) for own in rounds)


def _one_at_a_time(server: Server, number: int, task: Sequence[Tensor], seconds: float) -> list[float]:
    """Latencies of tasks, milliseconds. After each, the server idles as long as it took, as between tasks under load.

    Lanes that are always busy never sleep, and are faster than those that wake for every task.
    """
    label = server.scenario.models[number].label
    times_ms: list[float] = []
    end = time.perf_counter() + seconds
    while len(times_ms) < _LEAST or time.perf_counter() < end:
        start = time.perf_counter()
        server.infer(label, task)
        took_s = time.perf_counter() - start
        times_ms.append(took_s * 1e3)
        time.sleep(took_s)
    return times_ms


def _beside(
    server: Server, pair: tuple[int, int], tasks: Sequence[Sequence[Tensor]], seconds: float, watch: _Watch
) -> dict[tuple[int, int], list[float]]:
    """Times of the runs of two models that never stop beside each other, by model and the one beside it."""
    ready, stop = threading.Barrier(3), threading.Event()
    errors: list[Exception] = []

    def loop(number: int) -> None:
        label = server.scenario.models[number].label
        try:
            server.infer(label, tasks[number])
            ready.wait()
            while not stop.is_set():
                server.infer(label, tasks[number])
        except threading.BrokenBarrierError:  # the other one failed
            return
        except Exception as error:  # whatever it is, the other one must not go on for ever
            errors.append(error)
            ready.abort()
            stop.set()

    threads = [threading.Thread(target=loop, args=(number,)) for number in pair]
    for thread in threads:
        thread.start()
    with contextlib.suppress(threading.BrokenBarrierError):  # one of them failed
        ready.wait()
    longest = max(sum(server.scenario.models[number].problem.time) for number in pair) / 1e3
    stop.wait(2 * longest)  # until both run
    watch.recording = True
    stop.wait(max(seconds, _LEAST * 2 * longest))
    while not all(watch.times_ms.get(number) for number in pair):  # other work may keep the lanes from their runs
        if stop.wait(longest):
            break
    watch.recording = False
    stop.set()
    for thread in threads:
        thread.join()
    times = watch.take()
    first, second = pair
    if errors:
        raise errors[0]
    return {(first, second): times[first], (second, first): times[second]}


def _coefficients(scenario: Scenario, name: str, number: int) -> list[float]:
    """Milliseconds of a task alone under a policy without overheads, and how often each of these counts."""
    units = [{}, *({constant: 1.0} for constant in _CONSTANTS)]
    first, *rest = (_alone_ms(scenario, name, number, Overheads(**unit)) for unit in units)
    return [first, *(with_one - first for with_one in rest)]


def _alone_ms(scenario: Scenario, name: str, number: int, overheads: Overheads) -> float:
    """Time of a task of a model when nothing else runs, in milliseconds."""
    other = dataclasses.replace(scenario.with_settings(overheads=overheads), planned=scenario.plain)
    pipeline = pipeline_of(other, name)
    if pipeline.take == "one":  # the pipeline's times are those beside other runs
        alone = sum(scenario.models[number].problem.time)
        return alone + overheads.task_ms + overheads.run_ms + overheads.stage_ms
    return 1e3 * pipeline.alone_s(number)


def fitted(rows: Sequence[tuple[Sequence[float], float]]) -> list[float]:
    """The constants of least squares that are not negative: the best of all sets of constants that are above 0.

    A row has how often each constant counts, and the time that they are to explain together.
    """
    matrix, wanted = np.array([row for row, _ in rows], float), np.array([value for _, value in rows], float)
    count = matrix.shape[1]
    best, least = np.zeros(count), float(np.sum(wanted**2))
    for size in range(1, count + 1):
        for kept in map(list, itertools.combinations(range(count), size)):
            solution = np.linalg.lstsq(matrix[:, kept], wanted, rcond=None)[0]
            error = float(np.sum((matrix[:, kept] @ solution - wanted) ** 2))
            if (solution >= 0).all() and error < least * (1 - 1e-9):
                best, least = np.zeros(count), error
                best[kept] = solution
    return [float(value) for value in best]


def jitter_of(groups: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Evenly spaced quantiles of times over the median of their group, all groups together."""
    relative = [value / statistics.median(times) for times in groups if times for value in times]
    return tuple(map(float, np.quantile(np.array(relative), np.linspace(0, 1, _QUANTILES))))
