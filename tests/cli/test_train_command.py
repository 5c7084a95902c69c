"""``hios train``: policies from files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from safetensors import safe_open

from hios import Schedule
from hios.cli import main
from tests.problems import problem


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A graph of three operators, of which two can run beside each other, and its costs."""
    times = {"a": 1.0, "b": 1.0, "c": 0.5}
    edges = {("a", "c"): 0.0, ("b", "c"): 0.0}
    graph, costs = tmp_path / "graph.json", tmp_path / "costs.json"
    problem(times, edges).graph.write(graph)
    operators = {name: {"time_ms": time, "utilization": 0.2} for name, time in times.items()}
    transfers = [{"source": source, "target": target, "time_ms": 0.0} for source, target in edges]
    costs.write_text(json.dumps({"operators": operators, "transfers": transfers}), encoding="utf-8")
    return graph, costs


def test_trained_policies_schedule(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Training prints its progress and result, and the policy schedules the graph; equal seeds give equal files."""
    policy, again = tmp_path / "policy.safetensors", tmp_path / "again.safetensors"
    done = _run("train", *files, "--steps", 3, "--seed", 2, "--output", policy)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{policy}: ")
    assert "of the sequential latency" in done.stdout
    assert "step 3 of 3: " in done.stderr
    assert _run("train", *files, "--steps", 3, "--seed", 2, "--output", again).exit_code == 0
    assert policy.read_bytes() == again.read_bytes()
    made = tmp_path / "schedule.json"
    scheduled = _run("schedule", *files, "--algorithm", "gpg", "--weights", policy, "--passes", 4, "--output", made)
    assert scheduled.exit_code == 0, scheduled.output
    assert Schedule.read(made).latency_ms == pytest.approx(0.5 * 2 + 0.5 * 1 + 0.5)


def test_what_is_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    """A graph without costs, a model given twice, an input as output: one line, and no file is written."""
    policy = tmp_path / "policy.safetensors"
    for arguments, message in (
        (
            (*files, files[0]),
            "found 3 files; allowed: a scenario alone, or a graph and its costs for each model, in turns",
        ),
        ((tmp_path / "scenario.yaml",), "scenario.yaml"),
        ((*files, *files), "name: found test, as in another graph; allowed: each model once"),
        ((files[0], tmp_path / "none.json"), "none.json"),
    ):
        done = _run("train", *arguments, "--steps", 1, "--output", policy)
        assert done.exit_code in (1, 2)
        assert message in done.output
        assert "Traceback" not in done.output
    assert not policy.exists()
    assert "found an input named as output" in _run("train", *files, "--output", files[0]).output


def test_models_of_a_scenario(files: tuple[Path, Path], tmp_path: Path) -> None:
    """A scenario names the models with their files."""
    scenario, policy = tmp_path / "scenario.yaml", tmp_path / "policy.safetensors"
    models = {label: {"graph": files[0].name, "costs": files[1].name, "rate": 1.0} for label in ("one", "two")}
    scenario.write_text(json.dumps({"models": models, "arrivals": "periodic"}), encoding="utf-8")
    done = _run("train", scenario, "--steps", 2, "--output", policy)
    assert done.exit_code == 0, done.output
    with safe_open(policy, "numpy") as stored:
        assert json.loads(stored.metadata()["hios-gpg"])["models"] == ["one", "two"]
