"""result.json: what a policy made of a scenario, simulated or run."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from hios.formats.base import (
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
from hios.formats.config_file import Label

_Bound = Annotated[NonNegative, doc("Lower, then upper bound.")]
_Interval = Annotated[
    tuple[_Bound, _Bound],
    doc("Bounds of the mean over the repeats with a probability of 95 % (bootstrap); absent below six repeats."),
]
_Milliseconds = Annotated[NonNegative, doc("Milliseconds from the scheduled arrival; absent where nothing completed.")]


class ServedResult(Record, frozen=True, kw_only=True):
    """One model, or all together; tasks of all repeats.

    offered = completed + dropped + expired + failed + waiting + in_flight.
    """

    offered: Annotated[Count, doc("Tasks that arrived.")]
    completed: Annotated[Count, doc("Tasks that were answered before the end.")]
    dropped: Annotated[Count, doc("Tasks that a full queue turned away or pushed out.")]
    expired: Annotated[Count, doc("Tasks whose deadline passed in the queue.")]
    failed: Annotated[Count, doc("Tasks that an error ended.")]
    waiting: Annotated[Count, doc("Tasks in the queue at the end.")]
    in_flight: Annotated[Count, doc("Tasks between queue and answer at the end.")]
    goodput: Annotated[Count, doc("Completed tasks within slo_ms; all of them where there is none.")]
    p50_ms: OrAbsent[_Milliseconds] = None
    p90_ms: OrAbsent[_Milliseconds] = None
    p99_ms: OrAbsent[_Milliseconds] = None
    mean_ms: OrAbsent[_Milliseconds] = None
    p99_bound_ms: OrAbsent[
        Annotated[
            NonNegative,
            doc(
                "The 99th percentile is at most this with a probability of 99 %: LoadGen's early-stopping estimate. "
                "Absent below 662 completed tasks."
            ),
        ]
    ] = None
    goodput_interval: OrAbsent[_Interval] = None
    p50_interval_ms: OrAbsent[_Interval] = None
    p99_interval_ms: OrAbsent[_Interval] = None
    mean_waiting: OrAbsent[Annotated[NonNegative, doc("Mean number of tasks in the queue over time.")]] = None
    mean_in_system: OrAbsent[
        Annotated[NonNegative, doc("Mean number of tasks in the queue or in flight over time.")]
    ] = None


class LateSends(Record, frozen=True):
    """How late the load generator sent tasks, where a scenario was run; latencies hold that time."""

    share: Annotated[Share, doc("Share of the tasks that were sent more than 1 ms late.")]
    most_ms: Annotated[NonNegative, doc("The latest, milliseconds.")]


class Candidate(Record, frozen=True):
    """A policy that auto compared on traces that it was not to be judged by."""

    policy: Annotated[Text, doc("Name of the policy.")]
    goodput_per_s: Annotated[NonNegative, doc("Completed tasks within their SLO in a second.")]
    mean_ms: OrAbsent[_Milliseconds] = None
    left_out: OrAbsent[Annotated[Text, doc("Why the policy could not be compared.")]] = None


class ResultFile(Record, frozen=True, kw_only=True):
    """What a policy made of a scenario."""

    policy: Annotated[Text, doc("Name of the policy.")]
    chosen: OrAbsent[Annotated[Text, doc("The policy that auto chose.")]] = None
    candidates: Annotated[tuple[Candidate, ...], doc("What auto compared, best first.")] = ()
    simulated: Annotated[bool, doc("Whether times are predicted by the simulator; else they were measured.")]
    launcher: Annotated[
        Literal["open", "fixed", "water-filling", "learned"],
        doc("How fast tasks leave the queues; learned: as a trained launcher decides."),
    ]
    lanes: Annotated[DeviceCount, doc("Lanes of the device.")]
    device: OrAbsent[Annotated[Literal["lanes", "gpu"], doc("What the models share: lanes, or a GPU.")]] = None
    duration_s: Annotated[AboveZero, doc("How long a repeat took, seconds.")]
    seed: Annotated[Count, doc("Seed of the first trace of arrivals.")]
    repeats: Annotated[Positive, doc("Traces of arrivals; counts are sums over them.")] = 1
    arrivals: Annotated[Text, doc("periodic, poisson, or the CSV file.")]
    load: Annotated[AboveZero, doc("What the rates of the scenario were multiplied by.")] = 1.0
    utilisation: Annotated[Share, doc("Share of their time that lanes were busy.")]
    models: Annotated[dict[Label, ServedResult], Meta(min_length=1), doc("Results by model.")]
    total: Annotated[ServedResult, doc("All models together; latencies of all tasks in one.")]
    queue_variance: Annotated[
        NonNegative, doc("Mean over time of the population variance of the queues' lengths (TOP, section IV).")
    ]
    jain: Annotated[
        Share, doc("Jain's fairness index of the completed shares of the models' offered tasks; 1 where all are equal.")
    ]
    work_share: Annotated[
        NonNegative,
        doc("Least device time of the completed tasks over the time of all lanes: throughput weighted by work."),
    ]
    bound_per_s: Annotated[
        NonNegative,
        doc("No policy can complete more tasks in a second, by their least device time (linear program)."),
    ]
    promoted: OrAbsent[Annotated[Count, doc("Runs that went first as they had waited longer than max_wait_ms.")]] = None
    block_runs: OrAbsent[Annotated[Count, doc("Blocks that ran, an instance each.")]] = None
    control_share: OrAbsent[
        Annotated[NonNegative, doc("Time for launching, dispatch and results over the time that lanes were busy.")]
    ] = None
    late: OrAbsent[LateSends] = None
    measured_at: OrAbsent[Annotated[Timestamp, doc("When the run began, UTC.")]] = None
    platform: OrAbsent[Platform] = None
    versions: OrAbsent[Versions] = None
    format_version: FormatVersion = 1
