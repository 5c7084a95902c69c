"""Which code of hios a stage of the pipeline runs, as a hash: an edit runs again what depends on it, and only that."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from hios.schedulers import ALGORITHMS, find

#: Where the code of each stage begins: the module that its command calls; `_PARTS` has those of platforms.
STAGES = {
    "export": "hios.frontends.export",
    "extract": "hios.frontends.extract",
    "profile": "hios.profiling.profile",
    "schedule": "hios.schedulers",
    "execute": "hios.runtime.session",
    "report": "hios.report",
    "provenance": "hios.versions",
}
#: Modules of a platform that a stage uses (``hios.platforms.protocol``), which are imported by name.
_PARTS = {
    "profile": ("platform", "measuring", "predicting"),
    "execute": ("platform", "executing"),
    "report": ("reporting",),
}
#: Imports every algorithm, so that all are registered.
_REGISTRY = "hios.schedulers"
#: Names every platform, in `_TABLE`.
_PLATFORMS, _TABLE = "hios.platforms", "PLATFORMS"
_PACKAGE = Path(__file__).resolve().parent
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def source_hash(
    stage: str, algorithms: Iterable[str] = (), package: Path = _PACKAGE, platform: str | None = None
) -> str:
    """Hash of the code that a stage runs.

    It covers every module that the stage imports, itself or through others, and what else lies in their packages
    (templates). Comments, docstrings and layout do not count. Of the algorithms only those named do, although all
    are imported: a new one must not have everything measured again. So of the platforms only the one named does. Left
    out are ``hios/__init__.py``, which only gathers names, the command line, which only passes options on, and imports
    for type checkers. Modules that are imported by a name made at run time are not seen but for those of platforms.

    Args:
        stage: a key of ``STAGES``.
        algorithms: names of the algorithms that the stage runs.
        package: folder of hios.
        platform: name of the platform that the stage uses; all of them if None.

    Raises:
        HiosError: unknown algorithm.
    """
    parts = [
        module
        for part in _PARTS.get(stage, ())
        for file in sorted((package / "platforms").glob(f"{platform or '*'}/{part}.py"))
        if (module := f"{_PLATFORMS}.{file.parent.name}.{part}")
    ]
    return code_hash([STAGES[stage], *parts, *(find(name).run.__module__ for name in algorithms)], package)


def code_hash(modules: Iterable[str], package: Path = _PACKAGE) -> str:
    """Hash of the code of modules of hios and of all that they import, as `source_hash` takes it."""
    waiting = list(modules)
    reached: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += _imported(module, package)
    text = "\n".join(f"{module} {_digest(module, package)}" for module in sorted(reached))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _file(module: str, package: Path) -> Path | None:
    """The file of a module; None for what is not a module below hios."""
    top, *parts = module.split(".")
    if top != "hios" or not parts:
        return None
    path = package.joinpath(*parts)
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


@functools.cache
def _tree(module: str, package: Path) -> ast.Module:
    """The code of a module, without what changes nothing: docstrings, and which algorithms and platforms there are."""
    file = _file(module, package)
    tree = ast.parse(b"" if file is None else file.read_bytes())
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    if module == _PLATFORMS:
        tree.body = [node for node in tree.body if not _assigns(node, _TABLE)]
    if module == _REGISTRY:
        registered = {algorithm.run.__module__ for algorithm in ALGORITHMS.values()}
        tree.body = [node for node in tree.body if not _lists_algorithms(node, registered)]
    return tree


def _lists_algorithms(node: ast.stmt, registered: set[str]) -> bool:
    if isinstance(node, ast.ImportFrom):
        return bool(registered & {f"{node.module}.{alias.name}" for alias in node.names})
    return _assigns(node, "__all__")


def _assigns(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name


@functools.cache
def _imported(module: str, package: Path) -> tuple[str, ...]:
    """Modules of hios that a module imports anywhere, and the packages that they lie in."""
    named = [name for node in ast.walk(_tree(module, package)) for name in _names(node)]
    parts = [name.split(".") for name in [module, *named]]
    above = [".".join(part[:count]) for part in parts for count in range(2, len(part) + 1)]
    return tuple(name for name in dict.fromkeys(above) if _file(name, package) is not None)


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def _digest(module: str, package: Path) -> str:
    found = hashlib.sha256(ast.dump(_tree(module, package)).encode())
    file = _file(module, package)
    if file is not None and file.name == "__init__.py":
        for other in sorted(file.parent.rglob("*")):
            # What Python and numba compile (__pycache__) is no source.
            if other.is_file() and other.suffix != ".py" and "__pycache__" not in other.parts:
                found.update(other.relative_to(file.parent).as_posix().encode() + other.read_bytes())
    return found.hexdigest()
