"""The probe on cores."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hios.platforms.cpu import core_probe


@pytest.fixture
def worker() -> Any:
    """A worker without a process."""
    return SimpleNamespace(state={})


def test_times_are_taken_of_the_same_work_again(worker: Any) -> None:
    """Both times are positive; what is timed is made once."""
    with torch.inference_mode():
        assert min(core_probe.time_probe(worker)) > 0
        made = worker.state["probe"]
        assert min(core_probe.time_probe(worker)) > 0
    assert worker.state["probe"] is made


def test_convolutions_and_copy_are_timed_apart(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy's time begins where that of the convolutions ends."""
    core_probe.time_probe(worker)
    clock = iter([1_000_000, 4_000_000, 5_000_000])
    monkeypatch.setattr(core_probe, "time", SimpleNamespace(perf_counter_ns=lambda: next(clock)))
    assert worker.state["probe"].pass_ms() == (3.0, 1.0)


def test_floating_point_operations_are_counted_as_torch_does(worker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pass computes is what the roofline takes it for."""
    monkeypatch.setattr(core_probe, "is_packable", lambda _: False)  # torch counts its own convolutions only
    core_probe.time_probe(worker)
    with FlopCounterMode(display=False) as counter:
        worker.state["probe"].pass_ms()
    assert counter.get_total_flops() == core_probe.FLOPS
