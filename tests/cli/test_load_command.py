"""``hios load``: what is refused before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands import invoke, refused
from tests.serving.scenarios import written


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--timeout", "nan"], "--timeout: found nan; allowed: more than 0 seconds, finite"),
        (["--timeout", "-1"], "--timeout: found -1.0; allowed: more than 0 seconds, finite"),
        (["--tolerance", "nan"], "--tolerance: found nan; allowed: more than 0, finite"),
        (["--tolerance", "-0.1"], "--tolerance: found -0.1; allowed: more than 0, finite"),
        (["--output", "left/graph.json"], "left/graph.json: found an input named as output; allowed: another file"),
        (["--trace", "left/costs.json"], "left/costs.json: found an input named as output; allowed: another file"),
        (["--metrics", "scenario.yaml"], "scenario.yaml: found an input named as output; allowed: another file"),
        (["--metrics", "result.json"], "result.json: found as the file of two outputs; allowed: a file for each"),
        (["--trace", "./result.json"], "result.json: found as the file of two outputs; allowed: a file for each"),
    ],
)
def test_refusals_are_one_line(
    options: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback, and every file is as it was."""
    path = written(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    assert refused("load", path.name, "--policy", "sequential", "--output", "result.json", *options) == message
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("option", ["--policy", "--trace", "--metrics"])
def test_a_calibration_takes_no_options_of_a_load(option: str, tmp_path: Path) -> None:
    """What it would not use is refused."""
    command = ["load", written(tmp_path), "--calibrate", "--output", tmp_path / "calibration.json"]
    done = invoke(*command, option, tmp_path / "other")
    assert done.exit_code == 2
    assert f"{option}: found with --calibrate; allowed: one of them" in done.stderr
    assert not (tmp_path / "other").exists()
