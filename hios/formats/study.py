"""Files of the figures of the papers.

simulation.json      one setting of HIOS's simulation, every algorithm on its instances
ablation.json        what each deviation of the released program from the paper changes
convolutions.json    convolutions alone on the cores of a machine, over the image size
study/top/NAME.json  one experiment of TOP on scenarios of several models, in the simulator
ID.json of a figure  its table, what is published, and how the two compare
published.yaml       what the papers and their authors report, figure by figure
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from hios.files.base import (
    AboveZero,
    Count,
    DeviceCount,
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
    alpha: Share = 0.5
    """Share of serialization of the contention model."""
    format_version: FormatVersion = 1


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


#: The experiments by the figures that they feed: 14 to 17, 18, 24, 23, 25 to 27, 20, 13, 19 and 21, 19 and 22.
Experiment = Literal["systems", "sizes", "copies", "together", "batches", "stages", "gpg", "launcher"]


#: TOP, and what is left of it without the launcher, without GPG, and without both, which is the policy top.
TOP, NO_LAUNCHER, NO_GPG, NEITHER = "top", "top, launcher off", "top, GPG off", "top, both off"
#: Systems of points that are no policies: ways to find stages, and curves of learning.
DP, GPG, GPG_ONE_PASS, CURVE = "dynamic programming", "GPG", "GPG, one pass", "learning"
#: Systems of points that say how long a step of training takes: of GPG, and of the launcher.
GPG_STEP, LAUNCHER_STEP = "a step of training GPG", "a step of training the launcher"
#: Random decisions in place of learning, as many as it has steps.
RANDOM_SEARCH = "random search"
#: GPG without a policy: a random search of as many passes, and the rule of always taking the last ending.
NOT_LEARNED, LAST_ENDING = "GPG, not learned", "last ending, not learned"
#: Names of the values that stand beside every gain: completed tasks a second of a model, whose label follows, and how
#: evenly the models are served.
OF_MODEL, JAIN, VARIANCE = "tasks per s of ", "Jain's index", "queue variance"
#: Name of the value that says how long training took.
TRAINED = "training s"
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


_Cell = Annotated[bool | int | float | str | None, doc("A cell; null where there is no value.")]


class ComparedNumber(Record, frozen=True):
    """A published statement, and what was found here."""

    key: Text
    """Key in published.yaml."""
    what: Text
    """What the number is."""
    unit: Text
    """Unit; ratio for a quotient, % for a share."""
    published: Text
    """The statement in words."""
    hardware: Text
    """What it was measured on."""
    source: Text
    """Where it is stated."""
    tolerance: Share
    """Relative difference that counts as agreement."""
    verdict: Literal[
        "agrees", "agrees by construction", "same direction", "differs", "not on this machine", "not compared"
    ]
    """Verdict, computed from the numbers."""
    found: str = ""
    """What was found here, in words; empty if hios cannot produce it."""
    by: str = ""
    """How it was found; empty if it was not."""
    absent: tuple[Text, ...] = ()
    """Published cases that were not found, on which there is no verdict."""


class FigureOrigin(Record, frozen=True):
    """How the files of a figure were made."""

    drawing_s: NonNegative
    """Time to draw the figure, without the start of Python, seconds."""
    session_s: NonNegative
    """Time of its sessions, seconds: processor time of simulations, profiling and timed runs of networks."""
    code: OrAbsent[Text] = None
    """Commit of the checkout that drew it; absent outside of a checkout."""


class FigureFile(Record, frozen=True):
    """A figure or table of a paper."""

    id: Text
    """Paper and number, such as hios_fig9."""
    paper: Text
    """The paper in words."""
    number: Text
    """Its number in the paper."""
    title: Text
    """What it shows."""
    caption: Text
    """What is varied, what is plotted, and what the marks mean."""
    needs: tuple[Text, ...]
    """Sessions that it needs."""
    state: Literal["drawn", "needs a GPU", "not drawn"]
    """Whether the rows were found here."""
    missing: str
    """Why it is not drawn; empty if it is."""
    command: str
    """Command that would produce its data; empty if the pipeline does."""
    reason: str
    """Why numbers differ, in one sentence; empty if there is nothing to explain."""
    columns: tuple[Text, ...]
    """Columns of the table."""
    rows: tuple[dict[str, _Cell], ...]
    """The table."""
    comparisons: tuple[ComparedNumber, ...]
    """Every published statement."""
    data: tuple[Text, ...]
    """Files that it was drawn from."""
    finding: str = ""
    """What was found here, in one sentence; empty where the comparisons say it."""
    origin: OrAbsent[FigureOrigin] = None
    format_version: FormatVersion = 1


_Number = Annotated[float, doc("A number, in the unit of the entry.")]


class Source(Record, frozen=True):
    """Where a number is stated."""

    kind: Literal["paper", "readme", "program", "issue"]
    """The paper; the README of the authors' repository; their released program; or a thread of users there."""
    place: Text
    """Section, table or figure; part of the README; thread."""


class PublishedNumber(Record, frozen=True):
    """One statement: a value, a range, or a value for each of several cases."""

    what: Text
    """What the number is."""
    unit: Text
    """Unit; ratio for a quotient, % for a share."""
    value: OrAbsent[_Number] = None
    largest: OrAbsent[Literal[True]] = None
    """Whether the value is the largest of several, "up to" in the paper; it is compared with the largest found."""
    least: OrAbsent[float] = None
    """Lower end of a range; absent where only the upper end is stated."""
    most: OrAbsent[float] = None
    """Upper end of a range; absent where only the lower end is stated."""
    cases: OrAbsent[Annotated[dict[Text, _Number], Meta(min_length=1)]] = None
    """Values by case, in their order."""
    neutral: OrAbsent[float] = None
    """Value that means no effect, such as 1 for a speedup; it decides which direction a number points in. A bound
    without it states none."""
    by_construction: OrAbsent[Text] = None
    """Why a number found here has to agree, where it does."""
    source: OrAbsent[Source] = None
    hardware: OrAbsent[Text] = None
    """What it was measured on, if not what the figure says."""
    tolerance: OrAbsent[Share] = None
    """Relative difference that counts as agreement, if not the figure's."""
    note: OrAbsent[Text] = None
    """Remarks for the reader."""


class PublishedFigure(Record, frozen=True):
    """What is published of one figure or table."""

    hardware: Text
    """What it was measured on; simulation or exact if nothing was measured."""
    source: Source
    tolerance: Share
    """Relative difference that counts as agreement; it was set before anything was compared."""
    numbers: dict[Text, PublishedNumber]
    """Statements by a short name; empty if a figure has no published number."""


class PublishedFile(Record, frozen=True):
    """All published numbers, by figure: the id in the registry, or PAPER_text for numbers that are only in the text."""

    figures: Annotated[dict[Text, PublishedFigure], Meta(min_length=1)]
    """Figures and tables by id."""
    inputs: dict[Text, tuple[Positive, ...]] = field(default_factory=dict)
    """Shape of one input of each network in the papers, without the batch, by the name of its file in models/."""
