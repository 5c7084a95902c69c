"""From a module, or the model that MODEL names, to a program of torch.export whose dimensions are all fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from hios.core.graph import TensorSpec
from hios.errors import HiosError, UnsupportedError, shown
from hios.formats.config import ModelOptions
from hios.frontends import program as programs
from hios.frontends.example_inputs import example_inputs
from hios.frontends.model_declarations import Declarations
from hios.frontends.model_registry import build_function, build_model, built
from hios.frontends.models import Model, model
from hios.frontends.program import Program
from hios.frontends.program_interface import copied, dtype_name, flat_module, plain, type_text


def export(
    text: str,
    options: ModelOptions,
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    trusted: bool = False,
) -> Program:
    """Export a PyTorch model; the arguments are those of `hios.export`, with shapes of inputs that a file leaves open.

    Raises:
        HiosError: unknown model or option, a model in ONNX, or one that cannot be exported.
    """
    chosen = model(text)
    check(chosen, options, trusted)
    if chosen.kind == "onnx":
        raise HiosError(f"{text}: found a model in ONNX, which needs no export; use hios extract")
    if chosen.kind == "pt2":
        program = replace(Program.read(text, trusted=trusted), name=Path(text).stem)
        return replace(program, exported=with_shapes(text, program.exported, inputs or {}))
    given = dict(options)
    build = build_function(chosen, given, seed) if chosen.kind == "function" else build_model(text, given, seed)
    name = chosen.function if chosen.kind == "function" else text
    return Program(programs.export(*build), _declared(text, build[0]), name)


def export_module(module: nn.Module, inputs: tuple[Tensor, ...]) -> Program:
    """Export a module, which is put into eval mode; a `HiosError` if it does not run, or cannot be exported."""
    name = type(module).__name__
    built(lambda: (module, inputs), name, name, {}, seed=0)
    return Program(programs.export(module, inputs), _declared(name, module), name)


def of_torch(exported: ExportedProgram) -> Program:
    """A program that the caller exported; the original object is not changed.

    Raises:
        UnsupportedError: it has dimensions that are not fixed, or other inputs and outputs than tensors.
    """
    require_fixed("program", exported)
    return Program(plain(copied(exported), "program"))


def check(model: Model, options: ModelOptions, trusted: bool) -> None:
    """Refuse options that do not apply to this kind of model, by a `HiosError`."""
    allowed = {"batch_size"} if model.kind == "onnx" else set()
    if model.is_file and (extra := sorted(set(options) - allowed)):
        more = "; allowed: batch_size, where the file leaves it open" if allowed else ""
        raise HiosError(f"{model.text}: found the option {extra[0]}, but the file holds a finished model{more}")
    if trusted and model.kind != "pt2":
        raise HiosError(
            f"{model.text}: found the option trust; allowed: for .pt2 files, as loading other files runs no code"
        )


def _declared(text: str, module: nn.Module) -> Declarations:
    try:
        return Declarations.of(module)
    except HiosError as error:
        raise HiosError(f"model {text}: {error}") from error


def require_fixed(text: str, program: ExportedProgram) -> None:
    """Refuse a program with dimensions that are not fixed, by an `UnsupportedError` that names them."""
    if program.range_constraints:
        names = ", ".join(sorted(map(str, program.range_constraints)))
        raise UnsupportedError(f"{text}: has dimensions that are not fixed, {names}; export it without dynamic_shapes")


def described(program: ExportedProgram) -> str:
    """Inputs and number of weights, as text."""
    weights = sum(tensor.numel() for tensor in program.state_dict.values())
    inputs = ", ".join(map(type_text, programs.tensor_types(program)[0]))
    return f"input {inputs}, {weights:,} weights"


#: Sizes of an input; None where the program leaves a dimension open.
_Sizes = list[int | None]


def with_shapes(text: str, program: ExportedProgram, shapes: Mapping[str, Sequence[int]]) -> ExportedProgram:
    """The program for inputs of these shapes; itself if all of its dimensions are fixed.

    Inputs without open dimensions may be left out; ``text`` is the user's name for the program, for messages.

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
            specs.append((TensorSpec(str(name), tuple(size or 1 for size in sizes), dtype_name(value.dtype)), sizes))
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
