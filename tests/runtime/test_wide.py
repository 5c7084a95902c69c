"""Operators that take several devices at once: right outputs, and failures that end the run as others do."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file

from hios import Costs, Graph, HiosError, Placement, Problem, violations
from hios import schedule as solve
from hios.cli.files import profile
from hios.core.costs import MergeCost
from hios.core.merging import convolutions, merge_candidates
from hios.core.schedule import StreamPlan
from hios.errors import PlatformError, ScheduleError
from hios.machine.description import usable_cores
from hios.platforms.cpu.devices import device_cores
from hios.platforms.cpu.engine import Engine, Task
from hios.platforms.program import ArenaPlan, StepProgram
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool
from tests.cores_marker import two_cores
from tests.frontends.small_networks import Files
from tests.runtime import faults
from tests.runtime.schedules import one_by_one, random_merged, random_wide, run_schedules, write_schedules


@pytest.mark.slow
@two_cores
def test_outputs_are_those_of_the_model(files: Files, graph: Graph, tmp_path: Path) -> None:
    """Random plans with operators on both of two devices compute what the model does, beside narrow schedules.

    So do merged convolutions on both devices, on either, and on one alone.
    """
    wide = {f"wide-{seed}": random_wide(graph, 2, seed) for seed in range(4)}
    merged = {f"merged-{seed}": random_merged(graph, 2, seed) for seed in range(3)}
    merged |= {f"narrow-{count}": random_merged(graph, count, 7, narrow=True) for count in (1, 2)}
    assert all(plan.merges for plan in merged.values())
    assert any(len(plan.wide.get(min(merge), ())) == 2 for plan in merged.values() for merge in plan.merges)
    paths = write_schedules(tmp_path, graph, wide | merged)
    run = run_schedules(files, paths, program=True, devices=2, runs=3, warmup=1)
    for result in run.results:
        assert result.largest_difference <= run.tolerance
        rows = {row.operator: row for row in result.measured}
        assert len(rows) == len(result.measured) == len(graph.operators)
        if result.label in wide:
            devices = {graph.operators[operator].id: held for operator, held in wide[result.label].wide.items()}
            assert {name: row.devices for name, row in rows.items() if row.devices} == devices
            assert all(row.device == row.devices[0] for row in result.measured if row.devices)
        else:
            for merge in merged[result.label].merges:
                assert len({(own.start_ms, own.finish_ms, own.held_devices) for own in _rows(graph, merge, rows)}) == 1


def _rows(graph: Graph, merge: frozenset[int], rows: dict[str, Placement]) -> list[Placement]:
    return [rows[graph.operators[operator].id] for operator in merge]


@two_cores
def test_an_engine_runs_merged_operators(files: Files, graph: Graph) -> None:
    """In a program that keeps its workers, again and again with the same outputs as the plan without merges."""
    tasks = {"apart": Task(one_by_one(graph)), "merged": Task(random_merged(graph, 2, 1))}
    inputs = [torch.randn(tuple(entry.shape), generator=torch.Generator().manual_seed(2)) for entry in graph.inputs]
    with Engine(graph, load_file(files.weights), tasks, [list(own) for own in device_cores(2)]) as engine:
        expected = engine.run("apart", inputs)
        for _ in range(3):
            for value, other in zip(engine.run("merged", inputs), expected, strict=True):
                torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-5)


def test_other_streams_beside_merged_operators_are_refused(graph: Graph) -> None:
    """A program of such a plan has one stream on every device."""
    plan = random_merged(graph, 2, 3, narrow=True)
    first, second = (row[0] for row in plan.devices)
    several = dataclasses.replace(plan, devices=((first[:1], first[1:]), (second,)))
    with pytest.raises(ScheduleError, match="device 0: found 2 streams; allowed: 1, as operators of the schedule"):
        ArenaPlan(graph, 2).program(several)


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "cores_per_device"), [(4, 1), (3, 2)])
def test_sets_of_devices_may_overlap(
    files: Files, graph: Graph, tmp_path: Path, devices: int, cores_per_device: int
) -> None:
    """Operators on any number of virtual devices, in any combination, give correct outputs."""
    paths = write_schedules(tmp_path, graph, {f"wide-{seed}": random_wide(graph, devices, seed) for seed in range(2)})
    run = run_schedules(files, paths, devices=devices, runs=2, virtual=True, cores_per_device=cores_per_device)
    assert run.platform.virtual is (True if devices * cores_per_device > len(usable_cores()) else None)
    assert max(result.largest_difference for result in run.results) <= run.tolerance


@pytest.mark.slow
@two_cores
def test_from_costs_to_outputs(files: Files, graph: Graph, tmp_path: Path) -> None:
    """Costs with widths are measured, scheduled by what knows widths, and the schedules run with right outputs."""
    costs = profile(files.graph, tmp_path / "costs.json", devices=2, widths=(2,), repeats=6, stages_of=[], budget_s=0)
    assert not costs.merges  # there was no time for them
    gaining = {operator: {"2": cost.time_ms / 3} for operator, cost in costs.operators.items()}  # whatever was measured
    operators = {name: replace(cost, wide_ms=gaining[name]) for name, cost in costs.operators.items()}
    merges = tuple(
        MergeCost(operators=names, time_ms=sum(costs.operators[name].time_ms for name in names), wide_ms={"2": 1e-6})
        for merge in merge_candidates(convolutions(graph))
        for names in [tuple(graph.operators[operator].id for operator in sorted(merge))]
    )
    problem = Problem(graph, Costs.of(replace(costs, operators=operators, merges=merges)))
    made = solve(problem, "hios-wide", devices=2)
    assert any(row.devices for row in made.placements)
    assert made.merges
    assert violations(problem, made) == []
    made.write(tmp_path / "hios-wide.json")
    run = run_schedules(files, [tmp_path / "hios-wide.json"], devices=2, runs=2)
    assert run.results[0].largest_difference <= run.tolerance
    assert [row.devices for row in run.results[0].predicted] == [row.devices for row in made.placements]


def test_flags_differ(graph: Graph) -> None:
    """Every wait of a program has a flag of its own, and the first device waits for each of the others."""
    plan = random_wide(graph, 4, seed=5)
    arena = ArenaPlan(graph, 4)
    programs = [program for program in arena.program(plan) if isinstance(program, StepProgram)]
    assert len(programs) == 4
    raised: list[int] = []
    for program in programs:
        for step in program.steps:
            first = step.devices[0] == program.device
            raised += [departure.flag for departure in step.departures]
            raised += [step.done] if first and step.free else [] if first else step.free
            assert len(step.free) == (len(step.devices) - 1 if first else 1)
    assert len(set(raised)) == len(raised)
    assert max(raised) < arena.flags


def test_a_device_steps_aside_once_for_operators_in_a_row(graph: Graph) -> None:
    """Where operators of one first device follow each other on another, that one waits for the last of them only."""
    order = tuple(graph.order)
    middle = len(order) // 2
    wide = dict.fromkeys(order[:middle], (0, 1)) | dict.fromkeys(order[middle:], (1, 0))
    first, second = ArenaPlan(graph, 2).program(StreamPlan(((order,), (order,)), order, wide))
    assert isinstance(first, StepProgram)
    assert isinstance(second, StepProgram)
    assert len(first.steps) == middle + 1
    assert len(second.steps) == 1 + len(order) - middle
    assert second.steps[0].done == first.steps[middle - 1].done
    assert {step.free for step in first.steps[:middle]} == {second.steps[0].free}


def test_schedules_of_gpus_are_narrow(files: Files, graph: Graph, tmp_path: Path) -> None:
    """Where devices are no cores, an operator on several is refused in one line."""
    paths = write_schedules(tmp_path, graph, {"wide": random_wide(graph, 2, seed=0)})
    message = r"wide\.json: placements\[\d+\]\.devices: found 2 devices; allowed where devices are no cores: one; "
    with pytest.raises(HiosError, match=message):
        run_schedules(files, paths, devices=2, platform="cuda")


def _run_spoilt(files: Files, graph: Graph, spoilt: int, how: str, *, wait_s: float, timeout_s: float) -> None:
    """Run a plan once in which all operators take two devices but the first, which is on device 1 alone.

    The operator at a place in the order of the graph is spoilt, wherever it runs.
    """
    order = tuple(graph.order)
    plan = StreamPlan(((order[1:],), (order,)), order, dict.fromkeys(order[1:], (0, 1)))
    name = graph.operators[order[spoilt]].id
    faults.run_spoilt(files, graph, plan, [0, 1], name, how, wait_s=wait_s, timeout_s=timeout_s)


@pytest.mark.slow
@two_cores
@pytest.mark.parametrize("how", faults.MESSAGES)
def test_operators_on_several_devices_are_named(files: Files, graph: Graph, how: str) -> None:
    """Whatever becomes of an operator on two devices, the run ends with one line that names it and the first device."""
    timeout_s = 10.0 if how == "hang" else 300.0
    with pytest.raises(HiosError) as caught:
        _run_spoilt(files, graph, 5, how, wait_s=300.0, timeout_s=timeout_s)
    at = f"{graph.operators[graph.order[5]].id}, stream 0"
    assert str(caught.value) == faults.MESSAGES[how].format(at=at, timeout_s=timeout_s)


@pytest.mark.slow
@two_cores
def test_a_device_that_does_not_step_aside_is_named(files: Files, graph: Graph) -> None:
    """The device that waited in vain says for which operator, and the one that hung is named with where."""
    first, second = (graph.operators[operator].id for operator in graph.order[:2])
    message = (
        rf"^device 0: waited 0\.5 s for (the output of operator {first}|device 1 to be free for operator {second}); "
        rf"device 1 did not answer within 15 s \(run\), last at operator {first}, stream 0; the run was ended$"
    )
    with pytest.raises(PlatformError, match=message):
        _run_spoilt(files, graph, 0, "hang", wait_s=0.5, timeout_s=15.0)


@two_cores
def test_threads_are_pinned_to_the_cores_of_their_devices(files: Files, graph: Graph) -> None:
    """While an operator takes two devices, helpers have the cores of the second; alone, a device has one thread."""
    first, second = usable_cores()[:2]
    with WorkerPool([[first]], Arena(4, 64), 300.0) as pool:
        assert pool.call(0, faults.team, own=[first], cores=[first, second]) == (2, [[second]])
        assert pool.call(0, faults.team, own=[first], cores=[first]) == (1, [[second]])
        assert pool.call(0, faults.team, own=[first], cores=[first, second, second]) == (3, [[second]] * 2)
        assert pool.call(0, faults.team, own=[first], cores=[first, first]) == (2, [[first]])


@two_cores
def test_only_helpers_on_other_devices_are_pinned() -> None:
    """Where devices have two cores, the helper on these stays there, and so does whatever else has threads."""
    own = usable_cores()[:2]
    for others in (own, own[::-1], own[:1] * 2):
        with WorkerPool([own], Arena(4, 64), 300.0) as pool:
            pinned, free = pool.call(0, faults.team_beside_others, own=own, cores=[*own, *others])
        assert pinned == [[core] for core in others]
        assert len(free) > 2
        assert all(cores == sorted(own) for cores in free)
