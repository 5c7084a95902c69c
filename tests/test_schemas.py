"""The schemas under schemas/ are what the classes of hios.formats make of themselves, and are valid schemas."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from hios.files import artifacts
from tests.scripts import ROOT, load_script

#: Kinds of files with a committed schema.
KINDS = sorted(path.name.partition(".")[0] for path in (ROOT / "schemas").glob("*.schema.*"))


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """The script beside the schemas."""
    return load_script("schemas/generate.py")


@pytest.mark.parametrize("kind", KINDS)
def test_schema_is_generated(kind: str, generator: ModuleType) -> None:
    """A committed schema is what ``python schemas/generate.py`` writes."""
    assert artifacts.schema_path(kind).read_text(encoding="utf-8") == generator.text(kind), (
        "out of date: run python schemas/generate.py"
    )


def test_every_class_has_a_schema(generator: ModuleType) -> None:
    """The generator knows every artifact kind, by the class that reads it."""
    classes = generator.CLASSES
    assert set(classes) == set(KINDS)
    assert len(KINDS) == 19
    assert all(artifacts.record_class(kind) is cls for kind, cls in classes.items())


def _rules(rule: Any) -> Iterator[dict[str, Any]]:
    """Every schema within a schema."""
    if isinstance(rule, dict):
        yield rule
        parts = [part for key in ("properties", "$defs") for part in rule.get(key, {}).values()]
        for part in (*parts, rule.get("items"), rule.get("additionalProperties")):
            yield from _rules(part)


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_described(kind: str) -> None:
    """Every property has a description, its own or that of its definition.

    In the configuration, every value has one, and every object says what else it allows.
    """
    schema = artifacts.schema(kind)
    for rule in _rules(schema):
        for key, part in rule.get("properties", {}).items():
            target = schema["$defs"][part["$ref"].rsplit("/", 1)[1]] if "$ref" in part else part
            assert target.get("description"), key
        if kind == "config":
            assert rule["description"].endswith(".")
            assert "additionalProperties" in rule or rule.get("type") != "object"


@pytest.mark.parametrize("kind", KINDS)
def test_schema_is_valid(kind: str) -> None:
    """The reference validator takes every schema for one of Draft 2020-12."""
    Draft202012Validator.check_schema(artifacts.schema(kind))
