"""``hios figures`` and ``hios study`` on files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.commands import invoke

SMALL = ("--devices", "2", "--operators", "30", "--edges", "50", "--layers", "6", "--instances", "1")


def _run(*words: str | Path) -> tuple[int, str]:
    answer = invoke(*words)
    return answer.exit_code, answer.output


def test_list_and_explanation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of all, one in full, and both as JSON; in a folder without results."""
    monkeypatch.chdir(tmp_path)
    code, text = _run("figures")
    assert code == 0
    assert text.startswith("figure ")
    assert "hios_fig9" in text
    code, text = _run("figures", "ios_fig8")
    assert code == 0
    assert "State     needs a GPU" in text
    assert "more active warps than by the sequential schedule, on average: 58 [%]" in text
    entries: list[dict[str, Any]] = json.loads(_run("figures", "--json")[1])
    (entry,) = [entry for entry in entries if entry["id"] == "hios_fig9"]
    assert entry["published"]["hios_fig9.lp_over_sequential"]["400"] == 2.06
    assert entry["state"] == "snakemake hios_fig9"
    assert json.loads(_run("figures", "hios_fig9", "--json")[1]) == entry


@pytest.mark.slow
def test_from_simulation_to_figure(tmp_path: Path) -> None:
    """A setting is simulated, and drawn."""
    pytest.importorskip("numba", reason="needs the extra opt")
    pytest.importorskip("altair", reason="needs the extra report")
    file = tmp_path / "simulation" / "small.json"
    code, text = _run("study", "simulation", *SMALL, "--moves", "200", "--output", file)
    assert (code, text.startswith(f"{file}: 1 instance(s) of m2-n30-e50-l6-p0.8, ")) == (0, True), text
    code, text = _run("figures", "hios_fig9", file, "--output", tmp_path / "figures")
    assert (code, text) == (0, f"{tmp_path}/figures/hios_fig9.svg: Fig. 9, 15 rows, drawn\n")
    assert len(list((tmp_path / "figures").iterdir())) == 5


@pytest.mark.slow
def test_several_settings(tmp_path: Path) -> None:
    """Each of several settings is written as a file of its own, in a folder."""
    pytest.importorskip("numba", reason="needs the extra opt")
    several = ("--setting", "devices=3", "--setting", "devices=1,p=0.4")
    code, text = _run("study", "simulation", *SMALL, *several, "--moves", "50", "--output", tmp_path)
    assert (code, len(text.splitlines())) == (0, 2), text
    names = ["m1-n30-e50-l6-p0.4", "m3-n30-e50-l6-p0.8"]
    assert sorted(path.stem for path in tmp_path.iterdir()) == names
    assert [json.loads((tmp_path / f"{name}.json").read_text())["setting"]["devices"] for name in names] == [1, 3]


def test_ablation(tmp_path: Path) -> None:
    """Both generators of graphs can be named."""
    for generator in ("random_layers", "even_layers"):
        file = tmp_path / "ablation" / f"{generator}.json"
        assert _run("study", "ablation", *SMALL, "--generator", generator, "--output", file)[0] == 0
        assert json.loads(file.read_text())["generator"] == generator


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ("figures", "hios_fig99"),
            1,
            "Error: figure: found hios_fig99 (did you mean hios_fig9?); allowed: hios_fig1, ",
        ),
        (("figures", "--output", "x"), 2, "Error: --output: found without ID; allowed: with the ID of a figure"),
        (("figures", "hios_fig9", "graph.json", "--output", "x"), 1, "Error: graph.json: found this file; allowed: "),
        (("figures", "hios_fig9", "a/run.json", "--output", "x"), 1, "Error: a/graph.json: cannot be read: "),
        (
            ("study", "ablation", *SMALL, "--generator", "x", "--output", "y"),
            1,
            "Error: --generator: found x; allowed:",
        ),
        (
            ("study", "simulation", "--edges", "99999", "--output", "y"),
            1,
            "Error: --edges: found 99999; allowed with 200",
        ),
        (
            ("study", "simulation", "--setting", "gpus=2", "--output", "y"),
            1,
            "Error: --setting: found gpus=2; allowed: devices=NUMBER, operators=NUMBER,",
        ),
        (
            ("study", "simulation", "--setting", "devices=2,p=", "--output", "y"),
            1,
            "Error: --setting: p: found ''; allowed: a number",
        ),
        (
            ("study", "simulation", "--setting", "layers=2", "--output", "y"),
            1,
            "Error: --setting: Expected `int` >= 3 - at `$.layers`",
        ),
        (("study", "simulation", "--layers", "2", "--output", "y"), 2, "Error: Invalid value for '--layers': 2"),
    ],
)
def test_refusals(
    words: tuple[str, ...], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong ids, files and settings are refused in one line, and nothing is written."""
    monkeypatch.chdir(tmp_path)
    exit_code, text = _run(*words)
    assert (exit_code, text.count("\n")) == (code, 1), text
    assert text.startswith(message)
    assert not list(tmp_path.iterdir())
