"""A scenario under a policy, simulated: the contents of result.json.

Every policy under every launcher on the same tasks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hios.core.sums import add_up
from hios.errors import HiosError
from hios.formats.serving_result import ComparedPolicy, ResultFile
from hios.serving.calibration import with_interference, with_jitter_of
from hios.serving.measures import RepeatOutcome, result
from hios.serving.objective import brief, candidate_of, order
from hios.serving.pipeline import Pipeline
from hios.serving.policies import (
    AUTO,
    LAUNCHERS,
    LEARNED,
    LEARNED_POLICIES,
    POLICIES,
    launched,
    launchers_of,
    pipeline_of,
    policies_of,
)
from hios.serving.scenario import Scenario, draw
from hios.serving.simulator import Simulation, has_numba

#: Repeats that no result is made of, as their numbers are larger than any that a scenario asks for.
HELD_OUT = range(1_000_000, 1_000_003)
#: Gives what becomes of the tasks of some repeats under a policy and a launcher, both by name.
Run = Callable[[str, str, Sequence[int]], list[RepeatOutcome]]
#: Is told how far a long simulation has come, in words.
Tell = Callable[[str], None]


def no_one(text: str) -> None:
    """Tell no one."""


def compare(
    scenario: Scenario,
    run: Run,
    policies: Iterable[str] | None = None,
    launcher: str | None = None,
    tell: Tell = no_one,
) -> list[ComparedPolicy]:
    """All policies on held-out traces, best first by the scenario's objective (`hios.serving.objective`).

    Arrivals from a file are the same in every repeat: then nothing is held out. If ``policies`` is None, they are all,
    those of a trained launcher included where the scenario names one; the launcher is that of the scenario if None, and
    ``auto`` compares every policy under every launcher. ``tell`` is told of each as soon as its result is there.

    Raises:
        HiosError: no policy can run the scenario.
    """
    candidates, left_out = [], []
    for policy in policies_of(scenario) if policies is None else policies:
        try:
            launchers = launchers_of(policy, launcher or scenario.file.launcher)
            for own in launchers:
                outcomes = run(policy, own, HELD_OUT)
                candidates.append(candidate_of(result(scenario, policy, own, outcomes, simulated=True)))
                tell(f"{policy}, launcher {own}, on other traces: {brief(candidates[-1])}")
        except HiosError as error:
            left_out.append(ComparedPolicy(policy=policy, goodput_per_s=0.0, left_out=str(error)))
    if not candidates:
        raise HiosError(f"{scenario.source}: policy auto: no policy can run this; {left_out[0].left_out}")
    return [candidates[place] for place in order(candidates, scenario.file.objective)] + left_out


#: From so many block runs on, numba compiles the simulator where it is installed, which changes nothing but the time;
#: loading it takes a while.
_MANY_RUNS = 50_000


def simulate(scenario: Scenario, policy: str, *, launcher: str | None = None, tell: Tell = no_one) -> ResultFile:
    """Simulate all repeats of a scenario under a policy and a launcher, by name; the scenario's launcher if None.

    ``tell`` is told of every candidate of ``auto``.

    Raises:
        HiosError: no such policy, or one that has no times for the scenario's device.
    """
    choice = choose(scenario, policy, launcher, tell=tell)
    outcomes = outcomes_of(scenario, choice.policy, choice.launcher, range(scenario.file.repeats))
    return result(
        scenario,
        policy,
        choice.launcher,
        outcomes,
        simulated=True,
        calibrated=scenario.calibration is not None,
        chosen=choice.policy if policy == AUTO else None,
        candidates=choice.candidates,
    )


@dataclass(frozen=True)
class ChosenPolicy:
    """What runs for a policy and a launcher of which at least one may be ``auto``, by name.

    ``candidates`` are all that were compared, the best one first; none if there was nothing to choose.
    """

    policy: str
    launcher: str
    candidates: tuple[ComparedPolicy, ...] = ()


def choose(scenario: Scenario, policy: str, launcher: str | None = None, *, tell: Tell = no_one) -> ChosenPolicy:
    """Choose what ``auto`` stands for, as policy or launcher: the best on held-out traces, simulated.

    Raises:
        HiosError: no policy can run the scenario.
    """
    launcher = launcher or scenario.file.launcher
    launchers = launchers_of(policy, launcher)
    if policy != AUTO and len(launchers) == 1:
        return ChosenPolicy(policy, launchers[0])
    made = functools.cache(functools.partial(_pipeline, scenario))
    run = functools.partial(outcomes_of, scenario, made=made)
    waiting = [name for name, own in POLICIES.items() if own.strict]
    compared = [name for name in policies_of(scenario) if name not in waiting] if policy == AUTO else [policy]
    candidates = tuple(compare(scenario, run, compared, launcher, tell))
    best = candidates[0]
    return ChosenPolicy(best.policy, best.launcher or launcher, candidates)


def outcomes_of(
    scenario: Scenario,
    policy: str,
    launcher: str,
    repeats: Sequence[int],
    made: Callable[[str], Pipeline] | None = None,
) -> list[RepeatOutcome]:
    """What becomes of the tasks of some traces under a policy and a launcher, neither of them ``auto``."""
    if policy == LEARNED:
        from hios.serving.launcher.online_launcher import OnlineLauncher, launcher_of

        return OnlineLauncher(scenario, launcher_of(scenario)).outcomes(repeats)
    pipeline, queues = launched(scenario, made(policy) if made else _pipeline(scenario, policy), launcher)
    expected = add_up(model.rate * count for model, count in zip(scenario.models, pipeline.blocks, strict=True))
    compiled = expected * scenario.duration_s * len(repeats) >= _MANY_RUNS and has_numba()
    outcomes = []
    for repeat in repeats:
        own = with_jitter_of(pipeline, repeat)
        simulation = Simulation(own, queues, draw(scenario, repeat), scenario.duration_s, compiled=compiled)
        simulation.run_to(scenario.duration_s)
        outcomes.append(simulation.outcome())
    return outcomes


def _pipeline(scenario: Scenario, policy: str) -> Pipeline:
    """The pipeline of a policy, which is slowed down as the scenario's calibration says."""
    return with_interference(pipeline_of(scenario, policy), scenario)


#: In place of the name of a policy or of a launcher.
ALL = "all"


@dataclass(frozen=True)
class PolicyGrid:
    """Results by policy and launcher, in the order in which they were asked for; by policy, why it cannot run."""

    results: Mapping[tuple[str, str], ResultFile]
    left_out: Mapping[str, str]


def simulate_grid(scenario: Scenario, policy: str, launcher: str | None, *, tell: Tell = no_one) -> PolicyGrid:
    """Simulate a policy under a launcher, or ``all`` of them, with the same tasks; HiosError if none can run them.

    The launcher is that of the scenario if None. Policies of a trained launcher have intervals of their own, so they
    run once.
    """
    launchers = list(LAUNCHERS) if launcher == ALL else [launcher or scenario.file.launcher]
    results: dict[tuple[str, str], ResultFile] = {}
    left_out: dict[str, str] = {}
    for name in policies_of(scenario) if policy == ALL else [policy]:
        for own in launchers[:1] if name in LEARNED_POLICIES else launchers:
            try:
                result = simulate(scenario, name, launcher=own, tell=tell)
            except HiosError as error:
                left_out[name] = str(error)
                break
            # auto may choose learned, which has its own launcher, under every one that was asked for.
            by = result.launcher if own == AUTO or name in LEARNED_POLICIES else own
            results[name, by] = result
            tell(f"{name}, launcher {by}: goodput {result.goodput_per_s:.4g} tasks/s")
    if not results:
        raise HiosError("; ".join(left_out.values()))
    return PolicyGrid(results, left_out)
