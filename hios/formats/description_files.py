"""Descriptions of GPUs and links for the platform model: YAML files in which each number has its source."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hios.formats.base import END, AboveZero, OrAbsent, Positive, Record, Text, doc

_Source = Annotated[Text, doc("Source of the number: a name under `sources`.")]
_Sources = Annotated[
    dict[str, Annotated[Text, doc("Title, edition and place of publication, or how the number was derived.")]],
    Meta(min_length=1),
    doc("Sources of the numbers, by a short name: data sheet, white paper, measurement or assumption."),
]


class Number(Record, frozen=True):
    """A number and its source."""

    value: Annotated[AboveZero, doc("The number.")]
    source: _Source


class WholeNumber(Record, frozen=True):
    """A whole number and its source."""

    value: Annotated[Positive, doc("The number.")]
    source: _Source


class ShareNumber(Record, frozen=True):
    """A share and its source."""

    value: Annotated[float, Meta(gt=0, le=1), doc("The share.")]
    source: _Source


class GpuFile(Record, frozen=True):
    """A GPU for the platform model: the vendor's numbers, each with its source."""

    name: Annotated[Text, doc("Name in words.")]
    compute_capability: Annotated[
        str, Meta(pattern=rf"^[0-9]+\.[0-9]+{END}"), doc("Major and minor version, in quotes, such as 8.6.")
    ]
    sources: _Sources
    sms: Annotated[WholeNumber, doc("Streaming multiprocessors (SMs).")]
    clock_mhz: Annotated[Number, doc("Boost clock in MHz.")]
    fp32_lanes_per_sm: Annotated[WholeNumber, doc("FP32 cores of an SM: multiply-adds per cycle.")]
    memory_bandwidth_gbs: Annotated[Number, doc("Memory bandwidth in 10^9 bytes per second.")]
    threads_per_sm: Annotated[WholeNumber, doc("Maximum number of threads on an SM.")]
    blocks_per_sm: Annotated[WholeNumber, doc("Maximum number of thread blocks on an SM.")]
    registers_per_sm: Annotated[WholeNumber, doc("32-bit registers of an SM.")]
    shared_memory_per_sm_kb: Annotated[WholeNumber, doc("Shared memory of an SM in units of 1024 bytes.")]
    links: Annotated[
        dict[
            str, Annotated[Text, doc("Name of a link that comes with hios, or a .yaml file in the folder of this one.")]
        ],
        Meta(min_length=1),
        doc("Possible links between two of these GPUs, by the name for --link; the first is the default."),
    ]
    memory_gb: OrAbsent[
        Annotated[
            Number,
            doc(
                "Memory in 10^9 bytes, which limits copies of models and batch sizes in experiments of TOP; no limit "
                "if absent."
            ),
        ]
    ] = None
    tf32_tflops: OrAbsent[
        Annotated[
            Number,
            doc(
                "Peak of the tensor cores in TF32, without sparsity, in 10^12 operations per second; absent if "
                "there are none."
            ),
        ]
    ] = None
    fp16_tflops: OrAbsent[
        Annotated[
            Number,
            doc(
                "Peak of the tensor cores in FP16 with FP32 accumulation, without sparsity, in 10^12 operations per"
                " second; absent if there are none."
            ),
        ]
    ] = None


class LinkFile(Record, frozen=True):
    """A link between two GPUs for the platform model: each number with its source."""

    name: Annotated[Text, doc("Name in words.")]
    sources: _Sources
    bandwidth_gbs: Annotated[
        Number, doc("Bandwidth in one direction, as the vendor states it, in 10^9 bytes per second.")
    ]
    share: Annotated[ShareNumber, doc("Share of the bandwidth that copies achieve.")]
    latency_us: Annotated[Number, doc("Time of an empty copy in microseconds.")]
