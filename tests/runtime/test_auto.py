"""Choosing the fastest by measurement."""

from __future__ import annotations

from pathlib import Path

import pytest

from hios import Graph, HiosError, Schedule
from hios.core.schedule import Placement
from hios.files import artifacts
from hios.platforms.competitor import Competitor
from hios.platforms.program import ArenaPlan
from hios.runtime.competitors import BASELINE, ScheduleEntry, competitors
from hios.runtime.session import LEAST_RUNS, choose
from hios.schedulers import find
from tests.frontends.small_networks import Files
from tests.runtime.conftest import DEVICES
from tests.runtime.schedules import one_by_one, random_plan, run_schedules, schedule_of, write_schedules


def _session(graph: Graph, runs: dict[str, list[float]]) -> tuple[dict[str, Competitor], list[ScheduleEntry]]:
    """Competitors of a session on two devices with these runs, and schedules ``one`` and ``wide``."""
    entries = []
    for label, devices in (("one", 1), ("wide", 2)):
        plan = random_plan(graph, devices, seed=1)
        entries.append(ScheduleEntry(label, schedule_of(graph, plan), plan))
    by_label = competitors(graph, ArenaPlan(graph, 2), entries, 2)
    for name, competitor in by_label.items():
        competitor.latencies_ms = runs.get(name, [1000.0] * 12)
        row = Placement("conv1", 0, 0, 0, 1.0, 2.0)
        competitor.timelines = [[row]] * 12
    return by_label, entries


def test_other_runs_choose_than_are_reported(graph: Graph) -> None:
    """A schedule that is fast in the odd runs only is not chosen, and the runs that chose are not reported."""
    runs = {
        BASELINE: [12.0, 24.0] * 6,
        "one": [10.0, 1.0] * 6,
        "wide": [4.0, 8.0, 5.0, 9.0, 4.0, 8.0] * 2,
    }
    choice = choose(*_session(graph, runs))
    chosen = choice.result()
    assert (chosen.label, chosen.algorithm, chosen.devices, chosen.cores) == ("wide", "test", 2, 2)
    assert chosen.latency_ms.runs == (8.0, 9.0, 8.0) * 2
    assert chosen.speedup == 3.0
    assert chosen.candidates == 4
    assert choice.schedule(graph).notes["auto"].startswith("the fastest of 4 in every other run: wide; ")


def test_the_steadiest_of_equals_is_chosen(graph: Graph) -> None:
    """Threads inside operators whose median is lowest, but which take twice as long at times, lose to a schedule."""
    pattern = [8.0, 16.0, 8.0, 16.0, 8.0, 8.0, 16.0, 8.0]
    runs = {
        BASELINE: [12.0] * 32,
        "sequential, 2 cores": [value for value in pattern * 2 for _ in range(2)],
        "wide": [8.2, 8.3] * 16,
        "one": [13.0] * 32,
        "2 independent copies": [12.0] * 32,
    }
    chosen = choose(*_session(graph, runs)).result()
    assert chosen.label == "wide"
    assert chosen.latency_ms.runs == (8.3,) * 16


@pytest.mark.parametrize(("winner", "cores"), [(BASELINE, 1), ("sequential, 2 cores", 2)])
def test_sequential_may_win(graph: Graph, winner: str, cores: int) -> None:
    """The sequential schedule gets a schedule file, with measured times and a note that says so."""
    choice = choose(*_session(graph, {winner: [5.0] * 12}))
    chosen, written = choice.result(), choice.schedule(graph)
    assert (chosen.label, chosen.algorithm, chosen.devices, chosen.cores) == (winner, "sequential", 1, cores)
    assert (written.algorithm, written.devices, written.latency_ms) == ("sequential", 1, 2.0)
    assert written.notes["times"].startswith("measured")
    assert ("2 cores, with a thread on each" in written.notes["auto"]) == (cores == 2)


def test_what_is_not_faster_beyond_doubt_is_not_chosen(graph: Graph) -> None:
    """A disturbed sequential schedule is kept over a steady one that is not significantly faster; a note says so."""
    disturbed = [20.0 if number % 6 in (0, 3) else 10.0 for number in range(36)]
    choice = choose(*_session(graph, {BASELINE: disturbed, "one": [14.0] * 36, "wide": [10.0, 10.0, 10.4] * 12}))
    assert choice.label == BASELINE
    note = choice.schedule(graph).notes["auto"]
    assert note.startswith("in every other run none of 4 was significantly faster than sequential")


def test_copies_are_no_candidate(graph: Graph) -> None:
    """Independent copies are the machine's ceiling, no way to run one inference."""
    assert choose(*_session(graph, {"2 independent copies": [0.1] * 12, "one": [5.0] * 12})).label == "one"


@pytest.mark.slow
def test_chosen_schedule_runs_again(files: Files, graph: Graph, tmp_path: Path) -> None:
    """The session writes what it chose; the file is a schedule of the graph and can be executed."""
    plans = {"one": random_plan(graph, 1, seed=1), "wide": random_plan(graph, DEVICES, seed=DEVICES)}
    paths = write_schedules(tmp_path, graph, plans)
    run_schedules(files, paths, chosen=tmp_path / "auto.json", devices=DEVICES, runs=LEAST_RUNS)
    run = artifacts.read(tmp_path / "run.json", "run")
    chosen, written = run["chosen"], Schedule.read(tmp_path / "auto.json")
    assert len(chosen["latency_ms"]["runs"]) == LEAST_RUNS // 2
    assert chosen["label"] in written.notes["auto"]
    if chosen["algorithm"] == "test":
        assert written.plan(graph) == Schedule.read(tmp_path / f"{chosen['label']}.json").plan(graph)
    else:
        assert written.plan(graph) == one_by_one(graph)
    run_schedules(files, [tmp_path / "auto.json"], output="again.json", devices=DEVICES)


def test_auto_is_no_algorithm() -> None:
    """Where an algorithm is asked for, auto is refused with where to find it."""
    with pytest.raises(
        HiosError, match=r"^auto is chosen by measurement: hios execute --auto FILE, or auto: \{\} among"
    ):
        find("auto")
