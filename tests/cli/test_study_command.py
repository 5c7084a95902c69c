"""``hios figures`` and ``hios study`` on files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import invoke, succeed

SMALL = ("--devices", "2", "--operators", "30", "--edges", "50", "--layers", "6", "--instances", "1")


def test_list_and_explanation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of all, one in full, and both as JSON; in a folder without results."""
    monkeypatch.chdir(tmp_path)
    text = succeed("figures").output
    assert text.startswith("figure ")
    assert "hios_fig9" in text
    text = succeed("figures", "ios_fig8").output
    assert "State     needs a GPU" in text
    assert "more active warps than by the sequential schedule, on average: 58 [%]" in text
    entries: list[dict[str, Any]] = json.loads(succeed("figures", "--json").output)
    (entry,) = [entry for entry in entries if entry["id"] == "hios_fig9"]
    assert entry["published"]["hios_fig9.lp_over_sequential"]["400"] == 2.06
    assert entry["state"] == "snakemake hios_fig9"
    assert json.loads(succeed("figures", "hios_fig9", "--json").output) == entry


@pytest.mark.slow
def test_from_simulation_to_figure(tmp_path: Path) -> None:
    """A setting is simulated, and drawn."""
    pytest.importorskip("numba", reason="needs the extra opt")
    pytest.importorskip("altair", reason="needs the extra report")
    file = tmp_path / "simulation" / "small.json"
    text = succeed("study", "simulation", *SMALL, "--moves", "200", "--output", file).output
    assert text.startswith(f"{file}: 1 instance(s) of m2-n30-e50-l6-p0.8, ")
    text = succeed("figures", "hios_fig9", file, "--output", tmp_path / "figures").output
    assert text == f"{tmp_path}/figures/hios_fig9.svg: Fig. 9, 15 rows, drawn\n"
    assert len(list((tmp_path / "figures").iterdir())) == 5


@pytest.mark.slow
def test_several_settings(tmp_path: Path) -> None:
    """Each of several settings is written as a file of its own, in a folder."""
    pytest.importorskip("numba", reason="needs the extra opt")
    several = ("--setting", "devices=3", "--setting", "devices=1,p=0.4")
    text = succeed("study", "simulation", *SMALL, *several, "--moves", "50", "--output", tmp_path).output
    assert len(text.splitlines()) == 2
    names = ["m1-n30-e50-l6-p0.4", "m3-n30-e50-l6-p0.8"]
    assert sorted(path.stem for path in tmp_path.iterdir()) == names
    assert [json.loads((tmp_path / f"{name}.json").read_text())["setting"]["devices"] for name in names] == [1, 3]


@pytest.mark.parametrize("generator", ["random_layers", "even_layers"])
def test_ablation(generator: str, tmp_path: Path) -> None:
    """Both generators of graphs can be named."""
    file = tmp_path / "ablation" / "graphs.json"
    succeed("study", "ablation", *SMALL, "--generator", generator, "--output", file)
    assert json.loads(file.read_text())["generator"] == generator


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("figures hios_fig99", 1, "figure: found hios_fig99 (did you mean hios_fig9?); allowed: hios_fig1, "),
        ("figures --output x", 2, "--output: found without ID; allowed: with the ID of a figure"),
        ("figures hios_fig9 graph.json --output x", 1, "graph.json: found this file; allowed: "),
        ("figures hios_fig9 a/run.json --output x", 1, "a/graph.json: cannot be read: "),
        ("study ablation --generator x --output y", 1, "--generator: found x; allowed:"),
        ("study simulation --edges 99999 --output y", 1, "--edges: found 99999; allowed with 200"),
        (
            "study simulation --setting gpus=2 --output y",
            1,
            "--setting: found gpus=2; allowed: devices=NUMBER, operators=NUMBER,",
        ),
        ("study simulation --setting devices=2,p= --output y", 1, "--setting: p: found ''; allowed: a number"),
        ("study simulation --setting layers=2 --output y", 1, "--setting: Expected `int` >= 3 - at `$.layers`"),
        ("study simulation --layers 2 --output y", 2, "Invalid value for '--layers': 2"),
    ],
)
def test_refusals(words: str, code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong ids, files and settings are refused in one line, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    done = invoke(*words.split())
    assert (done.exit_code, done.output.count("\n")) == (code, 1), done.output
    assert done.output.startswith(f"Error: {message}")
    assert not list(tmp_path.iterdir())
