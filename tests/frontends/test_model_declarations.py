"""What a model declares: units and blocks, checked where they are written and where they are read."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from hios.errors import ArtifactError
from hios.frontends import program as programs
from hios.frontends.model_declarations import Declarations
from tests.refusals import refused


def _module(**declared: Any) -> nn.Module:
    module = nn.Sequential(nn.Sequential(nn.ReLU()), nn.ReLU())
    for name, value in declared.items():
        setattr(module, f"hios_{name}", value)
    return module


def test_declarations_of_a_module() -> None:
    """Units and paths of submodules are taken from plain attributes; without them there are none."""
    assert Declarations.of(_module()) == Declarations(None, ())
    assert Declarations.of(_module(units="operator", blocks=("0.0", "1"))) == Declarations("operator", ("0.0", "1"))
    assert Declarations.of(_module(blocks=["0"])).blocks == ("0",)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"units": "conv"}, "hios_units: found conv; allowed: conv-relu, relu-sepconv, operator"),
        ({"blocks": "0"}, "hios_blocks: found 0; allowed: paths of submodules, as a tuple of text"),
        ({"blocks": (0,)}, "hios_blocks: found [0]; allowed: paths of submodules, as a tuple of text"),
        ({"blocks": ("0", "0")}, "hios_blocks: found 0 twice; allowed: once"),
        ({"blocks": ("2",)}, "hios_blocks: found 2, which is not a submodule of Sequential; allowed: paths of its "),
        ({"blocks": ("",)}, "hios_blocks: found ['']; allowed: paths of submodules, as a tuple of text"),
    ],
)
def test_bad_declarations(declared: dict[str, Any], message: str) -> None:
    """Unknown units, and blocks that are no submodules, are refused."""
    with refused(message):
        Declarations.of(_module(**declared))


def test_json() -> None:
    """What is written is what is read."""
    for declared in (Declarations(), Declarations("operator", ("a", "b.c"), (None, 5))):
        assert Declarations.from_json(declared.json()) == declared


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[]", "found list; allowed: units, blocks"),
        ('{"kind": 1}', "found kind; allowed: units, blocks"),
        ('{"units": ["operator"]}', "units: found ['operator']; allowed: conv-relu"),
        ('{"blocks": [1]}', "blocks: found [1]; allowed: "),
        ('{"below": [0]}', "below: found [0]; allowed: "),
    ],
)
def test_damaged_declarations(tmp_path: Path, text: str, message: str) -> None:
    """Damaged declarations in a program are refused in one line that names the file."""
    path = tmp_path / "program.pt2"
    program = torch.export.export(nn.ReLU(), (torch.ones(1),))
    torch.export.save(program, path, extra_files={"hios.json": text})
    with refused(f"{path}: hios.json: {message}", kind=ArtifactError):
        programs.declarations(path)


def test_program_without_declarations(tmp_path: Path) -> None:
    """A program that hios did not write declares nothing."""
    path = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(nn.ReLU(), (torch.ones(1),)), path)
    assert programs.declarations(path) == Declarations()
    with zipfile.ZipFile(path) as archive:
        assert not [name for name in archive.namelist() if "hios.json" in name]
