"""The conda environments say the same as pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]

#: Extras of pyproject.toml that each environment holds beside the dependencies of hios itself.
EXTRAS = {
    "torch": ["opt", "torch", "onnx", "transformers"],
    "tvm": ["torch", "tvm", "onnx"],
    "schedule": ["opt"],
    "report": ["report"],
}


def test_every_environment_is_used() -> None:
    """envs/ holds these environments, and the rules use each of them and no other."""
    rules = "".join(file.read_text() for file in (REPOSITORY / "workflow" / "rules").glob("*.smk"))
    assert {file.stem for file in (REPOSITORY / "envs").iterdir()} == set(EXTRAS)
    assert set(re.findall(r'"\.\./\.\./envs/(\w+)\.yaml"', rules)) == set(EXTRAS)


@pytest.mark.parametrize("name", EXTRAS)
def test_environment(name: str) -> None:
    """An environment has the pins of pyproject.toml, all of them and no more."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((REPOSITORY / "envs" / f"{name}.yaml").read_text())
    expected = list(project["dependencies"])
    for extra in EXTRAS[name]:
        expected += project["optional-dependencies"][extra]
    expected = list(dict.fromkeys(expected))  # numpy is in two extras
    assert environment["channels"] == ["conda-forge", "nodefaults"]
    assert environment["dependencies"] == [f"python {project['requires-python']}", "pip", {"pip": expected}]
