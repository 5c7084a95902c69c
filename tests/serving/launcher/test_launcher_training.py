"""Training a launcher: what is learned, what it is compared with, and that the same seed gives the same."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hios.errors import HiosWarning
from hios.serving.launcher.actions import ActionSpace, Launcher, LauncherDecision
from hios.serving.launcher.environment import EPISODE, Decisions, LauncherEnvironment
from hios.serving.launcher.launcher_settings import AS_PRINTED, LauncherSettings, settings_of
from hios.serving.launcher.online_launcher import OnlineLauncher
from hios.serving.launcher.training import Judge, _Training, best_static, promising, random_search, train_launcher
from hios.serving.pipeline import SubBlock
from hios.serving.scenario import Scenario
from hios.serving.simulate import HELD_OUT
from hios.serving.simulator import StepMeasures
from tests.serving.scenarios import scenario, served

#: Sizes with which a training takes about a second.
_QUICK: dict[str, Any] = {
    "steps": 60,
    "step_s": 0.5,
    "samples": 3,
    "replay": 30,
    "batch": 20,
    "alone": 5,
    "value_layers": (16,),
    "policy_layers": (16,),
    "judged_every": 20,
}


def _scenario(**settings: Any) -> Scenario:
    """Two models of two blocks each, at three quarters of what two lanes can do."""
    left = served("left", [[2.0, 2.0], [4.0]], 120.0, slo_ms=60.0)
    right = served("right", [[1.0], [2.0]], 180.0, slo_ms=40.0)
    return scenario(left, right, **{"lanes": 2, "duration_s": 4.0, **settings})


def _begun(**changes: Any) -> tuple[Scenario, LauncherSettings, ActionSpace, LauncherDecision]:
    """The scenario, settings of a quick training, what actions mean, and the decision that combines nothing."""
    given, settings = _scenario(**changes), LauncherSettings(**_QUICK)
    space = ActionSpace.of(given, settings)
    return given, settings, space, space.decision(space.alone())


@pytest.mark.parametrize("changes", [{}, {**AS_PRINTED, "exploration": "all"}])
def test_same_seed_same_file(changes: dict[str, Any], tmp_path: Path) -> None:
    """The same seed gives the same bytes, also by Algorithm 1 as printed; another seed does not."""
    files = []
    for place, seed in enumerate((0, 0, 1)):
        settings = LauncherSettings(**{**_QUICK, **changes, "steps": 40, "seed": seed})
        launcher = train_launcher(_scenario(duration_s=1.0), settings)
        launcher.write(tmp_path / str(place))
        files.append((tmp_path / str(place)).read_bytes())
    assert files[0] == files[1]
    assert files[0] != files[2]


def test_too_few_steps_are_told() -> None:
    """A training that ends before its actors learn says from which step on they do; they do from there on."""
    given = _scenario(duration_s=1.0)
    settings = LauncherSettings(**{**_QUICK, "steps": 34, "start": "alone"})
    with pytest.warns(HiosWarning, match=r"^steps: found 34; actors learn from step 35 on"):
        train_launcher(given, settings, compared=False)
    with warnings.catch_warnings(action="error"):
        train_launcher(given, dataclasses.replace(settings, steps=35), compared=False)
    training = _Training(given, settings)
    before = training._agents.weights()
    for step in range(1, 36):
        training._step(0.5)
        same = all(np.array_equal(value, before[name]) for name, value in training._agents.weights().items())
        assert same == (step < 35)


def test_what_is_deployed_is_the_best(tmp_path: Path) -> None:
    """All policies are compared on held-out traces with what was learned; the file says which is best."""
    told: list[tuple[int, float | None]] = []
    launcher = train_launcher(_scenario(), LauncherSettings(**_QUICK), lambda *how: told.append(how))
    assert [step for step, _ in told] == list(range(61))
    assert [(step, goodput) for step, goodput in told if goodput is not None] == list(launcher.curve)
    assert [step for step, _ in launcher.curve] == [0, 40, 60]
    launcher.write(tmp_path / "launcher.safetensors")
    read = Launcher.read(tmp_path / "launcher.safetensors")
    assert (read.space, read.settings, read.static) == (launcher.space, launcher.settings, launcher.static)
    assert (read.curve, read.facts) == (launcher.curve, launcher.facts)
    rows = launcher.facts["candidates"]
    assert {"learned", "learned-static", "one-per-lane", "top"} <= {row["policy"] for row in rows}
    assert launcher.facts["deployed"] == rows[0]["policy"]
    assert {row["launcher"] for row in rows} == {"open", "learned"}
    worst = [min(model["fair_share"] for model in row["models"].values()) for row in rows]
    assert worst[0] >= max(worst) * 0.99
    assert 0 <= launcher.facts["superblocks"] < 1


def test_superblocks_change_nothing() -> None:
    """A decision with more than H sub-blocks: nothing runs, the state stays, and there is nothing to measure."""
    given, settings, space, alone = _begun()
    environment = LauncherEnvironment(given, settings, alone)
    state, measures = environment.step(alone)
    assert measures is not None
    assert len(measures.row) == 4
    assert state.shape == (3 * (2 + 4),)
    after, nothing = environment.step(dataclasses.replace(alone, combined=(tuple(space.members),)))
    assert nothing is None
    assert (after == state).all()
    for _ in range(EPISODE):
        again, measures = environment.step(alone)
    assert measures is not None
    assert (again != state).any()


def test_as_printed_chooses_stages_by_gpg() -> None:
    """Line 11 of Algorithm 1 is Algorithm 2, in one pass, whatever stages the scenario has."""
    given, settings, _, alone = _begun()
    assert AS_PRINTED["stages"] == "gpg"
    printed = Decisions(given, dataclasses.replace(settings, stages="gpg"))
    one_pass = Decisions(given.with_top(stages="gpg", stage_passes=1), settings)
    for decision in (alone, dataclasses.replace(alone, combined=(((0, 0), (1, 1)), ((0, 1), (1, 0))))):
        assert printed.pipeline(decision).stages == one_pass.pipeline(decision).stages
    assert printed.scenario.file.top.stages == "gpg"
    assert Decisions(given, settings).scenario.file.top.stages == "ios"


def test_no_step_links_two_episodes() -> None:
    """The state after the last step of an episode is its own; the next step begins where nothing has happened."""
    given, settings, _, alone = _begun()
    environment = LauncherEnvironment(given, settings, alone)
    for number in range(2 * EPISODE + 1):
        first = number % EPISODE == 0
        assert (environment.state == 0).all() == first
        after, measures = environment.step(alone)
        assert measures is not None
        assert (after != 0).any()


def test_an_episode_of_a_file_is_no_longer_than_the_file() -> None:
    """Of arrivals from a file, those of the scenario's duration come again and again; no step has none."""
    given, settings, _, alone = _begun()
    duration_s = 12 * settings.step_s
    rows = tuple((0.5 * settings.step_s * number, number % len(given.models)) for number in range(100))
    environment = LauncherEnvironment(
        dataclasses.replace(given.with_settings(duration_s=duration_s), rows=rows), settings, alone
    )
    for _ in range(2 * EPISODE):
        _, measures = environment.step(alone)
        assert measures is not None
        assert measures.utilisation > 0
    assert environment._episodes == 1 + 2 * EPISODE // 12


def test_few_parts_keep_to_the_limit() -> None:
    """With fewer parts than blocks, what is learned and what is held have no combined block above H."""
    given = _scenario(duration_s=1.0)
    launcher = train_launcher(given, LauncherSettings(**{**_QUICK, "intervals": 2, "exploration": "all", "steps": 40}))
    assert launcher.static.largest <= 2
    assert OnlineLauncher(given, launcher).first().largest <= 2


def test_superblocks_are_no_candidates() -> None:
    """The best static decision is one of at most H sub-blocks, whatever a superblock would bring."""
    given, settings, space, alone = _begun(duration_s=1.0)
    superblock = dataclasses.replace(alone, combined=(tuple(space.members),))
    held_back = dataclasses.replace(alone, intervals_s=(1.0, 1.0))
    judge = Judge(given, settings)
    assert judge.best([judge.static(held_back), judge.static(superblock)]) == 1
    assert best_static(judge, [superblock, held_back, superblock])[0] == held_back


@pytest.mark.parametrize(("objective", "by"), [("reward", "fair"), ("throughput", None)])
def test_where_learning_begins_on_a_gpu(objective: str, by: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighboring blocks combined are among the decisions it may begin with; by the paper's reward with the fairest."""
    training = _Training(_scenario(lanes=1, objective=objective, gpu=True), LauncherSettings(**_QUICK))
    asked = []

    def second(judge: Judge, decisions: list[LauncherDecision], by: str | None = None) -> tuple[LauncherDecision, None]:
        asked.append(by)
        return decisions[1], None

    monkeypatch.setattr("hios.serving.launcher.training.best_static", second)
    while not training._replay.full:
        training._step(0.0)
    assert asked == [by]
    assert training._searched.combined == (((0, 0), (0, 1)), ((1, 0), (1, 1)))


@pytest.mark.parametrize(("scores", "same"), [("frozen", True), ("running", False)])
def test_rewards_of_the_past(scores: str, same: bool) -> None:
    """With frozen scores the reward of a stored step never changes, with running ones it does; superblocks have 0."""
    settings = LauncherSettings(
        **{**_QUICK, "exploration": "all", "noise_first": 1.0, "start": "alone", "scores": scores}
    )
    training = _Training(_scenario(), settings)
    for _ in range(settings.replay):
        training._step(0.0)
    batch = training._replay.drawn(20, np.random.default_rng(0))
    assert batch.superblock.any()
    assert not batch.superblock.all()
    before = training._rewards(batch)
    for _ in range(10):
        training._step(0.5)
    after = training._rewards(batch)
    assert (after == before).all() == same
    assert (after[batch.superblock] == 0).all()
    assert (after[~batch.superblock] > 0).all()


def _partitions(members: list[SubBlock], most: int) -> Iterator[list[list[SubBlock]]]:
    """All ways to combine blocks, up to a given number together."""
    if not members:
        yield []
        return
    first, rest = members[0], members[1:]
    for size in range(most):
        for others in itertools.combinations(rest, size):
            left = [member for member in rest if member not in others]
            for partition in _partitions(left, most):
                yield [[first, *others], *partition]


@pytest.mark.slow
def test_learning_reaches_the_best_static_policy() -> None:
    """Of all ten ways to combine four blocks, with 5 x 5 intervals each, the best; learned has 95 % of it.

    One combined block runs at a time, so a lane is idle unless two blocks of about equal time run together. The first
    policy, which combines nothing, is far from the best. Nothing was learned or chosen on the trace that judges.

    What gets there is the search among the decisions of the training (``start: searched``). From the first policy
    (``start: alone``), the few gradient steps of this size lead nowhere.
    """
    left = served("left", [[4.0], [2.0]], 110.0, slo_ms=60.0, deadline_ms=60.0)
    right = served("right", [[2.0], [4.0]], 110.0, slo_ms=60.0, deadline_ms=60.0)
    given = scenario(left, right, lanes=2, duration_s=10.0, objective="throughput")
    settings = settings_of("small", {}, device="top")
    space = ActionSpace.of(given, settings)
    judge = Judge(given, settings, HELD_OUT[:1])
    partitions = [tuple(map(tuple, own)) for own in _partitions(space.members, 2)]
    assert len(partitions) == 10
    numbers = [0.0, 0.25, 0.5, 0.75, 1.0]
    every = [
        LauncherDecision(space.decision([*intervals, *[0.0] * 4]).intervals_s, combined)
        for combined in partitions
        for intervals in itertools.product(numbers, numbers)
    ]
    goodputs = [judge.static(decision).goodput_per_s for decision in every]
    best = max(goodputs)
    assert judge.static(space.decision(space.alone())).goodput_per_s < 0.6 * best
    assert sum(goodput >= 0.95 * best for goodput in goodputs) < 20
    for seed in range(2):
        launcher = train_launcher(given, settings_of("small", {}, device="top", seed=seed), compared=False)
        assert judge.online(launcher).goodput_per_s >= 0.95 * best
        assert judge.static(launcher.static).goodput_per_s >= 0.95 * best


def test_random_search() -> None:
    """The search without learning has decisions without superblocks, and is at least as good as its first one."""
    given, settings, _, alone = _begun()
    judge = Judge(given, settings)
    decision, value = random_search(given, settings, judge)
    assert decision.largest <= settings.most
    assert judge.best([value, judge.static(alone)]) == 0
    assert judge.static(decision) == value


def test_a_hopeless_model_decides_nothing_of_what_is_promising() -> None:
    """Where no step served a model, those come first that served the others fairly, though others did more work."""
    models = [served(label, [[5.0]], 100.0) for label in ("hopeless", "small", "large")]
    settings = LauncherSettings(**{**_QUICK, "step_s": 1.0})
    seen = [
        (LauncherDecision((float(number), 0.0, 0.0), (((0, 0),),)), StepMeasures(0.5, (1.0, 1.0, 1.0), 0.0, good))
        for number, good in enumerate([(0, 1, 66), (0, 30, 30), (0, 60, 2), (0, 31, 29)])
    ]
    best = promising(scenario(*models, lanes=1), seen, settings)
    assert [int(decision.intervals_s[0]) for decision in best[:2]] == [1, 3]
