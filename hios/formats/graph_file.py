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

    operator: OrAbsent[Annotated[Text, doc("Id of the operator that produces it.")]] = None
    item: OrAbsent[Annotated[Count, doc("Which of the operator's outputs, if it has several.")]] = None
    input: OrAbsent[Annotated[Text, doc("Name of an input of the graph.")]] = None
    weight: OrAbsent[Annotated[Text, doc("Name of a tensor in the weights file.")]] = None
    call: OrAbsent[Annotated[Count, doc("Position of an earlier call of the same operator.")]] = None
    constant: OrAbsent[Annotated[Number, doc("A number; text for those that JSON lacks: inf, -inf, nan.")]] = None

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

    function: Annotated[Text, doc("Name of the Relax operator, such as relax.nn.conv2d.")]
    arguments: Annotated[tuple[Value, ...], doc("Its tensor arguments, in order.")]
    attributes: Annotated[dict[str, Any], doc("Its attributes by their Relax names: strides, padding and so on.")] = (
        msgspec.field(default_factory=dict)
    )


class TensorSpec(Record, frozen=True):
    """A named tensor."""

    name: Annotated[Text, doc("Its name.")]
    shape: Shape
    dtype: DType
    below: OrAbsent[
        Annotated[
            Positive,
            doc(
                "For an integer input: upper limit of its values, which are smaller, such as the size of a "
                "vocabulary; 2 if left out."
            ),
        ]
    ] = None


class Shapes(Record, frozen=True):
    """Shapes of its tensors."""

    inputs: Annotated[
        tuple[Shape, ...], doc("Shape of each tensor that the operator reads from other operators and graph inputs.")
    ]
    outputs: Annotated[tuple[Shape, ...], doc("Shape of each tensor that the operator produces.")]


class Operator(Record, frozen=True):
    """One scheduling unit.

    Examples:
        >>> import hios
        >>> operator = hios.Operator("stem.conv", "conv2d-relu", flops=21_676_032)
        >>> operator.id, operator.type, operator.calls
        ('stem.conv', 'conv2d-relu', ())
    """

    id: Annotated[Text, doc("Unique name.")]
    type: Annotated[Text, doc("Kind of the unit, such as conv2d-relu, max_pool2d, concat.")]
    calls: Annotated[
        tuple[Call, ...], doc("The Relax operators that it consists of, in order; the last one produces its output.")
    ] = ()
    shapes: OrAbsent[Shapes] = None
    dtype: OrAbsent[DType] = None
    dtypes: OrAbsent[
        Annotated[
            tuple[DType, ...],
            doc("Element type of each output, if they differ; dtype is that of the first."),
        ]
    ] = None
    flops: OrAbsent[Annotated[Amount, doc("Floating-point operations (a multiply-add counts two).")]] = None
    bytes: OrAbsent[
        Annotated[
            Count,
            doc(
                "Bytes read and written: inputs, weights (only the rows looked up, for a table) and outputs, each "
                "once. Operators that only return a view of a value count as if they copied it."
            ),
        ]
    ] = None

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

    source: Annotated[Text, doc("Id of the producer.")]
    target: Annotated[Text, doc("Id of the consumer.")]
    bytes: OrAbsent[Annotated[Count, doc("Size of the value.")]] = None


class GraphFile(Record, frozen=True):
    """The computation graph: operators (scheduling units) and the values that pass between them."""

    name: Annotated[Text, doc("Name of the network.")]
    operators: Annotated[tuple[Operator, ...], Meta(min_length=1), doc("The scheduling units.")]
    edges: Annotated[
        tuple[Edge, ...],
        doc("One edge per value that an operator reads from another; a value that is read twice is two edges."),
    ]
    inputs: Annotated[tuple[TensorSpec, ...], doc("Inputs of the network.")] = ()
    outputs: Annotated[tuple[Value, ...], doc("Outputs of the network, in order.")] = ()
    weights: Annotated[tuple[TensorSpec, ...], doc("Tensors in the weights file.")] = ()
    blocks: Annotated[
        tuple[Annotated[tuple[OperatorId, ...], doc("One block.")], ...],
        doc("Operator ids by block, in execution order."),
    ] = ()
    units: OrAbsent[
        Annotated[Text, doc("How operators were grouped into scheduling units: conv-relu, relu-sepconv or operator.")]
    ] = None
    format_version: FormatVersion = 1
