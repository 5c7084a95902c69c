"""Count how many random mutations of hios the tests catch: ``python .ci/mutations.py --seed 1 --count 30``.

In a copy of the project, a comparison, an operator, a number, a condition or a returned value changes in a random file
of a random package, and the tests of the folder that mirrors it run, without slow ones. A mutation is caught if one
fails, or after half an hour; another status of pytest is an error. Some that survive change nothing one could see.
Mutated code may overwrite or delete what it should not, so root is refused.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: What stands in the place of an operator.
_OTHER: dict[type, type] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
}


def _mutation(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """An expression and another for its place, or None."""
    match node:
        case ast.Compare(left, [operator], right) if type(operator) in _OTHER:
            return node, ast.Compare(left, [_OTHER[type(operator)]()], right)
        case ast.BinOp(left, operator, right) if type(operator) in _OTHER and not isinstance(left, ast.Constant):
            return node, ast.BinOp(left, _OTHER[type(operator)](), right)
        case ast.BoolOp(operator, values):
            return node, ast.BoolOp(_OTHER[type(operator)](), values)
        case ast.Constant(int(value) | float(value)):
            return node, ast.Constant(not value if isinstance(value, bool) else value + 1)
        case ast.If(test) | ast.While(test) | ast.IfExp(test) if not isinstance(test, ast.Name):
            return test, ast.UnaryOp(ast.Not(), test)
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            return value, ast.Constant(None)
    return None


def _mutate(path: Path, chance: random.Random) -> str:
    """Change a file that has a place for a mutation; returns line, old and new text."""
    lines = path.read_bytes().splitlines(keepends=True)
    old, new = chance.choice([found for node in ast.walk(ast.parse(b"".join(lines))) if (found := _mutation(node))])
    tail = lines[(old.end_lineno or 0) - 1][old.end_col_offset :]
    lines[old.lineno - 1] = lines[old.lineno - 1][: old.col_offset] + f"({ast.unparse(new)})".encode() + tail
    del lines[old.lineno : old.end_lineno]
    path.write_bytes(b"".join(lines))
    return f"{old.lineno}: {ast.unparse(old)} -> {ast.unparse(new)}"


def _outcome(package: str, copy: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["timeout", "1800", sys.executable, "-m", "pytest", "-qxm", "not slow", f"tests/{package}"]
    status = subprocess.run(command, cwd=copy, env=environment, stdout=subprocess.DEVNULL).returncode  # noqa: S603
    return {0: "survived", 1: "caught", 124: "caught"}.get(status, f"error {status}")


def main() -> None:
    """Print a line for each mutation, and how many were caught."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=30)
    options = parser.parse_args()
    if os.geteuid() == 0:
        parser.error("run it as another user than root")
    chance, outcomes, passing, written = random.Random(options.seed), list[str](), set[Path](), sys.stdout.write
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(ROOT, Path(folder, "hios"), ignore=shutil.ignore_patterns(".*", "results*")))
        tested = [own for own in sorted((copy / "hios").glob("[!_]*")) if (copy / "tests" / own.name).is_dir()]
        for _ in range(options.count):
            package = chance.choice(tested)
            path = chance.choice([file for file in sorted(package.rglob("*.py")) if "return " in file.read_text()])
            if package not in passing and _outcome(package.name, copy) != "survived":
                sys.exit(f"tests/{package.name} does not pass before anything is changed")
            passing.add(package)
            original, mutation = path.read_bytes(), _mutate(path, chance)
            outcomes.append(_outcome(package.name, copy))
            path.write_bytes(original)
            written(f"{outcomes[-1]:8} {path.relative_to(copy)}:{mutation}\n")
    written(f"{options.count} mutations: {outcomes.count('caught')} caught, {outcomes.count('survived')} survived\n")


if __name__ == "__main__":
    main()
