"""Segments in other runtimes: equal outputs for plans of all kinds, and why a runtime is left out."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hios.core.schedule import StagedPlan, StreamPlan
from hios.machine.description import usable_cores
from hios.platforms.cpu import segments
from hios.platforms.cpu.engine import Engine, Task
from hios.platforms.cpu.segments import Choosing
from tests.platforms.cpu import forced_segments
from tests.runtime.small import alternating, branches, sequential

pytestmark = pytest.mark.skipif(importlib.util.find_spec("openvino") is None, reason="needs OpenVINO")


def _inputs(seed: int) -> tuple[Tensor, ...]:
    return (torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(seed)),)


def _tasks() -> dict[str, Task]:
    """Plans of all kinds."""
    order = tuple(branches().graph.order)
    stem, left, right, *rest = order
    wide = StreamPlan(((order,), ((left,),)), order, {left: (0, 1)})
    groups = StagedPlan(((((stem,),), ((left,), (right,)), *(((place,),) for place in rest)),))
    return {
        "one": Task(sequential()),
        "staged": Task(alternating()),
        "turned": Task(alternating(), (1, 0)),
        "streams": Task(StreamPlan(((order[:2], order[3:]), (order[2:3],)), order)),
        "wide": Task(wide),
        "groups": Task(groups),
    }


@pytest.mark.parametrize("runtime", ["packed", "onnxruntime", "openvino"])
def test_plans_of_all_kinds_give_equal_outputs(runtime: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever runs their segments, for inputs that change from call to call."""
    monkeypatch.setenv(forced_segments.RUNTIME, runtime)
    monkeypatch.setattr(segments, "choose", forced_segments.choose)
    network, (first, *_, last) = branches(), [*usable_cores(), usable_cores()[0]]
    given = network.graph, network.tensors, _tasks(), [[first], [last]]
    with Engine(*given, choosing=Choosing(_inputs(0), tmp_path, 0.0 if runtime == "packed" else 1e3)) as engine:
        for name in _tasks():
            for seed in (0, 1):
                (output,) = engine.run(name, _inputs(seed))
                with torch.no_grad():
                    right = network.module(*_inputs(seed))
                torch.testing.assert_close(output, right, rtol=1e-4, atol=1e-4)
