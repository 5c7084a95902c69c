"""Print the oldest supported versions, the lower bounds of pyproject.toml, as constraints for pip.

    python .ci/minimum_versions.py > oldest.txt

Development tools are left out: users do not install them; and so is slurm, whose plugin wants recent versions.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path


def minimum_versions(requirements: list[str]) -> dict[str, str]:
    """The lower bound of each requirement, by name.

    Raises:
        ValueError: a requirement has no lower bound, or one that differs from another of the same name.
    """
    oldest: dict[str, str] = {}
    for requirement in requirements:
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
    project = tomllib.loads(file.read_text())["project"]
    extras = {
        name: needs for name, needs in project["optional-dependencies"].items() if name not in ("all", "dev", "slurm")
    }
    for name, version in minimum_versions(sum(extras.values(), project["dependencies"])).items():
        sys.stdout.write(f"{name}=={version}\n")


if __name__ == "__main__":
    main()
