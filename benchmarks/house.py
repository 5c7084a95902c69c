"""How large hios is, how far its imports reach, and which names of classes are borne twice.

    python benchmarks/house.py [CHECKOUT]

Nothing is imported or run: the files of the checkout, this one if none is given, are read.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[1]
_KINDS = ("code", "docstrings", "blank", "imports", "comments")


def modules(package: Path) -> dict[str, Path]:
    """Every module below a package, by dotted name without that of the package."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        if name := ".".join(part for part in parts if part != "__init__"):
            found[name] = path
    return found


def imported(path: Path, known: Mapping[str, Path]) -> set[str]:
    """Modules of hios that a file imports anywhere: at the top, in functions, for type checkers."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.removeprefix("hios.") for alias in node.names if alias.name.startswith("hios.")}
        elif isinstance(node, ast.ImportFrom) and node.module == "hios":
            names |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hios."):
            package = (node.module or "").removeprefix("hios.")
            within = {f"{package}.{alias.name}" for alias in node.names}
            names |= {name if name in known else package for name in within}
        if isinstance(node, ast.ImportFrom) and node.level:
            raise ValueError(f"{path}: relative import")
    return names


def packages(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same imports between packages: first parts of the names of modules."""
    joined: dict[str, set[str]] = defaultdict(set)
    for name, needed in imports.items():
        joined[name.partition(".")[0]] |= {other.partition(".")[0] for other in needed}
    return joined


def chain(imports: Mapping[str, set[str]]) -> tuple[int, set[str]]:
    """How many names the longest chain of imports has, and the names that are in a circle or import one.

    A chain ends before the first circle.
    """
    left = {name: needed & imports.keys() - {name} for name, needed in imports.items()}
    length = 0
    while free := {name for name, needed in left.items() if not needed & left.keys()}:
        left = {name: needed for name, needed in left.items() if name not in free}
        length += 1
    return length, set(left)


def kinds(text: str) -> Counter[str]:
    """How many lines are of each kind."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    kind = {}
    for number, line in enumerate(text.splitlines(), 1):
        kind[number] = "blank" if not line.strip() else "comments" if line.strip().startswith("#") else "code"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            kind |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), "imports")
        elif isinstance(node, documented) and ast.get_docstring(node) is not None:
            kind |= dict.fromkeys(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1), "docstrings")
    return Counter(kind.values())


def main() -> None:
    """Print every number on a line of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=_CHECKOUT)
    root = parser.parse_args().checkout
    texts = {
        path: path.read_text(encoding="utf-8") for part in ("hios", "tests") for path in root.glob(f"{part}/**/*.py")
    }
    own = [text for path, text in texts.items() if path.is_relative_to(root / "hios")]
    tests = [text for path, text in texts.items() if path.is_relative_to(root / "tests")]
    lines = sum(map(kinds, own), Counter[str]())
    named = Counter(node.name for text in own for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef))
    twice = sorted(name for name, classes in named.items() if classes > 1)
    functions = [node for text in tests for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    known = modules(root / "hios")
    imports = {name: imported(path, known) for name, path in known.items()}
    (of_packages, _), (of_modules, circles) = chain(packages(imports)), chain(imports)
    print(f"lines in hios/                   {lines.total()}: " + ", ".join(f"{lines[kind]} {kind}" for kind in _KINDS))
    print(f"files in hios/                   {len(own)}")
    print(f"lines in tests/                  {sum(len(text.splitlines()) for text in tests)}")
    print(f"test functions                   {sum(node.name.startswith('test_') for node in functions)}")
    print(f"longest chain of imports         {of_packages} packages, {of_modules} modules")
    print(f"modules in or above a circle     {len(circles)}")
    print(f"names of two classes or more     {len(twice)}: {', '.join(twice)}")


if __name__ == "__main__":
    main()
