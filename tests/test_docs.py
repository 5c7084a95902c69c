"""The documents say what the code says."""

from __future__ import annotations

import re
from types import ModuleType

import pytest

from hios import ALGORITHMS
from hios.platforms.model.descriptions import gpu, gpu_names
from tests.scripts import ROOT, load_script

PAGE = ROOT / "docs" / "algorithms.md"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """docs/generate_algorithms.py."""
    return load_script("docs/generate_algorithms.py")


@pytest.fixture(scope="module")
def page() -> str:
    """docs/algorithms.md."""
    return PAGE.read_text(encoding="utf-8")


def sections(page: str) -> dict[str, str]:
    """The text by hand of every algorithm, by the name in the heading that the registry gave it."""
    parts = re.split(r"<!-- from the registry: (\S+) -->\n(?:.*\n)*?<!-- end -->\n", page)
    return {name: text.partition("\n## ")[0] for name, text in zip(parts[1::2], parts[2::2], strict=True)}


def test_page_is_what_the_registry_makes_of_it(generate: ModuleType, page: str) -> None:
    """The table and the head of each section are those of the registry as it is now."""
    assert page == generate.generated(page), "docs/algorithms.md is out of date: run python docs/generate_algorithms.py"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_is_explained(name: str, generate: ModuleType, page: str) -> None:
    """Each section says idea, complexity, what is ignored and when to use it, in this order, in words."""
    items = re.findall(r"^- \*\*(.+?)\*\* (.+)$", sections(page)[name], re.MULTILINE)
    assert [question for question, _ in items] == list(generate.QUESTIONS), f"docs/algorithms.md: complete {name}"
    assert not [text for _, text in items if text == "..."], f"docs/algorithms.md: complete {name}"


def test_new_algorithms_get_a_section(generate: ModuleType, page: str) -> None:
    """What the page lacks is added at its end with its questions, and making it again changes nothing."""
    start = page.index("<!-- from the registry: opara -->")
    without = page[:start] + page[page.index("\n## ", start) :]
    made = generate.generated(without)
    assert made.endswith("\n<!-- end -->\n\n" + "".join(f"- **{item}** ...\n" for item in generate.QUESTIONS))
    assert "\n### opara\n" in made
    assert generate.generated(made) == made


def test_text_by_hand_stays(generate: ModuleType, page: str) -> None:
    """Only what stands between markers is replaced."""
    damaged = page.replace("| algorithm |", "| name |").replace("### nimble", "### Nimble")
    assert damaged != page
    assert generate.generated(damaged) == page
    edited = page.replace("# The algorithms\n", "# The algorithms\n\nBy hand.\n")
    assert generate.generated(edited) == edited


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "registry: nimble -->\n### nimble",
            "registry: gone -->\n### nimble",
            "found a part for gone; allowed: table, ",
        ),
        ("<!-- end -->", "", "every part from the registry must end with a line <!-- end -->"),
    ],
)
def test_damaged_markers_are_refused(generate: ModuleType, page: str, old: str, new: str, message: str) -> None:
    """A part of an algorithm that is not there, or one that does not end, is an error and not lost text."""
    with pytest.raises(ValueError, match=re.escape(message)):
        generate.generated(page.replace(old, new))


def test_what_the_page_names_is_there(page: str) -> None:
    """Files and folders that the page names exist, and so do the anchors that it links to."""
    named = set(re.findall(r"(?:^|[`( ])((?:hios|tests|benchmarks|docs|schemas)/[\w./]*)", page))
    assert {"hios/core/problem.py", "tests/schedulers/test_lios.py", "benchmarks/certified.py"} <= named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    anchors = {
        re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in re.findall(r"^#+ .*$", page, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]*)\)", page)) <= anchors


def test_lines_can_be_read_in_an_editor(page: str) -> None:
    """Text by hand is wrapped; only rows of tables and what the registry gives may be longer."""
    by_hand = re.sub(r"<!-- from the registry: \S+ -->\n(?:.*\n)*?<!-- end -->", "", page)
    assert [line for line in by_hand.splitlines() if len(line) > 120 and not line.startswith("|")] == []


def test_gpus_and_links_are_listed() -> None:
    """The table of docs/gpus.md has every GPU that comes with hios, with its links in their order."""
    text = (ROOT / "docs" / "gpus.md").read_text(encoding="utf-8")
    table = text.partition("| `--gpu` | `--link` |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [f"| `{name}` | {', '.join(f'`{word}`' for word in gpu(name).links)} |" for name in gpu_names()]
    assert table.splitlines() == rows


@pytest.mark.parametrize(
    "file",
    [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))),
    ],
)
def test_links_lead_somewhere(file: str) -> None:
    """Every link to a file of the project names one that is there."""
    path = ROOT / file
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8"))
    assert [link for link in links if ":" not in link and not (path.parent / link).exists()] == []
