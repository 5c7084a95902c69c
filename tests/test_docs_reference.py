"""The reference pages are what commands, schemas and public names make of them."""

from __future__ import annotations

from types import ModuleType

import pytest

import hios
from hios.cli import main
from hios.files import artifacts
from tests.scripts import ROOT, load_script

DOCS = ROOT / "docs"
PAGES = ("cli.md", "configuration.md", "artifacts.md", "api.md", "how-it-decides.md")


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """docs/generate_reference.py."""
    return load_script("docs/generate_reference.py")


@pytest.mark.parametrize("page", PAGES)
def test_page_is_generated(page: str, generate: ModuleType) -> None:
    """A page has commands, keys and names as they are now, and making it again changes nothing."""
    text = (DOCS / page).read_text(encoding="utf-8")
    assert text == generate.generated(page, text), f"{page} is out of date: run python docs/generate_reference.py"


def test_every_format_is_there(generate: ModuleType) -> None:
    """Every schema has its keys on a page: that of the configuration, or that of the artifacts."""
    kinds = {path.name.partition(".")[0] for path in (ROOT / "schemas").glob("*.schema.*")}
    assert {*generate.KINDS, "config"} == kinds, "add the kind to KINDS, and a section to docs/artifacts.md"


def test_all_pages_are_known(generate: ModuleType) -> None:
    """The script writes these pages and no others."""
    assert tuple(generate.page_names()) == PAGES


@pytest.mark.parametrize("page", PAGES)
def test_parts_are_looked_for(page: str, generate: ModuleType) -> None:
    """A page whose part is damaged is repaired, and one without the part is refused."""
    text = (DOCS / page).read_text(encoding="utf-8")
    begin = next(line for line in text.splitlines() if line.startswith("<!-- generated: "))
    assert generate.generated(page, text.replace(begin, f"{begin}\nsomething else")) == text
    with pytest.raises(ValueError, match="found 0; allowed: 1"):
        generate.generated(page, text.replace(begin, ""))


def test_every_command_and_option_is_there() -> None:
    """Each command has a section, and each of its options a row."""
    text = (DOCS / "cli.md").read_text(encoding="utf-8")
    for name, command in main.commands.items():
        section = text.partition(f"\n## hios {name}\n")[2].partition("\n## ")[0]
        options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
        assert [option for option in options if f"`{option}" not in section and f" {option}" not in section] == [], name


def test_every_key_is_there() -> None:
    """The page of the configuration has every key of the schema, however deep."""

    def keys(rule: object) -> set[str]:
        if isinstance(rule, list):
            return set().union(*map(keys, rule))
        if not isinstance(rule, dict):
            return set()
        return set(rule.get("properties", {})).union(*(keys(value) for value in rule.values()))

    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert [key for key in sorted(keys(artifacts.schema("config"))) if f"\n| `{key}` |" not in text] == []


def test_every_public_name_is_there() -> None:
    """The page of the Python API documents every name of ``hios.__all__``."""
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    assert [name for name in hios.__all__ if f":: hios.{name}\n" not in text and f"}} hios.{name}\n" not in text] == []
