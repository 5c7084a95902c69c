"""What MODEL may be: a network of models/, a function, or a file; and the files it depends on.

Light; no user code is imported or run here: modules are located, and their imports are read from the source.
"""

from __future__ import annotations

import ast
import mmap
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from hios.errors import HiosError, suggestion
from hios.files.artifacts import resource_directory

#: Where a tensor of an ONNX file names the file that holds its values: an entry of protobuf, with its key, and the
#: length of its value in one or two bytes.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x01-\x7f]|[\x80-\xff][\x01-\x7f])")


def parsed(text: bytes) -> ast.Module | None:
    """The syntax tree of the contents of a file; None if they are not Python that this interpreter can read."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """Absolute names of what a module may import, in functions too.

    Both ``a.b`` and ``a`` for ``from a import b``, since only one of them may be a module. ``package`` is the one that
    the module lies in, or is; "" if it lies in none.
    """
    parts = [part for part in package.split(".") if part]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = parts[: len(parts) - node.level + 1] if node.level else []
            name = [*above, *([node.module] if node.module else [])]
            yield from (".".join([*name, alias.name]) for alias in node.names)
            yield from [".".join(name)] if name else []


def reached(modules: Iterable[str], imported: Callable[[str], Iterable[str]]) -> set[str]:
    """Names of modules and of all that they import, directly or through others; each is asked for its imports once."""
    pending = list(modules)
    names: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in names:
            names.add(name)
            pending += imported(name)
    return names


#: What may be given for MODEL, for messages.
ALLOWED = "package.module:function, or a file that ends in .pt2 or .onnx"

#: What runs a model itself, whole, by its name in run.json: the reference for outputs and times. Which of them run on
#: a platform, the platform says.
RUNTIMES = {
    "eager": "eager PyTorch",
    "compile": "torch.compile",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
    "cudagraph": "PyTorch in a CUDA graph",
    "compile-reduce-overhead": "torch.compile, reduce-overhead",
    "compile-max-autotune": "torch.compile, max-autotune",
    "tensorrt": "TensorRT",
}

_FUNCTION = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")


@dataclass(frozen=True, slots=True)
class Model:
    """A parsed MODEL.

    ``kind`` is ``registered`` (a file of models/), ``function`` (``package.module:function``), ``pt2`` or ``onnx``.
    """

    text: str
    kind: str

    @property
    def is_file(self) -> bool:
        """Whether it is an exported file."""
        return self.kind in {"pt2", "onnx"}

    @property
    def module(self) -> str:
        """Module of a function."""
        return self.text.partition(":")[0]

    @property
    def function(self) -> str:
        """Name of a function in its module."""
        return self.text.partition(":")[2]

    @property
    def exported(self) -> str:
        """File extension of what ``hios export`` writes."""
        return ".onnx" if self.kind == "onnx" else ".pt2"


def names(directory: Path | None = None) -> list[str]:
    """Names of the registered networks: the files of models/."""
    return sorted(path.stem for path in (directory or resource_directory("models")).glob("[a-z]*.py"))


def model(text: str, directory: Path | None = None) -> Model:
    """Parse MODEL, a `HiosError` if it is none; whether the file or function exists is not checked.

    Names are of models/ if no directory is given.
    """
    suffix = Path(text).suffix.lower()
    if suffix in {".pt2", ".onnx"}:
        return Model(text, suffix[1:])
    if _FUNCTION.fullmatch(text):
        return Model(text, "function")
    known = names(directory)  # names are listed from the folder, so that no name can point outside of it
    if text not in known:
        raise HiosError(
            f"unknown model {text}{suggestion(text, known)}; allowed: {', '.join(known) or 'none yet'}, and for one of "
            f"your own (docs/extending.md) {ALLOWED}"
        )
    return Model(text, "registered")


def files(model: Model, directory: Path | None = None) -> list[Path]:
    """The files that a model depends on: an edit of one changes what is exported.

    For code these are the file that defines the network and, as far as they lie in the same folder or below it, the
    modules that it imports. Of an installed package it is the module's own file.

    Raises:
        HiosError: there is no such file or module.
    """
    if model.is_file:
        path = Path(model.text)
        if not path.is_file():
            raise HiosError(f"{path}: no such file; a path is relative to the folder that hios runs in, {Path.cwd()}")
        return [path, *(_weight_files(path) if model.kind == "onnx" else ())]
    if model.kind == "registered":
        folder = directory or resource_directory("models")
        return _with_imports(model.text, folder, [str(folder), str(folder.parent)])
    spec = _spec(model.module, [str(Path.cwd()), *sys.path])
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise HiosError(
            f"{model.text}: no module {model.module} in the current folder, {Path.cwd()}, or in the environment"
        )
    path = Path(spec.origin)
    if is_users(path):
        return _with_imports(model.module, Path.cwd(), [str(Path.cwd())])
    return [path]


def is_users(path: Path) -> bool:
    """Whether code lies in the working folder or below it, and is not that of an installed package."""
    return path.is_relative_to(Path.cwd()) and not {"site-packages", "dist-packages"} & set(path.parts)


def _weight_files(path: Path) -> list[Path]:
    """The files beside an ONNX file that hold weights of it, found without the package onnx."""
    if not path.stat().st_size:
        return []
    found = set()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for match in _LOCATION.finditer(data):
            length = sum((byte & 127) << 7 * place for place, byte in enumerate(match[1]))
            found.add(path.parent / os.fsdecode(data[match.end() : match.end() + length].replace(b"\0", b"?")))
    return sorted(filter(os.path.isfile, found))  # which is false for a name that no file can have


def _spec(module: str, search: list[str]) -> ModuleSpec | None:
    """The location of a module, without importing the packages above it."""
    spec = None
    for part in module.split("."):
        spec = PathFinder.find_spec(part, search)
        if spec is None:
            return None
        search = list(spec.submodule_search_locations or [])
    return spec


def _with_imports(module: str, folder: Path, search: list[str]) -> list[Path]:
    """The file of a module and of those in a folder that it imports, directly or through others."""
    sources: set[Path] = set()

    def imported(name: str) -> Iterator[str]:
        if (spec := _spec(name, search)) is None:
            return
        if "." in name:
            yield name.rpartition(".")[0]  # packages are executed when their modules are imported
        file = Path(spec.origin or "")
        if file.suffix == ".py" and file.is_relative_to(folder):
            sources.add(file)
            package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
            # A file that cannot be parsed is reported by the export.
            yield from imported_names(parsed(file.read_bytes()) or ast.Module([], []), package)

    reached([module], imported)
    return sorted(sources)
