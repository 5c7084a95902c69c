"""Finding the modules that Python sources import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from hios.frontends.models import imported_names, parsed, reached


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("import a, b.c as d", {"a", "b.c"}),
        ("from a import b", {"a.b", "a"}),
        ("from . import b", {"top.inner.b", "top.inner"}),
        ("from .a import b", {"top.inner.a.b", "top.inner.a"}),
        ("from ..a import b", {"top.a.b", "top.a"}),
        ("def f():\n    import a", {"a"}),
        ("a = 1", set()),
    ],
)
def test_imported_names(code: str, names: set[str]) -> None:
    """Names are absolute, and imports inside functions count."""
    assert set(imported_names(ast.parse(code), "top.inner")) == names


def test_imports_outside_of_packages() -> None:
    """A module that lies in no package imports by absolute names."""
    assert set(imported_names(ast.parse("from a import b"), "")) == {"a", "a.b"}


def test_what_is_not_python_has_no_tree(tmp_path: Path) -> None:
    """A file that cannot be parsed has no tree; one that can has one."""
    file = tmp_path / "module.py"
    for wrong in (b"def", b"\0", b"# coding: unknown\n"):
        file.write_bytes(wrong)
        assert parsed(file.read_bytes()) is None
    file.write_bytes(b"import a\n")
    assert isinstance(parsed(file.read_bytes()), ast.Module)


def test_every_module_is_asked_once() -> None:
    """Modules that import each other are reached, and their imports are read once."""
    imports = {"a": ["b", "c"], "b": ["a"], "c": ["b", "d"], "d": [], "e": ["a"]}
    asked: list[str] = []

    def imported(name: str) -> list[str]:
        asked.append(name)
        return imports[name]

    assert reached(["a"], imported) == {"a", "b", "c", "d"}
    assert sorted(asked) == ["a", "b", "c", "d"]
