"""Exporting a program with open dimensions again for inputs of fixed shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.export import ExportedProgram

from hios.errors import HiosError, UnsupportedError, shown
from hios.frontends import program as programs
from hios.frontends.example_inputs import example_inputs
from hios.frontends.program_interface import flat_module
from hios.graph import TensorSpec

#: Sizes of an input; None where the program leaves a dimension open.
_Sizes = list[int | None]


def with_shapes(text: str, program: ExportedProgram, shapes: Mapping[str, Sequence[int]]) -> ExportedProgram:
    """The program for inputs of these shapes; itself if all of its dimensions are fixed.

    Args:
        text: what the user calls it, for messages.
        program: stays as it is.
        shapes: of inputs by name; those without open dimensions may be left out.

    Raises:
        UnsupportedError: a dimension stays open, or the program cannot be exported for these shapes.
        HiosError: an unknown input, or a shape that the program does not allow.
    """
    inputs = {entry.name: (entry, sizes) for entry, sizes in _inputs(program)}
    if unknown := sorted(set(shapes) - set(inputs)):
        raise HiosError(
            f"{text}: inputs: found {shown(unknown[0], quoted=False)}; allowed: {', '.join(inputs) or 'none'}"
        )
    for name, shape in shapes.items():
        _require_allowed(text, name, shape, inputs[name][1])
    if not program.range_constraints:
        return program
    opened = {name: sizes for name, (_, sizes) in inputs.items() if name not in shapes and None in sizes}
    if opened:
        raise UnsupportedError(_advice(text, opened))
    specs = [
        TensorSpec(name, tuple(shapes.get(name, [size or 1 for size in sizes])), entry.dtype)
        for name, (entry, sizes) in inputs.items()
    ]
    given = example_inputs(specs, seed=0)
    module = flat_module(program)
    try:
        with torch.no_grad():
            module(*given)
    except Exception as error:  # guards of the program, and whatever its operators raise
        raise HiosError(f"{text}: inputs: cannot run on these shapes: {error}") from error
    return programs.export(module, given)


def _inputs(program: ExportedProgram) -> list[tuple[TensorSpec, _Sizes]]:
    """The shape of every input by argument name."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    specs = []
    for name in program.graph_signature.user_inputs:
        value = values.get(str(name))
        if isinstance(value, Tensor):
            sizes: _Sizes = [size if isinstance(size, int) else None for size in value.shape]
            dtype = str(value.dtype).removeprefix("torch.")
            specs.append((TensorSpec(str(name), tuple(size or 1 for size in sizes), dtype), sizes))
    return specs


def _require_allowed(text: str, name: str, shape: Sequence[int], sizes: _Sizes) -> None:
    if len(shape) != len(sizes):
        raise HiosError(
            f"{text}: inputs: {name}: found {len(shape)} dimensions; allowed: {len(sizes)}, {_listed(sizes)}"
        )
    for position, (size, fixed) in enumerate(zip(shape, sizes, strict=True)):
        if fixed is not None and size != fixed:
            raise HiosError(
                f"{text}: inputs: {name}: found {size} for dimension {position}; allowed: {fixed}, which the program "
                "fixes"
            )


def _advice(text: str, opened: Mapping[str, _Sizes]) -> str:
    """The open dimensions, and the options that fix them."""
    open_dimensions = "; ".join(f"input {name} {_listed(sizes)}" for name, sizes in opened.items())
    options = " ".join(
        f"--input {name}={'x'.join('?' if size is None else str(size) for size in sizes)}"
        for name, sizes in opened.items()
    )
    config = ", ".join(f"{name}: {_listed(sizes)}" for name, sizes in opened.items())
    return (
        f"{text}: has dimensions that are not fixed, in {open_dimensions}; give {options} with a number for each ? (in "
        f"config.yaml: inputs: {{{config}}}), or export it without dynamic_shapes"
    )


def _listed(sizes: _Sizes) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in sizes)}]"
