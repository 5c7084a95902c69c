"""Shapes of the inputs of an ONNX file: fixing open dimensions at requested sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from hios.errors import HiosError, UnsupportedError, shown

#: Elements that are integers.
_WHOLE = (TensorProto.INT32, TensorProto.INT64)
#: Shapes by input name.
Shapes = Mapping[str, Sequence[int]]


def fix_shapes(
    model: ModelProto, inputs: Sequence[ValueInfoProto], path: Path, shapes: Shapes, batch_size: int | None = None
) -> None:
    """Fix every open dimension of the inputs (without weights) in place, first dimensions to the batch size.

    A dimension is open if the file gives it a name, no size, or -1 (as exporters of PaddlePaddle do). Dimensions with
    the same name have the same size.

    Raises:
        UnsupportedError: an input is not a tensor of known rank, or a dimension stays open; the message lists the
            inputs and the options to give.
        HiosError: an unknown input, or a shape or batch size that the file does not allow.
    """
    for value in inputs:
        if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
            raise UnsupportedError(f"{path}: input {value.name}: found no shape; allowed: tensors of fixed shapes")
    asked = {value.name: _asked(value, path, shapes, batch_size) for value in inputs}
    if unknown := sorted(set(shapes) - set(asked)):
        names = ", ".join(asked) or "none"
        raise HiosError(f"{path}: inputs: found {shown(unknown[0], quoted=False)}; allowed: {names}")
    sizes = _named(inputs, asked, path)
    if any([_fix(value, asked[value.name], sizes) for value in inputs]):  # noqa: C419 - all are fixed, not the first
        del model.graph.value_info[:]  # states the open dimensions
        for size in (size for value in model.graph.output for size in value.type.tensor_type.shape.dim):
            if size.dim_value < 0:  # open, without a name that shape inference could replace
                size.ClearField("dim_value")
    _require_fixed(inputs, path)


def fix_values(model: ModelProto, shapes: Shapes) -> dict[str, Sequence[int]]:
    """Turn inputs that are one integer, such as a sampling rate, into constants if given; the shapes of other inputs.

    What depends on it, such as which branch is taken, is then known before the run.
    """
    rest = dict(shapes)
    for value in list(model.graph.input):
        kind = value.type.tensor_type
        is_number = kind.HasField("shape") and not kind.shape.dim and kind.elem_type in _WHOLE
        if is_number and len(rest.get(value.name, ())) == 1:
            (number,) = rest.pop(value.name)
            model.graph.initializer.append(helper.make_tensor(value.name, kind.elem_type, [], [number]))
            model.graph.input.remove(value)
    return rest


def _dimensions(value: ValueInfoProto) -> list[int | str]:
    """The size of every dimension; for an open one its name, which may be empty."""
    return [
        size.dim_value if size.HasField("dim_value") and size.dim_value >= 1 else size.dim_param.strip("?")
        for size in value.type.tensor_type.shape.dim
    ]


def _named(inputs: Sequence[ValueInfoProto], asked: Mapping[str, Sequence[int | None]], path: Path) -> dict[str, int]:
    """Sizes of the named open dimensions."""
    sizes: dict[str, int] = {}
    for value in inputs:
        for name, size in zip(_dimensions(value), asked[value.name], strict=True):
            if isinstance(name, str) and name and size is not None and sizes.setdefault(name, size) != size:
                raise HiosError(
                    f"{path}: inputs: {value.name}: found {size} for the dimension {name}; allowed: {sizes[name]}, as "
                    "in the inputs before it"
                )
    return sizes


def _fix(value: ValueInfoProto, asked: Sequence[int | None], sizes: Mapping[str, int]) -> bool:
    """Write the sizes of open dimensions; returns whether there were any."""
    changed = False
    for position, name in enumerate(_dimensions(value)):
        if isinstance(name, str) and (size := asked[position] or sizes.get(name)) is not None:
            value.type.tensor_type.shape.dim[position].dim_value = size
            changed = True
    return changed


def _asked(value: ValueInfoProto, path: Path, shapes: Shapes, batch_size: int | None) -> list[int | None]:
    """The size of every dimension from the user or the file; None if neither gives one."""
    dimensions = _dimensions(value)
    asked: list[int | None] = [size if isinstance(size, int) else None for size in dimensions]
    if batch_size is not None and asked:
        if asked[0] is not None and asked[0] != batch_size:
            raise HiosError(
                f"{path}: batch_size: found {batch_size}; allowed: {asked[0]}, which the file fixes for input "
                f"{value.name}"
            )
        asked[0] = batch_size
    shape = shapes.get(value.name)
    if shape is None:
        return asked
    if len(shape) != len(asked):
        raise HiosError(
            f"{path}: inputs: {value.name}: found {len(shape)} dimensions; allowed: {len(asked)}, {_listed(value)}"
        )
    for position, (size, known) in enumerate(zip(shape, asked, strict=True)):
        if known is not None and size != known:
            raise HiosError(
                f"{path}: inputs: {value.name}: found {size} for dimension {position}; allowed: {known}, which "
                + ("is the batch size given" if position == 0 and batch_size is not None else "the file fixes")
            )
    return list(shape)


def _require_fixed(inputs: Sequence[ValueInfoProto], path: Path) -> None:
    """Refuse open dimensions, as graph and costs depend on all of them."""
    opened = [value for value in inputs if not all(isinstance(size, int) for size in _dimensions(value))]
    if not opened:
        return
    batches_only = all(isinstance(size, int) for value in opened for size in _dimensions(value)[1:])
    templates = {
        value.name: ["?" if isinstance(size, str) else str(size) for size in _dimensions(value)] for value in opened
    }
    options = " ".join(f"--input {name}={'x'.join(template)}" for name, template in templates.items())
    config = ", ".join(f"{name}: [{', '.join(template)}]" for name, template in templates.items())
    open_dimensions = "; ".join(f"input {value.name} {_listed(value)}" for value in opened)
    raise UnsupportedError(
        f"{path}: found open dimensions in {open_dimensions}; give "
        + ("--batch-size (in config.yaml: batch_size), or " if batches_only else "")
        + f"{options} with a number for each ? (in config.yaml: inputs: {{{config}}})"
    )


def _listed(value: ValueInfoProto) -> str:
    """The shape as text, such as [batch, 3, ?, ?]."""
    return f"[{', '.join(str(size) if size != '' else '?' for size in _dimensions(value))}]"
