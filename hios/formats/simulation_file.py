"""simulation.json: one setting of HIOS's simulation, every algorithm on its instances."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hios.formats.base import (
    AboveZero,
    Count,
    DeviceCount,
    FormatVersion,
    NonNegative,
    Positive,
    Record,
    Share,
    Text,
    doc,
)

_Latencies = Annotated[
    dict[Text, Annotated[NonNegative, doc("Latency under the cost model, milliseconds.")]],
    doc("Latency by algorithm."),
]


class Setting(Record, frozen=True):
    """What HIOS varies in its simulation (section V-A)."""

    devices: DeviceCount
    """Number of devices."""
    operators: Positive
    """Operators of a graph."""
    edges: Positive
    """Edges of a graph."""
    layers: Annotated[int, Meta(ge=3)]
    """Layers of a graph."""
    p: AboveZero
    """Time of a transfer, as a share of the time of the operator before it."""

    @property
    def name(self) -> str:
        """The setting as part of a file name."""
        return f"m{self.devices}-{self.graphs}-p{self.p:g}"

    @property
    def graphs(self) -> str:
        """Identifies the random graphs: settings with the same value differ at most in transfer times."""
        return f"n{self.operators}-e{self.edges}-l{self.layers}"


class Instance(Record, frozen=True):
    """One random graph."""

    seed: Count
    """Seed of the graph."""
    latency_ms: _Latencies
    bound_ms: NonNegative
    """Lower bound on the latency of every schedule, proved by hios-opt, milliseconds."""
    even_layers_ms: dict[Text, Annotated[NonNegative, doc("Latency under the cost model, milliseconds.")]]
    """Latency of the algorithms for one device on a graph with layers of equal size, by algorithm."""
    released_ms: dict[Text, Annotated[NonNegative, doc("Latency as the released program states it, milliseconds.")]]
    """Latency on the graph with layers of equal size as the authors' released program would state it."""


class SimulationFile(Record, frozen=True):
    """Every algorithm on the random graphs of a setting."""

    setting: Setting
    window: Annotated[int, Meta(ge=2)]
    """Largest number of operators that hios-lp and hios-mr group."""
    alpha: Share
    """Share of serialization of the contention model."""
    moves: Positive
    """Moves of each of the two chains of hios-opt."""
    instances: Annotated[tuple[Instance, ...], Meta(min_length=1)]
    """One entry per seed."""
    cpu_s: NonNegative
    """Processor time of the setting, seconds; work that settings with the same graphs share counts for the first of
    them."""
    format_version: FormatVersion = 1


class Variant(Record, frozen=True):
    """A set of deviations of the released program, and the latencies with them."""

    deviations: tuple[Text, ...]
    """Active deviations by name; an empty list is the paper's algorithm."""
    latency_ms: dict[Text, Annotated[tuple[NonNegative, ...], doc("Milliseconds, one value per instance.")]]
    """Latency by algorithm."""


class AblationFile(Record, frozen=True):
    """How much each deviation of the released program from the paper changes the results."""

    setting: Setting
    generator: Text
    """Function of hios.study.random_graphs that draws the graphs."""
    sequential_ms: Annotated[tuple[NonNegative, ...], Meta(min_length=1)]
    """Latency of the sequential schedule, one value per instance."""
    variants: Annotated[tuple[Variant, ...], Meta(min_length=1)]
    """Sets of deviations."""
    cpu_s: NonNegative
    """Processor time, seconds."""
    format_version: FormatVersion = 1
