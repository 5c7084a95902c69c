"""Settings of what measures: type, limits and meaning of each are stated here alone.

The command line makes its options and their refusals from these fields (`hios.cli.options`), with the text under a
field as help. `Profile` and `Execute` are sections of config.yaml too. Defaults that functions share are in
`hios.files.option_defaults`.
"""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, field

from hios.errors import HiosError
from hios.files import option_defaults
from hios.files.base import (
    AboveZero,
    Amount,
    Count,
    Distinct,
    EngineKind,
    Positive,
    Record,
    Runtime,
    Several,
    Text,
    doc,
)
from hios.files.validation import schema_errors

_Settings = TypeVar("_Settings", bound=Record)
#: Value of a parameter of an algorithm, or of another argument by name.
Scalar = bool | int | float | str
#: A seed that random generators take.
Seed = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Profile(Record, frozen=True):
    """How costs are measured."""

    stages_of: Several[Annotated[Text, doc("Name of an algorithm (`hios algorithms`).")]] = option_defaults.STAGES_OF
    """Algorithms whose stages are measured; at least one, without duplicates."""
    repeats: Positive = option_defaults.REPEATS
    """Minimum number of measurements of each operator and stage."""
    budget: Amount = option_defaults.PROFILE_BUDGET_S
    """Seconds for repeating measurements until medians are certain, and for measuring stages; the time of stages that
    are not reached is estimated by the contention model."""
    widths: Distinct[Annotated[int, Meta(ge=2), doc("Number of devices.")]] = ()
    """Also measure operators, and merged convolutions of one input, on these numbers of devices at once; each at most
    the largest of `devices`, without duplicates. Platform cpu only."""
    cache: bool | Text = True
    """Whether to reuse and save measurements across runs and networks; or the folder to cache them in."""


class _Competing(Record, frozen=True):
    """How often competitors run, and how exact their outputs are."""

    runs: Positive = 36
    """Timed runs of each competitor."""
    warmup: Count = 3
    """Untimed runs before the timed ones."""
    tolerance: AboveZero = option_defaults.TOLERANCE
    """Allowed difference from the reference outputs, absolute plus relative."""


class Execute(_Competing, frozen=True):
    """How schedules are run."""

    baselines: Several[
        Annotated[
            Runtime,
            doc(
                "Eager PyTorch, torch.compile, ONNX Runtime or OpenVINO. On GPUs neither ONNX Runtime nor OpenVINO,"
                " but also PyTorch in a CUDA graph, torch.compile in its modes reduce-overhead and max-autotune, "
                "and TensorRT."
            ),
        ]
    ] = ("eager",)
    """Runtimes that also run the whole network, with the cores of one device and with those of all devices; without
    duplicates. Eager PyTorch always takes part."""
    engine: EngineKind = "operators"
    """What a device runs as one call: an operator, or all between two hand-overs in the fastest runtime."""
    other_hardware: bool = False
    """Whether schedules may run on other hardware than was profiled, which is refused otherwise; the results say so."""


class Measuring(_Competing, frozen=True, kw_only=True):
    """How competitors are measured."""

    seed: Seed = option_defaults.SEED
    """Seed of the inputs and of the order of runs."""
    timeout_s: AboveZero = option_defaults.TIMEOUT_S
    """Longest time of one run, in seconds."""


class _OnDevices(Measuring, frozen=True, kw_only=True):
    """How competitors are measured on devices of which several may share a core or GPU."""

    virtual: bool = False
    """Let several devices share a core or GPU if there are too few. Only for trying things out, as times then mean
    little."""


def checked(function: str, kind: type[_Settings], values: Mapping[str, Any]) -> _Settings:
    """The settings that a function of Python was called with; numbers may be those of numpy.

    Raises:
        HiosError: one of them is unknown, or beyond its limits.
    """
    given = {name: _plain(value) for name, value in values.items()}
    for name, value in given.items():
        if isinstance(value, float) and math.isnan(value):
            raise HiosError(f"{function}: {name}: found nan; allowed: a number")
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        reasons = []
        with contextlib.suppress(TypeError):  # objects that JSON does not know
            reasons = schema_errors(given, msgspec.json.schema(kind))
        reason = reasons[0].removeprefix("(whole file): ") if reasons else str(error)
        raise HiosError(f"{function}: {reason}") from error


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, numbers.Number) and hasattr(value, "item") else value


class ProfileEffort(Record, frozen=True, kw_only=True):
    """How often `hios.profile` measures."""

    repeats: Positive
    """As in `Profile`."""
    budget_s: Amount
    """`budget` of `Profile`."""


class Settings(_OnDevices, frozen=True, kw_only=True):
    """How schedules are run on devices and measured."""

    devices: int
    """Number of devices of the session; schedules may use fewer."""
    baselines: tuple[str, ...] = ("eager",)
    """Runtimes that also run the model itself, by their names in ``RUNTIMES``; its reference always takes part: eager
    PyTorch, or ONNX Runtime for an ONNX file."""
    platform: str = "cpu"
    """One of ``PLATFORMS``."""
    engine: EngineKind = "operators"
    """What a device runs as one call: an operator, or all between two hand-overs in the fastest runtime."""
    cores_per_device: int | None = None
    """Platform cpu: number of cores of each device, used by threads inside each operator; default: 1, or the number
    that the costs of the schedules were measured with."""
    other_hardware: bool = False
    """Run schedules whose costs were measured on another processor or other GPUs, which is refused otherwise; run.json
    states it."""


class PartitionSettings(_OnDevices, frozen=True, kw_only=True):
    """How partitions of the machine's cores are predicted and measured."""

    algorithm: str = "hios-lp"
    """Algorithm for several devices."""
    cores: int | None = None
    """Number of cores to divide; default: all usable physical cores."""
    parameters: Mapping[str, Scalar] = field(default_factory=dict)
    """Of the algorithm."""
    repeats: Positive = Profile().repeats
    """As in `Profile`."""
    budget_s: Amount = Profile().budget
    """Seconds for measuring the costs of each partition."""
    cache: Path | None = None
    """Folder of measurements; None measures everything."""


#: Amounts of training of a launcher.
TrainingSize = Literal["small", "default", "paper"]


class TrainingSettings(Record, frozen=True):
    """How a policy of GPG is trained (TOP section VI-B)."""

    steps: Positive = 6000
    """Steps of learning, as in the paper."""
    seed: Count = option_defaults.SEED
    """Seed of the random numbers."""
    most: Positive = 4
    """Largest number of blocks in a combination."""  # H, on the paper's server
    r: Positive = 3
    """Largest number of operators in a group."""
    s: Positive = 8
    """Largest number of groups in a stage."""
    reward: Literal["relative", "paper"] = "relative"
    """Reward of a stage: minus its share of the sequential time, or exp(-ms)."""
    value_layers: tuple[Positive, ...] = (1024, 512, 300)
    """Units of the hidden layers of the value network q, as in the paper."""
