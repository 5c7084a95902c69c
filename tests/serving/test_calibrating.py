"""Calibration of real servers, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
from click.testing import CliRunner

from hios.cli import main
from hios.formats.serving_result import CalibrationFile
from hios.serving.calibrate import calibrate
from hios.serving.calibration import calibrated
from hios.serving.load import load
from hios.serving.policies import LAUNCHERS
from hios.serving.simulate import choose, simulate
from tests.serving.served import scenario, scenario_file, with_widths

pytestmark = pytest.mark.slow  # four servers with workers


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> CalibrationFile:
    """The constants of both networks, whose costs have times on two lanes."""
    folder = tmp_path_factory.mktemp("calibration")
    return calibrate(scenario(folder, with_widths(folder)), budget_s=1.0, virtual=True)


def test_everything_is_measured(measured: CalibrationFile) -> None:
    """A factor for each model, one for each ordered pair, threads, overheads, and times of runs over their median."""
    assert set(measured.models) == {"branches", "blocks"}
    assert {(pair.model, pair.beside) for pair in measured.corun} == {
        (own, other) for own in measured.models for other in measured.models
    }
    overheads = measured.overheads
    constants = (overheads.task_ms, overheads.run_ms, overheads.stage_ms, overheads.hand_over_ms)
    assert sum(constants) > 0
    assert set(measured.threads) == {"branches", "blocks"}
    assert measured.jitter[0] < 1 < measured.jitter[-1]
    assert measured.platform is not None


def test_the_simulator_takes_it(measured: CalibrationFile, tmp_path: Path) -> None:
    """A calibrated simulation has other times than one by the costs alone."""
    given = scenario(tmp_path)
    plain, with_calibration = (simulate(own, "top-open") for own in (given, calibrated(given, measured)))
    assert with_calibration.total.offered == plain.total.offered
    assert with_calibration.total.mean_ms != plain.total.mean_ms


def test_the_command_refuses_what_contradicts(tmp_path: Path) -> None:
    """A policy is for runs, and required for them."""
    path = str(scenario_file(tmp_path / "scenario.yaml"))
    output = str(tmp_path / "out.json")
    for more, message in (
        (["--calibrate", "--policy", "top"], "--policy: found with --calibrate; allowed: one of them."),
        (["--calibrate", "--calibration", path], "--calibration: found with --calibrate; allowed: one of them."),
        (
            ["--policy", "top", "--calibration", path],
            "--calibration: found with --policy top; allowed: with --policy auto or --launcher auto, which it",
        ),
        ([], "Missing option '--policy'; required unless --calibrate is given."),
    ):
        done = CliRunner().invoke(main, ["load", path, *more, "--output", output])
        assert done.exit_code == 2
        assert message in done.stderr


def test_auto_chooses_for_the_machine(measured: CalibrationFile, tmp_path: Path) -> None:
    """A calibrated scenario runs the policy that is best in the calibrated simulator."""
    given = calibrated(scenario(tmp_path), measured)
    result = load(given, "auto", virtual=True).result
    assert result.candidates == choose(given, "auto").candidates
    assert result.candidates != choose(given.plain, "auto").candidates
    assert result.chosen == result.candidates[0].policy


def test_auto_chooses_the_launcher_too(measured: CalibrationFile, tmp_path: Path) -> None:
    """Also of a policy that is named; what ran is the first of those that were compared."""
    given = calibrated(scenario(tmp_path), measured)
    result = load(given, "top-open", launcher="auto", virtual=True).result
    assert [entry.policy for entry in result.candidates] == ["top-open"] * len(LAUNCHERS)
    assert {entry.launcher for entry in result.candidates} == set(LAUNCHERS)
    assert (result.policy, result.chosen) == ("top-open", None)
    assert result.launcher == result.candidates[0].launcher


def test_simulate_reads_what_load_wrote(measured: CalibrationFile, tmp_path: Path) -> None:
    """One command writes the file and the other reads it; a file of other models is refused."""
    from hios.files import artifacts

    path = scenario_file(tmp_path / "scenario.yaml")
    calibration = tmp_path / "calibration.json"
    artifacts.write(calibration, "calibration", measured)
    command = ["simulate", str(path), "--policy", "top", "--calibration", str(calibration)]
    done = CliRunner().invoke(main, [*command, "--output", str(tmp_path / "result.json")])
    assert done.exit_code == 0, done.output
    data = json.loads(calibration.read_text(encoding="utf-8"))
    del data["models"]["blocks"]
    data["corun"] = []
    del data["threads"]["blocks"]
    calibration.write_text(json.dumps(data), encoding="utf-8")
    done = CliRunner().invoke(main, [*command, "--output", str(tmp_path / "other.json")])
    assert "models: found branches, not blocks; calibrate with" in done.stderr
