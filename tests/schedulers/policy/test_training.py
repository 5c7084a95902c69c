"""Rewards, combinations and training of policies."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from hios import HiosError, Problem, schedule, violations
from hios.errors import ArtifactError
from hios.formats.settings import TrainingSettings
from hios.schedulers.policy.endings import combined_problem, index_of, model_blocks
from hios.schedulers.policy.network import GpgPolicy, initial_weights, read_policy, write_policy
from hios.schedulers.policy.training import REWARDS, Pool, mean_share, reward, train
from tests.convolution_graphs import Conv, conv_problem
from tests.problems import problem

#: Small enough to train in a second.
QUICK = TrainingSettings(steps=30, most=2, value_layers=(32, 32))


def _pair() -> Problem:
    """Two operators of 0.5 ms that take 0.6 ms side by side (TOP.md, D16)."""
    return problem({"a": 0.5, "b": 0.5}, {}, stages={frozenset({("a",), ("b",)}): 0.6})


def _branches() -> Problem:
    """Two blocks of convolutions with branches, which take half of a device each."""
    members = {
        "a": Conv((3, 3), (1, 1)),
        "b": Conv((1, 1)),
        "c": Conv((3, 3), (1, 1), value="a"),
        "d": Conv((1, 1), value="c"),
        "e": Conv((3, 3), (1, 1), value="c"),
    }
    times = {"a": 2.0, "b": 1.0, "c": 3.0, "d": 1.0, "e": 2.0}
    return conv_problem(members, times, utilization=dict.fromkeys(times, 0.3), blocks=["abc", "de"])


def test_rewards_prefer_different_schedules() -> None:
    """The paper's return is greatest for one operator after the other, ours for both together, which take less time."""
    pool = Pool({"pair": _pair()}, 3, 8)
    start = pool.draw(random.Random(0), 1)
    returns: dict[str, dict[int, float]] = {"paper": {}, "relative": {}}
    for first in range(start.count):
        ending = start.ending(first)
        times = [pool.problem.stage_ms(ending.stage)]
        if ending.left.count:
            assert ending.left.count == 1
            times.append(pool.problem.stage_ms(ending.left.ending(0).stage))
        for kind, values in returns.items():
            values[len(times)] = sum(REWARDS[kind] ** step * reward(kind, time, 1.0) for step, time in enumerate(times))
    assert returns["paper"] == pytest.approx({1: 0.5488, 2: 1.1827}, abs=1e-4)
    assert returns["relative"] == pytest.approx({1: -0.6, 2: -1.0})


@pytest.mark.parametrize(("kind", "stages"), [("paper", 2), ("relative", 1)])
def test_training_follows_its_reward(kind: Literal["paper", "relative"], stages: int) -> None:
    """On the pair, the policy that learns from the paper's reward runs two stages, that of ours one."""
    settings = TrainingSettings(steps=800, most=1, reward=kind, value_layers=(64, 64))
    pool = Pool({"pair": _pair()}, 3, 8)
    start = pool.draw(random.Random(0), 1)
    policy = GpgPolicy(train({"pair": _pair()}, settings).last)
    action = policy.action(policy.embed(pool.structure), start.leaves)
    assert len(start.ending(index_of(action, start.count)).stage) == 3 - stages


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    """Two trainings with one seed write equal files, one with another seed does not."""
    files = []
    for number, seed in enumerate((5, 5, 6)):
        path = tmp_path / f"{number}.safetensors"
        policy = train({"net": _branches()}, TrainingSettings(steps=20, most=2, seed=seed, value_layers=(32, 32)))
        write_policy(path, policy.weights, policy.facts)
        files.append(path.read_bytes())
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_the_best_policy_is_kept() -> None:
    """The weights are those of the least point of the curve."""
    policy = train({"net": _branches()}, QUICK)
    assert [step for step, _ in policy.curve] == [0, QUICK.steps]
    pool = Pool({"net": _branches()}, 3, 8)
    chance = random.Random(QUICK.seed)
    judges = [pool.draw(chance, QUICK.most) for _ in range(64)]
    assert mean_share(pool, GpgPolicy(policy.weights), judges) == pytest.approx(min(share for _, share in policy.curve))


def test_schedule_with_trained_weights(tmp_path: Path) -> None:
    """`gpg` takes the file of a training, and its first pass is what the policy says."""
    path = tmp_path / "policy.safetensors"
    policy = train({"net": _branches()}, QUICK)
    write_policy(path, policy.weights, policy.facts)
    for passes in (1, 16):
        made = schedule(_branches(), "gpg", parameters={"weights": str(path), "passes": passes})
        assert violations(_branches(), made) == []
        assert made.latency_ms <= 9.0


def test_combined_problem() -> None:
    """Blocks of two models side by side: labels, edges within blocks only, measured stages within a block."""
    blocks = [*model_blocks("one", _branches()), *model_blocks("two", _pair())]
    assert [[block.problem.ids[v] for v in block.operators] for block in blocks] == [
        ["a", "b", "c"],
        ["d", "e"],
        ["a", "b"],
    ]
    combined = combined_problem([blocks[0], blocks[-1]])
    assert combined.ids[:3] == ["one/a", "one/b", "one/c"]
    assert {(edge.source, edge.target) for edge in combined.graph.edges} == {("one/a", "one/c")}
    assert combined.convolutions[0] is not None
    assert len(combined.graph.blocks) == 1
    again = combined_problem([block for block in blocks if block.label == "one"], one_block=False)
    assert [len(block) for block in again.graph.blocks] == [3, 2]
    assert again.time == _branches().time


def test_models_with_other_contention_are_refused() -> None:
    """Operators that share a device follow one model of contention."""
    other = problem({"a": 1.0}, {}, contention="none")
    with pytest.raises(HiosError, match="different contention models"):
        train({"one": _branches(), "two": other}, QUICK)


def test_nothing_to_learn_from() -> None:
    """Operators without time teach nothing."""
    with pytest.raises(HiosError, match="no operator that takes any time"):
        train({"net": problem({"a": 0.0}, {})}, QUICK)


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """Files that are missing, no safetensors, or of other sizes are errors with what to do."""
    path = tmp_path / "policy.safetensors"
    with pytest.raises(ArtifactError, match="cannot be read"):
        read_policy(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(ArtifactError, match="damaged or not a safetensors file"):
        read_policy(path)
    weights = {**initial_weights(0), "mu.0.weight": np.zeros((1, 2), np.float32)}
    write_policy(path, weights, {})
    with pytest.raises(ArtifactError, match=r"mu\.0\.weight: found shape \[1, 2\]; required: shape \[32, 500\]"):
        read_policy(path)
