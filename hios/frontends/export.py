"""From what MODEL names to program.pt2 or program.onnx."""

from __future__ import annotations

from pathlib import Path

from torch import nn
from torch.export import ExportedProgram

from hios.artifacts import require_writable
from hios.errors import HiosError, UnsupportedError
from hios.formats.config_file import ModelOptions
from hios.frontends import program as programs
from hios.frontends.building import build_function
from hios.frontends.declarations import Declarations
from hios.frontends.registered import build_model
from hios.models import Model, model


def export(text: str, output: str | Path, options: ModelOptions, *, seed: int = 0, trusted: bool = False) -> str:
    """Export a model and write it; returns a line that says what was written.

    Args:
        text: a network of models/, ``package.module:function``, or a file .pt2 or .onnx.
        output: the file to write, .pt2, or .onnx for a model in ONNX.
        options: keyword arguments of the function that builds the network; of an ONNX file batch_size.
        seed: of the random weights of a network of models/; torch.manual_seed before a function of the user's.
        trusted: whether the user trusts who made a .pt2 file, which then may run code.

    Raises:
        HiosError: unknown model or option, a model that cannot be exported, or an output that cannot be written.
    """
    found = model(text)
    if Path(output).suffix.lower() != found.exported:
        raise HiosError(f"{output}: found the ending {Path(output).suffix or 'none'}; allowed: {found.exported}")
    _check(found, options, trusted)
    require_writable(output)
    if found.kind == "onnx":
        from hios.frontends import onnx

        batch_size = options.get("batch_size")
        if not isinstance(batch_size, int | None):
            raise HiosError(f"{text}: batch_size: found {batch_size}; allowed: a whole number")
        return f"{text}, {onnx.export(text, output, batch_size)}"
    if found.kind == "pt2":
        program, declared = programs.load(text, trusted=trusted), programs.declarations(text)
        _require_fixed(text, program)
    else:
        build = build_function(found, options, seed) if found.kind == "function" else build_model(text, options, seed)
        program, declared = programs.export(*build), _declared(text, build[0])
    programs.save(program, output, declared)
    return f"{text}, {_described(program)}"


def _check(found: Model, options: ModelOptions, trusted: bool) -> None:
    allowed = {"batch_size"} if found.kind == "onnx" else set()
    if found.is_file and (extra := sorted(set(options) - allowed)):
        more = "; allowed: batch_size, where the file leaves it open" if allowed else ""
        raise HiosError(f"{found.text}: found the option {extra[0]}, but the file holds a finished model{more}")
    if trusted and found.kind != "pt2":
        raise HiosError(
            f"{found.text}: found the option trust; allowed: for .pt2 files, as loading others runs no code"
        )


def _declared(text: str, module: nn.Module) -> Declarations:
    try:
        return Declarations.of(module)
    except HiosError as error:
        raise HiosError(f"model {text}: {error}") from error


def _require_fixed(text: str, program: ExportedProgram) -> None:
    if program.range_constraints:
        names = ", ".join(sorted(map(str, program.range_constraints)))
        raise UnsupportedError(f"{text}: has dimensions that are not fixed, {names}; export it without dynamic_shapes")


def _described(program: ExportedProgram) -> str:
    weights = sum(tensor.numel() for tensor in program.state_dict.values())
    inputs = ", ".join(map(programs.type_text, programs.tensor_types(program)[0]))
    return f"input {inputs}, {weights:,} weights"
