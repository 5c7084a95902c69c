"""Devices that fail, hang or die while they run stages: what the message names, and what is left behind."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from hios import Graph, HiosError
from hios.core.schedule import StagedPlan
from hios.errors import PlatformError
from hios.platforms.cpu import thread_team
from hios.platforms.cpu import worker as device
from tests.frontends.small_networks import Files
from tests.runtime import faults
from tests.runtime.conftest import DEVICES
from tests.runtime.schedules import merged_plan, one_by_one, run_schedules, write_schedules
from tests.workers.processes import children

SPOILT = "fire4.expand3x3"


@pytest.mark.parametrize("how", faults.MESSAGES)
def test_operator_and_stage_are_named(files: Files, graph: Graph, how: str) -> None:
    """However an operator fails, the run ends with one line that names device, operator and stage."""
    stage = list(graph.order).index(graph.index[SPOILT])
    timeout_s = 5.0 if how == "hang" else 300.0
    with pytest.raises(HiosError) as caught:
        faults.run_spoilt(files, graph, one_by_one(graph), [0], SPOILT, how, wait_s=300.0, timeout_s=timeout_s)
    assert str(caught.value) == faults.MESSAGES[how].format(at=f"{SPOILT}, stage {stage}", timeout_s=timeout_s)


@pytest.mark.slow
@pytest.mark.skipif(DEVICES < 2, reason="needs two cores")
def test_a_device_that_waits_for_one_that_hangs(files: Files, graph: Graph) -> None:
    """The device that gave up waiting is named with what it waited for, and so is the one that hung, with where."""
    first, *others = graph.order
    plan = StagedPlan((tuple(((operator,),) for operator in others), (((first,),),)))
    message = (
        r"^device 0: waited 0\.5 s for the output of operator conv1, stage 0; device 1 did not answer within 5 s "
        r"\(run\), last at operator conv1, stage 0; the run was ended$"
    )
    with pytest.raises(PlatformError, match=message):
        faults.run_spoilt(files, graph, plan, [1], "conv1", "hang", wait_s=0.5, timeout_s=5.0)


def test_merged_operators_are_named(files: Files, graph: Graph) -> None:
    """Operators that run as one are named together where that fails: here what they read is empty."""
    with pytest.raises(HiosError, match=r"^device 0: operators fire2\.expand1x1, fire2\.expand3x3, stage \d+: "):
        faults.run_spoilt(
            files, graph, merged_plan(graph, 1), [0], "fire2.squeeze", "empty", wait_s=300.0, timeout_s=300.0
        )


@pytest.mark.slow
def test_a_session_names_what_killed_it(
    files: Files, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that Linux kills in an execution ends it with one line; no file, process or descriptor is left."""
    monkeypatch.setattr(device, "load", faults.load_dying)
    paths = write_schedules(tmp_path, graph, {"sequential": one_by_one(graph)})
    before, descriptors = set(children()), _descriptors()
    with pytest.raises(
        PlatformError, match=r"^device 0 died by signal SIGKILL \(run\), last at operator fire4\.squeeze, "
    ):
        run_schedules(files, paths, devices=1)
    assert set(children()) <= before
    assert [path.name for path in tmp_path.iterdir()] == ["sequential.json"]
    assert _descriptors() <= descriptors  # shared memory has no name: it is gone with them


def _descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(
    ("operator", "stage", "stream", "where"),
    [(0, 0, 0, "stage 0"), (3, 40, 2, "stage 40"), (49, None, 0, "stream 0"), (7, None, 511, "stream 511")],
)
def test_markers_in_words(graph: Graph, operator: int, stage: int | None, stream: int, where: str) -> None:
    """A marker fits a flag of 64 bits, and holds operator, and stage or stream."""
    marker = thread_team.marker(operator, stage, stream)
    assert 0 < marker < 2**63
    assert thread_team.text(graph, marker) == f"operator {graph.operators[operator].id}, {where}"


def test_no_marker(graph: Graph) -> None:
    """A device that has not begun its first operator has no position."""
    assert thread_team.text(graph, 0) == ""
