"""predicted.json: schedules of a network on the GPUs of the papers, as the platform model predicts them."""

from __future__ import annotations

from typing import Annotated

from hios.formats.base import Fingerprint, FormatVersion, NonNegative, Platform, Record, Text, doc
from hios.formats.schedule_file import ScheduleFile


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
