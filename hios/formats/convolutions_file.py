"""convolutions.json: convolutions alone on the cores of a machine, over the image size."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from hios.formats.base import FormatVersion, NonNegative, Platform, Positive, Record, Timestamp, Versions

#: Kinds of operators that are run concurrently in pairs.
PairKind = Literal["conv", "relu"]


class ConvolutionSize(Record, frozen=True):
    """Two equal convolutions on images of one size; medians over the repeats, in milliseconds."""

    image_size: Positive
    """Height and width of the image in pixels."""
    alone_ms: NonNegative
    """A convolution on one core while the other core is idle."""
    both_cores_ms: NonNegative
    """A convolution with a thread on each of two cores."""
    at_once_ms: NonNegative
    """Two convolutions at once, each on its own core, until both have finished."""
    hand_over_ms: NonNegative
    """Transfer of its output between the processes of the two cores, through shared memory."""
    output_bytes: Positive
    """Bytes of its output."""


class Pair(Record, frozen=True):
    """Operators of two kinds on two cores at once."""

    kinds: tuple[PairKind, PairKind]
    """The operator that is timed, and the one that runs on the other core meanwhile."""
    image_size: Positive
    """Height and width of the image in pixels."""
    alone_ms: NonNegative
    """Time of the first operator alone, milliseconds."""
    beside_ms: NonNegative
    """Time of the first operator while the second runs on the other core, milliseconds."""


class ConvolutionsFile(Record, frozen=True):
    """Convolutions alone on two cores."""

    platform: Platform
    versions: Versions
    measured_at: Timestamp
    """When the session began: date and time by ISO 8601, UTC."""
    kernel: Positive
    """Height and width of the filters."""
    channels: Positive
    """Channels of images and outputs."""
    repeats: Positive
    """Number of rounds; each round takes all measurements of a size, one after another."""
    sizes: Annotated[tuple[ConvolutionSize, ...], Meta(min_length=1)]
    """One entry per image size, in ascending order."""
    pairs: tuple[Pair, ...]
    """Pairs of operators, for the middle image size."""
    seconds: NonNegative
    """Time of the whole session, seconds."""
    format_version: FormatVersion = 1
