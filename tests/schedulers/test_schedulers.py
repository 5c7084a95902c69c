"""The registry, and every algorithm in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hios import ALGORITHMS, Costs, Graph, HiosError, Operator, Problem, Schedule, StreamPlan, schedule, violations
from hios.schedulers.registry import Algorithm, Parameter, register
from tests.problems import briefly, problem, problems


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@given(instance=problems(), devices=st.integers(1, 16))
def test_every_algorithm_is_valid_on_every_graph(name: str, instance: Problem, devices: int) -> None:
    """Schedules pass the checker and are not faster than the bound, for 1 to 16 devices."""
    if not ALGORITHMS[name].several_devices:
        devices = 1
    scheduled = schedule(instance, name, devices, briefly(name))
    assert violations(instance, scheduled) == []
    assert scheduled.latency_ms >= scheduled.lower_bound_ms - 1e-9
    assert scheduled.parameters == ALGORITHMS[name].resolved(briefly(name))


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_algorithm_takes_huge_fan_in_and_out(name: str) -> None:
    """One operator feeds 200 others that feed one: the schedule is valid on as many devices as the algorithm takes."""
    names = [f"v{number}" for number in range(200)]
    edges = {("first", middle): 0.5 for middle in names} | {(middle, "last"): 0.25 for middle in names}
    instance = problem(dict.fromkeys(["first", *names, "last"], 1.0), edges, utilization=dict.fromkeys(names, 0.7))
    scheduled = schedule(instance, name, 16 if ALGORITHMS[name].several_devices else 1, briefly(name))
    assert violations(instance, scheduled) == []


@pytest.mark.parametrize("name", sorted(name for name, entry in ALGORITHMS.items() if not entry.several_devices))
def test_single_device_algorithms_say_so(name: str) -> None:
    """Asked for several devices, they name what can use them."""
    with pytest.raises(HiosError, match=f"algorithm {name} schedules a single device; found devices = 2.*hios-lp"):
        schedule(problem({"a": 1.0}, {}), name, 2)


def test_schedules_keep_the_speed_of_the_machine() -> None:
    """schedule.json has what costs know of the speed of the machine when they were measured, without its samples."""
    sample = {"at_s": 0.5, "device": 0, "compute_ms": 1.5, "copy_ms": 1.0}
    speed = {part: {"value": 1.5, "low": 1.25, "high": 1.75} for part in ("compute_ms", "copy_ms")}
    probe = {"version": "cpu-1", "speed": speed, "copy_share": 0.25}
    costs = {"operators": {"a": {"time_ms": 1.0}}, "transfers": [], "probe": {**probe, "samples": [sample]}}
    scheduled = schedule(Problem(Graph("one", (Operator("a", "task"),), ()), Costs.from_json(costs)), "sequential")
    assert scheduled.to_json()["probe"] == probe
    assert Schedule.from_json(scheduled.to_json()) == scheduled
    assert scheduled.probe is not None
    assert scheduled.probe.speed.copy_ms.high == 1.75


@pytest.mark.parametrize(
    ("name", "devices", "parameters", "message"),
    [
        ("magic", 1, {}, r"unknown algorithm magic; allowed: gpg, greedy, .*hios-lp"),
        ("hios-lp", 1, {"depth": 1}, "algorithm hios-lp: unknown parameter depth; allowed: window"),
        ("hios-lp", 1, {"window": 1}, "parameter window: found 1; allowed: a whole number of at least 2"),
        ("hios-lp", 1, {"window": 2.5}, r"parameter window: found 2\.5; allowed: a whole number"),
        ("hios-lp", 1, {"window": True}, "parameter window: found True; allowed: a whole number"),
        ("hios-lp", 1, {"fill_gaps": 1}, "parameter fill_gaps: found 1; allowed: true or false"),
        ("hios-lp", 1, {"fill_gaps": "true"}, "parameter fill_gaps: found 'true'; allowed: true or false"),
        ("hios-lp", 1, {"fill_gaps": None}, "parameter fill_gaps: found None; allowed: true or false"),
        ("hios-lp", 0, {}, "devices: found 0; allowed: whole numbers from 1 to 1024"),
        ("hios-lp", 2.0, {}, "devices: found 2.0; allowed: whole numbers from 1 to 1024"),
        ("hios-lp", True, {}, "devices: found True; allowed: whole numbers from 1 to 1024"),
        ("hios-lp", 100000, {}, "devices: found 100000; allowed: whole numbers from 1 to 1024"),
    ],
)
def test_unknown_names_are_refused(name: str, devices: int, parameters: dict[str, Any], message: str) -> None:
    """An unknown algorithm or parameter, a wrong value and no devices are one-line errors with what is allowed."""
    with pytest.raises(HiosError, match=message):
        schedule(problem({"a": 1.0}, {}), name, devices, parameters)


def test_numbers_of_devices_may_be_numpys(tmp_path: Path) -> None:
    """As where a program schedules for several; the schedule can be written."""
    two: Any = np.int64(2)
    found = schedule(problem({"a": 1.0}, {}), "heft", two)
    found.write(tmp_path / "schedule.json")
    assert type(found.devices) is int


def test_registry_refuses_duplicates_and_drift() -> None:
    """A name stands once, and declared parameters are those of the function."""
    with pytest.raises(ValueError, match="registered already"):
        register("greedy", paper="", summary="", several_devices=False)(lambda problem, devices: None)  # type: ignore[type-var]

    def drifted(problem: Problem, devices: int, *, window: int = 3) -> None: ...

    with pytest.raises(ValueError, match="disagree"):
        register("drifted", paper="", summary="", several_devices=False, parameters=(Parameter("window", 2, ""),))(
            drifted  # type: ignore[type-var]
        )
    assert "drifted" not in ALGORITHMS


def test_choices_and_numbers_are_checked() -> None:
    """Parameters with choices and with floating-point values check what they are given."""
    mode = Parameter("mode", "both", "", choices=("both", "merge"))
    assert mode.checked("x", "merge") == "merge"
    with pytest.raises(HiosError, match="allowed: one of both, merge"):
        mode.checked("x", "all")
    share = Parameter("share", 0.5, "", minimum=0)
    assert share.checked("x", 1) == 1
    with pytest.raises(HiosError, match="allowed: a number of at least 0"):
        share.checked("x", True)


def test_plans_for_more_devices_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan that uses more devices than were asked for could beat the bound for those."""

    def spread(problem: Problem, devices: int) -> StreamPlan:
        return StreamPlan(tuple(((operator,),) for operator in problem.order), tuple(problem.order))

    spreading = Algorithm("spread", "none", "one device an operator", True, (), spread)
    monkeypatch.setitem(ALGORITHMS, "spread", spreading)
    instance = problem({"a": 1.0, "b": 1.0}, {})
    assert schedule(instance, "spread", 2).latency_ms == 1.0
    with pytest.raises(HiosError, match="algorithm spread: found a plan for 2 devices; allowed: 1"):
        schedule(instance, "spread", 1)
