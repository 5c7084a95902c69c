"""run.json: latencies of schedules and of the baselines that they are compared with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from hios.core.drift import Estimate, RunProbe
from hios.core.schedule import Placement
from hios.files.base import (
    AboveZero,
    Count,
    DeviceCount,
    EngineKind,
    FormatVersion,
    NonNegative,
    OperatorId,
    OrAbsent,
    Platform,
    Positive,
    Record,
    Runtime,
    Text,
    Timestamp,
    Versions,
    doc,
)

_End = Annotated[AboveZero, doc("One end.")]
Interval = Annotated[
    tuple[_End, _End],
    doc(
        "95 % interval of the speedup: lower and upper end of a paired bootstrap over rounds. Absent with "
        "fewer than six rounds."
    ),
]
Launch = Annotated[
    Literal["graph", "streams"],
    doc("On GPUs: whether each run replays a CUDA graph, or launches each operator on its stream. Absent on cores."),
]
NoGraph = Annotated[str, doc("Why it could not be captured in a CUDA graph.")]
_PeakMemory = Annotated[
    Positive,
    doc(
        "Peak memory, bytes. On cores: in one run after the measured ones, the peak private memory of each "
        "worker process, weights included, summed over processes, without what importing torch takes, which "
        "they share; all schedules of a device share one process. On GPUs: the peak of torch's allocations; for a "
        "schedule, in a run that launches each operator separately; for a reference, since it was loaded, "
        "including compilation and capture. Absent if the system does not report it."
    ),
]
#: The runtimes that outputs are compared with.
Checked = Literal["eager", "onnxruntime", "sequential"]
#: The runtimes of references.
ReferenceKind = Literal["engine", Runtime]
#: What runs a segment.
SegmentRuntime = Literal["packed", "onnxruntime", "openvino", "inductor"]


class RunPlatform(Platform, frozen=True):
    """Where the schedules ran."""

    transport: OrAbsent[Literal["gloo", "mpi", "nccl"]] = None
    """What moved values between ranks; absent if devices shared the memory of one node."""
    hosts: OrAbsent[tuple[Annotated[Text, doc("Name of a host.")], ...]] = None
    """Host of each rank."""
    clocks: OrAbsent[Literal["shared", "compared"]] = None
    """How the clocks of several ranks were synchronized: all ranks used the clock of one host, or clocks of other hosts
    were compared with rank 0's by ping before each run."""
    clock_uncertainty_ms: OrAbsent[NonNegative] = None
    """Largest possible error of a compared clock: half of the round trip of a ping, milliseconds."""


class Latency(Record, frozen=True):
    """Latency over the runs."""

    median: NonNegative
    """Median, milliseconds."""
    p20: NonNegative
    """20th percentile, milliseconds."""
    p80: NonNegative
    """80th percentile, milliseconds."""
    runs: tuple[Annotated[NonNegative, doc("Latency of one run.")], ...]
    """Every run, in the order measured, milliseconds."""


class Ceiling(Record, frozen=True):
    """Throughput for one number of devices."""

    devices: DeviceCount
    """Number of copies."""
    latency_ms: Latency
    throughput_ratio: AboveZero
    """Throughput of the copies over that of one copy; it equals the number of devices if they share no resources."""


class ReferenceResult(Record, frozen=True):
    """One reference."""

    name: Text
    """Name of the reference."""
    threads: Positive
    """Threads inside each operator; for a parallel session of ONNX Runtime, the number of operators that run side by
    side."""
    latency_ms: Latency
    kind: OrAbsent[ReferenceKind] = None
    """Runtime: the engine's sequential schedule on one device of several cores, eager PyTorch, torch.compile, ONNX
    Runtime, OpenVINO; on GPUs also PyTorch in a CUDA graph, torch.compile in other modes, or TensorRT."""
    compile_time_s: OrAbsent[NonNegative] = None
    """Seconds that torch.compile took, including the first inference; without its caches, unless
    TORCHINDUCTOR_FORCE_DISABLE_CACHES=0 allowed them."""
    precision: OrAbsent[Text] = None
    """Precision that was requested from a runtime that would otherwise choose one itself, such as f32; OpenVINO uses
    bfloat16 on processors that support it. Absent if the runtime uses the model's precision."""
    speedup: OrAbsent[AboveZero] = None
    """Median of the baseline over the median of this reference."""
    speedup_interval: OrAbsent[Interval] = None
    largest_difference: OrAbsent[NonNegative] = None
    """Largest absolute difference of any output of any run from the reference outputs."""
    peak_memory_bytes: OrAbsent[_PeakMemory] = None


class SegmentResult(Record, frozen=True):
    """What ran a segment: operators that a device runs between two hand-overs."""

    device: Count
    """The device."""
    operators: tuple[OperatorId, ...]
    """Its operators, in order."""
    runtime: SegmentRuntime
    """The runtime that ran it, as one call: ONNX Runtime or OpenVINO on cores, inductor on GPUs, or the engine's own
    packed kernels, operator by operator."""
    latency_ms: dict[str, NonNegative]
    """Time of the segment alone in each runtime that was compared, milliseconds: 20th percentile on cores, median of a
    CUDA graph on GPUs; the shortest was chosen."""
    refused: OrAbsent[dict[str, str]] = None
    """Why a runtime was not compared, such as other outputs or an operator that it lacks, or not used, as the schedule
    was slower with it."""


class Baseline(Record, frozen=True):
    """The sequential schedule on one device, which speedups refer to."""

    latency_ms: Latency
    launch: OrAbsent[Launch] = None
    no_graph: OrAbsent[NoGraph] = None
    peak_memory_bytes: OrAbsent[_PeakMemory] = None
    segments: OrAbsent[tuple[SegmentResult, ...]] = None
    """With engine segments: as of the schedules."""


class Chosen(Record, frozen=True):
    """The fastest of all schedules, the sequential one on one device, and that one with all cores.

    The odd-numbered runs of each competitor choose it; its latency and speedup are those of the even-numbered runs.
    """

    label: Text
    """Name of the schedule in the report, or of the reference."""
    algorithm: Text
    """Algorithm."""
    devices: DeviceCount
    """Devices."""
    cores: Positive
    """Cores of all its devices together."""
    candidates: Positive
    """Number of candidates."""
    latency_ms: Latency
    speedup: AboveZero
    """Median of the baseline over the median of the chosen one, in the same runs."""
    speedup_interval: OrAbsent[Interval] = None


class ScheduleResult(Record, frozen=True):
    """Measured latency of one schedule."""

    label: Text
    """Name of the schedule in the report."""
    algorithm: Text
    """Algorithm."""
    parameters: dict[str, Any]
    """Its parameters."""
    devices: DeviceCount
    """Devices."""
    predicted_ms: NonNegative
    """Latency under the cost model, milliseconds."""
    lower_bound_ms: NonNegative
    """Lower bound under the cost model, milliseconds."""
    scheduling_time_s: NonNegative
    """Time that the algorithm took, seconds."""
    latency_ms: Latency
    prediction_error: float
    """(predicted - measured) / measured."""
    speedup: AboveZero
    """Median of the baseline over the median of this schedule."""
    share_of_ceiling: AboveZero
    """Speedup as a share of the ceiling for the same number of devices."""
    largest_difference: NonNegative
    """Largest absolute difference of any output of any run from the reference outputs; if GPUs were timed in TF32, of
    one run in full float32."""
    predicted: tuple[Placement, ...]
    """The schedule's placements."""
    measured: tuple[Placement, ...]
    """The same operators with the times of the run whose latency is the median. On GPUs, of a separate run, as events
    around each operator slow it down; times count from the start of each GPU."""
    speedup_interval: OrAbsent[Interval] = None
    launch: OrAbsent[Launch] = None
    no_graph: OrAbsent[NoGraph] = None
    cuts: Count = 0
    """Places at which the search cut the graph to keep its time within limits, as in schedule.json."""
    drift: OrAbsent[Estimate] = None
    """Drift: how many times as long the probe took on the devices of the schedule as when its costs were measured.
    Absent if the costs do not contain the probe."""
    error_beyond_drift: OrAbsent[float] = None
    """(predicted * drift - measured) / measured."""
    allocation_time_s: OrAbsent[NonNegative] = None
    """Seconds that stream allocation alone took, as in schedule.json."""
    peak_memory_bytes: OrAbsent[_PeakMemory] = None
    segments: OrAbsent[tuple[SegmentResult, ...]] = None
    """With engine segments: what ran each segment, by device, in order. Operators that use several devices at once or
    are merged are not in segments. The times of operators in a segment of another runtime are its time, in proportion
    to those of the packed kernels."""


class Run(Record, frozen=True):
    """Measured runs of the schedules of one graph, interleaved in one session with the references.

    Examples:
        >>> import hios
        >>> run = hios.execute(graph, weights, schedules, program=program)  # doctest: +SKIP
        >>> {result.label: result.latency_ms.median for result in run.results}  # doctest: +SKIP
    """

    graph: Text
    """Name of the graph."""
    platform: RunPlatform
    versions: Versions
    seed: int
    """Seed of the input and of the order of the competitors."""
    runs: Positive
    """Measured runs of each competitor."""
    warmup: Count
    """Warm-up runs of each competitor, before the measured ones."""
    tolerance: AboveZero
    """Allowed difference from the reference outputs, absolute plus relative. For timed runs in TF32 it is 0.02 of the
    largest value of an output, or this tolerance if it is larger."""
    ceilings: tuple[Ceiling, ...]
    """The most that several devices of this machine can gain: throughput of independent copies of the model, one per
    device, over that of one copy. An entry for each number of devices above one that a schedule uses. The latency of a
    run is the harmonic mean over its copies."""
    references: tuple[ReferenceResult, ...]
    """Other ways to run the same network."""
    baseline: Baseline
    results: tuple[ScheduleResult, ...]
    """One entry per schedule."""
    chosen: OrAbsent[Chosen] = None
    measured_at: OrAbsent[Timestamp] = None
    """When the session began: date and time by ISO 8601, UTC."""
    rounding: OrAbsent[NonNegative] = None
    """Largest difference that rounding to float32 explains: 4 times the largest error of the program's own outputs in
    float32, next to its outputs in float64, and 1 % of the largest value at most. Outputs may be off by so much. Absent
    if all were within the tolerance."""
    checked_against: OrAbsent[Checked] = None
    """Source of the reference outputs: eager PyTorch, ONNX Runtime, or the engine's sequential schedule if no program
    was given."""
    probe: OrAbsent[RunProbe] = None
    engine: OrAbsent[EngineKind] = None
    """How devices ran the schedules: operator by operator, or in segments; operator by operator where absent."""
    profiled_on: OrAbsent[Text] = None
    """Hardware that the costs of the schedules were measured on, if it differs from the hardware of this run (allowed
    by --other-hardware). Predictions are for that hardware."""
    format_version: FormatVersion = 1
