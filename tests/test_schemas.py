"""The schemas under schemas/ are what the classes of hios.formats make of themselves, and are valid schemas."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from jsonschema import Draft202012Validator

from hios.files import artifacts

KINDS = (
    "graph",
    "costs",
    "schedule",
    "run",
    "partition",
    "config",
    "gpu",
    "link",
    "simulation",
    "ablation",
    "convolutions",
    "top-study",
    "predicted",
    "published",
    "figure",
    "archive",
    "scenario",
    "result",
    "calibration",
)


def _generator() -> ModuleType:
    """The script beside the schemas."""
    path = Path(__file__).resolve().parents[1] / "schemas" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate_schemas", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", KINDS)
def test_schema_is_generated(kind: str) -> None:
    """A committed schema is what ``python schemas/generate.py`` writes."""
    generator = _generator()
    assert artifacts.schema_path(kind).read_text(encoding="utf-8") == generator.text(kind), (
        "out of date: run python schemas/generate.py"
    )


def test_every_class_has_a_schema() -> None:
    """The generator knows every artifact kind, by the class that reads it."""
    classes = _generator().CLASSES
    assert set(classes) == set(KINDS)
    assert all(artifacts.record_class(kind) is cls for kind, cls in classes.items())


@pytest.mark.parametrize("kind", KINDS)
def test_schema_is_valid(kind: str) -> None:
    """The reference validator takes every schema for one of Draft 2020-12."""
    Draft202012Validator.check_schema(artifacts.schema(kind))
