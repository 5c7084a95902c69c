"""Code and commands in README and docs are right: Python runs, commands parse, files that are named exist."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import click
import pytest

from hios.cli import main
from hios.study import registry
from tests.scripts import ROOT, printed

PAGES = ("README.md", "CONTRIBUTING.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))))

#: What stands for the reader's own model, which takes too little time for a race.
MODEL = """
import functools, hios, torch
hios.optimize = functools.partial(hios.optimize, least_ms=1e6)
model = torch.nn.Sequential(torch.nn.Linear(4, 4))
example_inputs = inputs = (torch.ones(1, 4),)
"""
#: Blocks that need torch, by page and number of the block; and those that need nothing.
WITH_MODEL = (("README.md", 0), ("docs/optimize.md", 0), ("docs/quickstart.md", 0))
LIGHT = (("docs/quickstart.md", 1),)
#: Blocks that other tests run: tests/test_api.py, tests/serving/test_server.py, and tests/test_extending.py.
ELSEWHERE = {("docs/python.md", 0), ("docs/serving.md", 0)} | {("docs/extending.md", block) for block in range(8)}


def _text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def _blocks(page: str) -> list[str]:
    """The blocks of Python of a page."""
    return re.findall(r"^```python\n(.*?)^```", _text(page), re.MULTILINE | re.DOTALL)


def _lines(page: str) -> list[str]:
    """The lines of indented and plain blocks, continued lines joined."""
    text = _text(page).replace("\\\n", " ")
    fenced = re.findall(r"^```(?:text|bash|console)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(
        r"^    (\S.*)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
    )
    return [line.strip() for line in [*indented, *"".join(fenced).splitlines()]]


def test_every_block_is_run() -> None:
    """Every Python block of the docs is run, in this module or in one that it names."""
    numbered = {(page, number) for page in PAGES for number in range(len(_blocks(page)))}
    assert numbered == {*WITH_MODEL, *LIGHT} | ELSEWHERE


def _run(code: str, folder: Path) -> str:
    """Run code in a new interpreter, and return what it prints."""
    return printed("-c", code, folder=folder, HIOS_CACHE=str(folder))


@pytest.mark.slow
def test_python_with_a_model_runs(tmp_path: Path) -> None:
    """Blocks that optimize a model run, with a small one in the place of the reader's."""
    parts = [MODEL, *(f"exec({_blocks(page)[number]!r})" for page, number in WITH_MODEL)]
    printed = _run("\n".join(parts), tmp_path)
    by_dynamo = 1 + 2  # of the first two blocks; reports() also has those before
    assert printed.count("runs as the model itself") == len(WITH_MODEL) + by_dynamo


def test_light_python_runs(tmp_path: Path) -> None:
    """The problem by hand of the quick start has the latencies that the page states."""
    printed = _run(_blocks("docs/quickstart.md")[1], tmp_path)
    stated = re.findall(r"`(\d \d+\.\d)`", _text("docs/quickstart.md"))
    assert printed.splitlines() == stated


def _commands(page: str) -> list[str]:
    return [line for line in _lines(page) if re.match(r"hios [a-z]", line)]


@pytest.mark.parametrize("page", [page for page in PAGES if page != "docs/cli.md" and _commands(page)])
def test_commands_parse(page: str) -> None:
    """Every ``hios`` command in a block uses a command, options and values that exist."""
    for line in _commands(page):
        if "--algorithm my_algorithms:" in line or "--platform rated" in line:  # tests/test_extending.py runs them
            continue
        name, *arguments = shlex.split(line.partition("  #")[0])[1:]
        command = main.commands[name]
        try:
            command.make_context(name, arguments).close()
        except click.UsageError as error:
            pytest.fail(f"{page}: {line}: {error.format_message()}")


def test_targets_and_scripts_exist() -> None:
    """Scripts that pages run are in the tree, and figures that they ask Snakemake for are in the registry."""
    lines = [line for page in PAGES for line in _lines(page)]
    scripts = {name for line in lines for name in re.findall(r"^python ((?:docs|benchmarks|schemas)/\S+\.py)", line)}
    assert len(scripts) > 3
    assert [name for name in sorted(scripts) if not (ROOT / name).is_file()] == []
    figures = {
        name for line in lines if line.startswith("snakemake") for name in re.findall(r"\b\w+_(?:fig|tab)\d+\b", line)
    }
    assert figures
    assert figures - set(registry.ids()) == set()


def test_examples_of_values() -> None:
    """The values that docs/api.md describes by hand are what it says."""
    examples = doctest.DocTestParser().get_doctest(_text("docs/api.md").replace("```", ""), {}, "api.md", None, 0)
    assert len(examples.examples) == 5
    assert doctest.DocTestRunner(verbose=False).run(examples).failed == 0
