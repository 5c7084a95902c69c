"""calibration.json: overheads of serving the models of a scenario on this machine, beyond costs.json."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from hios.formats.base import (
    AboveZero,
    DeviceCount,
    FormatVersion,
    NonNegative,
    OrAbsent,
    Platform,
    Record,
    Timestamp,
    Versions,
    doc,
)
from hios.formats.config_file import Label
from hios.formats.scenario_file import Overheads


class PairFactor(Record, frozen=True):
    """How much a run of a model is slowed down by a run of another model, or of the same one, on another lane."""

    model: Label
    """The model that is slowed down."""
    beside: Label
    """The model that runs on the other lane."""
    factor: AboveZero
    """Time of a task beside the other model, over its time alone: a median, at least 1."""


class CalibrationFile(Record, frozen=True, kw_only=True):
    """Measured constants of the simulator for the models of a scenario."""

    lanes: DeviceCount
    """Lanes that were measured."""
    models: Annotated[
        dict[Label, Annotated[AboveZero, doc("Median time of a task alone on a lane, over the sum of its operators.")]],
        Meta(min_length=1),
    ]
    """Factors for the times of costs.json, by model."""
    overheads: Overheads
    """Overheads per task, run, stage and transfer; they replace those of the scenario."""
    threads: dict[
        Label, Annotated[AboveZero, doc("Time of a task on all lanes without overheads, over its time on one.")]
    ] = msgspec.field(default_factory=dict)
    """Factors for tasks with a thread on every lane (policy threads), by model; empty if not measured."""
    corun: tuple[PairFactor, ...] = ()
    """Slow-down by pair of models; 1 for pairs that are not listed."""
    jitter: Annotated[tuple[AboveZero, ...], Meta(min_length=2)]
    """Run times over their median, at evenly spaced quantiles in ascending order."""
    seconds: NonNegative
    """How long the calibration took, including the start of servers."""
    measured_at: OrAbsent[Timestamp] = None
    """When the calibration began, UTC."""
    platform: OrAbsent[Platform] = None
    versions: OrAbsent[Versions] = None
    format_version: FormatVersion = 1

    def __post_init__(self) -> None:
        if list(self.jitter) != sorted(self.jitter):
            raise ValueError("jitter: values ascend")
        pairs = {label for pair in self.corun for label in (pair.model, pair.beside)}
        for name, labels in (("corun", pairs), ("threads", self.threads.keys())):
            if unknown := labels - self.models.keys():
                raise ValueError(f"{name}: found {min(unknown)}; allowed: {', '.join(self.models)}")
