"""What benchmarks/house.py counts."""

from __future__ import annotations

from pathlib import Path

from benchmarks import house

_TEXT = '''"""A module
of two lines."""

import json
from hios.core import (
    graph,
)


class Costs:
    """A class."""

    # why
    text = """
    no docstring
    """
'''


def test_lines_are_of_one_kind_each() -> None:
    """Docstrings of several lines and imports of several count whole; a text that is no docstring is code."""
    assert house.kinds(_TEXT) == {"docstrings": 3, "blank": 4, "imports": 4, "code": 4, "comments": 1}


def test_imports_by_modules_and_packages(tmp_path: Path) -> None:
    """A module that is imported by its name from a package is meant itself, and so is what functions import."""
    files = {
        "core/__init__.py": "",
        "core/graph.py": "import json\n",
        "cli/__init__.py": "from hios.core import graph\n",
        "cli/main.py": "def run():\n    from hios.cli import listed\n    import hios.core.graph\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    known = house.modules(tmp_path)
    imports = {name: house.imported(path, known) for name, path in known.items()}
    assert imports == {"core": set(), "core.graph": set(), "cli": {"core.graph"}, "cli.main": {"cli", "core.graph"}}
    assert house.chain(imports) == (3, set())
    assert house.chain(house.packages(imports)) == (2, set())


def test_circles_are_found() -> None:
    """A chain ends before a circle; what imports a circle is named with it."""
    imports = {"a": {"b"}, "b": {"a", "c"}, "c": set(), "d": {"a"}}
    assert house.chain(imports) == (1, {"a", "b", "d"})
