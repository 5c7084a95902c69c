"""graph.json: the operators with their calls, and the edges; the project's intermediate representation."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from hios.formats.base import (
    Amount,
    Count,
    FormatVersion,
    OperatorId,
    OrAbsent,
    Positive,
    Record,
    Text,
    doc,
)

Shape = Annotated[tuple[Annotated[Count, doc("Size of one dimension.")], ...], doc("Sizes of the dimensions.")]
DType = Annotated[str, doc("Element type by its torch name, such as float32.")]
#: A number, or the name of one that JSON lacks.
Number = bool | int | float | Literal["inf", "-inf", "nan"]


class Value(Record, frozen=True):
    """Where a tensor or number comes from: exactly one of operator, input, weight, call, constant."""

    schema_extra: ClassVar = {"minProperties": 1}

    operator: OrAbsent[Text] = None
    """Id of the operator that produces it."""
    item: OrAbsent[Count] = None
    """Which of the operator's outputs, if it has several."""
    input: OrAbsent[Text] = None
    """Name of an input of the graph."""
    weight: OrAbsent[Text] = None
    """Name of a tensor in the weights file."""
    call: OrAbsent[Count] = None
    """Position of an earlier call of the same operator."""
    constant: OrAbsent[Number] = None
    """A number; text for those that JSON lacks: inf, -inf, nan."""

    def __post_init__(self) -> None:
        if not self.kinds and self.item is None:
            raise ValueError("a value states where it comes from")

    @property
    def kinds(self) -> list[str]:
        """Which of operator, input, weight, call and constant it states; exactly one if it can be run."""
        return [kind for kind in ("operator", "input", "weight", "call", "constant") if getattr(self, kind) is not None]

    @property
    def external(self) -> tuple[str, str, int] | None:
        """What it reads from outside its operator, as (``"operator"`` or ``"input"``, name, item); else None."""
        if self.operator is not None:
            return ("operator", self.operator, self.item or 0)
        return None if self.input is None else ("input", self.input, 0)

    @property
    def number(self) -> bool | int | float:
        """The number behind a constant."""
        if self.constant is None:
            raise ValueError("this value is not a constant")
        return float(self.constant) if isinstance(self.constant, str) else self.constant


class Call(Record, frozen=True, omit_defaults=False):
    """One Relax operator inside a scheduling unit."""

    function: Text
    """Name of the Relax operator, such as relax.nn.conv2d."""
    arguments: tuple[Value, ...]
    """Its tensor arguments, in order."""
    attributes: dict[str, Any] = msgspec.field(default_factory=dict)
    """Its attributes by their Relax names: strides, padding and so on."""


class TensorSpec(Record, frozen=True):
    """A named tensor."""

    name: Text
    """Its name."""
    shape: Shape
    dtype: DType
    below: OrAbsent[Positive] = None
    """For an integer input: upper limit of its values, which are smaller, such as the size of a vocabulary; 2 if left
    out."""


class Shapes(Record, frozen=True):
    """Shapes of its tensors."""

    inputs: tuple[Shape, ...]
    """Shape of each tensor that the operator reads from other operators and graph inputs."""
    outputs: tuple[Shape, ...]
    """Shape of each tensor that the operator produces."""


class Operator(Record, frozen=True):
    """One scheduling unit.

    Examples:
        >>> import hios
        >>> operator = hios.Operator("stem.conv", "conv2d-relu", flops=21_676_032)
        >>> operator.id, operator.type, operator.calls
        ('stem.conv', 'conv2d-relu', ())
    """

    id: Text
    """Unique name."""
    type: Text
    """Kind of the unit, such as conv2d-relu, max_pool2d, concat."""
    calls: tuple[Call, ...] = ()
    """The Relax operators that it consists of, in order; the last one produces its output."""
    shapes: OrAbsent[Shapes] = None
    dtype: OrAbsent[DType] = None
    dtypes: OrAbsent[tuple[DType, ...]] = None
    """Element type of each output, if they differ; dtype is that of the first."""
    flops: OrAbsent[Amount] = None
    """Floating-point operations (a multiply-add counts two)."""
    bytes: OrAbsent[Count] = None
    """Bytes read and written: inputs, weights (only the rows looked up, for a table) and outputs, each once. Operators
    that only return a view of a value count as if they copied it."""

    @property
    def output_types(self) -> tuple[tuple[tuple[int, ...], str], ...]:
        """Shape and dtype of each output; empty if the graph does not state them."""
        if self.shapes is None or self.dtype is None:
            return ()
        dtypes = self.dtypes or (self.dtype,) * len(self.shapes.outputs)
        return tuple(zip(self.shapes.outputs, dtypes, strict=True))


class Edge(Record, frozen=True):
    """A dependency: a value that target reads from source.

    Examples:
        >>> import hios
        >>> hios.Edge("conv", "relu", bytes=4096)
        Edge(source='conv', target='relu', bytes=4096)
    """

    source: Text
    """Id of the producer."""
    target: Text
    """Id of the consumer."""
    bytes: OrAbsent[Count] = None
    """Size of the value."""


class GraphFile(Record, frozen=True):
    """The computation graph: operators (scheduling units) and the values that pass between them."""

    name: Text
    """Name of the network."""
    operators: Annotated[tuple[Operator, ...], Meta(min_length=1)]
    """The scheduling units."""
    edges: tuple[Edge, ...]
    """One edge per value that an operator reads from another; a value that is read twice is two edges."""
    inputs: tuple[TensorSpec, ...] = ()
    """Inputs of the network."""
    outputs: tuple[Value, ...] = ()
    """Outputs of the network, in order."""
    weights: tuple[TensorSpec, ...] = ()
    """Tensors in the weights file."""
    blocks: tuple[Annotated[tuple[OperatorId, ...], doc("One block.")], ...] = ()
    """Operator ids by block, in execution order."""
    units: OrAbsent[Text] = None
    """How operators were grouped into scheduling units: conv-relu, relu-sepconv or operator."""
    format_version: FormatVersion = 1
