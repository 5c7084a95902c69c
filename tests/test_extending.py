"""docs/extending.md works as it stands: its files are written and its commands are run, in a copy of the library."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.commands import succeed
from tests.scripts import ROOT, printed

PAGE = ROOT / "docs" / "extending.md"


def _section(heading: str) -> str:
    """The text of a section, without its subsections."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    return re.split(r"\n##+ ", text)[0]


def _write_files(heading: str, folder: Path) -> None:
    """The files that a section says to write, and the files of the folder that it says to append to."""
    pattern = r"^(Write|Append to) `([^`]+)`:\n\n```\w+\n(.*?)^```"
    files = re.findall(pattern, _section(heading), re.MULTILINE | re.DOTALL)
    assert files
    for what, name, text in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text(encoding="utf-8") if what == "Append to" else ""
        path.write_text(before + text, encoding="utf-8")


def _commands(heading: str) -> list[str]:
    """The ``hios`` commands of a section."""
    commands = re.findall(r"^    hios (.*)$", _section(heading), re.MULTILINE)
    assert commands
    return commands


def _run_commands(heading: str, folder: Path, library: Path = ROOT) -> str:
    """Run the ``hios`` commands of a section; returns all that they print."""
    environment = {"PYTHONPATH": str(library), "HIOS_CACHE": str(folder / "cache")}
    return "".join(
        printed("-m", "hios", *shlex.split(command), folder=folder, **environment) for command in _commands(heading)
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the library, for what is added to it."""
    folder = tmp_path_factory.mktemp("library")
    for name in ("hios", "schemas", "models"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_algorithm(tmp_path: Path) -> None:
    """The algorithm schedules, and its parameter changes the schedule."""
    _write_files("An algorithm", tmp_path)
    said = _run_commands("An algorithm", tmp_path)
    assert "round-robin" not in said.partition("greedy")[2]  # hios algorithms lists what it has been told of
    devices = {
        name: [row["device"] for row in json.loads((tmp_path / name).read_text())["placements"]]
        for name in ("schedule.json", "runs.json")
    }
    assert sorted(devices["schedule.json"]) == sorted(devices["runs.json"]) == [0, 0, 1, 1]


@pytest.mark.slow
def test_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model goes through all stages."""
    _write_files("A model", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    said = [succeed(*shlex.split(command)).stdout for command in _commands("A model")]  # here, where torch is loaded
    assert "medians of 5 runs" in said[-1]
    run = json.loads((tmp_path / "run.json").read_text())
    assert run["graph"] == "two_branches"


def test_platform(tmp_path: Path, library: Path) -> None:
    """The platform predicts: FLOPs over speed."""
    section = _section("A platform")
    _write_files("A platform", library)
    entry = re.search(
        r"^and add to `PLATFORMS` in `([^`]+)`:\n\n```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL
    )
    assert entry is not None
    table = library / entry[1]
    text = table.read_text(encoding="utf-8")
    assert text.count("\nPLATFORMS = {\n") == 1
    table.write_text(text.replace("\nPLATFORMS = {\n", f"\nPLATFORMS = {{\n{entry[2]}"), encoding="utf-8")
    _write_files("An algorithm", tmp_path)
    assert "predicted for 2 x processor of 2 GFLOP/s" in _run_commands("A platform", tmp_path, library)
    costs = json.loads((tmp_path / "rated.json").read_text())
    assert {name: cost["time_ms"] for name, cost in costs["operators"].items()} == {"a": 0.5, "b": 2, "c": 2, "d": 0.5}


def test_figure(tmp_path: Path, library: Path) -> None:
    """The figure is listed and drawn."""
    _write_files("A figure", library)
    assert "Operator types" in _run_commands("A figure", tmp_path, library)
    rows = (tmp_path / "figures" / "opara_tab9.csv").read_text().splitlines()
    assert rows[0] == "network,type,operators"
    assert len(rows) > 4
