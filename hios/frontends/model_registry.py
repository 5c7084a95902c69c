"""The networks of the models/ folder by name."""

from __future__ import annotations

import functools
import importlib
import math
import sys
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from hios.artifacts import resource_directory
from hios.errors import HiosError, first_line, place, suggestion
from hios.formats.config_file import ModelOptions
from hios.frontends.model_function import Build, built
from hios.models import names

#: Name that models/ has as a package while one of its files is loaded.
_PACKAGE = "hios_models"


def build_model(name: str, options: ModelOptions, seed: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A registered network in inference mode with example inputs.

    Args:
        name: file of models/ without ``.py``.
        options: keyword arguments of its ``build`` function, such as image_size.
        seed: seed of weights and inputs.

    Raises:
        HiosError: unknown name, or an option that the network does not have.
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
    # Loaded anew every time: the file, or the folder, may be another one.
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
    (He et al. 2015), scaled so that what they make of ``inputs`` has variance 1 (Mishkin and Matas 2016), whatever
    separable convolutions and residual sums do to it. Batch norm gets statistics that make folding it visible. Runs
    the module.

    Args:
        module: the network, in inference mode.
        inputs: example inputs.
        seed: seed of the weights.
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
