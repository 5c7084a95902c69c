"""``hios verify`` on results of serving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hios.files import artifacts
from hios.formats.serving_result import ResultFile
from hios.serving.calibration import calibrated
from hios.serving.scenario import Scenario
from hios.serving.simulate import simulate
from hios.verify import verify
from tests.serving.scenarios import constants, written


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> ResultFile:
    """The result of a simulation."""
    return simulate(Scenario.read(written(tmp_path_factory.mktemp("simulated") / "given")), "top")


@pytest.fixture
def result(simulated: ResultFile, tmp_path: Path) -> Path:
    """A result.json in a folder of its own."""
    path = tmp_path / "results" / "result.json"
    artifacts.write(path, "result", simulated)
    return path


def test_a_result_that_is_right_passes(result: Path) -> None:
    """It is found by its name and has no problem."""
    (entry,) = verify(result.parent)
    assert (entry.path, entry.kind, entry.problems) == ("result.json", "result", ())


def test_results_of_the_pipeline(result: Path) -> None:
    """A file of the pipeline holds what its name and folder say; scenarios are checked against their schema."""
    folder = result.parent / "serving" / "networks"
    for name in ("simulated/top-1.json", "simulated/top-0.5.json", "measured/top-1.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(result.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "scenario.yaml").write_text("models: {}\nlane: 2\n", encoding="utf-8")
    problems = {entry.path: entry.problems for entry in verify(result.parent)}
    assert problems.pop("result.json") == problems.pop("serving/networks/simulated/top-1.json") == ()
    assert problems == {
        "serving/networks/measured/top-1.json": ("simulated: found true in the folder measured",),
        "serving/networks/scenario.yaml": problems["serving/networks/scenario.yaml"],
        "serving/networks/simulated/top-0.5.json": (
            "policy, load: found top-1; allowed: top-0.5, as the file is called",
        ),
    }
    assert any("lane" in problem for problem in problems["serving/networks/scenario.yaml"])


def test_calibrated_results(result: Path) -> None:
    """They need the calibration beside them, and may pass the bound as far as jitter is drawn."""
    data = {**json.loads(result.read_text(encoding="utf-8")), "calibrated": True}
    done_per_s = data["total"]["completed"] / (data["duration_s"] * data.get("repeats", 1))
    data["bound_per_s"] = done_per_s / 1.005
    result.unlink()
    folder = result.parent / "serving" / "networks"
    path = folder / "simulated" / "top-1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(data), encoding="utf-8")
    (entry,) = verify(result.parent)
    assert entry.problems == (
        "calibrated: found true; allowed: false, as there is no calibration.json in the scenario's folder",
    )
    measured = constants(models={"left": 0.5, "right": 0.5})
    artifacts.write(folder / "calibration.json", "calibration", measured)
    entries = {entry.kind: entry.problems for entry in verify(result.parent)}
    assert entries == {"result": (), "calibration": ()}
    for changes, message in (
        ({"lanes": 3}, "lanes: found 2; allowed: 3, as in calibration.json"),
        ({"models": {"left": 1.0}}, "models: found right; allowed: left, as in calibration.json"),
    ):
        artifacts.write(folder / "calibration.json", "calibration", constants(**changes))
        assert [entry.problems for entry in verify(result.parent) if entry.kind == "result"] == [(message,)]
    (folder / "calibration.json").write_text('{"lanes": 2}', encoding="utf-8")
    entries = {entry.kind: entry.problems for entry in verify(result.parent)}
    assert entries["calibration"] != ()


def test_a_calibrated_simulation_passes(result: Path) -> None:
    """A machine on which operators take half the time of costs.json has twice the bound, and completes more."""
    given = Scenario.read(written(result.parents[1] / "given"), load=100.0)
    plain = simulate(given, "one-per-lane")
    measured = simulate(calibrated(given, constants(models={"left": 0.5, "right": 0.5})), "one-per-lane")
    assert measured.calibrated
    assert measured.bound_per_s == pytest.approx(2 * plain.bound_per_s)
    assert measured.done_per_s > 1.5 * plain.done_per_s
    artifacts.write(result, "result", measured)
    (entry,) = verify(result.parent)
    assert entry.problems == ()


@pytest.mark.parametrize(
    ("changes", "more", "message"),
    [
        ({}, {"completed": -1}, "models.left.offered: found "),
        ({"bound_per_s": 1.0}, {}, "tasks/s; allowed: at most 1, bound_per_s"),
        ({}, {"p50_ms": 1e6}, "total: found percentiles "),
        ({}, {"goodput": 1000}, "models.left.goodput: found "),
        ({"chosen": "ios"}, {}, "chosen: found ios with policy top; allowed: with policy auto, and only there"),
        (
            {"simulated": False, "calibrated": True},
            {},
            "calibrated: found true with simulated false; allowed: false, as nothing was simulated",
        ),
        ({"utilisation": 2}, {}, "utilisation: found 2; allowed: at most 1"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], more: dict[str, float], message: str, result: Path) -> None:
    """Counts in which a task is lost, results beyond the bound, and violations of the schema are reported.

    ``more`` is added to numbers of a model and of all together.
    """
    data = {**json.loads(result.read_text(encoding="utf-8")), **changes}
    for key, number in more.items():
        data["models"]["left"][key] += number
        data["total"][key] += number
    result.write_text(json.dumps(data), encoding="utf-8")
    (entry,) = verify(result.parent)
    assert any(message in problem for problem in entry.problems)
