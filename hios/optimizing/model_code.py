"""The source code of a model: its classes, and the Python modules that they import."""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType

import torch
from torch import fx, nn

#: Packages that are known by their versions, and what comes with Python.
_BY_VERSION = frozenset({"torch", "hios", *sys.stdlib_module_names} - {"__main__"})
_INSTALLED = ("site-packages", "dist-packages")
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def code_digest(model: nn.Module) -> str:
    """Hash of the code of a model.

    It covers the source files of its classes, and the modules that these files name, directly or through others: of the
    packages that the classes are from, and of all that is not installed, such as a file of helpers beside the model's.
    Other packages, what is imported within functions, and helpers that were typed in are not covered.
    """
    digest = hashlib.sha256()
    for module in model.modules():
        if isinstance(module, fx.GraphModule):
            digest.update(module.code.encode())
    for kind in sorted(_own_classes(model), key=lambda kind: f"{kind.__module__}.{kind.__qualname__}"):
        digest.update(_source(kind).encode())
    for name in sorted(_reached(model)):
        if (file := _file(name)) is not None:
            digest.update(f"{name}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def is_in_files(model: nn.Module) -> bool:
    """Whether all classes of a model are defined in files, so that its digest covers them and their helpers."""
    return all(_file(kind.__module__) is not None for kind in _own_classes(model))


def _own_classes(model: nn.Module) -> set[type]:
    """Classes of modules that no package version identifies; FX graphs are code themselves."""
    kinds = {type(module) for module in model.modules() if not isinstance(module, fx.GraphModule)}
    return {kind for kind in kinds if _top(kind.__module__) not in _BY_VERSION}


def _reached(model: nn.Module) -> set[str]:
    """Names of the Python modules that define the classes of a model, and of those they import."""
    waiting = [kind.__module__ for kind in _own_classes(model)]
    tops = set(map(_top, waiting))
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        waiting += [other for other in _named(name) if _top(other) in tops or not _is_installed(other)]
    return reached


def _named(name: str) -> Iterator[str]:
    """Modules that a module imports, or whose functions and classes it imports."""
    for value in list(vars(sys.modules[name]).values()) if name in sys.modules else ():
        if isinstance(value, ModuleType):
            yield value.__name__
        elif isinstance(value, FunctionType | type):
            yield str(value.__module__)


def _is_installed(name: str) -> bool:
    if _top(name) in _BY_VERSION or (file := _file(name)) is None:
        return True
    return any(part in _INSTALLED for part in file.parts)


def _file(name: str) -> Path | None:
    """The Python file of an imported module; None if there is none."""
    file = getattr(sys.modules.get(name), "__file__", None)
    path = Path(file) if isinstance(file, str) else None
    return path if path is not None and path.suffix == ".py" and path.is_file() else None


def _source(kind: type) -> str:
    """Source of a class or, if it was typed in, the bytecode of its forward."""
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        code = getattr(getattr(kind, "forward", None), "__code__", None)
        if code is None:
            return ""
        constants = [value for value in code.co_consts if isinstance(value, (*_PLAIN, torch.dtype))]
        return f"{code.co_code.hex()} {code.co_names} {constants}"


def _top(name: str) -> str:
    return name.partition(".")[0]
