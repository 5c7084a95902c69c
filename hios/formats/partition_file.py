"""partition.json: ways to divide the cores of a machine into devices, and the one that was chosen for a network."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hios.formats.base import (
    DeviceCount,
    Fingerprint,
    FormatVersion,
    NonNegative,
    OrAbsent,
    Positive,
    Record,
    Share,
    Text,
    Timestamp,
    Versions,
    doc,
)
from hios.formats.run_file import Latency


class Partition(Record, frozen=True, kw_only=True):
    """One way to divide the cores."""

    devices: Annotated[DeviceCount, doc("Number of devices.")]
    cores_per_device: Annotated[Positive, doc("Cores of each device, and threads inside its operators.")]
    algorithm: Annotated[Text, doc("Algorithm that scheduled for them: sequential for one device.")]
    predicted_ms: Annotated[NonNegative, doc("Predicted latency of the schedule, with costs measured on such devices.")]
    latency_ms: OrAbsent[
        Annotated[
            Latency,
            doc(
                "Measured latency, including copies of inputs and outputs; absent if the prediction ruled this "
                "partition out."
            ),
        ]
    ] = None


class PartitionFile(Record, frozen=True, kw_only=True):
    """Ways to divide the cores of a machine into devices for a network, each predicted, the promising ones measured."""

    graph: Annotated[Text, doc("Name of the graph.")]
    graph_fingerprint: Annotated[Fingerprint, doc("Fingerprint of the graph.")]
    cores: Annotated[Positive, doc("Cores that were divided.")]
    partitions: Annotated[
        tuple[Partition, ...], Meta(min_length=1), doc("The partitions, starting with one device of all cores.")
    ]
    devices: Annotated[DeviceCount, doc("Number of devices of the chosen partition.")]
    cores_per_device: Annotated[Positive, doc("Cores of each device of the chosen partition.")]
    reason: Annotated[Text, doc("Why it was chosen, in words.")]
    processor: Annotated[str, doc("Model name of the processor.")] = ""
    busy_share: OrAbsent[
        Annotated[Share, doc("Share of their time that the cores spent on other work before the measurement.")]
    ] = None
    virtual: OrAbsent[
        Annotated[bool, doc("Whether devices shared cores; times then mean little. Absent if they did not.")]
    ] = None
    measured_at: OrAbsent[Annotated[Timestamp, doc("When the measurement ended, UTC.")]] = None
    versions: OrAbsent[Versions] = None
    format_version: FormatVersion = 1
