"""config.yaml: what the pipeline compares, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, field

from hios.files import option_defaults
from hios.files.base import (
    END,
    MOST_SUB_BLOCKS,
    AboveZero,
    Count,
    DeviceCount,
    Distinct,
    OrAbsent,
    Positive,
    Record,
    Several,
    Share,
    Text,
    doc,
)
from hios.formats.settings import Execute, Profile, Scalar, Seed, TrainingSize

#: A label becomes part of file names.
Label = Annotated[
    str,
    Meta(pattern=f"^[A-Za-z0-9][A-Za-z0-9_-]*{END}"),
    doc("A label is letters, digits, - and _, and begins with a letter or digit."),
]
#: Folders with these names hold other results.
TAKEN = ("benchmarks", "figures", "logs", "serving", "study", "tables")
#: A label of a network: a folder, which must not be one of those that hold other things.
ModelLabel = Annotated[
    Label,
    Meta(
        extra_json_schema={
            "not": {
                "enum": list(TAKEN),
                "description": "Folders with these names hold other results.",
            }
        }
    ),
]
#: Keyword arguments of a function that builds a network.
ModelOptions = Mapping[str, Scalar]
_Layers = Annotated[int, Meta(ge=3)]
#: An argument of a command, which must not be taken for an option.
_Argument = Annotated[str, Meta(pattern="^[^-]")]


class ModelEntry(Record, frozen=True):
    """One network."""

    model: OrAbsent[_Argument] = None
    """File in models/ without .py; package.module:function of your own; or a file that ends in .pt2 or .onnx, its path
    relative to the folder that the pipeline runs in; no dash at the start. The label if left out."""
    image_size: OrAbsent[Positive] = None
    """Height and width of the input in pixels; the size of the network's paper if left out."""
    batch_size: OrAbsent[Positive] = None
    """Number of inputs per inference; the network's default if left out, which is 1 for those of models/."""
    classifier: bool = False
    """Whether the classifier is appended; the papers leave it out."""
    options: OrAbsent[dict[str, Annotated[Scalar, doc("Value of an argument.")]]] = None
    """Other keyword arguments of the function that builds the network."""
    inputs: OrAbsent[
        dict[
            Text,
            Annotated[
                tuple[Annotated[Positive, doc("Size of a dimension.")], ...],
                Meta(min_length=1),
                doc("Shape of an input, such as [1, 3, 224, 224]."),
            ],
        ]
    ] = None
    """Shapes by input name, for an .onnx or .pt2 file that leaves dimensions open (.pt2 files need `trusted` too). For
    an .onnx input that is a single integer, its value, such as [16000]."""
    below: OrAbsent[dict[Text, Annotated[Positive, doc("Upper limit; values are smaller.")]]] = None
    """Upper limits of integer inputs by name; if left out, what the model declares, else 2."""
    units: OrAbsent[Literal["conv-relu", "relu-sepconv", "operator"]] = None
    """What counts as one operator; if left out, what the network declares, else conv-relu."""
    trusted: OrAbsent[bool] = None
    """Whether to load a .pt2 file even if loading it can run code. Set it only if you trust who made it."""


class Distribute(Record, frozen=True):
    """Schedules over the ranks of a launcher, on one node or several (`hios distribute`)."""

    algorithms: Distinct[Annotated[Text, doc("Label of an algorithm for several devices.")]] = ()
    """Labels of algorithms whose schedules also run with one rank per device, without duplicates; an empty list skips
    this step."""
    devices: OrAbsent[DeviceCount] = None
    """Number of ranks: a number above 1 that `devices` lists; the largest of these if left out."""
    launcher: Literal["torchrun", "srun", "mpirun"] = "torchrun"
    """What starts the ranks: torchrun on one node, with Gloo, or NCCL on platform cuda; srun in a Slurm job, or mpirun,
    on one node or several, with MPI."""
    mpi: OrAbsent[Annotated[str, Meta(pattern=f"^[a-z][a-z0-9_]*{END}")]] = None
    """Value of srun's --mpi, such as pmix; the cluster's default if left out. Launcher srun only."""


#: One algorithm; its keys other than ``algorithm`` are its parameters.
AlgorithmEntry = Annotated[
    dict[str, Annotated[Scalar, doc("Value of a parameter.")]],
    Meta(
        description="One algorithm, and its parameters by the names of its paper; the registry checks them.",
        extra_json_schema={
            "properties": {
                "algorithm": {
                    "type": "string",
                    "description": "Name (`hios algorithms`), package.module:function, or auto; the label if left out.",
                    "minLength": 1,
                }
            }
        },
    ),
]


#: What HIOS varies in its simulation, in the order of figures 7 to 11.
SERIES = ("devices", "operators", "edges", "layers", "p")


class SimulationDefaults(Record, frozen=True):
    """Settings of the simulation that do not vary in a figure; the defaults are those of HIOS."""

    devices: DeviceCount = 4
    """Number of devices."""
    operators: Positive = 200
    """Operators of a graph."""
    edges: Positive = 400
    """Edges of a graph; where the number of operators varies, the ratio of edges to operators stays the same."""
    layers: _Layers = 14
    """Layers of a graph."""
    p: AboveZero = 0.8
    """Time of a transfer, as a share of the time of the operator before it."""


class SimulationStudy(Record, frozen=True):
    """HIOS's simulation (section V): random graphs, one parameter varied at a time."""

    instances: OrAbsent[Positive] = None
    """Random graphs for each setting; if left out, 3 with scale quick and 30 with scale full."""
    base: SimulationDefaults = field(default_factory=SimulationDefaults)
    devices: Several[Annotated[DeviceCount, doc("Number of devices.")]] = (2, 4, 6, 8, 10, 12)
    """Numbers of devices (figure 7)."""
    operators: Several[Annotated[Positive, doc("Number of operators.")]] = (100, 150, 200, 250, 300, 350, 400)
    """Numbers of operators (figure 8)."""
    edges: Several[Annotated[Positive, doc("Number of edges.")]] = (400, 450, 500, 550, 600)
    """Numbers of edges (figure 9)."""
    layers: Several[Annotated[_Layers, doc("Number of layers.")]] = (6, 10, 14, 18, 22)
    """Numbers of layers (figure 10)."""
    p: Several[Annotated[AboveZero, doc("A share.")]] = (0.4, 0.6, 0.8, 1.0, 1.2)
    """Transfer times as shares of operator times (figure 11)."""
    window: Annotated[int, Meta(ge=2)] = 2
    """Largest number of operators that hios-lp and hios-mr group."""
    alpha: Share = 0.5
    """Share of serialization in the contention model."""
    moves: Positive = 100000
    """Moves of each of the two search chains of hios-opt. There is no time limit, so that two runs give equal results.
    """
    seed: Count = option_defaults.SEED
    """Seed of the first instance; the next ones count up from it."""


#: The data of figures, by the first part of its name.
Session = Literal[
    "simulation",
    "ablation",
    "networks",
    "convolutions",
    "pruning",
    "images",
    "profiles",
    "batches",
    "transformers",
    "predictions",
    "serving",
    "top",
]


class ConvolutionStudy(Record, frozen=True):
    """Convolutions alone, on two cores (HIOS, figures 1 and 2; Opara, figure 3)."""

    sizes: OrAbsent[Several[Annotated[Positive, doc("Height and width in pixels.")]]] = None
    """Sizes of the images; if left out, 8 to 256 px with scale quick, and to 1024 px with scale full."""
    channels: Positive = 48
    """Channels of images and outputs."""
    repeats: Positive = 15
    """Rounds for each size."""


class TopStudy(Record, frozen=True):
    """Experiments of TOP on the serving scenarios, simulated (TOP, figures 13 to 27)."""

    most: Annotated[int, Meta(ge=1, le=MOST_SUB_BLOCKS)] = 6
    """Largest number of sub-blocks of a combined block (figure 18)."""
    copies: Annotated[int, Meta(ge=1, le=MOST_SUB_BLOCKS)] = 4
    """Largest number of copies of a model (figure 24)."""
    batches: Several[Annotated[Positive, doc("Inputs of a batch.")]] = (1, 4, 16, 64, 128)
    """Batch sizes (figures 25 to 27)."""
    gpus: Several[Annotated[Text, doc("A GPU, as `hios profile --gpu` takes it.")]] = (
        "jetson-nano",
        "jetson-tx2",
        "jetson-xavier-nx",
        "a100-pcie-40gb",
    )
    """Described GPUs whose stages are compared (figure 20; by default the paper's)."""
    steps: Positive = 1000
    """Training steps of GPG (figures 13 and 21; the paper: 6000)."""
    samples: Positive = 6
    """Combinations of blocks for each number of sub-blocks (figure 13)."""
    transitions: Positive = 100_000
    """Combinations of blocks with more transitions (S, S') than this are skipped (figure 13), as they take minutes."""
    launcher_steps: OrAbsent[Positive] = None
    """Training steps of the launcher (the paper: 8000). If left out, 8000 with scale full, and those of launcher_size
    with scale quick: 600, 2000 or 8000."""
    loads: Several[Annotated[AboveZero, doc("Factor for the rates of a scenario.")]] = (1.0, 4.0, 8.0)
    """Loads of TOP (figures 14 to 17), those of the policies under `serving:` that it is compared with."""
    launcher_size: TrainingSize = "small"
    """Amount of training of the launcher of TOP in all figures, as hios train --size takes it."""
    launcher_seeds: Positive = 1
    """Trainings of the launcher, each with another seed (figure 22)."""


class PruningStudy(Record, frozen=True):
    """IOS with tighter and looser pruning (IOS, figure 9), on the networks of the configuration."""

    models: OrAbsent[Several[Annotated[Text, doc("Label of a network.")]]] = None
    """Labels of networks; all if left out."""
    r: Several[Annotated[Positive, doc("Number of operators.")]] = (1, 2, 3)
    """Largest numbers of operators in a group."""
    s: Several[Annotated[Positive, doc("Number of groups.")]] = (3, 8)
    """Largest numbers of groups in a stage."""


_NetworkFile = Annotated[str, Meta(pattern=f"^[A-Za-z0-9][A-Za-z0-9_]*{END}"), doc("Name of a file in models/.")]
_T = TypeVar("_T")
_ByNetwork = Annotated[dict[_NetworkFile, _T], Meta(min_length=1)]


class ImageStudy(Record, frozen=True):
    """Networks on images of several sizes (HIOS, figures 12 and 13), and how long scheduling them takes (figure 14)."""

    sizes: OrAbsent[
        _ByNetwork[Annotated[Several[Annotated[Positive, doc("Height and width in pixels.")]], doc("Image sizes.")]]
    ] = None
    """Sizes by network. If left out, {inception_v3: [149, 299]} with scale quick, and {inception_v3: [299, 512, 1024],
    nasnet_large: [331, 512]} with scale full."""


class BatchStudy(Record, frozen=True):
    """Networks and schedules with several batch sizes (IOS, figure 11 and table 3; Opara, figure 8)."""

    sizes: OrAbsent[
        _ByNetwork[Annotated[Several[Annotated[Positive, doc("Images in a batch.")]], doc("Batch sizes.")]]
    ] = None
    """Batch sizes by network. If left out, {inception_v3: [1, 4]} with scale quick; with scale full also 16."""
    image_size: OrAbsent[Positive] = None
    """Height and width in pixels. If left out, 149 with scale quick, and the size of the network's paper with full."""


class TransformerStudy(Record, frozen=True):
    """Networks whose Relax operators are scheduled one by one, by Opara and Nimble (Opara, figure 7)."""

    models: OrAbsent[Several[_NetworkFile]] = None
    """Networks in full size. If left out, BERT and T5 with two layers each with scale quick; BERT, T5, GoogLeNet and
    Inception-v3 with scale full."""


class Study(Record, frozen=True):
    """Figures and tables of the papers (`snakemake figures`)."""

    scale: Literal["quick", "full"] = "quick"
    """How many instances are drawn, and which sizes are measured: quick to try things out, full for as many as in the
    papers. With quick, the session profiles takes Inception-v3 at 149 px, unless `images: sizes` says otherwise, and
    measures each entry once instead of `profile: repeats` times."""
    sessions: Distinct[Annotated[Session, doc("Name of a session.")]] = ("networks", "simulation", "predictions")
    """Sessions whose figures are part of the report, without duplicates; `snakemake --cores all` draws those that need
    nothing else. With an empty list, the report has no figures of the papers."""
    archives: Distinct[
        Annotated[
            str,
            Meta(pattern=rf"^(?!-)(.*/)?[A-Za-z0-9][A-Za-z0-9_.-]*\.zip{END}"),
            doc("An archive; the file name without .zip names the machine."),
        ]
    ] = ()
    """Archives of runs on other machines (`snakemake archive`), which figures that compare machines show next to this
    one (IOS, figures 14 and 15; Opara, figure 9). Paths are relative to the working folder."""
    simulation: SimulationStudy = field(default_factory=SimulationStudy)
    convolutions: ConvolutionStudy = field(default_factory=ConvolutionStudy)
    pruning: PruningStudy = field(default_factory=PruningStudy)
    images: ImageStudy = field(default_factory=ImageStudy)
    batches: BatchStudy = field(default_factory=BatchStudy)
    transformers: TransformerStudy = field(default_factory=TransformerStudy)
    top: TopStudy = field(default_factory=TopStudy)


class Serving(Record, frozen=True):
    """Several models on one device: scenarios under policies, simulated and optionally run (TOP)."""

    policies: Distinct[Annotated[Text, doc("Name of a policy, as hios simulate takes it.")]] = ()
    """Policies to simulate each scenario under, without duplicates; an empty list skips serving. With learned or
    learned-static, a launcher is trained for each scenario and load."""
    loads: Several[Annotated[AboveZero, doc("Factor for the rates of a scenario.")]] = (0.8,)
    """Loads for each scenario, without duplicates."""
    measure: bool = False
    """Whether scenarios also run for real on the cores of this machine, one policy after another. The simulations of
    each scenario are then calibrated by about a minute of real runs. Platform cpu only."""
    training: TrainingSize = "default"
    """Amount of training of a launcher, as hios train --size takes it."""
    scenarios: dict[
        Label,
        Annotated[
            _Argument, doc("A scenario file; its path is relative to the working folder, without a dash at the start.")
        ],
    ] = field(default_factory=dict)
    """Scenarios by label. If left out, a single scenario with all networks, under the label networks."""
    duration_s: AboveZero = 60.0
    """Seconds for which tasks arrive in the scenario with all networks; other scenarios state their own duration."""
    slo_scale: AboveZero = 5.0
    """Latency up to which a task counts as goodput in that scenario, as a multiple of its time alone on a lane."""


#: Instead of numbers of devices: the fastest partition of the machine's cores.
AUTO_DEVICES = "auto"


class Config(Record, frozen=True, kw_only=True):
    """What the pipeline compares, and how."""

    models: Annotated[dict[ModelLabel, ModelEntry], Meta(min_length=1)]
    """Networks by label; at least one."""
    platform: Literal["cpu", "cuda", "model"] = "cpu"
    """Where costs are measured and schedules run. cpu: devices are cores or groups of cores; cuda: devices are GPUs;
    model: costs are predicted for GPUs that are not here, and nothing runs."""
    gpu: OrAbsent[Text] = None
    """GPU to predict for: a name (docs/gpus.md lists them) or a .yaml file; a relative path starts at the working
    folder. Platform model only."""
    link: OrAbsent[Text] = None
    """Link between two GPUs: a name from the GPU's description (docs/gpus.md lists them) or a .yaml file; a relative
    path starts at the working folder. The first link of the description if left out. Platform model only."""
    contention: OrAbsent[Literal["blend", "resources"]] = None
    """How operators slow each other: by the share of the device that they keep busy, or as they share room on it,
    arithmetic and memory bandwidth, with overheads (docs/gpus.md, docs/cores.md). blend if left out."""
    launches: OrAbsent[Literal["graph", "streams"]] = None
    """How kernels are launched, which decides the pause before each: replayed in one CUDA graph, or by the host one
    after another (docs/gpus.md). graph if left out. Platform model only."""
    virtual: bool = False
    """Whether several devices may share a core or GPU if there are too few. Times then mean little."""
    cores_per_device: OrAbsent[Positive] = None
    """Number of cores of each device, used by threads inside each operator; 1 if left out. Platform cpu only."""
    devices: Several[Annotated[Positive, doc("Number of devices.")]] | Literal["auto"] = (1, 2)
    """Numbers of devices to schedule for, without duplicates. Or auto, with platform cpu: for each network, the
    partition of the machine's cores into devices that `hios partition` measures to be the fastest."""
    algorithms: Annotated[dict[Label, AlgorithmEntry], Meta(min_length=1)]
    """Scheduling algorithms by label; at least one."""
    profile: Profile = field(default_factory=Profile)
    execute: Execute = field(default_factory=Execute)
    distribute: Distribute = field(default_factory=Distribute)
    serving: Serving = field(default_factory=Serving)
    study: Study = field(default_factory=Study)
    seed: Seed = option_defaults.SEED
    """Seed of weights, inputs and randomized algorithms that are not given a seed of their own."""
    results: Annotated[str, Meta(pattern="^(?!-)[^{}<>*]*[^{}<>*/]$")] = "results"
    """Folder for everything that is written. Its name must not begin with a dash, contain braces, angle brackets or
    asterisks, nor end with a slash."""

    def __post_init__(self) -> None:
        for label, entry in self.algorithms.items():
            if not isinstance(entry.get("algorithm", label), str) or entry.get("algorithm") == "":
                raise ValueError(f"algorithms.{label}.algorithm: required: the name of an algorithm, as text")
        if unknown := set(self.study.pruning.models or ()) - self.models.keys():
            known = ", ".join(self.models)
            raise ValueError(
                f"study.pruning.models: found {', '.join(sorted(unknown))}; allowed: labels of networks, {known}"
            )
        if taken := self.models.keys() & TAKEN:
            raise ValueError(
                f"models: found the label {', '.join(taken)}; allowed: other labels, as this folder holds other results"
            )
        machines = [PurePosixPath(path).stem for path in self.study.archives]
        if twice := {name for name in machines if machines.count(name) > 1}:
            raise ValueError(
                f"study.archives: found several files {min(twice)}.zip; allowed: each name once, as it names a machine"
            )
        # The shapes of a network's inputs are the only lists in which a value may stand twice.
        sections = {name: getattr(self, name) for name in self.__struct_fields__ if name != "models"}
        if (path := next(_with_repetitions(sections), None)) is not None:
            raise ValueError(f"{path}: found a value twice; allowed: each value once")


def _with_repetitions(section: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The paths of lists in which a value stands twice."""
    for name, value in section.items():
        path = f"{above}{name}"
        if isinstance(value, tuple) and len(set(value)) < len(value):
            yield path
        elif isinstance(value, Record):
            yield from _with_repetitions(msgspec.structs.asdict(value), f"{path}.")
        elif isinstance(value, dict):
            yield from _with_repetitions(value, f"{path}.")
