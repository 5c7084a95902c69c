"""How the launcher is trained: every choice that the paper leaves open, with the paper's value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_type_hints

from hios.errors import HiosError, shown
from hios.files.base import MOST_SUB_BLOCKS


@dataclass(frozen=True)
class LauncherSettings:
    """How the launcher is trained. "Paper" is the value of TOP, section VI-B, or what it prints.

    Numbers have their least and largest values beside their types. Beyond the largest ones, memory would not do, or no
    training would ever end.

    Attributes:
        steps: steps of the simulation, and of learning from the moment when the replay buffer is full (paper: 8000).
        seed: of all random numbers.
        step_s: length of a step in seconds (paper: 10).
        samples: rows of the state (n, paper: 10).
        most: largest number of sub-blocks of a combined block; a step with a larger one, a superblock, has reward 0 and
            changes nothing (H, paper: 2 to 4).
        intervals: parts into which [0, 1] is divided for blocks; 0: as many as there are blocks (paper). At least so
            many that all blocks can be in combined blocks of at most H.
        replay: transitions that are kept, and from which on learning starts (paper: 2000).
        batch: transitions of a step of learning (paper: 100).
        gamma: discount (paper: 0.95).
        rate: of learning of the critics (paper: 0.001).
        policy_rate: of learning of the actors (paper: 0.001, with which actions run into an end of [0, 1] and stay).
        alone: steps in which the critics learn alone (paper: 0).
        value_layers: units of the hidden layers of the critics (paper: 1024, 512, 300).
        policy_layers: units of the hidden layers of the actors (paper: 500, 128).
        follow: how far target networks follow in a step (paper: it has them, but does not say how they follow); 1:
            there are none.
        pull: how strongly actors are kept from the ends of [0, 1], where the gradient of the sigmoid vanishes (paper:
            0).
        clip: z-scores of the measures count as this at most; 0: no limit (paper). With none, a step with a full queue
            outweighs all others.
        exploration: ``none`` (paper), noise on ``all`` actions, or on a random ``part`` of them after random decisions
            without superblocks that fill the replay buffer. With noise on all, nearly every action is a superblock.
        noise_first: standard deviation of the noise in the first step.
        noise_last: the same in the last step.
        update: the critics move by the TD ``error``, or as ``printed`` in (3) (paper), which lacks it.
        scores: mean and deviation that normalize the reward are ``frozen`` once the replay buffer is full, or
            ``running`` (paper: unknown), which changes rewards of the past.
        interval_scale: intervals between the shortest useful one and 1 s on a ``log`` scale, or ``linear`` from 0.1 ms
            to 1 s (paper: above 0).
        latency: counts from the ``arrival`` of a task, or from when it left its queue: ``inference`` (paper).
        start: the first policy combines nothing (``alone``), or anything: ``random`` (paper); ``searched``: it is the
            best decision in the full replay buffer, compared on some traces. On a GPU, decisions that combine
            neighboring blocks are compared too. If the objective is the reward, the fairest decision is taken.
        deviations: deviations of the queues enter the networks as sign(d) ln(1 + |d|): ``log``, or ``raw`` (paper).
        admission: tasks leave their queues at every interval if there is a free slot before the first block: ``slot``
            (paper); or as many as runs can take at once, the one that is due first before others: ``deadline``.
        device: ``top-open``, ``top`` (paper), or ``any``: top-open on lanes, top on a GPU.
        stages: of combined blocks, as the ``scenario`` says (``top.stages``), or by ``gpg`` in one pass: Algorithm 2,
            as in line 11 of Algorithm 1 (paper), with the scenario's ``stage_policy``, untrained if it names none.
        variance: the launcher decides anew when the variance of the queues' lengths is above it (T, paper: 2e5, which
            is a backlog of 949 tasks in one of three queues).
        wait_ms: or when tasks have waited longer on average, milliseconds; 0: never (paper).
        judged_every: steps between two judgements of the policy on other traces; the best one is kept.
    """

    steps: Annotated[int, (1, 10**9)] = 2000
    seed: Annotated[int, (0, 10**18)] = 0
    step_s: Annotated[float, (0.001, 3600)] = 5.0
    samples: Annotated[int, (1, 1000)] = 10
    most: Annotated[int, (1, MOST_SUB_BLOCKS)] = 2
    intervals: Annotated[int, (0, 10**5)] = 0
    replay: Annotated[int, (1, 10**6)] = 500
    batch: Annotated[int, (1, 10**5)] = 100
    gamma: Annotated[float, (0, 1)] = 0.95
    rate: Annotated[float, (0, 1)] = 0.001
    policy_rate: Annotated[float, (0, 1)] = 0.0001
    alone: Annotated[int, (0, 10**9)] = 200
    value_layers: tuple[int, ...] = (256, 128)
    policy_layers: tuple[int, ...] = (128, 64)
    follow: Annotated[float, (0, 1)] = 0.01
    pull: Annotated[float, (0, 10**6)] = 1.0
    clip: Annotated[float, (0, 10**6)] = 3.0
    exploration: Literal["part", "all", "none"] = "part"
    noise_first: Annotated[float, (0, 10)] = 0.2
    noise_last: Annotated[float, (0, 10)] = 0.02
    update: Literal["error", "printed"] = "error"
    scores: Literal["frozen", "running"] = "frozen"
    interval_scale: Literal["log", "linear"] = "log"
    latency: Literal["arrival", "inference"] = "arrival"
    start: Literal["searched", "alone", "random"] = "searched"
    deviations: Literal["log", "raw"] = "log"
    admission: Literal["deadline", "slot"] = "deadline"
    device: Literal["any", "top-open", "top"] = "any"
    stages: Literal["scenario", "gpg"] = "scenario"
    variance: Annotated[float, (0, 10**15)] = 25.0
    wait_ms: Annotated[float, (0, 10**12)] = 50.0
    judged_every: Annotated[int, (1, 10**9)] = 100

    @property
    def learns_from(self) -> int:
        """Step from which on the actors learn, counted from 1."""
        return self.replay + self.alone

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(LauncherSettings, include_extras=True).items():
            for least, most in getattr(kind, "__metadata__", ()):
                if not least <= getattr(self, name) <= most:  # NaN is not
                    raise HiosError(f"{name}: found {_stated(getattr(self, name))}; allowed: {least:,} to {most:,}")
        for name in ("value_layers", "policy_layers"):
            layers: tuple[int, ...] = getattr(self, name)
            if not 1 <= len(layers) <= _MOST_LAYERS or not all(1 <= units <= _MOST_UNITS for units in layers):
                stated = shown(",".join(map(str, layers)), quoted=False)
                raise HiosError(
                    f"{name}: found {stated}; allowed: units of 1 to {_MOST_LAYERS} layers, each 1 to {_MOST_UNITS:,}"
                )


def _stated(number: float) -> str:
    return f"{number:g}" if isinstance(number, float) else shown(number)


_MOST_LAYERS, _MOST_UNITS = 8, 4096

#: What a setting can be.
Value = int | float | str | tuple[int, ...]
#: Changes of the defaults by the size of a training. ``paper`` has the paper's steps, their length, its replay buffer
#: and its layers; the paper's samples, batch, discount and rate of the critics are the defaults. All else is as by
#: default, also where the paper has another value: that is in ``AS_PRINTED``, except for H, which is 4 on the paper's
#: server.
SIZES: dict[str, dict[str, Value]] = {
    "default": {},
    "paper": {
        "steps": 8000,
        "step_s": 10.0,
        "replay": 2000,
        "value_layers": (1024, 512, 300),
        "policy_layers": (500, 128),
        "judged_every": 500,
    },
    "small": {"steps": 600, "step_s": 2.0, "replay": 200, "value_layers": (64, 32), "policy_layers": (64, 32)},
}
#: Changes to Algorithm 1 as it is printed. It has target networks, but does not say how they follow: as by default.
AS_PRINTED: dict[str, Value] = {
    "policy_rate": 0.001,
    "alone": 0,
    "pull": 0.0,
    "clip": 0.0,
    "exploration": "none",
    "update": "printed",
    "scores": "running",
    "interval_scale": "linear",
    "latency": "inference",
    "start": "random",
    "deviations": "raw",
    "admission": "slot",
    "device": "top",
    "stages": "gpg",
    "variance": 2e5,
    "wait_ms": 0.0,
}


def settings_of(size: str, changes: Mapping[str, str], **more: Any) -> LauncherSettings:
    """The settings of a size (``SIZES``) with changes as text, as on a command line; others where they are not None.

    Raises:
        HiosError: a name or value that is none.
    """
    values = {**SIZES[size], **{name: value for name, value in more.items() if value is not None}}
    hints = get_type_hints(LauncherSettings)
    for name, text in changes.items():
        if name not in hints:
            raise HiosError(f"--set: found {name}; allowed: {', '.join(hints)}")
        values[name] = _value(name, text, hints[name])
    return LauncherSettings(**values)


def _value(name: str, text: str, kind: Any) -> Any:
    """The value that a text states."""
    if choices := get_args(kind):
        if kind == tuple[int, ...]:
            return tuple(_number(name, part, int) for part in text.split(","))
        if text not in choices:
            raise HiosError(f"--set {name}: found {text}; allowed: {', '.join(choices)}")
        return text
    return _number(name, text, kind)


def _number(name: str, text: str, kind: type) -> Any:
    try:
        return kind(text)
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise HiosError(f"--set {name}: found {shown(text, quoted=False)}; allowed: {what}") from None


def differences(settings: LauncherSettings) -> dict[str, Value]:
    """Settings that are not the default's."""
    return {
        field.name: value
        for field in dataclasses.fields(settings)
        if (value := getattr(settings, field.name)) != field.default
    }
