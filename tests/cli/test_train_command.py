"""``hios train``: policies from files, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from hios import Schedule
from hios.files import artifacts
from hios.formats.scenario import Overheads
from hios.formats.serving_result import CalibrationFile
from hios.schedulers.gpg import TRAINING
from tests.cli.commands import invoke, succeed
from tests.problems import problem, write_files


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A graph of three operators, of which two can run side by side, and its costs."""
    times = {"a": 1.0, "b": 1.0, "c": 0.5}
    edges = {("a", "c"): 0.0, ("b", "c"): 0.0}
    write_files(problem(times, edges, utilization=dict.fromkeys(times, 0.2)), tmp_path)
    return tmp_path / "graph.json", tmp_path / "costs.json"


def test_deviations_are_listed_alike() -> None:
    """`hios train --help` and `hios algorithms gpg` say the same of the training."""
    said = [" ".join(succeed(*arguments).stdout.split()) for arguments in (("train", "--help"), ("algorithms", "gpg"))]
    for text in TRAINING:
        assert all(text in own for own in said)


def test_trained_policies_schedule(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Training prints its progress and result, and the policy schedules the graph; equal seeds give equal files."""
    policy, again = tmp_path / "policy.safetensors", tmp_path / "again.safetensors"
    done = succeed("train", *files, "--steps", 3, "--seed", 2, "--output", policy)
    assert done.stdout.startswith(f"{policy}: ")
    assert "of the sequential latency" in done.stdout
    assert "step 3 of 3: " in done.stderr
    succeed("train", *files, "--steps", 3, "--seed", 2, "--output", again)
    assert policy.read_bytes() == again.read_bytes()
    made = tmp_path / "schedule.json"
    succeed("schedule", *files, "--algorithm", "gpg", "--weights", policy, "--passes", 4, "--output", made)
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
        done = invoke("train", *arguments, "--steps", 1, "--output", policy)
        assert done.exit_code in (1, 2)
        assert message in done.output
        assert "Traceback" not in done.output
    assert not policy.exists()
    assert "found an input named as output" in invoke("train", *files, "--output", files[0]).output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--size", "paper"), "--size: found with --learn stages; allowed: with --learn launcher"),
        (("--set", "a=b"), "--set: found with --learn stages"),
        (("--as-printed",), "--as-printed: found with --learn stages"),
        (("--load", 3), "--load: found with --learn stages"),
        (("--calibration", "c.json"), "--calibration: found with --learn stages"),
        (
            ("--learn", "launcher", "--sub-blocks", 2),
            "--sub-blocks: found with --learn launcher; allowed: with --learn",
        ),
        (("--learn", "launcher", "--reward", "paper"), "--reward: found with --learn launcher"),
    ],
)
def test_options_of_the_other_kind_are_refused(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    """What a kind of training does not take is not ignored."""
    done = invoke("train", "scenario.yaml", *options, "--output", tmp_path / "p.safetensors")
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize("options", [(), ("--learn", "launcher")])
def test_files_of_a_scenario_are_not_overwritten(
    options: tuple[str, ...], files: tuple[Path, Path], tmp_path: Path
) -> None:
    """Neither stages nor a launcher are written over a graph that the scenario names."""
    scenario, before = _scenario(files, tmp_path), files[0].read_bytes()
    done = invoke("train", scenario, *options, "--steps", 1, "--output", files[0])
    assert done.exit_code == 1
    assert "found an input named as output; allowed: another file" in done.stderr
    assert files[0].read_bytes() == before


def test_what_is_trained_again_is_replaced(files: tuple[Path, Path], tmp_path: Path) -> None:
    """A scenario may name the file that is trained for it, before and after it is there; but none of another kind."""
    path, trained = _scenario(files, tmp_path), tmp_path / "stages.safetensors"
    data = json.loads(path.read_text(encoding="utf-8"))
    top = {"stages": "gpg", "stage_policy": trained.name}
    path.write_text(json.dumps({**data, "top": top}), encoding="utf-8")
    for _ in range(2):
        done = succeed("train", path, "--steps", 1, "--output", trained)
    done = invoke("train", path, "--learn", "launcher", "--steps", 1, "--output", trained)
    assert "found an input named as output; allowed: another file" in done.stderr


def _scenario(files: tuple[Path, Path], folder: Path, rate: float = 50.0, **more: Any) -> Path:
    """A scenario of two such graphs, of a second unless said otherwise."""
    path = folder / "scenario.yaml"
    models = {label: {"graph": files[0].name, "costs": files[1].name, "rate": rate} for label in ("one", "two")}
    path.write_text(json.dumps({"models": models, **(more or {"duration_s": 1.0})}), encoding="utf-8")
    return path


#: A training of a launcher that takes a second.
_QUICK = (
    *("--learn", "launcher", "--steps", 30),
    *("--set", "replay=20", "--set", "step_s=0.2", "--set", "value_layers=8,4"),
)


@pytest.mark.slow
def test_launchers_serve_scenarios(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Training prints how all policies compare; the launcher then serves the scenario, and auto compares it, too."""
    launcher, scenario = tmp_path / "launcher.safetensors", _scenario(files, tmp_path)
    done = succeed("train", scenario, *_QUICK, "--output", launcher)
    assert re.search(r"^learned +learned +\d", done.stdout, re.MULTILINE)
    assert f"{launcher}: on held-out traces the best policy is " in done.stdout
    assert "step 30 of 30: goodput" in done.stderr
    result = tmp_path / "result.json"
    for policy in ("learned", "auto"):
        succeed("simulate", scenario, "--policy", policy, "--weights", launcher, "--output", result)
    compared = {row["policy"] for row in json.loads(result.read_text())["candidates"]}
    assert {"learned", "learned-static", "top-open"} <= compared
    missing = invoke("simulate", scenario, "--policy", "auto", "--weights", tmp_path / "none", "--output", result)
    assert (missing.exit_code, "none" in missing.stderr) == (1, True)
    refused = invoke("simulate", scenario, "--policy", "learned", "--output", result)
    assert (refused.exit_code, "needs a launcher" in refused.output) == (1, True)


@pytest.mark.slow
def test_launchers_are_trained_for_a_calibrated_machine(files: tuple[Path, Path], tmp_path: Path) -> None:
    """On a machine that takes three times as long, a task takes three times as long in the comparison, too."""
    scenario, calibration = _scenario(files, tmp_path), tmp_path / "calibration.json"
    measured = CalibrationFile(
        lanes=2, models={"one": 3.0, "two": 3.0}, overheads=Overheads(), jitter=(1, 1), seconds=1
    )
    artifacts.write(calibration, "calibration", measured)
    slowest = []
    for more in ((), ("--calibration", calibration)):
        done = succeed("train", scenario, *_QUICK, "--load", 0.01, *more, "--output", tmp_path / "launcher.safetensors")
        (row,) = re.findall(r"^sequential +open .*$", done.stdout, re.MULTILINE)
        slowest.append(float(row.split()[-3]))  # the 99th percentile
    assert slowest[1] == pytest.approx(3 * slowest[0], rel=0.2)  # tasks rarely meet


def test_settings_of_launchers_are_checked(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Names and values that are none: one line with what is allowed."""
    scenario, launcher = _scenario(files, tmp_path), tmp_path / "launcher.safetensors"
    for arguments, message in (
        (("--set", "layers=3"), "--set: found layers; allowed: steps, seed, step_s"),
        (("--set", "replay"), "--set: found replay; allowed: NAME=VALUE"),
        (("--set", "replay=many"), "--set replay: found many; allowed: a whole number"),
        (("--set", "update=none"), "--set update: found none; allowed: error, printed"),
        (("--set", "most=11"), "most: found 11; allowed: 1 to 10"),
        (("--set", "gamma=2"), "gamma: found 2; allowed: 0 to 1"),
        (("--set", "batch=0"), "batch: found 0; allowed: 1 to 100,000"),
        (("--set", "value_layers=-5"), "value_layers: found -5; allowed: units of 1 to 8 layers, each 1 to 4,096"),
        (("--set", "policy_layers=0"), "policy_layers: found 0; allowed: units of 1 to 8 layers, each 1 to 4,096"),
        (("--set", "value_layers=8,99999"), "value_layers: found 8,99999; allowed: units of 1 to 8 layers"),
        (("--set", "replay=100000000000"), "replay: found 100000000000; allowed: 1 to 1,000,000"),
        (("--set", "replay=1000000", "--set", "samples=1000"), "replay: found 1000000, with 4000 numbers in a state; "),
        (("--set", "step_s=1e6"), "step_s: found 1e+06; allowed: 0.001 to 3,600"),
        (("--set", "step_s=3000"), "step_s: found 3000 with 50 tasks/s of one; allowed: at most 800, as 50 steps"),
        (("--set", "intervals=1", "--set", "most=1"), "intervals: found 1 for 2 blocks; allowed: at least 2, as"),
    ):
        done = invoke("train", scenario, "--learn", "launcher", *arguments, "--output", launcher)
        assert done.exit_code in (1, 2)
        assert message in done.output
        assert "Traceback" not in done.output
        assert isinstance(done.exception, SystemExit)
    both = invoke("train", *files, "--learn", "launcher", "--output", launcher)
    assert "found 2 files; allowed: with --learn launcher, a scenario alone" in both.output


def test_stages_on_lanes(files: tuple[Path, Path], tmp_path: Path) -> None:
    """On the lanes of a scenario operators side by side take less time, whatever the contention in costs.json."""
    costs = json.loads(files[1].read_text())
    files[1].write_text(json.dumps({**costs, "contention": {"kind": "blend", "alpha": 1.0}}), encoding="utf-8")
    shares = []
    for arguments in ((_scenario(files, tmp_path),), files):
        done = succeed("train", *arguments, "--steps", 2, "--output", tmp_path / "policy.safetensors")
        shares.append(float(re.findall(r"safetensors: (\S+) of the sequential latency", done.stdout)[0]))
    assert shares[0] < 0.9 < shares[1] == 1.0


def test_models_of_a_scenario(files: tuple[Path, Path], tmp_path: Path) -> None:
    """A scenario names the models with their files."""
    policy = tmp_path / "policy.safetensors"
    succeed("train", _scenario(files, tmp_path, rate=1.0, arrivals="periodic"), "--steps", 2, "--output", policy)
    with safe_open(policy, "numpy") as stored:
        assert json.loads(stored.metadata()["hios-gpg"])["models"] == ["one", "two"]
