"""Hashes of the code that each stage of the pipeline runs: an edit of hios reruns only the stages that depend on it.

Parsing all of hios takes seconds, and Snakemake asks for the hashes at every start, and again in every job of a
cluster; so the result for each file is cached on disk.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from hios.errors import ArtifactError
from hios.files import artifacts
from hios.files.json_cache import cache_folder
from hios.frontends import models
from hios.frontends.models import imported_names, is_users, parsed, reached
from hios.schedulers import ALGORITHMS, find

#: Where the code of each stage begins: the modules that its command calls; `_PARTS` has those of platforms.
STAGES = {
    "export": ("hios.frontends.export", "hios.frontends.onnx_file"),
    "extract": ("hios.frontends.extract",),
    "profile": ("hios.profiling.profile",),
    "partition": ("hios.optimizing.partition",),
    "predict": ("hios.profiling.predict",),
    "schedule": ("hios.schedulers",),
    "simulation": ("hios.study.simulation",),
    "convolutions": ("hios.study.convolutions",),
    "predict_targets": ("hios.study.gpu_predictions",),
    "serve": ("hios.serving.simulate",),
    "top": ("hios.study.top_learning",),
    "load": ("hios.serving.load",),
    "calibrate": ("hios.serving.calibrate",),
    "train": ("hios.serving.launcher.training",),
    "execute": ("hios.runtime.session",),
    "distribute": ("hios.runtime.distributed.session",),
    "report": ("hios.report", "hios.study.page_part"),
    "provenance": ("hios.files.versions",),
}
#: Parts of a platform that a stage uses (``hios.platforms.protocol``), whose modules are imported by name.
_PARTS = {
    "profile": ("platform", "measuring"),
    "partition": ("platform", "measuring"),
    "predict": ("platform", "predicting"),
    "convolutions": ("platform", "measuring"),
    "predict_targets": ("platform", "predicting"),
    "execute": ("platform", "executing"),
    "distribute": ("platform", "distributing"),
    "report": ("reporting",),
}
#: Imports every algorithm, so that all are registered.
_REGISTRY = "hios.schedulers"
#: Names every platform with its modules, in `_TABLE`.
_PLATFORMS, _TABLE = "hios.platforms", "PLATFORMS"
#: Maximum number of cached files, enough for several versions of hios; beyond it only those this process used are kept.
_MOST = 4000
_PACKAGE = Path(__file__).resolve().parents[1]
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def source_hash(
    stage: str, algorithms: Iterable[str] = (), package: Path = _PACKAGE, platform: str | None = None
) -> str:
    """Hash of the code that a stage runs.

    It covers every module that the stage imports, itself or through others, and the data files of their packages, such
    as templates; those of a package within a package count for the inner one only, and a file with the name of a module
    or package in its folder for that one only. Comments, docstrings and layout do not count. Of the algorithms only
    those named do, although all are imported: a new one must not have everything measured again. So of the platforms
    only the one named does. Of an algorithm of another distribution that is its module and what this imports from its
    own top-level package; of one in the working folder also what it imports from other modules there. Left out are
    ``hios/__init__.py``, which only gathers names, the command line, which only passes options on, and imports for type
    checkers. Modules that are imported by a name made at run time are not seen but for those of platforms. ``stage`` is
    a key of ``STAGES``; all platforms count if none is named.

    Raises:
        HiosError: unknown algorithm.
    """
    parts = [
        f"{_PLATFORMS}.{name}.{modules[part]}"
        for name, modules in _platform_modules(package).items()
        for part in _PARTS.get(stage, ())
        if platform in (None, name) and part in modules
    ]
    return code_hash([*STAGES[stage], *parts, *(find(name).run.__module__ for name in algorithms)], package)


def _platform_modules(package: Path) -> dict[str, dict[str, str]]:
    """The modules of every platform by their parts, as the table in a folder of hios states them."""
    tree = ast.parse((package / "platforms" / "__init__.py").read_bytes())
    table: Any = next(node.value for node in tree.body if isinstance(node, ast.Assign) and _assigns(node, _TABLE))
    return {
        ast.literal_eval(name): ast.literal_eval(known.args[1])
        for name, known in zip(table.keys, table.values, strict=True)
    }


def code_hash(modules: Iterable[str], package: Path = _PACKAGE) -> str:
    """Hash of the code of modules and of all that they import from hios and their own package; see `source_hash`."""
    names = reached(modules, lambda module: _imported(module, package))
    text = "\n".join(f"{module} {_digest(module, package)}" for module in sorted(names))
    _cache().save()
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def package_hash(package: Path = _PACKAGE) -> str:
    """Hash of all Python code of hios, comments included: takes some milliseconds, where `code_hash` parses it all."""
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package).as_posix()}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _file(module: str, package: Path) -> Path | None:
    """The file of a module; None for hios itself, and if there is no such module."""
    top, *parts = module.split(".")
    if top != "hios":
        return _outside_file(module)
    path = package.joinpath(*parts)
    files = (path / "__init__.py", path.with_suffix(".py")) if parts else ()
    return next((file for file in files if file.is_file()), None)


@functools.cache
def _outside_file(module: str) -> Path | None:
    """The file of a module of another package, without importing it."""
    top, *parts = module.split(".")
    spec = PathFinder.find_spec(top, [str(Path.cwd()), *sys.path])  # as algorithms are searched
    if spec is None:
        with contextlib.suppress(ValueError):  # __main__ has no location
            spec = importlib.util.find_spec(top)
    for part in parts:
        if spec is None or spec.submodule_search_locations is None:
            return None
        # by its last name alone, as the parts of namespace packages are looked up in their parents otherwise
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
    file = Path(spec.origin) if spec is not None and spec.origin is not None else None
    return file if file is not None and file.is_file() else None


def _tree(text: bytes, module: str) -> ast.Module | None:
    """The code of a module, without what changes nothing: docstrings, and which algorithms and platforms there are."""
    tree = parsed(text)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, _DOCUMENTED):
            node.body = [statement for statement in node.body if not _is_text(statement)]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    if tree is not None and module == _PLATFORMS:
        tree.body = [node for node in tree.body if not _assigns(node, _TABLE)]
    if tree is not None and module == _REGISTRY:
        registered = _registered()
        tree.body = [node for node in tree.body if not _lists_algorithms(node, registered)]
    return tree


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, or the text under a field."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _registered() -> set[str]:
    """Modules of the algorithms."""
    return {algorithm.run.__module__ for algorithm in ALGORITHMS.values()}


def _lists_algorithms(node: ast.stmt, registered: set[str]) -> bool:
    return isinstance(node, ast.ImportFrom) and bool(registered & {f"{node.module}.{own.name}" for own in node.names})


def _assigns(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name


@functools.cache
def _imported(module: str, package: Path) -> tuple[str, ...]:
    """Modules that a module imports anywhere, and the packages that they lie in, of hios, its own package or the user.

    The latter only for a module of the user's own, which lies in the working folder.
    """
    parts = [name.split(".") for name in [module, *_code(module, package).imports]]
    own = {"hios", module.partition(".")[0]}
    users = own != {"hios"} and _is_users(module, package)
    above = [
        ".".join(part[:count])
        for part in parts
        if part[0] in own or (users and _is_users(".".join(part), package))
        for count in range(1, len(part) + 1)
    ]
    return tuple(name for name in dict.fromkeys(above) if _file(name, package) is not None)


def _is_users(module: str, package: Path) -> bool:
    return (file := _file(module, package)) is not None and is_users(file)


@functools.cache
def _digest(module: str, package: Path) -> str:
    digest = hashlib.sha256(_code(module, package).digest.encode())
    file = _file(module, package)
    if file is not None:
        for other in _data_files(file.parent) if file.name == "__init__.py" else _own_data(file):
            digest.update(other.relative_to(file.parents[1]).as_posix().encode() + other.read_bytes())
    return digest.hexdigest()


def _code(module: str, package: Path) -> Code:
    """What a module imports, and a digest of its code: of the whole file where that is not Python."""
    file = _file(module, package)
    if file is None:
        return Code((), "")
    text = file.read_bytes()
    if file.suffix != ".py":
        return Code((), hashlib.sha256(text).hexdigest())
    within = module if file.name == "__init__.py" else module.rpartition(".")[0]
    listed = sorted(_registered()) if module == _REGISTRY else []

    def parse() -> Code:
        tree = _tree(text, module)
        if tree is None:
            return Code((), hashlib.sha256(text).hexdigest())
        digest = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
        return Code(tuple(dict.fromkeys(imported_names(tree, within))), digest)

    return _cache().get(text, " ".join([module, within, *listed]), parse)


@functools.cache
def _cache() -> CodeCache:
    return CodeCache([Path(__file__), Path(models.__file__)])


def _own_data(module: Path) -> list[Path]:
    """Data files of a module or package: those in its folder that have its name, such as names.yaml of names.py."""
    return [file for file in sorted(module.parent.glob(f"{module.stem}.*")) if file.suffix != ".py" and file.is_file()]


def _data_files(package: Path) -> Iterator[Path]:
    """Files of a package that are not Python code, and those of its name beside it.

    Those below a package in it, and those with the name of a module or package in it, belong to that one.
    """
    yield from _own_data(package)
    for file in sorted(package.rglob("*")):
        # What Python and numba compile (__pycache__) is not source.
        if file.is_file() and file.suffix != ".py" and "__pycache__" not in file.parts:
            if file.with_suffix(".py").is_file() or (file.with_suffix("") / "__init__.py").is_file():
                continue
            owner = next(folder for folder in file.parents if folder == package or (folder / "__init__.py").is_file())
            if owner == package:
                yield file


class Code(NamedTuple):
    """What hashes need of a module: the names that it imports, and a digest of its syntax tree."""

    imports: tuple[str, ...]
    digest: str


class CodeCache:
    """Entries by the text of a file and whatever else they depend on, in one JSON file of the cache folder.

    A file that is missing or damaged counts as empty. One that cannot be written is left alone: then every process
    parses anew. An edit of ``parsers``, the files whose code makes the entries, begins a new cache.
    """

    def __init__(self, parsers: list[Path]) -> None:
        version = hashlib.sha256(sys.version.encode())
        for file in parsers:
            version.update(file.read_bytes())
        self.file = cache_folder() / "code" / f"{version.hexdigest()[:16]}.json"
        self._kept = self._read()
        self._used: dict[str, Code] = {}

    def get(self, text: bytes, depends: str, make: Callable[[], Code]) -> Code:
        """The entry of the text of a file and of what else it depends on, made and kept if there is none."""
        key = hashlib.sha256(depends.encode() + b"\n" + text).hexdigest()[:32]
        code = self._used.get(key) or self._kept.get(key) or make()
        self._used[key] = code
        return code

    def save(self) -> None:
        """Write what is new, if anything is."""
        if self._used.keys() <= self._kept.keys():
            return
        self._kept = {**self._read(), **self._used}
        if len(self._kept) > _MOST:
            self._kept = dict(self._used)
        # A folder that is not writable is not an error: parsing again is only slower.
        with contextlib.suppress(OSError, ArtifactError):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            artifacts.write_whole(self.file, json.dumps(self._kept))

    def _read(self) -> dict[str, Code]:
        try:
            entries = json.loads(self.file.read_text(encoding="utf-8"))
            return {key: Code(tuple(map(str, imports)), str(digest)) for key, (imports, digest) in entries.items()}
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return {}
