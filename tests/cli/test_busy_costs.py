"""Costs that were measured while other work kept the cores busy: no bound is claimed without a warning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.commands import succeed

_GRAPH = {"name": "one", "operators": [{"id": "a", "type": "task"}], "edges": []}
_COSTS = {"operators": {"a": {"time_ms": 2.0}}, "transfers": []}


def _schedule(folder: Path, busy_share: float) -> Result:
    """Schedule one operator by costs that were measured beside so much other work."""
    platform = {"name": "cpu", "devices": 1, "busy_share": busy_share}
    for name, data in (("graph", _GRAPH), ("costs", {**_COSTS, "platform": platform})):
        (folder / f"{name}.json").write_text(json.dumps(data))
    files = [folder / "graph.json", folder / "costs.json"]
    return succeed("schedule", *files, "--algorithm", "sequential", "--output", folder / "schedule.json")


def test_busy_costs_are_warned_about(tmp_path: Path) -> None:
    """A warning names the file and the share, nothing is said of all schedules, and the schedule keeps the note."""
    result = _schedule(tmp_path, 0.43)
    assert "costs.json: measured while other work took 43% of the cores' time" in result.stderr
    assert "no schedule is faster" not in result.stdout
    assert "gap 0 % by these costs" in result.stdout
    assert "43%" in json.loads((tmp_path / "schedule.json").read_text())["notes"]["costs"]


@pytest.mark.parametrize("busy_share", [0.0, 0.1])
def test_quiet_costs_are_not(busy_share: float, tmp_path: Path) -> None:
    """Without other work the bound is what it was."""
    result = _schedule(tmp_path, busy_share)
    assert result.stderr == ""
    assert "gap 0 % (no schedule is faster)" in result.stdout
    assert "notes" not in json.loads((tmp_path / "schedule.json").read_text())
