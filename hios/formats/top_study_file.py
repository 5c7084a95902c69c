"""study/top/NAME.json: one experiment of TOP on scenarios of several models, in the simulator."""

from __future__ import annotations

from typing import Annotated, Literal

from hios.formats.base import FormatVersion, NonNegative, OrAbsent, Positive, Record, Text, doc

#: The experiments by the figures that they feed: 18, 24, 23, 26 and 27, 20, 13 and 21, 22.
Experiment = Literal["sizes", "copies", "together", "batches", "stages", "gpg", "launcher"]


#: Systems of points that are no policies: ways to find stages, and curves of learning.
DP, GPG, GPG_ONE_PASS, CURVE = "dynamic programming", "GPG", "GPG, one pass", "learning"
#: Random decisions in place of learning, as many as it has steps.
RANDOM_SEARCH = "random search"
#: GPG without a policy: a random search of as many passes, and the rule of always taking the last ending.
NOT_LEARNED, LAST_ENDING = "GPG, not learned", "last ending, not learned"
#: Names of values that say what the memory of the GPU has room for.
COPIES_THAT_FIT, BATCH_THAT_FITS = "copies that fit", "largest batch that fits"


class TopPoint(Record, frozen=True):
    """What one system achieves for one value of the varied parameter."""

    scenario: Text
    """Label of the scenario."""
    models: Positive
    """Models of the scenario."""
    system: Text
    """A policy, a GPU, or a method of finding stages."""
    x: NonNegative
    """Value of the varied parameter: sub-blocks, copies, batch size, steps, or TFLOPS of a GPU."""
    values: dict[Text, Annotated[float, doc("A number; its unit is in its name.")]]
    """Results by name."""


class TopStudyFile(Record, frozen=True):
    """One experiment."""

    experiment: Experiment
    """The varied parameter."""
    device: Literal["lanes", "gpu"]
    """What the models share: lanes, or a GPU, whose costs the times come from."""
    points: tuple[TopPoint, ...]
    """The results."""
    cpu_s: NonNegative
    """Processor time of the experiment, seconds."""
    gpu: OrAbsent[Text] = None
    """Name of the GPU of all costs; absent on lanes, and if the costs are those of several GPUs."""
    format_version: FormatVersion = 1
