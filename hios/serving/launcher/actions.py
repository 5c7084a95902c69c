"""A trained launcher: the state that its agents see, what their actions mean (TOP, section V-B), and its file.

Actions are numbers in [0, 1] for intervals of the queues and combined blocks; the state is inference progress and
queues, sampled at random moments. The safetensors file has the actors, what they were trained for, and what came of it.
"""

from __future__ import annotations

import itertools
import json
import math
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from hios.errors import ArtifactError, HiosError
from hios.files.artifacts import Json
from hios.formats.scenario import LEAST_INTERVAL_S
from hios.schedulers.policy.network import Array, Perceptron, Weights, read_weights, write_weights
from hios.serving.launcher.launcher_settings import LauncherSettings
from hios.serving.pipeline import Pipeline, QueueRules, SubBlock
from hios.serving.scenario import Scenario
from hios.serving.stage_times import least_work_s

#: Intervals are at most a second: the least rate at which a queue is emptied is one task a second (TOP, section V-B).
LONGEST_S = 1.0
#: The shortest useful interval is this share of the time that all lanes together need for a task at least.
_SHORTEST = 0.25


@dataclass(frozen=True)
class LauncherDecision:
    """What the agents decide together: seconds between two tasks of every model, and the combined blocks."""

    intervals_s: tuple[float, ...]
    combined: tuple[tuple[SubBlock, ...], ...]

    @property
    def largest(self) -> int:
        """Sub-blocks of the largest combined block."""
        return max(map(len, self.combined))


@dataclass(frozen=True)
class ActionSpace:
    """What actions mean. Agent 0 has a number for every model, agent i one for every block of model i.

    Attributes:
        blocks: number of blocks of every model.
        parts: parts of [0, 1]; blocks whose numbers fall into the same part are one combined block (K).
        shortest_s: by model, the shortest interval.
        rates: by model, tasks that arrive in a second.
        log: whether intervals are on a log scale from the shortest one (0) to 1 s (1); else they are the numbers
            themselves, in seconds, but at least 0.1 ms: 0 would be no interval.
    """

    blocks: tuple[int, ...]
    parts: int
    shortest_s: tuple[float, ...]
    rates: tuple[float, ...]
    log: bool = True

    @classmethod
    def of(cls, scenario: Scenario, settings: LauncherSettings) -> ActionSpace:
        """The actions of a scenario; HiosError if with so few parts combined blocks are always larger than H."""
        blocks = tuple(len(model.blocks) for model in scenario.models)
        parts, least = settings.intervals or sum(blocks), math.ceil(sum(blocks) / settings.most)
        if parts < least:
            raise HiosError(
                f"intervals: found {parts} for {sum(blocks)} blocks; allowed: at least {least}, as combined blocks "
                f"have at most {settings.most} of them (most), or 0: as many as there are blocks"
            )
        work = [least_work_s(model, gpu=scenario.gpu) for model in scenario.models]
        shortest = tuple(min(LONGEST_S, max(LEAST_INTERVAL_S, _SHORTEST * own / scenario.lanes)) for own in work)
        rates = tuple(model.rate for model in scenario.models)
        return cls(blocks, parts, shortest, rates, settings.interval_scale == "log")

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many numbers every agent has."""
        return (len(self.blocks), *self.blocks)

    @property
    def total(self) -> int:
        """How many numbers all agents have."""
        return sum(self.sizes)

    @property
    def members(self) -> list[SubBlock]:
        """All blocks, in the order of the agents' numbers."""
        return [(model, block) for model, count in enumerate(self.blocks) for block in range(count)]

    def decision(self, actions: Sequence[float] | Array) -> LauncherDecision:
        """What the numbers of all agents, one after another, mean."""
        numbers = [min(1.0, max(0.0, float(number))) for number in actions]
        count = len(self.blocks)
        intervals = tuple(self._interval_s(model, number) for model, number in enumerate(numbers[:count]))
        by_part: dict[int, list[SubBlock]] = {}
        for number, member in zip(numbers[count:], self.members, strict=True):
            by_part.setdefault(min(self.parts - 1, int(number * self.parts)), []).append(member)
        return LauncherDecision(intervals, tuple(tuple(by_part[part]) for part in sorted(by_part)))

    def _interval_s(self, model: int, number: float) -> float:
        shortest = self.shortest_s[model]
        if self.log:
            return float(shortest ** (1 - number) * LONGEST_S**number)
        return max(number, LEAST_INTERVAL_S)

    def number_of(self, model: int, interval_s: float) -> float:
        """The number that means an interval."""
        shortest = self.shortest_s[model]
        if not self.log:
            return interval_s
        if shortest >= LONGEST_S:
            return 0.0
        return min(1.0, max(0.0, math.log(interval_s / shortest) / math.log(LONGEST_S / shortest)))

    def alone(self) -> Array:
        """Actions that combine as little as there are parts for, and empty the queues twice as fast as tasks arrive."""
        intervals = [0.5 / rate if rate > 0 else LONGEST_S for rate in self.rates]
        first = [self.number_of(model, min(LONGEST_S, interval)) for model, interval in enumerate(intervals)]
        blocks = [(place % self.parts + 0.5) / self.parts for place in range(sum(self.blocks))]
        return np.array([*first, *blocks])

    def numbers(self, decision: LauncherDecision) -> Array:
        """Actions that mean a decision of at most as many combined blocks as there are parts.

        A combined block is where its first block is in those of `alone`, if it can be.
        """
        numbers = self.alone()
        count = len(self.blocks)
        place = {member: number for number, member in enumerate(self.members)}
        numbers[:count] = [self.number_of(model, interval) for model, interval in enumerate(decision.intervals_s)]
        free = dict.fromkeys(range(self.parts))
        for members in decision.combined:
            wanted = place[members[0]] % self.parts
            part = wanted if wanted in free else next(iter(free))
            del free[part]
            numbers[[count + place[member] for member in members]] = (part + 0.5) / self.parts
        return numbers

    def drawn(self, chance: random.Random, most: int) -> LauncherDecision:
        """A random decision without superblocks: what a search without learning tries."""
        combined: list[list[SubBlock]] = []
        for member in chance.sample(self.members, len(self.members)):
            room = [own for own in combined if len(own) < most]
            if room and chance.random() < 0.5:
                chance.choice(room).append(member)
            else:
                combined.append([member])
        intervals = tuple(self._interval_s(model, chance.random()) for model in range(len(self.blocks)))
        return LauncherDecision(intervals, tuple(tuple(sorted(own)) for own in combined))


def bounds(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """Where the numbers of every agent begin and end among those of all."""
    return list(itertools.pairwise(itertools.accumulate(sizes, initial=0)))


class Watched(Protocol):
    """What a launcher observes and controls: a simulation in steps (``simulator.Simulation``), or a server."""

    @property
    def now(self) -> float:
        """Seconds since the beginning; infinite once it is over."""

    def run_to(self, until_s: float) -> None:
        """Advance the time to a moment."""

    def lengths(self) -> list[int]:
        """Tasks in every queue."""

    def progress(self) -> list[bool]:
        """Of every block of all models, whether an instance waits before it or runs in it (P_t)."""

    def waits_s(self) -> float:
        """Mean time since the arrival of the tasks that wait in the queues; 0 without any."""

    def change(self, pipeline: Pipeline, queues: Sequence[QueueRules]) -> None:
        """Switch to other combined blocks and intervals."""


def row(progress: Sequence[bool], lengths: Sequence[int]) -> list[float]:
    """A sample: 1 for each block that holds an instance, 0 for others; then queues as deviations from their mean."""
    mean = sum(lengths) / len(lengths)
    return [*map(float, progress), *(length - mean for length in lengths)]


def state_size(blocks: Sequence[int], samples: int) -> int:
    """Numbers of a state, n x (W + sum B_i)."""
    return samples * (len(blocks) + sum(blocks))


def sampled(steps: Watched, until_s: float, samples: int, chance: random.Random) -> Array:
    """Go on to a moment, and take samples at random moments on the way: the state, samples one after another."""
    begin = steps.now
    rows: list[float] = []
    for moment in sorted(begin + (until_s - begin) * chance.random() for _ in range(samples)):
        steps.run_to(moment)
        rows += row(steps.progress(), steps.lengths())
    steps.run_to(until_s)
    return np.array(rows, np.float32)


def squeezed(state: Array) -> Array:
    """sign(x) ln(1 + |x|), so that a queue of hundreds does not drown the blocks."""
    logarithms: Array = np.sign(state) * np.log1p(np.abs(state))
    return logarithms


#: The one key of the metadata: several would be written in any order, and equal launchers give equal files.
_KEY = "hios-launcher"


@dataclass(frozen=True)
class Launcher:
    """What was learned.

    Attributes:
        actors: weights of the actors by name; networks of `hios.schedulers.policy.network`.
        static: the best decision among those that were tried, held throughout: what learning has to beat.
        models: labels with the number of operators of every block.
        lanes: of the device; 0: a GPU.
        curve: steps, and goodput a second of the policy on the traces that judge.
        facts: what else is kept: load, comparison on held-out traces, the policy to use.
    """

    actors: Weights
    space: ActionSpace
    settings: LauncherSettings
    static: LauncherDecision
    models: dict[str, list[int]]
    lanes: int
    curve: tuple[tuple[int, float], ...] = ()
    facts: Json = field(default_factory=dict)

    def act(self, states: Array) -> Array:
        """Actions of all agents in rows, in numpy: as ``maddpg.Agents.act``."""
        if self.settings.deviations == "log":
            states = squeezed(states)
        logits = [
            Perceptron(self.actors, f"actor{agent}", last=False)(states) for agent in range(len(self.space.sizes))
        ]
        actions: Array = 1 / (1 + np.exp(-np.concatenate(logits, axis=1)))
        return actions

    def decide(self, state: Array) -> LauncherDecision:
        """What the agents decide in a state."""
        return self.space.decision(self.act(state[None])[0])

    def write(self, path: str | Path) -> None:
        """Write the launcher; equal ones give equal bytes."""
        facts = {name: value for name, value in asdict(self).items() if name != "actors"}
        write_weights(path, self.actors, _KEY, facts)

    @classmethod
    def read(cls, path: str | Path) -> Launcher:
        """A launcher from its file; ArtifactError if that is missing, damaged, or not a launcher."""
        actors, metadata = read_weights(path)
        if _KEY not in metadata:
            raise ArtifactError(
                f"{path}: found no launcher; required: a file that hios train --learn launcher wrote, which is not one "
                "of the algorithm gpg"
            )
        try:
            return _of(json.loads(metadata[_KEY]), actors)
        except (HiosError, ValueError, KeyError, TypeError) as error:
            raise ArtifactError(f"{path}: written by another version of hios ({error}); train it again") from error

    def require(self, scenario: Scenario, path: str | Path) -> None:
        """Refuse a scenario with other models, blocks or device than the launcher was trained for; rates may differ."""
        theirs = blocks_of(scenario)
        for what, stated, required in (
            ("models", self.models, theirs),
            ("device", self.lanes, 0 if scenario.gpu else scenario.lanes),
        ):
            if stated != required:
                raise ArtifactError(
                    f"{path}: {what}: found {_shown(stated)}; required by {scenario.source}: {_shown(required)}; train "
                    "a launcher on this scenario (hios train --learn launcher)"
                )


def blocks_of(scenario: Scenario) -> dict[str, list[int]]:
    """Labels of the models with the number of operators of every block."""
    return {model.label: [len(block) for block in model.blocks] for model in scenario.models}


def _shown(value: dict[str, list[int]] | int) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{label} ({len(blocks)} blocks, {sum(blocks)} operators)" for label, blocks in value.items())
    return f"{value} lane(s)" if value else "a GPU"


def _of(facts: dict[str, Any], actors: Weights) -> Launcher:
    launcher = Launcher(
        actors,
        msgspec.convert(facts["space"], ActionSpace),
        msgspec.convert(facts["settings"], LauncherSettings),
        msgspec.convert(facts["static"], LauncherDecision),
        facts["models"],
        facts["lanes"],
        tuple((step, goodput) for step, goodput in facts["curve"]),
        facts["facts"],
    )
    state = state_size(launcher.space.blocks, launcher.settings.samples)
    for agent, size in enumerate(launcher.space.sizes):
        layers = [state, *launcher.settings.policy_layers, size]
        for layer, shape in enumerate(itertools.pairwise(layers)):
            if (own := actors[f"actor{agent}.{layer}.weight"].shape) != shape:
                raise ValueError(f"actor{agent}.{layer}.weight has shape {list(own)}, not {list(shape)}")
    return launcher
