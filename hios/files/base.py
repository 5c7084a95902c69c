"""What the classes of all file formats have in common."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, cast

from msgspec import Meta, Struct

_T = TypeVar("_T")
if TYPE_CHECKING:
    OrAbsent: TypeAlias = _T | None
else:

    class OrAbsent:
        """``OrAbsent[T]``: a key that a file may lack, which is None here; JSON's null is not allowed for it."""

        def __class_getitem__(cls, kind: Any) -> Any:
            """The type itself, as that is what a file must hold if it has the key."""
            return kind


class Record(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A JSON object with fixed keys; others are refused. Keys with their default are left out of files.

    The text under a field says what it means: its description in the schema.
    """


def doc(text: str) -> Meta:
    """What an entry of a list or mapping means, or a type that several fields share: its description in the schema."""
    return Meta(description=text)


def meanings(cls: type) -> dict[str, str]:
    """The text under each field of a `Record`, those of its base classes included."""
    return {name: text for kind in reversed(cls.__mro__) for name, text in _own_meanings(kind).items()}


@cache
def _own_meanings(cls: type) -> dict[str, str]:
    if not issubclass(cls, Record) or cls is Record:
        return {}
    import ast  # neither is needed where files are read and written
    import inspect

    body = cast("ast.ClassDef", ast.parse(inspect.getsource(cls)).body[0]).body
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


#: End of a pattern that no line break may follow; ``$`` alone allows one in Python, though not in ECMAScript.
END = r"$(?!\n)"

#: Runtimes that run a whole model.
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
#: How devices run schedules.
EngineKind = Literal["operators", "segments"]
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
ShareAboveZero = Annotated[float, Meta(gt=0, le=1)]
#: A list of values, each once; the schema says so, and the class that has the list checks it.
Distinct = Annotated[tuple[_T, ...], Meta(extra_json_schema={"uniqueItems": True})]
#: Such a list that is not empty.
Several = Annotated[tuple[_T, ...], Meta(min_length=1, extra_json_schema={"uniqueItems": True})]
#: Numbers of devices; the largest is a guard against files that ask for absurd amounts of memory.
DeviceCount = Annotated[int, Meta(ge=1, le=1024)]
Fingerprint = Annotated[str, Meta(pattern=f"^[0-9a-f]{{16}}{END}")]
Timestamp = Annotated[str, Meta(pattern=f"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T[0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}Z{END}")]
FormatVersion = Annotated[Literal[1], doc("Version of the format.")]
OperatorId = Annotated[Text, doc("Operator id.")]
Versions = Annotated[dict[str, Annotated[str, doc("A version.")]], doc("Versions of the software that made the file.")]


class Allocation(Record, frozen=True, kw_only=True):
    """What the system and, if any, the batch system allotted to the process that measured (rank 0 of several)."""

    node: Text
    """Name of the node."""
    cores: tuple[Annotated[Count, doc("Core number.")], ...]
    """Logical CPUs that the process could run on: its affinity mask."""
    system: OrAbsent[Literal["slurm", "pbs", "lsf"]] = None
    """Batch system; absent outside of a job."""
    job: OrAbsent[Text] = None
    """Number of the job."""
    partition: OrAbsent[Text] = None
    """Partition or queue of the job."""
    gpus: OrAbsent[Text] = None
    """GPUs that were visible to the process, as CUDA_VISIBLE_DEVICES names them."""


class Platform(Record, frozen=True):
    """Where the costs were measured."""

    name: Text
    """cpu, cuda or model."""
    devices: OrAbsent[DeviceCount] = None
    """Number of devices."""
    cores: OrAbsent[
        tuple[Annotated[tuple[Annotated[Count, doc("Core number.")], ...], doc("Cores of one device.")], ...]
    ] = None
    """Cores that each device is pinned to; virtual devices may share cores."""
    cores_per_device: OrAbsent[Positive] = None
    """Cores of each device, and threads inside its operators, where devices are groups of cores; default 1."""
    gpus: OrAbsent[tuple[Annotated[Text, doc("Name of a GPU.")], ...]] = None
    """Name of the GPU of every device."""
    gpu_indices: OrAbsent[
        tuple[Annotated[Count, doc("Number of a GPU, as torch numbers them where it is used.")], ...]
    ] = None
    """GPU of every device."""
    compute_capability: OrAbsent[
        tuple[Annotated[str, Meta(pattern=rf"^[0-9]+\.[0-9]+{END}"), doc("Major and minor version, such as 9.0.")], ...]
    ] = None
    """Compute capability of the GPU of every device."""
    memory_gb: OrAbsent[tuple[Annotated[AboveZero, doc("In units of 10^9 bytes.")], ...]] = None
    """Memory of the GPU of every device."""
    driver: OrAbsent[str] = None
    """Version of the GPUs' driver."""
    cuda: OrAbsent[str] = None
    """Version of CUDA that torch was built with."""
    cudnn: OrAbsent[str] = None
    """Version of cuDNN, as one number."""
    peer_access: OrAbsent[bool] = None
    """Whether GPUs copy directly between their memories, without the host's; absent if there is only one GPU."""
    tf32: OrAbsent[bool] = None
    """Whether float32 convolutions were timed in TF32, which is torch's default on GPUs that support it."""
    processor: OrAbsent[str] = None
    """Model name of the processor."""
    governor: OrAbsent[Text] = None
    """What decided the clock rates of the cores, as Linux names it, such as performance; absent where it does not say,
    as in most virtual machines."""
    load_average: OrAbsent[NonNegative] = None
    """Load average over one minute when the measurement began; it includes earlier steps of the pipeline."""
    busy_share: OrAbsent[Share] = None
    """Share of their time that the devices' cores spent on other work right before the measurement."""
    predicted: OrAbsent[bool] = None
    """Whether times are predicted (platform model); absent where they were measured."""
    gpu: OrAbsent[Text] = None
    """GPU of all devices that times are predicted for: name or file."""
    link: OrAbsent[Text] = None
    """Link between two of these GPUs: name or file."""
    contention: OrAbsent[Text] = None
    """How operators slow each other, if it was asked for: resources; else as in `contention` of costs."""
    launches: OrAbsent[Text] = None
    """How kernels are launched in predictions, if not in one CUDA graph: streams."""
    virtual: OrAbsent[bool] = None
    """Whether devices or ranks shared cores or GPUs; their times then mean little. Absent if they did not."""
    allocation: OrAbsent[Allocation] = None

    @property
    def hardware(self) -> str | None:
        """The kind of its devices: the GPUs, or the processor; None where nothing was measured or it is not stated."""
        if self.predicted:
            return None
        return ", ".join(dict.fromkeys(self.gpus)) if self.gpus else self.processor
