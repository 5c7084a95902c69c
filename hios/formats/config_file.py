"""config.yaml: what the pipeline compares, and how."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Literal

from msgspec import Meta, field

from hios import defaults
from hios.formats.base import (
    END,
    MOST_SUB_BLOCKS,
    AboveZero,
    Amount,
    Count,
    DeviceCount,
    OrAbsent,
    Positive,
    Record,
    Share,
    Text,
    doc,
)

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
Scalar = bool | int | float | str
#: Keyword arguments of a function that builds a network.
ModelOptions = Mapping[str, Scalar]
#: A list of values without duplicates.
_Several = Meta(min_length=1, extra_json_schema={"uniqueItems": True})
_Layers = Annotated[int, Meta(ge=3)]
Runtime = Literal[
    "eager",
    "compile",
    "onnxruntime",
    "openvino",
    "cudagraph",
    "compile-reduce-overhead",
    "compile-max-autotune",
    "tensorrt",
]


#: An argument of a command, which must not be taken for an option.
_Argument = Annotated[str, Meta(pattern="^[^-]")]


class ModelEntry(Record, frozen=True):
    """One network."""

    model: OrAbsent[
        Annotated[
            _Argument,
            doc(
                "File in models/ without .py; package.module:function of your own; or a file that ends in .pt2 or "
                ".onnx, its path relative to the folder that the pipeline runs in; no dash at the start. The label if "
                "left out."
            ),
        ]
    ] = None
    image_size: OrAbsent[
        Annotated[
            Positive, doc("Height and width of the input in pixels; the size of the network's paper if left out.")
        ]
    ] = None
    batch_size: OrAbsent[
        Annotated[
            Positive,
            doc("Number of inputs per inference; the network's default if left out, which is 1 for those of models/."),
        ]
    ] = None
    classifier: Annotated[bool, doc("Whether the classifier is appended; the papers leave it out.")] = False
    options: OrAbsent[
        Annotated[
            dict[str, Annotated[Scalar, doc("Value of an argument.")]],
            doc("Other keyword arguments of the function that builds the network."),
        ]
    ] = None
    inputs: OrAbsent[
        Annotated[
            dict[
                Text,
                Annotated[
                    tuple[Annotated[Positive, doc("Size of a dimension.")], ...],
                    Meta(min_length=1),
                    doc("Shape of an input, such as [1, 3, 224, 224]."),
                ],
            ],
            doc(
                "Shapes by input name, for an .onnx or .pt2 file that leaves dimensions open (.pt2 files need "
                "`trusted` too). For an .onnx input that is a single integer, its value, such as [16000]."
            ),
        ]
    ] = None
    below: OrAbsent[
        Annotated[
            dict[Text, Annotated[Positive, doc("Upper limit; values are smaller.")]],
            doc("Upper limits of integer inputs by name; if left out, what the model declares, else 2."),
        ]
    ] = None
    units: OrAbsent[
        Annotated[
            Literal["conv-relu", "relu-sepconv", "operator"],
            doc("What counts as one operator; if left out, what the network declares, else conv-relu."),
        ]
    ] = None
    trusted: OrAbsent[
        Annotated[
            bool,
            doc("Whether to load a .pt2 file even if loading it can run code. Set it only if you trust who made it."),
        ]
    ] = None


class Profile(Record, frozen=True):
    """How costs are measured."""

    stages_of: Annotated[
        tuple[Annotated[Text, doc("Name of an algorithm (`hios algorithms`).")], ...],
        Meta(min_length=1, extra_json_schema={"uniqueItems": True}),
        doc("Algorithms whose stages are measured; at least one, without duplicates."),
    ] = defaults.STAGES_OF
    repeats: Annotated[Positive, doc("Minimum number of measurements of each operator and stage.")] = defaults.REPEATS
    budget: Annotated[
        Amount,
        doc(
            "Seconds for repeating measurements until medians are certain, and for measuring stages; the time "
            "of stages that are not reached is estimated by the contention model."
        ),
    ] = defaults.PROFILE_BUDGET_S
    widths: Annotated[
        tuple[Annotated[int, Meta(ge=2), doc("Number of devices.")], ...],
        Meta(extra_json_schema={"uniqueItems": True}),
        doc(
            "Also measure operators, and merged convolutions of one input, on these numbers of devices at once;"
            " each at most the largest of `devices`, without duplicates. Platform cpu only."
        ),
    ] = ()
    cache: Annotated[
        bool | Text,
        doc("Whether to reuse and save measurements across runs and networks; or the folder to cache them in."),
    ] = True


class Execute(Record, frozen=True):
    """How schedules are run."""

    runs: Annotated[Positive, doc("Timed runs of each competitor.")] = defaults.RUNS
    warmup: Annotated[Count, doc("Untimed runs before the timed ones.")] = defaults.WARMUP
    tolerance: Annotated[
        AboveZero, doc("Allowed difference from the outputs of eager PyTorch, absolute plus relative.")
    ] = defaults.TOLERANCE
    baselines: Annotated[
        tuple[
            Annotated[
                Runtime,
                doc(
                    "Eager PyTorch, torch.compile, ONNX Runtime or OpenVINO. On GPUs neither ONNX Runtime nor OpenVINO,"
                    " but also PyTorch in a CUDA graph, torch.compile in its modes reduce-overhead and max-autotune, "
                    "and TensorRT."
                ),
            ],
            ...,
        ],
        Meta(min_length=1, extra_json_schema={"uniqueItems": True}),
        doc(
            "Runtimes that also run the whole network, with the cores of one device and with those of all "
            "devices; without duplicates. Eager PyTorch always takes part."
        ),
    ] = ("eager",)
    other_hardware: Annotated[
        bool,
        doc(
            "Whether schedules may run on other hardware than was profiled, which is refused otherwise; the "
            "results say so."
        ),
    ] = False


class Distribute(Record, frozen=True):
    """Schedules over the ranks of a launcher, on one node or several (`hios distribute`)."""

    algorithms: Annotated[
        tuple[Annotated[Text, doc("Label of an algorithm for several devices.")], ...],
        Meta(extra_json_schema={"uniqueItems": True}),
        doc(
            "Labels of algorithms whose schedules also run with one rank per device, without duplicates; an "
            "empty list skips this step."
        ),
    ] = ()
    devices: OrAbsent[
        Annotated[
            DeviceCount,
            doc("Number of ranks: a number above 1 that `devices` lists; the largest of these if left out."),
        ]
    ] = None
    launcher: Annotated[
        Literal["torchrun", "srun", "mpirun"],
        doc(
            "What starts the ranks: torchrun on one node, with Gloo, or NCCL on platform cuda; srun in a Slurm "
            "job, or mpirun, on one node or several, with MPI."
        ),
    ] = "torchrun"
    mpi: OrAbsent[
        Annotated[
            str,
            Meta(pattern=f"^[a-z][a-z0-9_]*{END}"),
            doc("Value of srun's --mpi, such as pmix; the cluster's default if left out. Launcher srun only."),
        ]
    ] = None


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

    devices: Annotated[DeviceCount, doc("Number of devices.")] = 4
    operators: Annotated[Positive, doc("Operators of a graph.")] = 200
    edges: Annotated[
        Positive,
        doc("Edges of a graph; where the number of operators varies, the ratio of edges to operators stays the same."),
    ] = 400
    layers: Annotated[_Layers, doc("Layers of a graph.")] = 14
    p: Annotated[AboveZero, doc("Time of a transfer, as a share of the time of the operator before it.")] = 0.8


class SimulationStudy(Record, frozen=True):
    """HIOS's simulation (section V): random graphs, one parameter varied at a time."""

    instances: OrAbsent[
        Annotated[
            Positive, doc("Random graphs for each setting; if left out, 3 with scale quick and 30 with scale full.")
        ]
    ] = None
    base: SimulationDefaults = field(default_factory=SimulationDefaults)
    devices: Annotated[
        tuple[Annotated[DeviceCount, doc("Number of devices.")], ...], _Several, doc("Numbers of devices (figure 7).")
    ] = (2, 4, 6, 8, 10, 12)
    operators: Annotated[
        tuple[Annotated[Positive, doc("Number of operators.")], ...], _Several, doc("Numbers of operators (figure 8).")
    ] = (100, 150, 200, 250, 300, 350, 400)
    edges: Annotated[
        tuple[Annotated[Positive, doc("Number of edges.")], ...], _Several, doc("Numbers of edges (figure 9).")
    ] = (400, 450, 500, 550, 600)
    layers: Annotated[
        tuple[Annotated[_Layers, doc("Number of layers.")], ...], _Several, doc("Numbers of layers (figure 10).")
    ] = (6, 10, 14, 18, 22)
    p: Annotated[
        tuple[Annotated[AboveZero, doc("A share.")], ...],
        _Several,
        doc("Transfer times as shares of operator times (figure 11)."),
    ] = (0.4, 0.6, 0.8, 1.0, 1.2)
    window: Annotated[int, Meta(ge=2), doc("Largest number of operators that hios-lp and hios-mr group.")] = 2
    alpha: Annotated[Share, doc("Share of serialization in the contention model.")] = 0.5
    moves: Annotated[
        Positive,
        doc(
            "Moves of each of the two search chains of hios-opt. There is no time limit, so that two runs give "
            "equal results."
        ),
    ] = 100000
    seed: Annotated[Count, doc("Seed of the first instance; the next ones count up from it.")] = defaults.SEED


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

    sizes: OrAbsent[
        Annotated[
            tuple[Annotated[Positive, doc("Height and width in pixels.")], ...],
            _Several,
            doc("Sizes of the images; if left out, 8 to 256 px with scale quick, and to 1024 px with scale full."),
        ]
    ] = None
    channels: Annotated[Positive, doc("Channels of images and outputs.")] = 48
    repeats: Annotated[Positive, doc("Rounds for each size.")] = 15


class TopStudy(Record, frozen=True):
    """Experiments of TOP on the serving scenarios, simulated (TOP, figures 13, 18, 20 to 24, 26 and 27)."""

    most: Annotated[
        int, Meta(ge=1, le=MOST_SUB_BLOCKS), doc("Largest number of sub-blocks of a combined block (figure 18).")
    ] = 6
    copies: Annotated[int, Meta(ge=1, le=MOST_SUB_BLOCKS), doc("Largest number of copies of a model (figure 24).")] = 4
    batches: Annotated[
        tuple[Annotated[Positive, doc("Inputs of a batch.")], ...],
        _Several,
        doc("Batch sizes (figures 26 and 27)."),
    ] = (1, 4, 16, 64, 128)
    gpus: Annotated[
        tuple[Annotated[Text, doc("A GPU, as `hios profile --gpu` takes it.")], ...],
        _Several,
        doc("Described GPUs whose stages are compared (figure 20)."),
    ] = ("rtx2080-super", "v100-sxm2", "a100-pcie-40gb", "h100-sxm")
    steps: Annotated[Positive, doc("Training steps of GPG (figures 13 and 21; the paper: 6000).")] = 1000
    samples: Annotated[Positive, doc("Combinations of blocks for each number of sub-blocks (figure 13).")] = 6
    transitions: Annotated[
        Positive,
        doc(
            "Combinations of blocks with more transitions (S, S') than this are skipped (figure 13), as they "
            "take minutes."
        ),
    ] = 100_000
    launcher_steps: Annotated[
        Positive, doc("Training steps of the launcher, in its smallest size (figure 22; the paper: 8000).")
    ] = 600
    launcher_seeds: Annotated[Positive, doc("Trainings of the launcher, each with another seed (figure 22).")] = 1


class PruningStudy(Record, frozen=True):
    """IOS with tighter and looser pruning (IOS, figure 9), on the networks of the configuration."""

    models: OrAbsent[
        Annotated[
            tuple[Annotated[Text, doc("Label of a network.")], ...],
            _Several,
            doc("Labels of networks; all if left out."),
        ]
    ] = None
    r: Annotated[
        tuple[Annotated[Positive, doc("Number of operators.")], ...],
        _Several,
        doc("Largest numbers of operators in a group."),
    ] = (1, 2, 3)
    s: Annotated[
        tuple[Annotated[Positive, doc("Number of groups.")], ...],
        _Several,
        doc("Largest numbers of groups in a stage."),
    ] = (3, 8)


_NetworkFile = Annotated[str, Meta(pattern=f"^[A-Za-z0-9][A-Za-z0-9_]*{END}"), doc("Name of a file in models/.")]


class ImageStudy(Record, frozen=True):
    """Networks on images of several sizes (HIOS, figures 12 and 13), and how long scheduling them takes (figure 14)."""

    sizes: OrAbsent[
        Annotated[
            dict[
                _NetworkFile,
                Annotated[
                    tuple[Annotated[Positive, doc("Height and width in pixels.")], ...], _Several, doc("Image sizes.")
                ],
            ],
            Meta(min_length=1),
            doc(
                "Sizes by network. If left out, {inception_v3: [149, 299]} with scale quick, and {inception_v3: "
                "[299, 512, 1024], nasnet_large: [331, 512]} with scale full."
            ),
        ]
    ] = None


class BatchStudy(Record, frozen=True):
    """Networks and schedules with several batch sizes (IOS, figure 11 and table 3; Opara, figure 8)."""

    sizes: OrAbsent[
        Annotated[
            dict[
                _NetworkFile,
                Annotated[tuple[Annotated[Positive, doc("Images in a batch.")], ...], _Several, doc("Batch sizes.")],
            ],
            Meta(min_length=1),
            doc(
                "Batch sizes by network. If left out, {inception_v3: [1, 4]} with scale quick; with scale full also 16."
            ),
        ]
    ] = None
    image_size: OrAbsent[
        Annotated[
            Positive,
            doc(
                "Height and width in pixels. If left out, 149 with scale quick, and the size of the network's paper "
                "with full."
            ),
        ]
    ] = None


class TransformerStudy(Record, frozen=True):
    """Networks whose Relax operators are scheduled one by one, by Opara and Nimble (Opara, figure 7)."""

    models: OrAbsent[
        Annotated[
            tuple[_NetworkFile, ...],
            _Several,
            doc(
                "Networks in full size. If left out, BERT and T5 with two layers each with scale quick; BERT, T5, "
                "GoogLeNet and Inception-v3 with scale full."
            ),
        ]
    ] = None


class Study(Record, frozen=True):
    """Figures and tables of the papers (`snakemake figures`)."""

    scale: Annotated[
        Literal["quick", "full"],
        doc(
            "How many instances are drawn, and which sizes are measured: quick to try things out, full for as many as "
            "in the papers. With quick, the session profiles takes Inception-v3 at 149 px, unless `images: sizes` says "
            "otherwise, and measures each entry once instead of `profile: repeats` times."
        ),
    ] = "quick"
    sessions: Annotated[
        tuple[Annotated[Session, doc("Name of a session.")], ...],
        Meta(extra_json_schema={"uniqueItems": True}),
        doc(
            "Sessions whose figures are part of the report, without duplicates; `snakemake --cores all` draws "
            "those that need nothing else. With an empty list, the report has no figures of the papers."
        ),
    ] = ("networks", "simulation", "predictions")
    archives: Annotated[
        tuple[
            Annotated[
                str,
                Meta(pattern=rf"^(?!-)(.*/)?[A-Za-z0-9][A-Za-z0-9_.-]*\.zip{END}"),
                doc("An archive; the file name without .zip names the machine."),
            ],
            ...,
        ],
        Meta(extra_json_schema={"uniqueItems": True}),
        doc(
            "Archives of runs on other machines (`snakemake archive`), which figures that compare machines show"
            " next to this one (IOS, figures 14 and 15; Opara, figure 9). Paths are relative to the working "
            "folder."
        ),
    ] = ()
    simulation: SimulationStudy = field(default_factory=SimulationStudy)
    convolutions: ConvolutionStudy = field(default_factory=ConvolutionStudy)
    pruning: PruningStudy = field(default_factory=PruningStudy)
    images: ImageStudy = field(default_factory=ImageStudy)
    batches: BatchStudy = field(default_factory=BatchStudy)
    transformers: TransformerStudy = field(default_factory=TransformerStudy)
    top: TopStudy = field(default_factory=TopStudy)


class Serving(Record, frozen=True):
    """Several models on one device: scenarios under policies, simulated and optionally run (TOP)."""

    policies: Annotated[
        tuple[Annotated[Text, doc("Name of a policy, as hios simulate takes it.")], ...],
        Meta(extra_json_schema={"uniqueItems": True}),
        doc(
            "Policies to simulate each scenario under, without duplicates; an empty list skips serving. With learned "
            "or learned-static, a launcher is trained for each scenario and load."
        ),
    ] = ()
    loads: Annotated[
        tuple[Annotated[AboveZero, doc("Factor for the rates of a scenario.")], ...],
        _Several,
        doc("Loads for each scenario, without duplicates."),
    ] = (0.8,)
    measure: Annotated[
        bool,
        doc(
            "Whether scenarios also run for real on the cores of this machine, one policy after another. The "
            "simulations of each scenario are then calibrated by about a minute of real runs. Platform cpu only."
        ),
    ] = False
    training: Annotated[
        Literal["small", "default", "paper"],
        doc("Amount of training of a launcher, as hios train --size takes it."),
    ] = "default"
    scenarios: Annotated[
        dict[
            Label,
            Annotated[
                _Argument,
                doc("A scenario file; its path is relative to the working folder, without a dash at the start."),
            ],
        ],
        doc("Scenarios by label. If left out, a single scenario with all networks, under the label networks."),
    ] = field(default_factory=dict)
    duration_s: Annotated[
        AboveZero,
        doc(
            "Seconds for which tasks arrive in the scenario with all networks; other scenarios state their own "
            "duration."
        ),
    ] = 60.0
    slo_scale: Annotated[
        AboveZero,
        doc(
            "Latency up to which a task counts as goodput in that scenario, as a multiple of its time alone on a lane."
        ),
    ] = 5.0


#: Instead of numbers of devices: the fastest partition of the machine's cores.
AUTO_DEVICES = "auto"


class Config(Record, frozen=True, kw_only=True):
    """What the pipeline compares, and how."""

    models: Annotated[dict[ModelLabel, ModelEntry], Meta(min_length=1), doc("Networks by label; at least one.")]
    platform: Annotated[
        Literal["cpu", "cuda", "model"],
        doc(
            "Where costs are measured and schedules run. cpu: devices are cores or groups of cores; cuda: "
            "devices are GPUs; model: costs are predicted for GPUs that are not here, and nothing runs."
        ),
    ] = "cpu"
    gpu: OrAbsent[
        Annotated[
            Text,
            doc(
                "GPU to predict for: a name (docs/gpus.md lists them) or a .yaml file; a relative path starts at "
                "the working folder. Platform model only."
            ),
        ]
    ] = None
    link: OrAbsent[
        Annotated[
            Text,
            doc(
                "Link between two GPUs: a name from the GPU's description (docs/gpus.md lists them) or a .yaml "
                "file; a relative path starts at the working folder. The first link of the description if left out."
                " Platform model only."
            ),
        ]
    ] = None
    virtual: Annotated[
        bool,
        doc("Whether several devices may share a core or GPU if there are too few. Times then mean little."),
    ] = False
    cores_per_device: OrAbsent[
        Annotated[
            Positive,
            doc(
                "Number of cores of each device, used by threads inside each operator; 1 if left out. Platform cpu "
                "only."
            ),
        ]
    ] = None
    devices: Annotated[
        Annotated[
            tuple[Annotated[Positive, doc("Number of devices.")], ...],
            Meta(min_length=1, extra_json_schema={"uniqueItems": True}),
        ]
        | Literal["auto"],
        doc(
            "Numbers of devices to schedule for, without duplicates. Or auto, with platform cpu: for each "
            "network, the partition of the machine's cores into devices that `hios partition` measures to be the"
            " fastest."
        ),
    ] = (1, 2)
    algorithms: Annotated[
        dict[Label, AlgorithmEntry],
        Meta(min_length=1),
        doc("Scheduling algorithms by label; at least one."),
    ]
    profile: Profile = field(default_factory=Profile)
    execute: Execute = field(default_factory=Execute)
    distribute: Distribute = field(default_factory=Distribute)
    serving: Serving = field(default_factory=Serving)
    study: Study = field(default_factory=Study)
    seed: Annotated[
        int,
        Meta(ge=0, le=9223372036854775807),
        doc("Seed of weights, inputs and randomized algorithms that are not given a seed of their own."),
    ] = defaults.SEED
    results: Annotated[
        str,
        Meta(pattern="^(?!-)[^{}<>*]*[^{}<>*/]$"),
        doc(
            "Folder for everything that is written. Its name must not begin with a dash, contain braces, angle "
            "brackets or asterisks, nor end with a slash."
        ),
    ] = "results"

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
        for name, values in (
            ("devices", () if self.devices == AUTO_DEVICES else self.devices),
            ("profile.stages_of", self.profile.stages_of),
            ("profile.widths", self.profile.widths),
            ("execute.baselines", self.execute.baselines),
            ("distribute.algorithms", self.distribute.algorithms),
            ("serving.policies", self.serving.policies),
            ("serving.loads", self.serving.loads),
            ("study.sessions", self.study.sessions),
            ("study.convolutions.sizes", self.study.convolutions.sizes or ()),
            ("study.top.batches", self.study.top.batches),
            ("study.top.gpus", self.study.top.gpus),
            ("study.pruning.models", self.study.pruning.models or ()),
            ("study.pruning.r", self.study.pruning.r),
            ("study.pruning.s", self.study.pruning.s),
            *((f"study.images.sizes.{name}", sizes) for name, sizes in (self.study.images.sizes or {}).items()),
            *((f"study.batches.sizes.{name}", sizes) for name, sizes in (self.study.batches.sizes or {}).items()),
            ("study.transformers.models", self.study.transformers.models or ()),
            *((f"study.simulation.{name}", getattr(self.study.simulation, name)) for name in SERIES),
        ):
            if len(set(values)) < len(values):
                raise ValueError(f"{name}: found a value twice; allowed: each value once")
