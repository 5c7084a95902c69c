"""hios-opt: never worse than the others, bounds that no schedule beats, optimal where all schedules can be tried."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hios import ALGORITHMS, HiosError, Problem, Schedule, evaluate, lower_bound_ms, schedule, violations
from hios.core.evaluate import latency_ms
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.errors import ScheduleError
from hios.pipeline import config
from hios.schedulers import Algorithm
from hios.schedulers.hios_opt import hios_opt
from hios.schedulers.opt import lower_bounds
from hios.schedulers.opt.annealing import StagedChain, groups
from hios.schedulers.opt.lower_bounds import interval_bound_ms, provable, staged_bound_ms
from hios.schedulers.opt.search_limits import CLOSED
from tests.convolution_graphs import Conv, conv_problem
from tests.problems import problem, problems, write_files
from tests.scripts import python

#: No test waits for this many seconds; those that end by the number of moves need no other.
_LONG = 600.0


def _opt(instance: Problem, devices: int, moves: int = 200, **parameters: Any) -> Schedule:
    return schedule(instance, "hios-opt", devices, {"time_limit": _LONG, "moves": moves, **parameters})


def _staged(problem: Problem, devices: int) -> Iterator[StagedPlan]:
    """Every staged plan of a small problem, but for numbers of devices; operators share a group if they have to."""

    def extended(done: frozenset[int], rows: tuple[tuple[Any, ...], ...]) -> Iterator[StagedPlan]:
        rest = [operator for operator in problem.order if operator not in done]
        if not rest:
            yield StagedPlan(rows)
        for size in range(1, len(rest) + 1):
            for members in itertools.combinations(rest, size):
                ready = done.union(members)
                if all(before in ready for member in members for before, _ in problem.predecessors[member]):
                    used = sum(map(bool, rows))
                    for device in range(min(devices, used + 1)):
                        row = (*rows[device], groups(problem, list(members)))
                        yield from extended(ready, (*rows[:device], row, *rows[device + 1 :]))

    return extended(frozenset(), ((),) * devices)


def _streams(problem: Problem, devices: int) -> Iterator[StreamPlan]:
    """Every stream plan of a small problem, but for numbers of devices and streams; some deadlock."""
    streams: list[tuple[list[int], int]] = []

    def extended(operators: tuple[int, ...]) -> Iterator[StreamPlan]:
        if not operators:
            yield StreamPlan(
                tuple(tuple(tuple(row) for row, home in streams if home == device) for device in range(devices))
            )
            return
        first, *rest = operators
        for row, _ in streams:
            for place in range(len(row) + 1):
                row.insert(place, first)
                yield from extended(tuple(rest))
                row.pop(place)
        used = max((home + 1 for _, home in streams), default=0)
        for device in range(min(devices, used + 1)):
            streams.append(([first], device))
            yield from extended(tuple(rest))
            streams.pop()

    return extended(problem.order)


def _least(problem: Problem, plans: Iterator[Any]) -> float:
    """Least latency of plans, in milliseconds."""
    latencies = []
    for plan in plans:
        try:
            latencies.append(latency_ms(evaluate(problem, plan)))
        except ScheduleError:
            continue
    return min(latencies)


@st.composite
def _small(draw: st.DrawFn) -> Problem:
    """Up to four operators: low and high utilizations, short and long transfers, much and little serialization."""
    count = draw(st.integers(2, 4))
    names = [f"v{number}" for number in range(count)]
    times = st.one_of(st.integers(0, 4).map(float), st.floats(0.01, 5.0))
    pairs = [(names[source], names[target]) for target in range(count) for source in range(target)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True))
    scale = draw(st.sampled_from([0.0, 0.3, 1.0, 10.0]))
    utilizations = st.sampled_from([1.0, 0.5, 0.05])
    return problem(
        {name: draw(times) for name in names},
        {edge: draw(times) * scale for edge in edges},
        utilization={name: draw(utilizations) for name in names},
        alpha=draw(st.sampled_from([0.5, 0.5, 0.8, 1.0, 0.2])),
    )


@settings(max_examples=150)
@given(instance=_small(), devices=st.integers(1, 2))
def test_no_schedule_beats_the_bounds(instance: Problem, devices: int) -> None:
    """No staged plan and no stream plan of a small problem is faster than what is said of all or of staged ones."""
    bound = interval_bound_ms(instance, devices)
    staged = _least(instance, _staged(instance, devices))
    assert lower_bound_ms(instance, devices) <= bound * (1 + 1e-9)
    assert bound <= min(staged, _least(instance, _streams(instance, devices))) * (1 + 1e-9)
    assert bound <= staged_bound_ms(instance, bound) <= staged * (1 + 1e-9)


def _lettered(times: str, edges: dict[str, float], **costs: Any) -> Problem:
    """A problem of operators a, b and so on, each with one digit of times, and of edges like ab."""
    return problem(
        {name: float(time) for name, time in zip("abcdef", times, strict=False)},
        {(ends[0], ends[1]): float(transfer) for ends, transfer in edges.items()},
        **costs,
    )


@pytest.mark.parametrize(
    ("times", "edges", "expected", "simple"),
    [
        # All on one device, since each transfer takes longer than what it would save.
        ("111", {"ab": 2, "ac": 2}, 3.0, 2.0),
        # d waits for the work of a, b and c on two devices.
        ("2221", {"ad": 0, "bd": 0, "cd": 0}, 4.0, 3.5),
        # Before and after b, c and d there is a millisecond in which one device runs nothing.
        ("12221", {"ab": 0, "ac": 0, "ad": 0, "be": 0, "ce": 0, "de": 0}, 5.0, 4.0),
        # The same backwards in time: b, c and d follow a.
        ("1222", {"ab": 0, "ac": 0, "ad": 0}, 4.0, 3.5),
        # b, c and d are between a and the last 4 ms, which no single operator waits for.
        ("122244", {"ab": 0, "ac": 0, "ad": 0, "be": 0, "ce": 0, "cf": 0, "df": 0}, 8.0, 7.5),
    ],
)
def test_bound_by_hand(times: str, edges: dict[str, float], expected: float, simple: float) -> None:
    """Heads, tails, transfers and the work between them, on two devices."""
    instance = _lettered(times, edges)
    assert lower_bound_ms(instance, 2) == simple
    assert interval_bound_ms(instance, 2) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("times", "edges", "utilization", "alpha", "devices"),
    [
        # Each group of the stage brings an operator that does not count: below a = 1/2 the work would be too much.
        ("1131", {"bc": 0, "ad": 0}, [0.1, 0.1, 1.0, 1.0], 0.0, 1),
        ("6565", {"ac": 0, "bd": 0}, [0.1, 0.1, 1.0, 1.0], 0.0, 1),
        # Work is less than time where a device is not kept busy.
        ("111", {"ab": 2, "ac": 1}, [0.5, 0.5, 1.0], 0.5, 2),
        ("121", {"ac": 2}, [1.0, 1.0, 1.0], 0.5, 2),
    ],
)
def test_bounds_that_are_easily_too_high(
    times: str, edges: dict[str, float], utilization: list[float], alpha: float, devices: int
) -> None:
    """Problems on which a bound like it, with one condition less, exceeds the best schedule."""
    instance = _lettered(times, edges, utilization=dict(zip("abcd", utilization, strict=False)), alpha=alpha)
    for plans in (_staged(instance, devices), _streams(instance, devices)):
        assert interval_bound_ms(instance, devices) <= _least(instance, plans) * (1 + 1e-9)


def test_measured_stages_and_merges_loosen_the_bound() -> None:
    """A stage that was measured faster than any model says, and a merge, are not slower than the bound."""
    names, edges = "abcd", {("a", "c"): 0.0, ("b", "d"): 0.0}
    stages = {frozenset({("a", "c"), ("b", "d")}): 0.5}
    instance = problem(dict.fromkeys(names, 1.0), edges, stages=stages)
    assert interval_bound_ms(instance, 2) <= 0.5 == _opt(instance, 2).latency_ms
    merging = conv_problem({"a": Conv(), "b": Conv()}, {"a": 1.0, "b": 1.0}, utilization={"a": 0.2, "b": 0.2})
    assert interval_bound_ms(merging, 1) <= 1.0 == _opt(merging, 1).latency_ms


def test_whole_milliseconds() -> None:
    """Staged schedules of whole times last a whole number of milliseconds; where stages gain they need not."""
    whole = problem({"a": 2.0, "b": 2.0, "c": 1.0}, {})
    assert staged_bound_ms(whole, 2.5) == 3.0
    assert staged_bound_ms(whole, 3.0 * (1 - 1e-12)) == 3.0
    assert staged_bound_ms(whole, 3.0 * (1 + 1e-12)) == pytest.approx(3.0)
    assert staged_bound_ms(whole, 3e10 + 1) == 3e10 + 1
    fractions = problem({"a": 2.0, "b": 2.5}, {})
    assert staged_bound_ms(fractions, 2.5) == 2.5
    assert provable(whole)
    assert provable(fractions)
    for other in (
        problem({"a": 2.0, "b": 2.0}, {("a", "b"): 0.5}),
        problem({"a": 2.0, "b": 2.0}, {}, utilization={"a": 0.5}),
        problem({"a": 2.0, "b": 2.0}, {}, contention="none"),
        problem({"a": 2.0, "b": 2.0}, {}, stages={frozenset({("a",), ("b",)}): 5.5}),
        conv_problem({"a": Conv(), "b": Conv()}, {"a": 1.0, "b": 1.0}),
    ):
        assert staged_bound_ms(other, 2.5) == 2.5
        assert not provable(other)


def test_times_near_nothing() -> None:
    """Times close to the smallest number, of which the solver has no millionths, are scheduled like others."""
    instance = problem({name: 1e-320 * (number + 1.1) for number, name in enumerate("abcde")}, {})
    scheduled = _opt(instance, 2)
    assert violations(instance, scheduled) == []


@settings(max_examples=40)
@given(instance=problems(), devices=st.integers(1, 4))
def test_never_worse_than_any_other(instance: Problem, devices: int) -> None:
    """Every other algorithm, on its devices, is at most as good; schedule and bounds are valid."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lower_bounds, "provable", lambda _: False)  # it may take the solver long
        scheduled = _opt(instance, devices, moves=20)
    assert violations(instance, scheduled) == []
    assert "not compared" not in scheduled.notes
    for name, entry in ALGORITHMS.items():
        if name not in ("hios-opt", "gpg"):  # gpg may be better, and is named so
            other = schedule(instance, name, devices if entry.several_devices else 1)
            assert scheduled.latency_ms <= other.latency_ms * (1 + CLOSED)


def test_a_stream_plan_may_win() -> None:
    """Streams have no barriers: d starts when b has finished, whatever runs beside b."""
    times = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 2.0}
    instance = problem(times, {("a", "b"): 9.0, ("a", "d"): 9.0, ("c", "d"): 9.0}, contention="none")
    scheduled = _opt(instance, 1)
    assert scheduled.latency_ms == scheduled.lower_bound_ms == 4.0 < _least(instance, _staged(instance, 1))
    assert {row.stage for row in scheduled.placements} == {None}
    assert scheduled.notes["start"].endswith(", 4 ms")


def test_a_merge_may_win() -> None:
    """A plan with merged operators is kept where it is best, on several devices too."""
    members = {"a": Conv(), "b": Conv(), "c": Conv(value="a")}
    merges = {frozenset({"a", "b"}): 1.0}
    instance = conv_problem(members, {"a": 2.0, "b": 2.0, "c": 1.0}, merges=merges)
    for devices in (1, 2):
        scheduled = _opt(instance, devices)
        assert (scheduled.latency_ms, scheduled.merges) == (2.0, (("a", "b"),))
        assert scheduled.notes["start"] == "ios, 2 ms"
        assert len(hios_opt(instance, devices, moves=1).plan.devices) == devices
        assert violations(instance, scheduled) == []


@settings(max_examples=100, derandomize=True)
@given(instance=_small())
def test_optimal_on_small_problems(instance: Problem) -> None:
    """Two devices, up to four operators: as good as the best of all staged plans, with transfers and groups."""
    best = _least(instance, _staged(instance, 2))
    assert _opt(instance, 2, moves=3000).latency_ms <= best * (1 + 1e-9)


def test_better_than_its_starts() -> None:
    """The search improves on all other algorithms where a stage of two groups beside a transfer is best."""
    times = {"a": 2.0, "b": 3.0, "c": 3.0, "d": 2.0, "e": 4.0}
    edges = {("a", "b"): 1.0, ("a", "c"): 1.0, ("b", "d"): 2.0, ("c", "e"): 2.0, ("b", "e"): 1.0}
    instance = problem(times, edges, utilization=dict.fromkeys(times, 0.4), alpha=0.1)
    scheduled = _opt(instance, 2, moves=5000)
    others = [schedule(instance, name, 2).latency_ms for name in ("heft", "hios-lp", "hios-mr")]
    others += [schedule(instance, name, 1).latency_ms for name in ("ios", "greedy")]
    assert scheduled.latency_ms < min(others)
    assert scheduled.latency_ms == pytest.approx(_least(instance, _staged(instance, 2)), rel=1e-9)


def test_it_ends_when_the_gap_is_closed() -> None:
    """With a start as good as the bound there is no search, and a search ends long before its moves are spent."""
    assert "search" not in _opt(problem({"a": 1.0, "b": 2.0}, {("a", "b"): 1.0}), 2).notes
    # Longest first, as list schedules have it, takes 7; 3 + 3 beside 2 + 2 + 2 takes 6.
    scheduled = _opt(_lettered("33222", {}), 2, moves=10**9)
    assert scheduled.latency_ms == scheduled.lower_bound_ms == 6.0
    assert 0 < int(scheduled.notes["search"].removesuffix(" moves")) < 10**8


def test_proof() -> None:
    """CP-SAT closes the gap that the bound leaves: three operators of 2 ms on two devices take 4 ms, not 3."""
    whole = _opt(problem(dict.fromkeys("abc", 2.0), {}), 2)
    assert (whole.latency_ms, whole.lower_bound_ms, whole.staged_lower_bound_ms) == (4.0, 3.0, 4.0)
    fractions = _opt(problem(dict.fromkeys("abc", 0.7), {}), 2)
    assert fractions.latency_ms == 1.4
    assert fractions.staged_lower_bound_ms == pytest.approx(1.4, rel=1e-5)
    assert fractions.staged_lower_bound_ms <= 1.4
    huge = _opt(problem(dict.fromkeys("abc", 2e300), {}), 2)
    assert huge.staged_lower_bound_ms == pytest.approx(4e300, rel=1e-5)


#: Six operators whose best stream plan (4.5 ms, two devices) no staged plan reaches (5 ms).
_PREEMPTED = problem(
    {"a": 0.5, "b": 2.0, "c": 1.0, "d": 3.5, "e": 0.5, "f": 1.0},
    dict.fromkeys([("a", "b"), ("a", "c"), ("b", "e"), ("b", "f"), ("c", "f"), ("e", "f")], 0.0),
)


def test_bounds_of_staged_schedules_are_no_bounds_of_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream plan that beats what is proven of staged ones is returned with a bound that it does not beat."""
    staged = _opt(_PREEMPTED, 2, moves=5000)
    assert (staged.latency_ms, staged.staged_lower_bound_ms) == (5.0, pytest.approx(5.0, rel=1e-5))

    def preempting(problem: Problem, devices: int) -> Plan:
        return StreamPlan((((0, 1, 4, 5),), ((3,), (2,))))

    preempting.__module__ = "hios.preempting"  # it starts from its own algorithms alone
    entry = Algorithm("preempting", "", "", several_devices=True, parameters=(), run=preempting)
    monkeypatch.setitem(ALGORITHMS, "preempting", entry)
    scheduled = _opt(_PREEMPTED, 2, moves=5000)
    assert scheduled.latency_ms == 4.5
    assert scheduled.lower_bound_ms < 4.5
    assert scheduled.staged_lower_bound_ms == pytest.approx(5.0, rel=1e-5)
    assert violations(_PREEMPTED, scheduled) == []


def test_algorithms_of_others_are_no_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process registers itself changes nothing: neither the result nor its errors."""
    expected = _opt(_PREEMPTED, 2, moves=500)
    entry = Algorithm("aa", "", "", several_devices=True, parameters=(), run=lambda *_: StreamPlan((((0,),),)))
    monkeypatch.setitem(ALGORITHMS, "aa", entry)
    assert _opt(_PREEMPTED, 2, moves=500).placements == expected.placements


def _open_problem() -> Problem:
    """Operators with transfers, on which the search ends neither at once nor by proof."""
    times = {f"v{number}": 1.0 + number * 7 % 5 * 0.3 for number in range(40)}
    edges = {(f"v{number}", f"v{number + step}"): 0.7 for number in range(32) for step in (3, 8)}
    return problem(times, edges, utilization=dict.fromkeys(times, 0.7))


def test_seeds() -> None:
    """The same number of moves from the same seed gives the same schedule; another seed goes another way."""
    instance = _open_problem()
    schedules = [_opt(instance, 3, moves=3000, seed=seed) for seed in (5, 5, 6)]
    assert schedules[0].placements == schedules[1].placements != schedules[2].placements
    assert [entry.notes["search"] for entry in schedules] == ["6000 moves"] * 3
    assert _opt(instance, 3, moves=10, seed=2**80).latency_ms >= schedules[0].lower_bound_ms


@pytest.mark.parametrize("time_limit", [0, 1e-9, 0.01])
def test_hardly_any_time(time_limit: float) -> None:
    """There is a schedule however little time there is."""
    assert violations(_open_problem(), schedule(_open_problem(), "hios-opt", 3, {"time_limit": time_limit})) == []


def test_notes_name_what_was_not_compared() -> None:
    """Without time only the first algorithm runs; the others are named, except those that cannot be better."""
    instance = _open_problem()
    notes = schedule(instance, "hios-opt", 3, {"time_limit": 0}).notes
    first = notes["start"].partition(",")[0]
    assert lower_bound_ms(instance, 1) > schedule(instance, first, 3).latency_ms
    several = {name for name, entry in ALGORITHMS.items() if entry.several_devices}
    # hios-wide is HEFT where operators take one device each, and is not asked.
    assert set(notes["not compared"].split(", ")) == several - {first, "hios-opt", "hios-wide"}
    assert notes["search"] == "0 moves"
    alone = schedule(instance, "hios-opt", 1, {"time_limit": 0}).notes
    assert set(alone["not compared"].split(", ")) == set(ALGORITHMS) - {first, "hios-opt", "hios-wide", "gpg"}


def test_no_start_fits() -> None:
    """If no plan of another algorithm can start the search, it starts with the operators in sequence."""
    wide = problem(
        {f"v{number}": 1.0 + number for number in range(40)}, {("v0", f"v{number}"): 1.0 for number in range(1, 40)}
    )
    only = {"greedy": ALGORITHMS["greedy"], "hios-opt": ALGORITHMS["hios-opt"]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hios.schedulers.hios_opt.ALGORITHMS", only)
        scheduled = hios_opt(wide, 2, time_limit=_LONG, moves=2000)
    assert scheduled.notes["start"].startswith("greedy")
    assert latency_ms(evaluate(wide, scheduled.plan)) < latency_ms(
        evaluate(wide, ALGORITHMS["greedy"].solve(wide, 1).plan)
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_time_limits_are_numbers(value: float) -> None:
    """A limit that never passes is refused before the search."""
    with pytest.raises(HiosError, match=r"hios-opt: parameter time_limit: found .*; allowed: a number of at least 0"):
        schedule(_open_problem(), "hios-opt", 2, {"time_limit": value})


def interrupted_search() -> None:
    """Send Ctrl-C to this process while it searches."""
    run, runs = StagedChain.run, itertools.count()

    def interrupting(chain: StagedChain, progress: float, moves: int) -> None:
        run(chain, progress, moves)
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.01)  # for the main thread to be heard
            if next(runs) == 10:
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StagedChain, "run", interrupting)
        with pytest.raises(KeyboardInterrupt):
            schedule(_open_problem(), "hios-opt", 3, {"time_limit": _LONG})
    assert 10 < next(runs) < 10_000  # of some 60 000 until its time limit
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ThreadPool")]
    sys.stdout.write("interrupted")


def test_interrupts_end_the_search() -> None:
    """Ctrl-C reaches the main thread alone; the threads that search end with the slice that they are at."""
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from tests.schedulers import test_hios_opt; test_hios_opt.interrupted_search()"
    )
    done = python("-c", code)
    assert (done.returncode, done.stdout) == (0, "interrupted"), done.stderr


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with graph.json and costs.json of the open problem."""
    write_files(_open_problem(), tmp_path)
    return tmp_path


_SCHEDULE = ["schedule", "graph.json", "costs.json", "--algorithm", "hios-opt", "--output", "found.json"]


def _command(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a fresh interpreter, some code first."""
    return python("-c", f"{code}; from hios.cli import main; main()", *_SCHEDULE, *arguments, folder=folder)


def test_command_line(files: Path) -> None:
    """Files in, a valid schedule with parameters, bound and notes out."""
    done = _command(files, "pass", "--devices", "3", "--seed", "3", "--moves", "300", "--time-limit", "600")
    assert done.returncode == 0, done.stderr
    original = Schedule.read(files / "found.json")
    assert original.parameters == {"seed": 3, "moves": 300, "time_limit": 600.0}
    assert original.placements == _opt(_open_problem(), 3, moves=300, seed=3).placements
    assert original.notes["search"] == "600 moves"
    assert violations(Problem.read(files / "graph.json", files / "costs.json"), original) == []


@pytest.mark.parametrize("package", ["numba", "numpy"])
def test_without_its_packages(files: Path, package: str) -> None:
    """One line says what to install, and no file is written."""
    done = _command(files, f"import sys; sys.modules['{package}'] = None")
    assert done.returncode == 1
    assert done.stderr == f"Error: this command needs {package}, which is not installed: pip install 'hios[opt]'\n"
    assert not (files / "found.json").exists()


def test_configuration(tmp_path: Path) -> None:
    """config.yaml names it with its parameters; the seed of the configuration is its own."""
    (tmp_path / "net.py").touch()
    data = {"models": {"net": {}}, "algorithms": {"best": {"algorithm": "hios-opt", "time_limit": 1}}, "seed": 4}
    entry = config.contents(config.resolve(data, "config.yaml", models=tmp_path))["algorithms"]["best"]
    assert entry == {"algorithm": "hios-opt", "time_limit": 1, "seed": 4, "moves": 0}
