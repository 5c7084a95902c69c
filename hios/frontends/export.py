"""From a module, or the model that MODEL names, to a program of torch.export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn
from torch.export import ExportedProgram

from hios.errors import HiosError, UnsupportedError
from hios.formats.config_file import ModelOptions
from hios.frontends import program as programs
from hios.frontends.fixed_shapes import with_shapes
from hios.frontends.model_declarations import Declarations
from hios.frontends.model_function import build_function, built
from hios.frontends.model_registry import build_model
from hios.frontends.program import Program
from hios.frontends.program_interface import copied, plain, type_text
from hios.models import Model, model


def export(
    text: str,
    options: ModelOptions,
    *,
    inputs: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    trusted: bool = False,
) -> Program:
    """Export a PyTorch model.

    Args:
        text: a network of models/, ``package.module:function``, or a file .pt2.
        options: keyword arguments of the function that builds the network.
        inputs: shapes of inputs by name, of a file .pt2 that leaves dimensions open.
        seed: of the random weights of a network of models/; torch.manual_seed before a function of the user.
        trusted: whether the user trusts who made a .pt2 file, which then may run code.

    Raises:
        HiosError: unknown model or option, a model in ONNX, or one that cannot be exported.
    """
    chosen = model(text)
    check(chosen, options, trusted)
    if chosen.kind == "onnx":
        raise HiosError(f"{text}: found a model in ONNX, which is finished; allowed: to extract its graph")
    if chosen.kind == "pt2":
        program = replace(Program.read(text, trusted=trusted), name=Path(text).stem)
        return replace(program, exported=with_shapes(text, program.exported, inputs or {}))
    given = dict(options)
    build = build_function(chosen, given, seed) if chosen.kind == "function" else build_model(text, given, seed)
    name = chosen.function if chosen.kind == "function" else text
    return Program(programs.export(*build), _declared(text, build[0]), name)


def export_module(module: nn.Module, inputs: tuple[Tensor, ...]) -> Program:
    """Export a module in inference mode.

    Args:
        module: put into eval mode.
        inputs: example inputs.

    Raises:
        HiosError: the module does not run on the inputs or cannot be exported.
    """
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
    """Refuse options that do not apply to this kind of model.

    Raises:
        HiosError: one line with the model and the option.
    """
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
    """Refuse a program with dimensions that are not fixed.

    Raises:
        UnsupportedError: it has some; the message names them.
    """
    if program.range_constraints:
        names = ", ".join(sorted(map(str, program.range_constraints)))
        raise UnsupportedError(f"{text}: has dimensions that are not fixed, {names}; export it without dynamic_shapes")


def described(program: ExportedProgram) -> str:
    """Inputs and number of weights, as text."""
    weights = sum(tensor.numel() for tensor in program.state_dict.values())
    inputs = ", ".join(map(type_text, programs.tensor_types(program)[0]))
    return f"input {inputs}, {weights:,} weights"
