"""From a module, or the model that MODEL names, to a program of torch.export whose dimensions are all fixed.

Networks are known by name, from the models/ folder, or from a user's function that builds one.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from hios.core.graph import TensorSpec
from hios.errors import HiosError, UnsupportedError, first_line, place, shown, suggestion, warn
from hios.files.artifacts import resource_directory
from hios.formats.config import ModelOptions
from hios.frontends import program as programs
from hios.frontends.example_inputs import example_inputs
from hios.frontends.model_declarations import Declarations
from hios.frontends.models import Model, model, names
from hios.frontends.program import Program
from hios.frontends.program_interface import copied, dtype_name, flat_module, plain, type_text, user_inputs
from hios.frontends.tolerances import nan_in_words

#: Takes keyword options; gives the module and a tuple of example inputs.
Build = Callable[..., tuple[nn.Module, tuple[Tensor, ...]]]
_RETURNS = "the module and a tuple of example inputs, which are tensors"


def build_function(model: Model, options: ModelOptions, seed: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The network of a user's ``package.module:function`` in inference mode, with its own weights.

    torch.manual_seed gets the seed before the call.

    Raises:
        HiosError: no such module or function, an unknown option, or a network that does not run.
    """
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(model.module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{model.module}.".startswith(f"{error.name}."):
            raise HiosError(f"{model.text}: {model.module} imports {error.name}, which is not installed") from error
        raise HiosError(
            f"{model.text}: no module {error.name} in the current folder, {here}, or in the environment"
        ) from error
    except (Exception, SystemExit) as error:  # whatever a user's module raises
        spec = importlib.util.find_spec(model.module) if "." not in model.module else None
        where = place(error, spec.origin) if spec is not None and spec.origin else model.module
        raise HiosError(f"{where}: cannot be imported: {type(error).__name__}: {first_line(error)}") from error
    build = getattr(module, model.function, None)
    if not callable(build):
        raise HiosError(f"{model.text}: {module.__file__} has no function {model.function}; it must return {_RETURNS}")
    return built(build, model.text, module.__file__ or model.module, options, seed)


def built(
    build: Build,
    name: str,
    file: str | Path,
    options: ModelOptions,
    seed: int,
    prepare: Callable[[nn.Module, tuple[Tensor, ...]], None] = lambda module, inputs: None,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The result of a function in inference mode, after a first run, before which ``prepare`` can set the weights.

    Raises:
        HiosError: unknown option, a result that is not a module and example inputs, or a network that does not run.
    """
    _check_options(build, name, options)
    torch.manual_seed(seed)
    try:
        network = build(**options)
        if not _is_network(network):
            raise TypeError(f"{getattr(build, '__name__', build)} returned {_described(network)}; allowed: {_RETURNS}")
        module, inputs = network
        _require_cpu(module, inputs)
        module.eval()
        prepare(module, inputs)
        with torch.no_grad():  # tensors that the module makes and keeps are used outside of an inference mode, too
            outputs = module(*inputs)
    except (Exception, SystemExit) as error:  # whatever a user's file raises
        given = ", ".join(f"{key}={value}" for key, value in options.items()) or "its defaults"
        reason = f"{place(error, file)}: {type(error).__name__}: {first_line(error)}"
        raise HiosError(f"model {name}: cannot be run with {given}: {reason}") from error
    if wrong := _not_numbers(outputs):
        warn(
            f"model {name}: NaN in {wrong} on its example inputs: comparisons of outputs count NaN as equal to NaN, so "
            "they say little of this model; give it weights or inputs without NaN"
        )
    return module, inputs


def _not_numbers(outputs: Any) -> str:
    """Which outputs of a module contain NaN, and what share of them, in words; empty if none does."""
    affected = []
    for path, value in pytree.tree_flatten_with_path(outputs)[0]:
        if isinstance(value, Tensor) and (share := nan_in_words(value)):
            affected.append(f"output{pytree.keystr(path)} ({share})")
    return ", ".join(affected)


def _check_options(build: Build, name: str, options: ModelOptions) -> None:
    parameters = inspect.signature(build).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [parameter.name for parameter in parameters if parameter.kind in kinds]
    for option in options:
        if option not in known:
            raise HiosError(f"model {name}: unknown option {option}; allowed: {', '.join(known) or 'none'}")
    for parameter in parameters:
        if parameter.default is parameter.empty and parameter.kind in kinds and parameter.name not in options:
            raise HiosError(f"model {name}: the option {parameter.name} is missing; it has no default")


def _described(result: Any) -> str:
    """The types of what a function returned, including those inside tuples."""
    if not isinstance(result, tuple):
        return type(result).__name__
    parts = [
        f"a tuple of {', '.join(type(value).__name__ for value in part) or 'nothing'}"
        if isinstance(part, tuple)
        else type(part).__name__
        for part in result
    ]
    return f"a tuple of {' and '.join(parts) or 'nothing'}"


def _require_cpu(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
    held = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for name, value in [*held.items(), *((f"input {number}", value) for number, value in enumerate(inputs))]:
        if value.device.type != "cpu":
            raise ValueError(f"{name} is on the device {value.device}; allowed: cpu; make or move it there")


def _is_network(result: Any) -> bool:
    match result:
        case (nn.Module(), tuple(inputs)) if isinstance(result, tuple):
            return all(isinstance(value, Tensor) for value in inputs)
    return False


#: Name that models/ has as a package while one of its files is loaded.
_PACKAGE = "hios_models"


def build_model(name: str, options: ModelOptions, seed: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A registered network in inference mode with example inputs; the seed is of weights and inputs.

    A `HiosError` says that the name is unknown, or that the network does not have an option.
    """
    if name not in names():
        raise HiosError(f"unknown model {name}{suggestion(name, names())}; allowed: {', '.join(names())}")
    return built(_build_function(name), name, _file(name), options, seed, functools.partial(initialize, seed=seed))


def _file(name: str) -> Path:
    return resource_directory("models") / f"{name}.py"


def _build_function(name: str) -> Build:
    path = _file(name)
    try:
        module = _imported(path)
    except Exception as error:  # whatever a user's file raises
        where = place(error, path)
        raise HiosError(f"{where}: cannot be loaded: {type(error).__name__}: {first_line(error)}") from error
    if not callable(build := getattr(module, "build", None)):
        raise HiosError(f"{path}: has no function build; it must return the module and a tuple of example inputs")
    return build


def _imported(path: Path) -> ModuleType:
    """A file of models/ as a module of a package, so that ``from .name import ...`` works within the folder."""
    # Reloaded every time, as the file or the folder may have changed.
    for name in [name for name in sys.modules if name == _PACKAGE or name.startswith(f"{_PACKAGE}.")]:
        del sys.modules[name]
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(path.parent)]
    sys.modules[_PACKAGE] = package
    importlib.invalidate_caches()
    return importlib.import_module(f"{_PACKAGE}.{path.stem}")


def initialize(module: nn.Module, inputs: tuple[Tensor, ...], seed: int) -> None:
    """Random weights that keep the size of activations through the network.

    torch's default initialization lets them vanish in deep networks; outputs of 1e-8 would make every
    comparison within 1e-4 pass. Convolutions and fully connected layers get weights that suit a ReLU before them
    (He et al. 2015), scaled so that their outputs for ``inputs`` have variance 1 (Mishkin and Matas 2016), despite
    separable convolutions and residual sums. Batch norm gets statistics that make folding it visible. Runs
    the module.
    """
    generator = torch.Generator().manual_seed(seed)
    hooks = []
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            fan_in = math.prod(part.weight.shape[1:])
            nn.init.normal_(part.weight, 0.0, math.sqrt(2.0 / fan_in), generator)
            if part.bias is not None:
                nn.init.normal_(part.bias, 0.0, 0.1, generator)
            hooks.append(part.register_forward_hook(_take_unit_variance))
        elif isinstance(part, nn.BatchNorm2d) and part.running_mean is not None and part.running_var is not None:
            nn.init.uniform_(part.weight, 0.8, 1.2, generator)
            nn.init.normal_(part.bias, 0.0, 0.1, generator)
            nn.init.normal_(part.running_mean, 0.0, 0.1, generator)
            nn.init.uniform_(part.running_var, 0.8, 1.2, generator)
    try:
        with torch.no_grad():
            module(*inputs)
    finally:
        for hook in hooks:
            hook.remove()


def _take_unit_variance(layer: nn.Conv2d | nn.Linear, inputs: tuple[Tensor], output: Tensor) -> Tensor:
    """Scale weights and bias so that this output has variance 1; a constant output is left alone."""
    deviation = float(output.std(correction=0))
    if deviation == 0.0:
        return output
    layer.weight /= deviation
    if layer.bias is not None:
        layer.bias /= deviation
    return output / deviation


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
        return with_shapes(text, program, inputs or {})
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
    if not isinstance(exported, ExportedProgram):
        raise HiosError(
            f"program: found a {type(exported).__name__}; allowed: what hios.export or torch.export.export returns, or "
            "a .pt2 or .onnx file"
        )
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


def with_shapes(text: str, program: Program, shapes: Mapping[str, Sequence[int]]) -> Program:
    """The program for inputs of these shapes; itself if all of its dimensions are fixed.

    Inputs without open dimensions may be left out; ``text`` is the user's name for the program, for messages. Integers
    have the range that the program declares, or that its example inputs show.

    Raises:
        UnsupportedError: a dimension stays open, or the program cannot be exported for these shapes.
        HiosError: an unknown input, or a shape that the program does not allow.
    """
    exported = program.exported
    inputs = {entry.name: (entry, sizes) for entry, sizes in _inputs(exported)}
    if unknown := sorted(set(shapes) - set(inputs)):
        raise HiosError(
            f"{text}: inputs: found {shown(unknown[0], quoted=False)}; allowed: {', '.join(inputs) or 'none'}"
        )
    for name, shape in shapes.items():
        _require_allowed(text, name, shape, inputs[name][1])
    if not exported.range_constraints:
        return program
    opened = {name: sizes for name, (_, sizes) in inputs.items() if name not in shapes and None in sizes}
    if opened:
        raise UnsupportedError(_advice(text, opened))
    below = itertools.chain(program.ranged().below, itertools.repeat(None))
    specs = [
        TensorSpec(name, tuple(shapes.get(name, [size or 1 for size in sizes])), entry.dtype, limit)
        for (name, (entry, sizes)), limit in zip(inputs.items(), below, strict=False)
    ]
    given = example_inputs(specs, seed=0)
    module = flat_module(exported)
    try:
        with torch.no_grad():
            module(*given)
    except Exception as error:  # guards of the program, and whatever its operators raise
        raise HiosError(f"{text}: inputs: cannot run on these shapes: {error}") from error
    # The numbers drawn do not show the limits.
    declared = replace(program.declared, below=tuple(spec.below for spec in specs))
    return replace(program, exported=programs.export(module, given), declared=declared)


def _inputs(program: ExportedProgram) -> list[tuple[TensorSpec, _Sizes]]:
    """The shape of every input by argument name."""
    specs = []
    for node in user_inputs(program):
        if isinstance(value := node.meta.get("val"), Tensor):
            sizes: _Sizes = [size if isinstance(size, int) else None for size in value.shape]
            specs.append((TensorSpec(node.name, tuple(size or 1 for size in sizes), dtype_name(value.dtype)), sizes))
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
