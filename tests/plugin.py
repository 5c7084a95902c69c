"""A distribution with algorithms, as other people would install one beside hios."""

from __future__ import annotations

from pathlib import Path

#: The code of an algorithm: the operators in topological order, those of equal rank from the last to the first.
BACKWARDS = '''"""An algorithm from outside."""

import hios

from .order import order


@hios.register(
    "backwards",
    paper="nowhere",
    summary="the last operator that can run, again and again",
    several_devices=False,
    parameters=(hios.Parameter("backwards_from", 0, "first operators that stay where they are", minimum=0),),
)
def backwards(problem, devices, *, backwards_from=0):
    """Ties are broken by ``order``."""
    chosen = order(problem, backwards_from)
    return hios.StreamPlan(((chosen,),), chosen)
'''

#: What its module imports from its own package.
ORDER = '''"""Order of operators."""


def order(problem, first):
    """A topological order, the last of the ready operators first."""
    missing = [len(row) for row in problem.predecessors]
    ready = [operator for operator in range(len(problem)) if missing[operator] == 0]
    chosen = []
    while ready:
        operator = ready.pop(0 if len(chosen) < first else -1)
        chosen.append(operator)
        for successor, _ in problem.successors[operator]:
            missing[successor] -= 1
            if missing[successor] == 0:
                ready.append(successor)
    return tuple(chosen)
'''


def install(
    folder: Path, name: str = "outside", version: str = "1.2", entries: str = "", **modules: str
) -> dict[str, Path]:
    """Write a distribution into a folder of the module search path.

    Args:
        folder: such a folder, or one that becomes part of PYTHONPATH.
        name: of the distribution, and of its package.
        version: its version.
        entries: lines ``algorithm = module:function``; those of ``backwards`` if empty.
        modules: code by module name in the package; ``backwards`` if there are none.

    Returns:
        The file of every module.
    """
    package, metadata = folder / name, folder / f"{name}-{version}.dist-info"
    package.mkdir(parents=True)
    metadata.mkdir()
    (package / "__init__.py").write_text('"""Algorithms."""\n')
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = entries or f"backwards = {name}.backwards:backwards"
    (metadata / "entry_points.txt").write_text(f"[hios.algorithms]\n{lines}\n")
    files = {}
    for module, code in (modules or {"backwards": BACKWARDS, "order": ORDER}).items():
        files[module] = package / f"{module}.py"
        files[module].write_text(code)
    return files
