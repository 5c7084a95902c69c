"""``hios simulate``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hios.files import artifacts
from hios.serving.policies import LAUNCHERS, POLICIES
from tests.cli.commands import refused, succeed
from tests.serving.scenarios import written


def test_simulate_writes_a_result(tmp_path: Path) -> None:
    """result.json is valid, and the table shows each model, all together and the bound."""
    path, output = written(tmp_path), tmp_path / "out" / "result.json"
    done = succeed("simulate", path, "--policy", "top", "--output", output)
    result = artifacts.read(output, "result")
    assert result["policy"] == "top"
    assert result["simulated"] is True
    for served in result["models"].values():
        ends = ("completed", "dropped", "expired", "failed", "waiting", "in_flight")
        assert served["offered"] == sum(served[key] for key in ends) > 0
    lines = done.output.splitlines()
    assert lines[0].split()[:2] == ["offered/s", "done/s"]
    assert [line.split()[0] for line in lines[1:4]] == ["left", "right", "all"]
    assert "simulated, so predicted" in done.output
    assert "no policy can do more than" in done.output


def test_auto_says_why(tmp_path: Path) -> None:
    """The table lists what was compared; policies that cannot run are named with the reason."""
    output = tmp_path / "result.json"
    done = succeed("simulate", written(tmp_path), "--policy", "auto", "--output", output)
    chosen, compared = (json.loads(output.read_text(encoding="utf-8"))[key] for key in ("chosen", "candidates"))
    told = [line.partition(",")[0] for line in done.stderr.splitlines()]
    assert sorted(told) == sorted(entry["policy"] for entry in compared if "left_out" not in entry)
    assert f"policy auto (chosen: {chosen})" in done.output
    assert "threads: " in done.output


def test_all_policies_under_all_launchers(tmp_path: Path) -> None:
    """A row and a valid file for each pair, what cannot run with its reason, and the limit of strict rounds."""
    output = tmp_path / "grid"
    options = ["--policy", "all", "--launcher", "all", "--load", "3", "--output", output]
    done = succeed("simulate", written(tmp_path), *options)
    runnable = [name for name in POLICIES if name != "threads"]
    rows = [tuple(line.split()[:3]) for line in done.stdout.splitlines()[1 : 1 + len(LAUNCHERS) * len(runnable)]]
    assert [row[:2] for row in rows] == [(name, launcher) for name in runnable for launcher in LAUNCHERS]
    told = [line.partition(":")[0] for line in done.stderr.splitlines()]
    assert told == [f"{name}, launcher {launcher}" for name, launcher, _ in rows]  # one after another, as they end
    for name, launcher, rate in rows:
        result = artifacts.read(output / f"{name}-{launcher}.json", "result")
        assert (result["policy"], result["launcher"]) == (name, launcher)
        assert float(rate) == pytest.approx(result["total"]["completed"] / result["duration_s"], rel=1e-3)
        bound = 2 * min(model["offered"] for model in result["models"].values()) / result["duration_s"]
        if name == "pos-strict":
            assert float(rate) <= bound * 1.001
    assert len(list(output.iterdir())) == len(rows)
    assert f"strict rounds cannot pass {bound:.4g} of " in done.output
    rates = {row[:2]: float(row[2]) for row in rows}
    strict = max(rate for (name, _), rate in rates.items() if name == "pos-strict")
    most = max(rate for (name, _), rate in rates.items() if name != "pos-strict")
    stated = re.search(r"completes (\S+) tasks/s, (\S+) % over pos-strict; that limit alone makes (\S+) %", done.output)
    assert stated
    assert [float(text) for text in stated.groups()] == pytest.approx(
        [most, 100 * (most / strict - 1), max(0.0, 100 * (most / bound - 1))], rel=1e-3, abs=0.1
    )
    assert "threads: " in done.output


def test_all_results_go_to_a_folder(tmp_path: Path) -> None:
    """A file as --output is refused; one launcher that is named is the only one that runs."""
    path, output = written(tmp_path), tmp_path / "result.json"
    output.write_text("mine", encoding="utf-8")
    arguments = ["simulate", path, "--policy", "all", "--launcher", "fixed", "--output"]
    assert "required with all: a folder, with a file for each result" in refused(*arguments, output)
    assert output.read_text(encoding="utf-8") == "mine"
    succeed(*arguments, tmp_path / "grid")
    assert {file.name.endswith("-fixed.json") for file in (tmp_path / "grid").iterdir()} == {True}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policy", "best"], "--policy: found best; allowed: sequential, one-per-lane, "),
        (["--policy", "ios", "--load", "0"], "--load: found 0.0; allowed: a number above 0"),
        (["--policy", "threads"], "required: wide_ms, as hios profile --widths 2 measures them"),
    ],
)
def test_refusals_are_one_line(options: list[str], message: str, tmp_path: Path) -> None:
    """No traceback, and no file."""
    output = tmp_path / "result.json"
    assert message in refused("simulate", written(tmp_path), *options, "--output", output)
    assert not output.exists()


def test_inputs_are_not_overwritten(tmp_path: Path) -> None:
    """A file that the scenario names cannot be overwritten by the output."""
    path, costs = written(tmp_path), tmp_path / "left" / "costs.json"
    before = costs.read_bytes()
    refusal = refused("simulate", path, "--policy", "ios", "--output", costs)
    assert "found an input named as output; allowed: another file" in refusal
    assert costs.read_bytes() == before
