"""hios.optimize: which way it takes, what it keeps of that, and when what was kept counts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import hios
from hios.frontends.tolerances import beyond
from hios.optimizing import candidates, optimize, preparation, race
from hios.optimizing.candidates import Candidate, itself
from hios.optimizing.choice_cache import ChoiceCache, model_key
from hios.optimizing.module import OptimizedModule, torch_threads
from hios.optimizing.report import Report, WayReport
from tests.cores_marker import two_cores
from tests.optimizing.optimized_models import OWN, image, require_equal
from tests.runtime.small import Branches


def _raced(cache: Path, **more: Any) -> OptimizedModule:
    """A model whose fastest way is chosen, with a budget that is enough however busy the machine is."""
    keywords = {"devices": 1, "least_ms": 0.0, "way": OWN, "budget_s": 3600.0, **more}
    return hios.optimize(Branches(), image(0), cache=cache, **keywords)


def _after(*rounds: tuple[Candidate, list[float]]) -> race.Race:
    """A race after final rounds that took so many milliseconds."""
    decided = race.Race([candidate for candidate, _ in rounds], lambda _: [], [], 1e-4)
    decided.latencies = {candidate.label: times for candidate, times in rounds}
    return decided


def _pretend_times(monkeypatch: pytest.MonkeyPatch, milliseconds: Callable[[str], float]) -> None:
    """Have every call of a way take the time that is given for it in races, the first one included."""
    monkeypatch.setattr(race.Race, "_first", lambda self, way: (self.call(way), milliseconds(way.label)))
    monkeypatch.setattr(race.Race, "_timed", lambda _, way: milliseconds(way.label))


def _require_chosen(fast: OptimizedModule, fastest: str) -> None:
    """The module runs the fastest way, with right outputs, and leaves torch's threads as they are."""
    assert fast.report.chosen == fastest, fast.report
    assert "2.00 times as fast as the model itself, 2 threads" in fast.report.reason
    require_equal(fast, fast.original, image(1))
    assert torch.get_num_threads() == 2
    fast.close()


@pytest.mark.slow
@two_cores
def test_auto_takes_a_schedule_for_two_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that is the fastest way."""
    heft = "heft, 2 devices"
    _pretend_times(monkeypatch, lambda label: 1.0 if label == heft else 2.0)
    # By measured costs, it may be the sequential one.
    monkeypatch.setattr(preparation, "distinct", lambda found, graph: [own for own in found if own.label == heft])
    with torch_threads(2):
        _require_chosen(_raced(tmp_path, devices=2), heft)


def test_auto_takes_the_fastest_as_long_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept is used while it is faster than the model; once it is not, all is measured again."""
    sequential, other = "sequential, 1 core", "the model itself, 1 thread"
    fastest, holds = [""], list[bool]()
    _pretend_times(monkeypatch, lambda label: 1.0 if label == fastest[0] else 2.0)
    monkeypatch.setattr(optimize, "outruns", lambda own, today, settle: holds.pop())
    with torch_threads(2):
        for fastest[0], holds[:], cached in (
            (sequential, [], False),
            (sequential, [True], True),
            (other, [False], False),
        ):
            fast = _raced(tmp_path)
            assert (holds, fast.report.cached) == ([], cached)
            _require_chosen(fast, fastest[0])


def test_the_steadiest_of_equals_is_taken() -> None:
    """Among ways tied with the fastest, the one with the smallest 80th percentile is taken."""
    steady, unsteady = Candidate("steady", threads=2), Candidate("unsteady", threads=3)
    pattern = [8.0, 16.0, 8.0, 16.0, 8.0, 8.0, 16.0, 8.0]
    decided = _after(
        (itself(1), [12.0] * 48),
        (unsteady, [value for value in pattern * 2 for _ in range(3)]),
        (steady, [value for value in [8.1, 8.2] * 8 for _ in range(3)]),
    )
    way, reason = decided.chosen()
    assert way is steady
    assert reason == "1.47 times as fast as the model itself, 1 thread"
    assert list(decided.reported()) == [itself(1).label, "unsteady", "steady"]


@pytest.mark.parametrize(
    ("values", "expected", "tolerance", "off"),
    [
        ([3e6, 1e-3], [3e6, 2.0], 1e-4, None),  # rounded by the size of its neighbor
        ([0.0, 1e-6], [1e-6, 1e-6], 1e-4, 1.0),  # wrong, however small
        ([0.0], [1e-3], 2.0, None),
        ([math.nan], [1.0], 1e-4, math.inf),
        ([math.inf, 1.0], [math.inf, 1.0], 1e-4, None),
        ([0.0, 0.0], [0.0, 0.0], 1e-4, None),
        ([1e-3], [0.0], 1e-4, 1e-3),
    ],
)
def test_outputs_of_any_size(values: list[float], expected: list[float], tolerance: float, off: float | None) -> None:
    """Outputs count in units of their largest magnitude, so that large ones may be rounded and small ones are seen."""
    error = beyond([torch.tensor(values)], [torch.tensor(expected)], tolerance)
    assert error == (off if off is None else pytest.approx(off))


def test_outputs_of_any_precision() -> None:
    """Rounding to 16 bits is allowed, larger differences are not; integers must be equal, however large."""
    values = torch.linspace(-3, 3, 1000, dtype=torch.float64)
    for dtype in (torch.float16, torch.bfloat16):
        half = values.to(dtype)
        assert beyond([half], [(values * 1.001).to(dtype)], 1e-4) is None
        assert beyond([half], [half * 1.5], 1e-4) == pytest.approx(1 / 3, rel=0.05)
    assert beyond([torch.tensor([1000000])], [torch.tensor([1000001])], 1e-2) == 1.0
    assert beyond([torch.tensor([True])], [torch.tensor([True])], 1e-4) is None


@pytest.mark.slow
def test_wrong_outputs_take_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A way whose outputs differ from the model's is left out however fast it is."""
    _pretend_times(monkeypatch, lambda label: 2.0 if label.startswith("the model") else 1.0)
    fast = _raced(tmp_path, tolerance=1e-12)
    assert fast.report.chosen.startswith("the model itself")
    different = [way for way in fast.report.ways if way.outcome == "different"]
    assert "sequential, 1 core" in [way.label for way in different]
    assert all(way.equal is False and way.median_ms is None for way in different)
    assert "its outputs differ by" in repr(fast.report)


#: What is kept of a report without ways.
_REPORT = {"chosen": "", "reason": "", "measured_at": "", "busy_share": 0, "seconds": 0, "ways": []}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("way", {}),
        ("way", {"label": "the model", "kind": "eager", "threads": 0, "schedule": None, "wide": False}),
        ("way", {"label": "the model", "kind": "tpu", "threads": 1, "schedule": None, "wide": False}),
        ("way", {"label": "heft", "kind": "schedule", "threads": 0, "schedule": {"placements": []}, "wide": False}),
        ("way", {"label": "heft", "kind": "schedule", "threads": 0, "schedule": None, "wide": False}),
        ("report", []),
        ("report", {**_REPORT, "chosen": 1}),
        ("report", {**_REPORT, "seconds": "long"}),
        ("report", {**_REPORT, "ways": [{"label": "a"}]}),
        ("report", {**_REPORT, "ways": [{"label": "a", "kind": "eager", "median_ms": "fast"}]}),
        ("report", {**_REPORT, "ways": [{"label": "a", "kind": "eager", "outcome": "lost"}]}),
    ],
)
def test_damaged_choices_count_as_absent(part: str, value: Any, tmp_path: Path) -> None:
    """A choice on disk that is truncated or changed is not used."""
    choices, report = ChoiceCache(tmp_path, {"model": "one"}), Report("Model", "the model itself, 1 thread", "because")
    assert choices.get() is None
    choices.put(report, itself(1))
    assert choices.get() == (replace(report, cached=True), itself(1))
    assert ChoiceCache(tmp_path, {"model": "another"}).get() is None
    (file,) = tmp_path.rglob("*.json")
    whole = file.read_text()
    file.write_text(whole[:-10])
    assert choices.get() is None
    file.write_text(json.dumps({**json.loads(whole), part: value}))
    assert choices.get() is None


@pytest.mark.slow
def test_openvino_reads_what_was_made_for_onnx_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both conversions of a model take part; the file for ONNX Runtime is kept, and made again for other weights."""
    pytest.importorskip("openvino")
    _pretend_times(monkeypatch, lambda label: 1.0 if label.startswith("OpenVINO from ONNX") else 2.0)
    monkeypatch.setattr(optimize, "outruns", lambda *_: True)
    reports = []
    for scale in (1.0, 1.0, 2.0):
        torch.manual_seed(0)
        model = Branches()
        with torch.no_grad():
            model.stem.weight.mul_(scale)
        fast = hios.optimize(
            model, image(0), cache=tmp_path, way=("openvino", "onnxruntime"), least_ms=0.0, budget_s=600.0
        )
        require_equal(fast, model, image(1))
        reports.append(fast.report)
    assert [report.cached for report in reports] == [False, True, True]
    (row,) = [way for way in reports[0].ways if way.label == reports[2].chosen]
    assert (row.kind, row.equal, row.label.partition(",")[0]) == ("openvino", True, "OpenVINO from ONNX")
    assert sorted(path.name for path in tmp_path.glob("models/*/*")) == ["model.onnx"] * 2


def test_the_report_says_when_most_of_the_gain_was_there() -> None:
    """Ways count in the order in which they were ready; those that answer otherwise, or are slower, do not."""
    rows = [("today", 10.0, 0.1), ("quick", 6.1, 3.0), ("near", 5.9, 6.0), ("wrong", 1.0, 1.0), ("slow", 9.0, 7.0)]
    rows.append(("best", 5.0, 20.0))
    ways = [WayReport(label, "compile", median_ms=ms, ready_s=ready) for label, ms, ready in rows]
    ways[0] = replace(ways[0], kind="eager", runs=12)
    ways[3] = replace(ways[3], outcome="different", runs=15)
    report = Report("Net", "best", "so", tuple(reversed(ways)))
    assert [way.label for way in report.steps] == ["today", "quick", "near", "best"]
    assert [report.gained_s(share) for share in (0.5, 0.8, 0.9)] == [3.0, 6.0, 20.0]
    assert "near after 6.0 s, best after 20.0 s; 80 % of the gain after 6.0 s" in repr(report)
    assert " in 12 runs each, taking turns" in repr(report)
    assert replace(report, chosen="today").gained_s() is None
    alone = WayReport("alone", "eager", median_ms=15.0, ready_s=0.2)
    assert Report("Net", "today", "so", (ways[0], alone)).gained_s() is None


def test_luck_in_choosing_does_not_count() -> None:
    """A way that seemed faster while rounds chose, and is not in those that check it, is not taken."""
    lucky = Candidate("lucky", threads=2)
    way, reason = _after((itself(1), [10.0] * 36), (lucky, [5.0, 10.0, 10.0] * 12)).chosen()
    assert way == itself(1)
    assert reason == "lucky was not faster by more than the measurement can tell"


@pytest.mark.parametrize(("alone_ms", "label"), [(5.1, "the model itself, 1 thread"), (7.0, "workers")])
def test_workers_outrun_the_model_with_any_threads(alone_ms: float, label: str) -> None:
    """Where the model with another number of threads is as fast as workers, it runs so, without them."""
    problem = hios.Problem(hios.Graph("one", (hios.Operator("a", "relu"),), ()), hios.Costs({"a": 1.0}, {}))
    workers, alone = candidates.scheduled("workers", hios.schedule(problem, "sequential")), itself(1)
    rounds_alone = (alone, [alone_ms, alone_ms * 0.97, alone_ms] * 12)
    way, reason = _after((itself(2), [90.0] * 36), rounds_alone, (workers, [5.0] * 36)).chosen()
    assert way.label == label
    assert reason.endswith("times as fast as the model itself, 2 threads")


def test_reported_rounds_chose_nothing() -> None:
    """The numbers that are reported are those of rounds that neither chose nor checked."""
    taken = Candidate("taken", threads=2)
    decided = _after((itself(1), [10.0] * 36), (taken, [5.0, 5.0, 8.0] * 12))
    way, reason = decided.chosen()
    assert way is taken
    assert reason == "1.25 times as fast as the model itself, 1 thread"
    assert decided.reported()["taken"] == [8.0] * 12


def test_the_model_is_part_of_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other weights share a choice; other code, memory formats and settings of torch do not."""

    def facts(model: nn.Module, x: Tensor = image(0)) -> dict[str, Any]:  # noqa: B008
        return model_key(model, [x])

    class Other(Branches):
        def forward(self, x: Tensor) -> Tensor:
            """The same graph by other code."""
            return super().forward(x)

    first = facts(Branches())
    assert json.loads(json.dumps(first)) == facts(Branches())
    others = [
        facts(Other()),
        facts(Branches().to(memory_format=torch.channels_last)),
        facts(Branches(), image(0).to(memory_format=torch.channels_last)),
    ]
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    others.append(facts(Branches()))
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    others.append(facts(Branches()))
    assert first not in others
