"""Stages of combined blocks by GPG: valid, for all sub-blocks together, and usable by simulator and servers."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from hios.errors import HiosError
from hios.formats.scenario import Overheads
from hios.formats.settings import TrainingSettings
from hios.schedulers.policy.endings import combined
from hios.schedulers.policy.network import initial_weights, write_policy
from hios.schedulers.policy.training import Pool, train
from hios.serving.pipeline import UnionStage
from hios.serving.policies import pipeline_of
from hios.serving.scenario import Scenario
from hios.serving.simulate import simulate
from hios.serving.stage_times import Device, restricted
from hios.serving.top_pipeline import combined_stages, stages_to_learn
from tests.serving.scenarios import scenario, served, unaccounted, written

_BRANCHES = [[2.0, 1.0, 0.5], [3.0], [1.0, 1.0, 2.0, 0.5]]
_CHAIN = [[1.0], [2.0], [0.5]]
#: Blocks of both models, and two of one model.
_COMBINED = [{"left": (0, 2), "right": (0,)}, {"right": (1, 2)}]


def _given(*, gpu: bool = False, **top: Any) -> Scenario:
    left, right = served("left", _BRANCHES, 40.0), served("right", _CHAIN, 80.0)
    top = {"combined": _COMBINED, "stages": "gpg", **top}
    return scenario(left, right, lanes=1 if gpu else 2, gpu=gpu, duration_s=2.0, top=top)


def _require_valid(given: Scenario, members: tuple[tuple[int, int], ...], stages: list[UnionStage]) -> None:
    """Every operator of the sub-blocks once, none before one that it reads."""
    done: set[tuple[int, int]] = set()
    for stage in stages:
        for place, group in stage:
            model = given.models[members[place][0]]
            for v in group:
                inside = {u for u, _ in model.problem.predecessors[v]} & set(model.blocks[members[place][1]])
                earlier = {u for u in inside if (place, u) in done or group.index(v) > _place(group, u)}
                assert inside == earlier
        done |= {(place, v) for place, group in stage for v in group}
    wanted = {(place, v) for place, (model, block) in enumerate(members) for v in given.models[model].blocks[block]}
    counted = sum(len(group) for stage in stages for _, group in stage)
    assert (done, counted) == (wanted, len(wanted))


def _place(group: tuple[int, ...], v: int) -> int:
    return group.index(v) if v in group else len(group)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("passes", [1, 16])
def test_stages_hold_every_operator_in_order(gpu: bool, passes: int) -> None:
    """Stages of combined blocks are valid as a whole and with any of the sub-blocks left out (D5)."""
    given = _given(gpu=gpu, stage_passes=passes)
    pipeline = pipeline_of(given, "top")
    for members, stages in zip(pipeline.combined, pipeline.stages, strict=True):
        _require_valid(given, members, list(stages))
        for present in range(1, 1 << len(members)):
            kept = [
                tuple((sum(present >> k & 1 for k in range(place)), group) for place, group in stage)
                for stage in restricted(stages, present)
            ]
            there = tuple(member for place, member in enumerate(members) if present >> place & 1)
            _require_valid(given, there, kept)


@pytest.mark.parametrize("gpu", [False, True])
def test_stages_take_no_longer_than_operators_one_after_another(gpu: bool) -> None:
    """Where running together gains nothing, operators run one after another; it never costs time."""
    given = _given(gpu=gpu)
    pipeline, device = pipeline_of(given, "top"), Device(given)
    for members, stages in zip(pipeline.combined, pipeline.stages, strict=True):
        owners = [model for model, _ in members]
        took = sum(device.stage_ms([(owners[place], group) for place, group in stage], given.lanes) for stage in stages)
        alone = sum(
            given.models[model].problem.time[v] for model, block in members for v in given.models[model].blocks[block]
        )
        assert took <= alone + 1e-9


def test_blocks_of_two_models_share_stages() -> None:
    """Two chains on two lanes: GPG runs one beside the other, whichever models they are of."""
    models = [served(label, [[1.0]], 10.0) for label in ("one", "two")]
    given = scenario(*models, lanes=2, top={"combined": [{"one": (0,), "two": (0,)}], "stages": "gpg"})
    (stages,) = pipeline_of(given, "top").stages
    assert [sorted(place for place, _ in stage) for stage in stages] == [[0, 1]]


def test_training_has_the_times_of_serving() -> None:
    """On lanes, stages of a combination take in training what they take in a combined block; sequences as well."""
    given = _given(combined=()).with_settings(overheads=Overheads(stage_ms=0.1))
    problems, stage_time = stages_to_learn(given)
    pool, device = Pool(problems, 3, 8, stage_time), Device(given)
    start = combined(part for block in (pool.blocks[0], pool.blocks[3]) for part in block)
    operators = [(0, 0), (0, 1), (0, 2), (1, 0)]
    alone = sum(device.stage_ms([(model, (v,))], 2) for model, v in operators)
    assert pool.sequential_ms(start) == pytest.approx(alone) == pytest.approx(4.5 + 4 * 0.1)
    seen = set()
    for number in range(start.count):
        stage = start.ending(number).stage
        groups = [(operators[v] if v < 3 else (1, 0)) for (v,) in stage]
        expected = device.stage_ms([(model, (v,)) for model, v in groups], 2)
        assert pool.stage_ms(stage) == pytest.approx(expected)
        seen.add(round(expected, 3))
    assert min(seen) == 0.6
    assert max(seen) == 2.6  # all at once: 2 + 0.5 ms on one lane


def test_training_on_lanes_has_something_to_learn() -> None:
    """Costs of cores say that operators side by side gain nothing; on two lanes they do, and training finds it."""
    left, right = served("left", [[2.0, 2.0], [1.0, 1.0]], 40.0), served("right", [[2.0], [1.0]], 80.0)
    given = scenario(left, right, lanes=2, top={"stages": "gpg"})
    problems, stage_time = stages_to_learn(given)
    settings = TrainingSettings(steps=60, most=2, value_layers=(32, 32))
    shares = [share for _, share in train(problems, settings, stage_time=stage_time).curve]
    assert min(shares) < 0.8
    without = train({model.label: model.problem for model in given.models}, settings)
    assert [share for _, share in without.curve] == pytest.approx([1.0] * len(without.curve))


def test_training_for_a_gpu_has_the_times_of_its_costs() -> None:
    """There the costs say how long a stage takes."""
    given = _given(gpu=True)
    problems, stage_time = stages_to_learn(given)
    assert stage_time is None
    assert list(problems.values()) == [model.problem for model in given.models]


def test_a_policy_decides_without_training(tmp_path: Path) -> None:
    """With weights of hios train the policy chooses; a file that is none is refused."""
    pytest.importorskip("numpy")
    write_policy(tmp_path / "stages.safetensors", initial_weights(3), {})
    path = written(tmp_path, top={"stages": "gpg", "stage_policy": "stages.safetensors", "stage_passes": 1, "most": 2})
    given = Scenario.read(path)
    members = ((0, 0), (1, 0))
    _require_valid(given, members, list(combined_stages(given)(members)))
    written(tmp_path, top={"stages": "gpg", "stage_policy": "nothing.safetensors", "most": 2})
    with pytest.raises(HiosError, match=r"nothing\.safetensors: cannot be read"):
        simulate(Scenario.read(path), "top")


@pytest.mark.parametrize("name", ["top", "top-open"])
def test_tasks_are_conserved(name: str) -> None:
    """A simulation with these stages loses no task, and completes as many as with those of IOS below saturation."""
    given = _given()
    total = simulate(given, name).total
    assert total.completed > 0
    assert unaccounted(total) == 0
    by_ios = simulate(_given(stages="ios"), name).total
    assert abs(total.completed - by_ios.completed) <= 0.05 * by_ios.completed


def test_a_stage_policy_needs_gpg(tmp_path: Path) -> None:
    """A policy of GPG that nothing would read is refused."""
    path = written(tmp_path, top={"stage_policy": "stages.safetensors"})
    with pytest.raises(HiosError, match=r"stage_policy: found stages\.safetensors with stages: ios"):
        Scenario.read(path)


def test_combinations_of_any_two_blocks() -> None:
    """Stages of any two blocks are found, in any order of the sub-blocks."""
    given = _given(stage_passes=4)
    stages = combined_stages(given)
    every = [(number, block) for number, model in enumerate(given.models) for block in range(len(model.blocks))]
    for members in itertools.permutations(every, 2):
        _require_valid(given, members, list(stages(members)))
