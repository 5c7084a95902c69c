"""Pieces of benchmarks/serving_soak.py that need no server."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")
from benchmarks.serving_soak import balance, judged, overloaded
from hios.errors import HiosError
from hios.files import artifacts
from hios.formats.scenario import Overheads
from hios.formats.serving_result import CalibrationFile
from hios.serving.measures import Tally
from tests.serving.scenarios import written


def test_the_load_is_that_of_the_lanes(tmp_path: Path) -> None:
    """By the costs, or by a calibration that says how much slower operators are; proportions of the rates stay."""
    path, calibration = written(tmp_path, lanes=2), tmp_path / "calibration.json"
    factors = {"left": 2.0, "right": 1.0}
    measured = CalibrationFile(lanes=2, models=factors, overheads=Overheads(), jitter=(1, 1), seconds=1)
    artifacts.write(calibration, "calibration", measured)
    for file, factor in ((None, 1.0), (calibration, 2.0)):
        left, right = overloaded(path, 30.0, file).models
        assert (left.rate * 7 * factor + right.rate * 3) / 1e3 == pytest.approx(1.5 * 2)
        assert right.rate == pytest.approx(2 * left.rate)


def test_tasks_without_times_are_refused(tmp_path: Path) -> None:
    """Nothing is a multiple of no work."""
    path = written(tmp_path)
    for label in ("left", "right"):
        costs = tmp_path / label / "costs.json"
        costs.write_text(costs.read_text().replace("2.0", "0.0").replace("3.0", "0.0").replace("1.0", "0.0"))
    with pytest.raises(HiosError, match="found tasks that take no time"):
        overloaded(path, 30.0, None)


def test_limits_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """With what was measured, and whether they are kept; every task is in the balance."""
    assert judged("control", "4 %", "5 %", kept=True)
    assert not judged("control", "6 %", "5 %", kept=False)
    assert capsys.readouterr().out == "control: 4 % (limit: 5 %)\ncontrol: 6 % (limit: 5 %): BROKEN\n"
    tally = Tally(offered=9, dropped=1, expired=2, failed=0, waiting=3, in_flight=1, latencies_ms=[1.0, 2.0])
    text = "9 offered = 2 completed + 1 dropped + 2 expired + 0 failed + 3 waiting + 1 in flight"
    assert (balance(tally), tally.unaccounted) == (text, 0)
