"""Descriptions of GPUs and links for the platform model: YAML files in which each number has its source."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hios.files.base import END, AboveZero, NonNegative, OrAbsent, Positive, Record, ShareAboveZero, Text, doc

_Source = Annotated[Text, doc("Source of the number: a name under `sources`.")]
_Sources = Annotated[
    dict[str, Annotated[Text, doc("Title, edition and place of publication, or how the number was derived.")]],
    Meta(min_length=1),
    doc("Sources of the numbers, by a short name: data sheet, white paper, measurement or assumption."),
]


class Number(Record, frozen=True):
    """A number and its source."""

    value: AboveZero
    """The number."""
    source: _Source


class WholeNumber(Record, frozen=True):
    """A whole number and its source."""

    value: Positive
    """The number."""
    source: _Source


class ShareNumber(Record, frozen=True):
    """A share and its source."""

    value: ShareAboveZero
    """The share."""
    source: _Source


class OverheadNumber(Record, frozen=True):
    """A time that may be 0, and its source."""

    value: NonNegative
    """The time in microseconds."""
    source: _Source


class Overheads(Record, frozen=True):
    """What launches and waits cost on a GPU; without a number, predictions use the one that holds for all GPUs."""

    launch_us: OrAbsent[OverheadNumber] = None
    """Pause between two kernels, in the way in which they are launched."""
    sync_us: OrAbsent[OverheadNumber] = None
    """From a kernel to one on another stream or GPU that waits for it."""
    stage_us: OrAbsent[OverheadNumber] = None
    """Of every group of a stage beyond the first: its start, and waiting for it."""


class GpuFile(Record, frozen=True):
    """A GPU for the platform model: the vendor's numbers, each with its source."""

    name: Text
    """Name in words."""
    compute_capability: Annotated[str, Meta(pattern=rf"^[0-9]+\.[0-9]+{END}")]
    """Major and minor version, in quotes, such as 8.6."""
    sources: _Sources
    sms: WholeNumber
    """Streaming multiprocessors (SMs)."""
    clock_mhz: Number
    """Boost clock in MHz."""
    fp32_lanes_per_sm: WholeNumber
    """FP32 cores of an SM: multiply-adds per cycle."""
    memory_bandwidth_gbs: Number
    """Memory bandwidth in 10^9 bytes per second."""
    threads_per_sm: WholeNumber
    """Maximum number of threads on an SM."""
    blocks_per_sm: WholeNumber
    """Maximum number of thread blocks on an SM."""
    registers_per_sm: WholeNumber
    """32-bit registers of an SM."""
    shared_memory_per_sm_kb: WholeNumber
    """Shared memory of an SM in units of 1024 bytes."""
    links: Annotated[
        dict[
            str, Annotated[Text, doc("Name of a link that comes with hios, or a .yaml file in the folder of this one.")]
        ],
        Meta(min_length=1),
    ]
    """Possible links between two of these GPUs, by the name for --link; the first is the default."""
    memory_gb: OrAbsent[Number] = None
    """Memory in 10^9 bytes, which limits copies of models and batch sizes in experiments of TOP; no limit if absent."""
    tf32_tflops: OrAbsent[Number] = None
    """Peak of the tensor cores in TF32, without sparsity, in 10^12 operations per second; absent if there are none."""
    fp16_tflops: OrAbsent[Number] = None
    """Peak of the tensor cores in FP16 with FP32 accumulation, without sparsity, in 10^12 operations per second; absent
    if there are none."""
    overheads: OrAbsent[Overheads] = None
    """Overheads of this GPU in place of those for all; all but the pause count with `contention: resources` alone."""


class LinkFile(Record, frozen=True):
    """A link between two GPUs for the platform model: each number with its source."""

    name: Text
    """Name in words."""
    sources: _Sources
    bandwidth_gbs: Number
    """Bandwidth in one direction, as the vendor states it, in 10^9 bytes per second."""
    share: ShareNumber
    """Share of the bandwidth that copies achieve."""
    latency_us: Number
    """Time of an empty copy in microseconds."""
