"""Networks of the models/ folder by name."""

from __future__ import annotations

import importlib.util
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hios.artifacts import resource_directory
from hios.errors import HiosError, first_line, place

Build = Callable[..., tuple[nn.Module, tuple[Tensor, ...]]]


def names() -> list[str]:
    """Names of the registered networks: the files of models/."""
    return sorted(path.stem for path in resource_directory("models").glob("[a-z]*.py"))


def build_model(name: str, options: dict[str, Any], seed: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A registered network in inference mode with example inputs.

    Args:
        name: file of models/ without ``.py``.
        options: keyword arguments of its ``build`` function, such as image_size.
        seed: seed of weights and inputs.

    Raises:
        HiosError: unknown name, or an option that the network does not have.
    """
    if name not in names():
        raise HiosError(
            f"unknown model {name}; allowed: {', '.join(names())}; to add one, put a file with a build function "
            f"into {resource_directory('models')}"
        )
    build = _build_function(name)
    known = [parameter.name for parameter in inspect.signature(build).parameters.values()]
    for option in options:
        if option not in known:
            raise HiosError(f"model {name}: unknown option {option}; allowed: {', '.join(known)}")
    torch.manual_seed(seed)
    try:
        module, inputs = build(**options)
        module.eval()
        initialise(module, seed)
        with torch.inference_mode():
            module(*inputs)
    except Exception as error:  # whatever a user's file raises
        given = ", ".join(f"{key}={value}" for key, value in options.items()) or "its defaults"
        reason = f"{place(error, _file(name))}: {type(error).__name__}: {first_line(error)}"
        raise HiosError(f"model {name}: cannot be run with {given}: {reason}") from error
    return module, inputs


def _file(name: str) -> Path:
    return resource_directory("models") / f"{name}.py"


def _build_function(name: str) -> Build:
    path = _file(name)
    spec = importlib.util.spec_from_file_location(f"hios_model_{name}", path)
    if spec is None or spec.loader is None:
        raise HiosError(f"{path}: cannot be loaded as a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a user's file raises
        where = place(error, path)
        raise HiosError(f"{where}: cannot be loaded: {type(error).__name__}: {first_line(error)}") from error
    if not callable(build := getattr(module, "build", None)):
        raise HiosError(f"{path}: has no function build; it must return the module and a tuple of example inputs")
    return build


def initialise(module: nn.Module, seed: int) -> None:
    """Random weights that keep activations at the same size through the network (He et al. 2015).

    torch's default initialisation lets them vanish in deep networks; outputs of 1e-8 would make every
    comparison within 1e-4 pass. Batch norm gets statistics that make folding it visible.
    """
    generator = torch.Generator().manual_seed(seed)
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            fan_in = math.prod(part.weight.shape[1:])
            nn.init.normal_(part.weight, 0.0, math.sqrt(2.0 / fan_in), generator)
            if part.bias is not None:
                nn.init.normal_(part.bias, 0.0, 0.1, generator)
        elif isinstance(part, nn.BatchNorm2d) and part.running_mean is not None and part.running_var is not None:
            nn.init.uniform_(part.weight, 0.8, 1.2, generator)
            nn.init.normal_(part.bias, 0.0, 0.1, generator)
            nn.init.normal_(part.running_mean, 0.0, 0.1, generator)
            nn.init.uniform_(part.running_var, 0.8, 1.2, generator)
