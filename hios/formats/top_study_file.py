"""study/top/NAME.json: one experiment of TOP on scenarios of several models, in the simulator."""

from __future__ import annotations

from typing import Annotated, Literal

from hios.formats.base import FormatVersion, NonNegative, OrAbsent, Positive, Record, Text, doc

#: The experiments by the figures that they feed: 18, 24, 23, 26 and 27, 20, 13 and 21, 22.
Experiment = Literal["sizes", "copies", "together", "batches", "stages", "gpg", "launcher"]


#: Systems of points that are no policies: ways to find stages, and curves of learning.
DP, GPG, GPG_ONE_PASS, CURVE = "dynamic programming", "GPG", "GPG, one pass", "learning"


class TopPoint(Record, frozen=True):
    """What one system achieves at one value of what is varied."""

    scenario: Annotated[Text, doc("Label of the scenario.")]
    models: Annotated[Positive, doc("Models of the scenario.")]
    system: Annotated[Text, doc("A policy, a GPU, or a way to find stages.")]
    x: Annotated[NonNegative, doc("What is varied: sub-blocks, copies, batch size, steps, or TFLOPS of a GPU.")]
    values: Annotated[
        dict[Text, Annotated[float, doc("A number; its unit is in its name.")]], doc("What was found, by name.")
    ]


class TopStudyFile(Record, frozen=True):
    """One experiment."""

    experiment: Annotated[Experiment, doc("What was varied.")]
    device: Annotated[
        Literal["lanes", "gpu"], doc("What the models share: lanes, or a GPU. Times are those of its costs.")
    ]
    points: Annotated[tuple[TopPoint, ...], doc("What was found.")]
    cpu_s: Annotated[NonNegative, doc("Processor time of the experiment, seconds.")]
    gpu: OrAbsent[
        Annotated[Text, doc("Name of the GPU of all costs; absent on lanes, and where they are of several.")]
    ] = None
    format_version: FormatVersion = 1
