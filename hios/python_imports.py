"""The imports of Python sources, read from their text: nothing is imported or run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator


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
