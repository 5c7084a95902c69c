"""Every rule is one file, with the same sections in the same order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

RULES = sorted((Path(__file__).resolve().parents[2] / "workflow" / "rules").glob("*.smk"))
SECTIONS = ["output", "log", "benchmark", "conda", "threads", "resources", "params", "message", "shell"]


@pytest.mark.parametrize("file", [file for file in RULES if file.stem != "common"], ids=lambda file: file.stem)
def test_sections(file: Path) -> None:
    """A file holds the rule of its name, perhaps with variants below it; only some sections are optional.

    A rule that is made several times, within a loop, has names that begin with that of the file.
    """
    text = file.read_text().partition("\nuse rule ")[0]
    ((indent, name),) = re.findall(r"^( *)rule ?(\w*):$", text, re.MULTILINE)
    assert name == file.stem or (indent and f'f"{file.stem}_' in text)
    sections = [word for word in re.findall(rf"^{indent}    (\w+):", text, re.MULTILINE) if word != "name"]
    optional = {"input", "wildcard_constraints", "cache", "localrule"}
    assert [section for section in sections if section not in optional] == SECTIONS
    for resource in ("mem_mb=", "runtime="):
        assert resource in text
