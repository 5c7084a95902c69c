"""config.yaml: what the pipeline compares, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, field

from hios import defaults
from hios.formats.base import END, AboveZero, Amount, Count, OrAbsent, Positive, Record, Text, doc

#: A label becomes part of file names.
Label = Annotated[
    str,
    Meta(pattern=f"^[A-Za-z0-9][A-Za-z0-9_-]*{END}"),
    doc("A label is letters, digits, - and _, and begins with a letter or digit."),
]
#: Folders of these names beside those of the networks hold other things.
TAKEN = ("benchmarks", "logs", "tables")
#: A label of a network: a folder, which must not be one of those that hold other things.
ModelLabel = Annotated[
    Label,
    Meta(
        extra_json_schema={
            "not": {
                "enum": list(TAKEN),
                "description": "Folders of these names beside those of the networks hold other things.",
            }
        }
    ),
]
Scalar = bool | int | float | str
#: Keyword arguments of a function that builds a network.
ModelOptions = Mapping[str, Scalar]
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


class ModelEntry(Record, frozen=True):
    """One network."""

    model: OrAbsent[
        Annotated[
            Text,
            doc(
                "File in models/ without .py; package.module:function of your own; or a file that ends in .pt2 or "
                ".onnx, its path relative to the folder that the pipeline runs in. The label if left out."
            ),
        ]
    ] = None
    image_size: OrAbsent[
        Annotated[Positive, doc("Height and width of the input in pixels; the network's own if left out.")]
    ] = None
    batch_size: OrAbsent[
        Annotated[
            Positive,
            doc("Inputs at a time; the network's own default if left out, which is 1 for those of models/."),
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
            doc("Shapes of inputs by name, of an .onnx file that leaves dimensions open."),
        ]
    ] = None
    below: OrAbsent[
        Annotated[
            dict[Text, Annotated[Positive, doc("What values of the input are less than.")]],
            doc("Limits of inputs of whole numbers by name; as the model declares if left out, else 2."),
        ]
    ] = None
    units: OrAbsent[
        Annotated[
            Literal["conv-relu", "relu-sepconv", "operator"],
            doc("What is one operator of the graph; as the network declares if left out, else conv-relu."),
        ]
    ] = None
    trusted: OrAbsent[
        Annotated[
            bool,
            doc("Whether a .pt2 file is loaded even if loading it can run code, as you trust who made it."),
        ]
    ] = None


class Profile(Record, frozen=True):
    """How costs are measured."""

    stages_of: Annotated[
        tuple[Annotated[Text, doc("Name in the registry.")], ...],
        Meta(min_length=1, extra_json_schema={"uniqueItems": True}),
        doc("Algorithms of the registry whose stages are measured, each once; at least one."),
    ] = defaults.STAGES_OF
    repeats: Annotated[Positive, doc("Least number of measurements of every operator and stage.")] = defaults.REPEATS
    budget: Annotated[
        Amount,
        doc("Seconds for measuring on until medians are certain, and for stages; those left out are modelled."),
    ] = defaults.PROFILE_BUDGET_S
    cache: Annotated[
        bool | Text,
        doc("Whether measurements of other runs and networks are used and kept, or the folder for them."),
    ] = True


class Execute(Record, frozen=True):
    """How schedules are run."""

    runs: Annotated[Positive, doc("Timed runs of every competitor.")] = defaults.RUNS
    warmup: Annotated[Count, doc("Untimed runs before them.")] = defaults.WARMUP
    tolerance: Annotated[AboveZero, doc("Largest difference from the output of eager PyTorch.")] = defaults.TOLERANCE
    baselines: Annotated[
        tuple[
            Annotated[
                Runtime,
                doc(
                    "Eager PyTorch, torch.compile, ONNX Runtime or OpenVINO; on GPUs also PyTorch in a CUDA graph, "
                    "torch.compile in its modes reduce-overhead and max-autotune, or TensorRT, and neither ONNX "
                    "Runtime nor OpenVINO."
                ),
            ],
            ...,
        ],
        Meta(min_length=1, extra_json_schema={"uniqueItems": True}),
        doc(
            "What else runs the networks as they are, with 1 thread and with as many as there are devices, each once; "
            "eager PyTorch always does."
        ),
    ] = ("eager",)


#: One algorithm; its keys but ``algorithm`` are those of its parameters.
AlgorithmEntry = Annotated[
    dict[str, Annotated[Scalar, doc("Value of a parameter.")]],
    Meta(
        description="One algorithm and, by the names of its paper, its parameters; the registry checks them.",
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


class Config(Record, frozen=True, kw_only=True):
    """What the pipeline compares, and how."""

    models: Annotated[dict[ModelLabel, ModelEntry], Meta(min_length=1), doc("Networks by label; at least one.")]
    platform: Annotated[
        Literal["cpu", "cuda", "model"],
        doc(
            "Where costs are measured and schedules run: devices are cores or GPUs. model predicts costs for GPUs that "
            "are not here, and runs nothing."
        ),
    ] = "cpu"
    gpu: OrAbsent[
        Annotated[
            Text,
            doc(
                "GPU to predict for: a name (docs/gpus.md lists them), or a .yaml file, whose path is relative to the "
                "working folder unless absolute; with platform model."
            ),
        ]
    ] = None
    link: OrAbsent[
        Annotated[
            Text,
            doc(
                "What lies between two GPUs: a word of the GPU's description (docs/gpus.md lists them), or a .yaml "
                "file, whose path is relative to the working folder unless absolute; the first that the GPU lists if "
                "left out; with platform model."
            ),
        ]
    ] = None
    virtual: Annotated[
        bool,
        doc("Whether devices share cores or GPUs where there are fewer of them; times say little then."),
    ] = False
    devices: Annotated[
        tuple[Annotated[Positive, doc("Number of devices.")], ...],
        Meta(min_length=1, extra_json_schema={"uniqueItems": True}),
        doc("Numbers of devices to schedule for, each once."),
    ] = (1, 2)
    algorithms: Annotated[
        dict[Label, AlgorithmEntry],
        Meta(min_length=1),
        doc("Scheduling algorithms by label; at least one."),
    ]
    profile: Profile = field(default_factory=Profile)
    execute: Execute = field(default_factory=Execute)
    seed: Annotated[
        int,
        Meta(ge=0, le=9223372036854775807),
        doc("Seed of weights, inputs and of every algorithm that is not given one itself."),
    ] = defaults.SEED
    results: Annotated[
        str,
        Meta(pattern="^[^{}<>*]*[^{}<>*/]$"),
        doc("Folder of everything that is written, not a file; no braces or angle brackets, no slash at the end."),
    ] = "results"

    def __post_init__(self) -> None:
        for label, entry in self.algorithms.items():
            if not isinstance(entry.get("algorithm", label), str) or entry.get("algorithm") == "":
                raise ValueError("the name of an algorithm is text")
        if taken := self.models.keys() & TAKEN:
            raise ValueError(f"networks cannot be called {', '.join(taken)}")
        for name, values in (
            ("devices", self.devices),
            ("profile.stages_of", self.profile.stages_of),
            ("execute.baselines", self.execute.baselines),
        ):
            if len(set(values)) < len(values):
                raise ValueError(f"{name}: each is given once")
