"""What the classes of all file formats have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from msgspec import Meta, Struct

if TYPE_CHECKING:
    _T = TypeVar("_T")
    OrAbsent: TypeAlias = _T | None
else:

    class OrAbsent:
        """``OrAbsent[T]``: a key that a file may lack, which is None here; JSON's null is not allowed for it."""

        def __class_getitem__(cls, kind: Any) -> Any:
            """The type itself, as that is what a file must hold if it has the key."""
            return kind


class Record(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A JSON object with fixed keys; others are refused. Keys with their default are left out of files."""


def doc(text: str) -> Meta:
    """What a field means: its description in the schema."""
    return Meta(description=text)


#: End of a pattern that no line break may follow; ``$`` alone allows one in Python, though not in ECMAScript.
END = r"$(?!\n)"

#: Sub-blocks of a combined block at most: each set of them has times of its own.
MOST_SUB_BLOCKS = 10

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
NonNegative = Annotated[float, Meta(ge=0)]
#: A number that stays an integer if it was written as one.
Amount = Annotated[int, Meta(ge=0)] | Annotated[float, Meta(ge=0)]
AboveZero = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
#: Numbers of devices; the largest is a guard against files that ask for absurd amounts of memory.
DeviceCount = Annotated[int, Meta(ge=1, le=1024)]
Fingerprint = Annotated[str, Meta(pattern=f"^[0-9a-f]{{16}}{END}")]
Timestamp = Annotated[str, Meta(pattern=f"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}Z{END}")]
FormatVersion = Annotated[Literal[1], doc("Version of the format.")]
OperatorId = Annotated[Text, doc("Operator id.")]
Versions = Annotated[dict[str, Annotated[str, doc("A version.")]], doc("Versions of the software that made the file.")]


class Allocation(Record, frozen=True, kw_only=True):
    """What the system and, if any, the batch system allotted to the process that measured (rank 0 of several)."""

    node: Annotated[Text, doc("Name of the node.")]
    cores: Annotated[
        tuple[Annotated[Count, doc("Core number.")], ...],
        doc("Logical CPUs that the process could run on: its affinity mask."),
    ]
    system: OrAbsent[Annotated[Literal["slurm", "pbs", "lsf"], doc("Batch system; absent outside of a job.")]] = None
    job: OrAbsent[Annotated[Text, doc("Number of the job.")]] = None
    partition: OrAbsent[Annotated[Text, doc("Partition or queue of the job.")]] = None
    gpus: OrAbsent[
        Annotated[Text, doc("GPUs that were visible to the process, as CUDA_VISIBLE_DEVICES names them.")]
    ] = None


class Platform(Record, frozen=True):
    """Where the costs were measured."""

    name: Annotated[Text, doc("cpu, cuda or model.")]
    devices: OrAbsent[Annotated[DeviceCount, doc("Number of devices.")]] = None
    cores: OrAbsent[
        Annotated[
            tuple[Annotated[tuple[Annotated[Count, doc("Core number.")], ...], doc("Cores of one device.")], ...],
            doc("Cores that each device is pinned to; virtual devices may share cores."),
        ]
    ] = None
    cores_per_device: OrAbsent[
        Annotated[
            Positive,
            doc(
                "Cores of each device, and threads inside its operators, where devices are groups of cores; default 1."
            ),
        ]
    ] = None
    gpus: OrAbsent[
        Annotated[tuple[Annotated[Text, doc("Name of a GPU.")], ...], doc("Name of the GPU of every device.")]
    ] = None
    gpu_indices: OrAbsent[
        Annotated[
            tuple[Annotated[Count, doc("Number of a GPU, as torch numbers them.")], ...], doc("GPU of every device.")
        ]
    ] = None
    compute_capability: OrAbsent[
        Annotated[
            tuple[
                Annotated[str, Meta(pattern=rf"^[0-9]+\.[0-9]+{END}"), doc("Major and minor version, such as 9.0.")],
                ...,
            ],
            doc("Compute capability of the GPU of every device."),
        ]
    ] = None
    memory_gb: OrAbsent[
        Annotated[
            tuple[Annotated[AboveZero, doc("In units of 10^9 bytes.")], ...],
            doc("Memory of the GPU of every device."),
        ]
    ] = None
    driver: OrAbsent[Annotated[str, doc("Version of the GPUs' driver.")]] = None
    cuda: OrAbsent[Annotated[str, doc("Version of CUDA that torch was built with.")]] = None
    cudnn: OrAbsent[Annotated[str, doc("Version of cuDNN, as one number.")]] = None
    peer_access: OrAbsent[
        Annotated[
            bool,
            doc(
                "Whether GPUs copy directly between their memories, without the host's; absent if there is only one"
                " GPU."
            ),
        ]
    ] = None
    tf32: OrAbsent[
        Annotated[
            bool,
            doc("Whether float32 convolutions were timed in TF32, which is torch's default on GPUs that support it."),
        ]
    ] = None
    processor: OrAbsent[Annotated[str, doc("Model name of the processor.")]] = None
    governor: OrAbsent[
        Annotated[
            Text,
            doc(
                "What decided the clock rates of the cores, as Linux names it, such as performance; absent where it "
                "does not say, as in most virtual machines."
            ),
        ]
    ] = None
    load_average: OrAbsent[
        Annotated[
            NonNegative,
            doc("Load average over one minute when the measurement began; it includes earlier steps of the pipeline."),
        ]
    ] = None
    busy_share: OrAbsent[
        Annotated[
            Share,
            doc("Share of their time that the devices' cores spent on other work right before the measurement."),
        ]
    ] = None
    predicted: OrAbsent[
        Annotated[bool, doc("Whether times are predicted (platform model); absent where they were measured.")]
    ] = None
    gpu: OrAbsent[Annotated[Text, doc("GPU of all devices that times are predicted for: name or file.")]] = None
    link: OrAbsent[Annotated[Text, doc("Link between two of these GPUs: name or file.")]] = None
    virtual: OrAbsent[
        Annotated[
            bool,
            doc("Whether devices or ranks shared cores or GPUs; their times then mean little. Absent if they did not."),
        ]
    ] = None
    allocation: OrAbsent[Allocation] = None

    @property
    def hardware(self) -> str | None:
        """The kind of its devices: the GPUs, or the processor; None where nothing was measured or it is not stated."""
        if self.predicted:
            return None
        return ", ".join(dict.fromkeys(self.gpus)) if self.gpus else self.processor
