"""Files of serving.

result.json       how a policy served a scenario, simulated or run
calibration.json  overheads of serving the models of a scenario on this machine, beyond costs.json
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from hios.files.base import (
    AboveZero,
    Count,
    DeviceCount,
    FormatVersion,
    NonNegative,
    OrAbsent,
    Platform,
    Positive,
    Record,
    Share,
    Text,
    Timestamp,
    Versions,
    doc,
)
from hios.formats.config import Label
from hios.formats.scenario import Objective, Overheads

_Bound = Annotated[NonNegative, doc("Lower, then upper bound.")]
_Interval = Annotated[
    tuple[_Bound, _Bound],
    doc("95 % confidence interval of the mean over the repeats (bootstrap); absent with fewer than six repeats."),
]
_Milliseconds = Annotated[NonNegative, doc("Milliseconds since the scheduled arrival; absent if no task completed.")]


class ServedResult(Record, frozen=True, kw_only=True):
    """Results of one model, or of all together; counts are over all repeats.

    offered = completed + dropped + expired + failed + waiting + in_flight.
    """

    offered: Count
    """Tasks that arrived."""
    completed: Count
    """Tasks that completed before the end."""
    dropped: Count
    """Tasks that were rejected by a full queue, or dropped from one."""
    expired: Count
    """Tasks whose deadline passed while they were in the queue."""
    failed: Count
    """Tasks that ended with an error."""
    waiting: Count
    """Tasks in the queue at the end."""
    in_flight: Count
    """Tasks that had left the queue but were not completed at the end."""
    goodput: Count
    """Completed tasks within slo_ms; all completed tasks if there is no slo_ms."""
    p50_ms: OrAbsent[_Milliseconds] = None
    p90_ms: OrAbsent[_Milliseconds] = None
    p99_ms: OrAbsent[_Milliseconds] = None
    mean_ms: OrAbsent[_Milliseconds] = None
    p99_bound_ms: OrAbsent[NonNegative] = None
    """Upper bound of the 99th percentile with 99 % confidence: LoadGen's early-stopping estimate. Absent with fewer
    than 662 completed tasks."""
    goodput_interval: OrAbsent[_Interval] = None
    p50_interval_ms: OrAbsent[_Interval] = None
    p99_interval_ms: OrAbsent[_Interval] = None
    mean_waiting: OrAbsent[NonNegative] = None
    """Mean number of tasks in the queue over time."""
    mean_in_system: OrAbsent[NonNegative] = None
    """Mean number of tasks in the queue or in flight over time."""
    queue: OrAbsent[Positive] = None
    """Tasks that may wait in the model's queue; absent of all models and in older files."""
    fair_share: OrAbsent[Share] = None
    """Goodput over the smaller of the tasks offered and the model's fair share of the device's time, at most 1; absent
    of all models and in older files."""


class LateSends(Record, frozen=True):
    """How late the load generator sent tasks, if the scenario was run; latencies include that delay."""

    share: Share
    """Share of the tasks that were sent more than 1 ms late."""
    most_ms: NonNegative
    """The largest delay, milliseconds."""


#: What runs models as a whole.
ServingRuntime = Literal["eager", "compile", "onnxruntime", "openvino"]
#: What the outputs of a model were compared with.
_Reference = Literal["program", "single inference"]
#: When tasks left the queues.
_Launcher = Literal["open", "deadline", "fixed", "water-filling", "learned"]


class ModelOfCandidate(Record, frozen=True, kw_only=True):
    """How a compared policy served one model."""

    goodput_per_s: NonNegative
    """Completed tasks within their SLO per second."""
    fair_share: Share
    """Goodput over the smaller of what was offered and the model's fair share, as in `models`."""
    mean_ms: OrAbsent[_Milliseconds] = None


class ComparedPolicy(Record, frozen=True, kw_only=True):
    """A policy under a launcher that auto compared, on traces other than those of the result."""

    policy: Text
    """Name of the policy."""
    launcher: OrAbsent[_Launcher] = None
    """When tasks leave the queues; absent in older files."""
    goodput_per_s: NonNegative
    """Goodput: completed tasks within their SLO per second."""
    mean_ms: OrAbsent[_Milliseconds] = None
    p99_ms: OrAbsent[_Milliseconds] = None
    models: OrAbsent[dict[Label, ModelOfCandidate]] = None
    """By model; this and what follows are absent in older files."""
    good_work_share: OrAbsent[NonNegative] = None
    """Minimum device time of the tasks within their SLO, over the time of all lanes."""
    jain: OrAbsent[Share] = None
    """Jain's fairness index, as in the result."""
    queue_variance: OrAbsent[NonNegative] = None
    """Mean variance of the queues' lengths."""
    utilisation: OrAbsent[Share] = None
    """Share of the time that lanes were busy."""
    left_out: OrAbsent[Text] = None
    """Why the policy could not be compared."""


class ResultFile(Record, frozen=True, kw_only=True):
    """How a policy served a scenario."""

    policy: Text
    """Name of the policy."""
    runtime: OrAbsent[ServingRuntime] = None
    """What ran the models as a whole; absent where hios ran their operators."""
    engine: OrAbsent[Literal["segments"]] = None
    """Where lanes ran segments of blocks, each in the fastest runtime; absent where they ran operators."""
    chosen: OrAbsent[Text] = None
    """The policy that auto chose."""
    candidates: tuple[ComparedPolicy, ...] = ()
    """The policies that auto compared, best first."""
    objective: OrAbsent[Objective] = None
    """What was best, as the scenario states it; absent in older files, whose objective was throughput."""
    simulated: bool
    """Whether times were simulated; otherwise they were measured."""
    calibrated: bool = False
    """Whether the simulation took constants of the machine from calibration.json; else times of costs alone."""
    launcher: _Launcher
    """When tasks leave the queues; learned: as a trained launcher decides."""
    lanes: DeviceCount
    """Lanes of the device."""
    device: OrAbsent[Literal["lanes", "gpu"]] = None
    """What the models share: lanes, or a GPU."""
    duration_s: AboveZero
    """Duration of each repeat, seconds."""
    seed: Count
    """Seed of the first trace of arrivals."""
    repeats: Positive = 1
    """Number of traces of arrivals; counts are sums over them."""
    arrivals: Text
    """periodic, poisson, or the CSV file."""
    load: AboveZero = 1.0
    """Factor by which the rates of the scenario were multiplied."""
    utilisation: Share
    """Share of the time that lanes were busy."""
    models: Annotated[dict[Label, ServedResult], Meta(min_length=1)]
    """Results by model."""
    total: ServedResult
    """All models together; percentiles are over the tasks of all models."""
    queue_variance: NonNegative
    """Mean over time of the population variance of the queues' lengths (TOP, section IV)."""
    jain: Share
    """Jain's fairness index of the completed shares of the models' offered tasks; 1 where all are equal."""
    work_share: NonNegative
    """Minimum device time of the completed tasks, over the time of all lanes: throughput weighted by work."""
    good_work_share: OrAbsent[NonNegative] = None
    """The same of the tasks within their SLO; absent in older files."""
    bound_per_s: NonNegative
    """Upper bound on the tasks per second that any policy can complete, from their minimum device times (linear
    program)."""
    promoted: OrAbsent[Count] = None
    """Number of runs that went first because they had waited longer than max_wait_ms."""
    block_runs: OrAbsent[Count] = None
    """Number of block instances that ran."""
    control_share: OrAbsent[NonNegative] = None
    """Time for launching, dispatch and results, over the time that lanes were busy."""
    late: OrAbsent[LateSends] = None
    compared_with: OrAbsent[dict[Label, _Reference]] = None
    """By model, if the scenario was run, what every output was compared with: that of the program which the scenario
    names, or that of a single inference by hios itself; absent in older files."""
    measured_at: OrAbsent[Timestamp] = None
    """When the run began, UTC."""
    platform: OrAbsent[Platform] = None
    versions: OrAbsent[Versions] = None
    format_version: FormatVersion = 1

    @property
    def offered_per_s(self) -> float:
        """Tasks that arrived per second."""
        return self.total.offered / (self.duration_s * self.repeats)

    @property
    def done_per_s(self) -> float:
        """Completed tasks per second."""
        return self.total.completed / (self.duration_s * self.repeats)

    @property
    def done_by_model(self) -> dict[str, float]:
        """The same of each model."""
        time = self.duration_s * self.repeats
        return {label: own.completed / time for label, own in self.models.items()}

    @property
    def goodput_per_s(self) -> float:
        """Completed tasks within their SLO per second."""
        return self.total.goodput / (self.duration_s * self.repeats)


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
