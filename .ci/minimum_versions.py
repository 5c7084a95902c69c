"""Print the oldest supported version of every dependency as constraints of pip: the lower bounds of pyproject.toml.

    python .ci/minimum_versions.py > constraints-oldest.txt

Development tools are left out: they have no part in what users install.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def minimum_versions(project: dict[str, object]) -> dict[str, str]:
    """The lower bound of each requirement outside ``dev``, by name.

    Raises:
        ValueError: a requirement has no lower bound, or another one than elsewhere.
    """
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"]]
    for extra, names in extras.items():
        requirements += [] if extra == "dev" else names
    oldest: dict[str, str] = {}
    for requirement in requirements:
        if requirement.startswith(f"{project['name']}["):
            continue
        match = re.match(r"([\w.-]+)[>=]=([\w.]+)", requirement)
        if not match:
            raise ValueError(f"pyproject.toml: {requirement!r} has no lower bound")
        name, version = match.groups()
        if oldest.setdefault(name, version) != version:
            raise ValueError(f"pyproject.toml: {name} has the lower bounds {oldest[name]} and {version}")
    return oldest


def main() -> None:
    """Print a line for each dependency."""
    file = Path(__file__).resolve().parents[1] / "pyproject.toml"
    for name, version in minimum_versions(tomllib.loads(file.read_text())["project"]).items():
        sys.stdout.write(f"{name}=={version}\n")


if __name__ == "__main__":
    main()
