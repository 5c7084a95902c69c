"""Files of other ways to run a network.

partition.json  ways to divide the cores of a machine into devices, and the one that was chosen for a network
predicted.json  schedules of a network on the GPUs of the papers, as the platform model predicts them
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hios.core.schedule import ScheduleFile
from hios.files.base import (
    DeviceCount,
    Fingerprint,
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
from hios.formats.run import Latency


class Partition(Record, frozen=True, kw_only=True):
    """One way to divide the cores."""

    devices: DeviceCount
    """Number of devices."""
    cores_per_device: Positive
    """Cores of each device, and threads inside its operators."""
    algorithm: Text
    """Algorithm that scheduled for them: sequential for one device."""
    predicted_ms: NonNegative
    """Predicted latency of the schedule, with costs measured on such devices."""
    latency_ms: OrAbsent[Latency] = None
    """Measured latency, including copies of inputs and outputs; absent if the prediction ruled this partition out."""


class PartitionFile(Record, frozen=True, kw_only=True):
    """Ways to divide the cores of a machine into devices for a network, each predicted, the promising ones measured."""

    graph: Text
    """Name of the graph."""
    graph_fingerprint: Fingerprint
    """Fingerprint of the graph."""
    cores: Positive
    """Cores that were divided."""
    partitions: Annotated[tuple[Partition, ...], Meta(min_length=1)]
    """The partitions, starting with one device of all cores."""
    devices: DeviceCount
    """Number of devices of the chosen partition."""
    cores_per_device: Positive
    """Cores of each device of the chosen partition."""
    reason: Text
    """Why it was chosen, in words."""
    processor: str = ""
    """Model name of the processor."""
    busy_share: OrAbsent[Share] = None
    """Share of their time that the cores spent on other work before the measurement."""
    virtual: OrAbsent[bool] = None
    """Whether devices shared cores; times then mean little. Absent if they did not."""
    measured_at: OrAbsent[Timestamp] = None
    """When the measurement ended, UTC."""
    versions: OrAbsent[Versions] = None
    format_version: FormatVersion = 1


class GpuPrediction(Record, frozen=True):
    """Schedules on the GPUs of a paper."""

    target: Text
    """The paper, or one of several GPUs of a paper, as `hios study predict` names it."""
    platform: Platform
    schedules: dict[Annotated[Text, doc("Algorithm and number of devices.")], ScheduleFile]
    """Schedules by algorithm and number of devices, such as ios-1."""


class PredictionFile(Record, frozen=True):
    """Schedules of a network on GPUs of the papers. Nothing ran: all times are predicted from data sheets."""

    graph: Text
    """Name of the graph."""
    graph_fingerprint: Fingerprint
    """Fingerprint of the graph."""
    predictions: tuple[GpuPrediction, ...]
    """One entry for each target."""
    seconds: NonNegative
    """Time of predicting and scheduling, seconds."""
    missing: str = ""
    """Why nothing can be predicted for the network; empty if it can."""
    format_version: FormatVersion = 1
