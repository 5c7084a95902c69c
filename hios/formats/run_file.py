"""run.json: latencies of schedules and of what they are compared with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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
    Text,
    Timestamp,
    Versions,
    doc,
)
from hios.formats.probe_record import Estimate, RunProbe
from hios.formats.schedule_file import Placement

_End = Annotated[AboveZero, doc("One end.")]
Interval = Annotated[
    tuple[_End, _End],
    doc(
        "95 % interval of the speedup: lower and upper end of a bootstrap over rounds, in which both have their runs "
        "of the same rounds. Absent where rounds are fewer than six."
    ),
]
Launch = Annotated[
    Literal["graph", "streams"],
    doc(
        "On GPUs: whether every run is the replay of a CUDA graph, or launches every operator on its stream. Absent on "
        "cores."
    ),
]
NoGraph = Annotated[str, doc("Why it could not be captured in a CUDA graph.")]
_PeakMemory = Annotated[
    Positive,
    doc(
        "Peak memory, bytes. On cores: of one run after the measured ones, what each worker process had for itself at "
        "most, weights among it, added up; all schedules of a device have one process. On GPUs: what torch allocated "
        "at most, by a schedule in a run that launches every operator by itself, by a reference since it was loaded, "
        "with what compiling and capturing took. Absent where the system does not tell."
    ),
]
#: The runtimes that outputs are compared with.
Checked = Literal["eager", "onnxruntime", "sequential"]
#: The runtimes of references.
ReferenceKind = Literal[
    "engine",
    "eager",
    "compile",
    "onnxruntime",
    "openvino",
    "cudagraph",
    "compile-reduce-overhead",
    "compile-max-autotune",
    "tensorrt",
]


class RunPlatform(Platform, frozen=True):
    """Where the schedules ran."""

    transport: OrAbsent[
        Annotated[
            Literal["gloo", "mpi", "nccl"],
            doc(
                "What moved values between devices that were ranks of a launcher; absent where devices shared the "
                "memory of one node."
            ),
        ]
    ] = None
    hosts: OrAbsent[Annotated[tuple[Annotated[Text, doc("Name of a host.")], ...], doc("Host of every rank.")]] = None
    clocks: OrAbsent[
        Annotated[
            Literal["shared", "compared"],
            doc(
                "How times of several ranks were brought together: all ranks had the clock of one host, or clocks of "
                "other hosts were compared with rank 0's by ping before every run."
            ),
        ]
    ] = None
    clock_uncertainty_ms: OrAbsent[
        Annotated[
            NonNegative,
            doc(
                "By how much a compared clock may have been off at most, half of the round trip of a ping, "
                "milliseconds."
            ),
        ]
    ] = None


class Latency(Record, frozen=True):
    """Latency over the runs."""

    median: Annotated[NonNegative, doc("Median, milliseconds.")]
    p20: Annotated[NonNegative, doc("20th percentile, milliseconds.")]
    p80: Annotated[NonNegative, doc("80th percentile, milliseconds.")]
    runs: Annotated[
        tuple[Annotated[NonNegative, doc("Latency of one run.")], ...],
        doc("Every run, in the order measured, milliseconds."),
    ]


class Ceiling(Record, frozen=True):
    """One number of devices."""

    devices: Annotated[DeviceCount, doc("Number of copies.")]
    latency_ms: Latency
    throughput_ratio: Annotated[
        AboveZero,
        doc("Throughput of the copies over one copy; equals the number of devices on a machine that shares nothing."),
    ]


class ReferenceResult(Record, frozen=True):
    """One reference."""

    name: Annotated[Text, doc("What it is.")]
    threads: Annotated[
        Positive,
        doc("Threads inside an operator; for a parallel session of ONNX Runtime, operators that run side by side."),
    ]
    latency_ms: Latency
    kind: OrAbsent[
        Annotated[
            ReferenceKind,
            doc(
                "What runs it: the engine's sequential schedule on one device of several cores, eager PyTorch, "
                "torch.compile, ONNX Runtime, OpenVINO, and on GPUs PyTorch in a CUDA graph, torch.compile in other "
                "modes, or TensorRT."
            ),
        ]
    ] = None
    compile_time_s: OrAbsent[
        Annotated[
            NonNegative,
            doc("Seconds that torch.compile took without what its caches hold, the first inference among them."),
        ]
    ] = None
    precision: OrAbsent[
        Annotated[
            Text,
            doc(
                "Precision that a runtime was told to compute in that would choose one itself, such as f32: OpenVINO "
                "takes bfloat16 on processors that have it. Absent where the model's own precision is what counts."
            ),
        ]
    ] = None
    speedup: OrAbsent[Annotated[AboveZero, doc("Median of the baseline over the median of this reference.")]] = None
    speedup_interval: OrAbsent[Interval] = None
    largest_difference: OrAbsent[
        Annotated[
            NonNegative,
            doc("Largest absolute difference of any output of any run from what outputs were compared with."),
        ]
    ] = None
    peak_memory_bytes: OrAbsent[_PeakMemory] = None


class Baseline(Record, frozen=True):
    """The sequential schedule on one device, which speedups refer to."""

    latency_ms: Latency
    launch: OrAbsent[Launch] = None
    no_graph: OrAbsent[NoGraph] = None
    peak_memory_bytes: OrAbsent[_PeakMemory] = None


class Chosen(Record, frozen=True):
    """The fastest of all schedules, the sequential one on one device, and that one with all cores.

    It is chosen by the first, third, fifth ... run of each; its latency and speedup are of the runs between.
    """

    label: Annotated[Text, doc("Name of the schedule in the report, or of the reference.")]
    algorithm: Annotated[Text, doc("Algorithm.")]
    devices: Annotated[DeviceCount, doc("Devices.")]
    cores: Annotated[Positive, doc("Cores of all its devices together.")]
    candidates: Annotated[Positive, doc("Among how many it was chosen.")]
    latency_ms: Latency
    speedup: Annotated[AboveZero, doc("Median of the baseline over the median of the chosen one, in the same runs.")]
    speedup_interval: OrAbsent[Interval] = None


class ScheduleResult(Record, frozen=True):
    """A schedule that ran."""

    label: Annotated[Text, doc("Name of the schedule in the report.")]
    algorithm: Annotated[Text, doc("Algorithm.")]
    parameters: Annotated[dict[str, Any], doc("Its parameters.")]
    devices: Annotated[DeviceCount, doc("Devices.")]
    predicted_ms: Annotated[NonNegative, doc("Latency under the cost model, milliseconds.")]
    lower_bound_ms: Annotated[NonNegative, doc("Lower bound under the cost model, milliseconds.")]
    scheduling_time_s: Annotated[NonNegative, doc("Seconds.")]
    latency_ms: Latency
    prediction_error: Annotated[float, doc("(predicted - measured) / measured.")]
    speedup: Annotated[AboveZero, doc("Median of the baseline over the median of this schedule.")]
    share_of_ceiling: Annotated[AboveZero, doc("Speedup over the ceiling of as many devices.")]
    largest_difference: Annotated[
        NonNegative,
        doc(
            "Largest absolute difference of any output of any run from what outputs were compared with; where GPUs "
            "were timed in TF32, of one run in full float32."
        ),
    ]
    predicted: Annotated[tuple[Placement, ...], doc("The schedule's placements.")]
    measured: Annotated[
        tuple[Placement, ...],
        doc(
            "The same operators with the times of the run whose latency is the median; on GPUs of a run of its own, as "
            "events around every operator slow it, with times from the start of each GPU."
        ),
    ]
    speedup_interval: OrAbsent[Interval] = None
    launch: OrAbsent[Launch] = None
    no_graph: OrAbsent[NoGraph] = None
    cuts: Annotated[
        Count,
        doc("Places at which the search cut the graph to keep its time within limits, as in schedule.json."),
    ] = 0
    drift: OrAbsent[
        Annotated[
            Estimate,
            doc(
                "How many times as long the probe took on the devices of the schedule as when its costs were measured. "
                "Absent where they do not hold the probe."
            ),
        ]
    ] = None
    error_beyond_drift: OrAbsent[Annotated[float, doc("(predicted * drift - measured) / measured.")]] = None
    allocation_time_s: OrAbsent[
        Annotated[NonNegative, doc("Seconds that stream allocation alone took, as in schedule.json.")]
    ] = None
    peak_memory_bytes: OrAbsent[_PeakMemory] = None


class Run(Record, frozen=True):
    """Measured executions of the schedules of one graph, interleaved in one session with the references.

    Examples:
        >>> import hios
        >>> run = hios.execute(graph, weights, schedules, program=program)  # doctest: +SKIP
        >>> {result.label: result.latency_ms.median for result in run.results}  # doctest: +SKIP
    """

    graph: Annotated[Text, doc("Name of the graph.")]
    platform: RunPlatform
    versions: Versions
    seed: Annotated[int, doc("Seed of the input and of the order of the competitors.")]
    runs: Annotated[Positive, doc("Measured runs of every competitor.")]
    warmup: Annotated[Count, doc("Runs of every competitor before the measured ones.")]
    tolerance: Annotated[
        AboveZero,
        doc(
            "Allowed difference from what outputs were compared with, absolute plus relative; timed runs in TF32 are "
            "held to 0.02 of the largest value of an output, or this if it is larger."
        ),
    ]
    ceilings: Annotated[
        tuple[Ceiling, ...],
        doc(
            "What this machine gives several devices at most: independent copies of the model, one per device, over "
            "one copy; an entry for every number of devices above one that a schedule has. The latency of a run is the "
            "harmonic mean over its copies."
        ),
    ]
    references: Annotated[tuple[ReferenceResult, ...], doc("Other ways to run the same network.")]
    baseline: Baseline
    results: Annotated[tuple[ScheduleResult, ...], doc("One entry a schedule.")]
    chosen: OrAbsent[Chosen] = None
    measured_at: OrAbsent[Annotated[Timestamp, doc("When the session began: date and time by ISO 8601, UTC.")]] = None
    checked_against: OrAbsent[
        Annotated[
            Checked,
            doc(
                "What outputs were compared with: eager PyTorch, ONNX Runtime, or the sequential schedule of the "
                "engine where no program was given."
            ),
        ]
    ] = None
    probe: OrAbsent[RunProbe] = None
    profiled_on: OrAbsent[
        Annotated[
            Text,
            doc(
                "Hardware that the costs of schedules were measured on, where it is of another kind than that of this "
                "run, which was asked for (--other-hardware): predictions are for that hardware."
            ),
        ]
    ] = None
    format_version: FormatVersion = 1
