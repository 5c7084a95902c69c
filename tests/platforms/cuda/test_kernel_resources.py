"""Resources of kernels, read from a trace that is written by hand as Kineto writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from hios import Costs, artifacts
from hios.costs import Resources
from hios.formats.costs_file import BlockResources
from hios.platforms.cuda.kernel_resources import ANNOTATION, resources_of

_OCCUPANCY = "est. achieved occupancy %"


def _annotation(operator: str, begin: float, duration: float) -> dict[str, Any]:
    """What ``record_function`` leaves."""
    name = f"{ANNOTATION}{operator}"
    place = {"ph": "X", "pid": 7, "tid": 11, "ts": begin, "dur": duration}
    return {**place, "cat": "user_annotation", "name": name, "args": {"External id": 1, "Record function id": 0}}


def _launch(number: int, at: float, category: str = "cuda_runtime") -> dict[str, Any]:
    """A call that launches a kernel."""
    place = {"ph": "X", "pid": 7, "tid": 11, "ts": at, "dur": 1.5, "cat": category}
    return {**place, "name": "cudaLaunchKernel", "args": {"External id": 3, "cbid": 211, "correlation": number}}


def _kernel(number: int, registers: int, shared: int, block: list[int], **more: Any) -> dict[str, Any]:
    """A kernel on the GPU: processes are GPUs there, threads are streams."""
    arguments = {
        "External id": 3,
        "queued": 0,
        "device": 0,
        "context": 1,
        "stream": 7,
        "correlation": number,
        "registers per thread": registers,
        "shared memory": shared,
        "blocks per SM": 0.5,
        "warps per SM": 2.0,
        "grid": [6, 2, 1],
        "block": block,
        **more,
    }
    place = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 9000.0 - number, "dur": 3.0}
    return {**place, "name": "void gemm(float*)", "args": arguments}


def _trace(*events: dict[str, Any]) -> dict[str, Any]:
    others = [
        {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "ts": 0.0, "args": {"name": "python"}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::conv2d", "pid": 7, "tid": 11, "ts": 101.0, "dur": 5.0},
        {"ph": "f", "id": 1, "pid": 0, "tid": 7, "ts": 8999.0, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        {"ph": "X", "cat": "gpu_user_annotation", "name": f"{ANNOTATION}a", "pid": 0, "tid": 7, "ts": 8e3, "dur": 1e3},
        {"ph": "X", "cat": "Trace", "name": "PyTorch Profiler (0)", "pid": "Spans", "tid": 0, "ts": 1.0, "dur": 1e4},
    ]
    return {"schemaVersion": 1, "deviceProperties": [], "traceEvents": [*others, *events], "traceName": "trace.json"}


def test_kernels_belong_to_the_operator_that_launched_them() -> None:
    """Launches within an operator's annotation are its own, whenever and in which order their kernels run."""
    found = resources_of(
        _trace(
            _annotation("a", 100.0, 50.0),
            _launch(1, 110.0),
            _annotation("b", 200.0, 50.0),
            _launch(2, 210.0, "cuda_driver"),
            _launch(3, 300.0),
            _kernel(3, 255, 49152, [1024, 1, 1]),
            _kernel(2, 32, 1024, [16, 16, 1], **{_OCCUPANCY: 25}),
            _kernel(1, 40, 0, [128, 1, 1]),
        )
    )
    assert found == {
        "a": BlockResources(0, 40 * 128, 128, blocks=12),
        "b": BlockResources(1024, 32 * 256, 256, blocks=12, occupancy=0.25),
    }


@pytest.mark.parametrize(
    ("first", "second", "threads"),
    [
        ((16, 0, [256]), (16, 0, [512]), 512),  # threads: 1/2 is more than 1/4
        ((255, 0, [256]), (16, 0, [512]), 256),  # registers: 255 * 256 of 65536 is nearly all
        ((16, 49152, [64]), (255, 0, [256]), 64),  # shared memory: all of it
    ],
)
def test_the_most_demanding_kernel_counts(first: Any, second: Any, threads: int) -> None:
    """Of several kernels it is the one that takes the largest share of anything that a block can have."""
    for kernels in ((first, second), (second, first)):
        launched = [_launch(number, 110.0 + number) for number in (1, 2)]
        ran = [_kernel(number, *kernel) for number, kernel in enumerate(kernels, 1)]
        assert resources_of(_trace(_annotation("a", 100.0, 50.0), *launched, *ran))["a"].threads == threads


def test_an_operator_without_kernels_asks_for_nothing() -> None:
    """A view launches no kernel, and a copy is none."""
    copied = {**_kernel(2, 0, 0, [1]), "cat": "gpu_memcpy", "args": {"correlation": 2, "bytes": 4}}
    events = [_annotation("view", 100.0, 5.0), _annotation("copy", 110.0, 5.0), _launch(2, 111.0), copied]
    found = resources_of(_trace(*events, _annotation("a", 200.0, 9.0), _launch(1, 201.0), _kernel(1, 8, 0, [32])))
    nothing = BlockResources(0, 0, 1)
    assert {name: entry for name, entry in found.items() if name != "a"} == {"view": nothing, "copy": nothing}


def test_a_trace_without_kernels_says_nothing() -> None:
    """Where no kernel was recorded, as without leave to trace them, no operator is said to ask for nothing."""
    assert resources_of(_trace(_annotation("a", 100.0, 50.0), _launch(1, 110.0))) == {}


def test_costs_hold_resources() -> None:
    """costs.json takes what was found, and scheduling reads of it what Opara compares."""
    events = [_annotation("a", 100.0, 50.0), _launch(1, 110.0), _kernel(1, 40, 64, [128], **{_OCCUPANCY: 150})]
    entry = resources_of(_trace(*events))["a"]
    assert entry.occupancy == 1.0
    data = {"operators": {"a": {"time_ms": 1.0, "resources": msgspec.to_builtins(entry)}}, "transfers": []}
    artifacts.validate(data, "costs", "costs.json")
    assert Costs.from_json(data).resources == {"a": Resources(64, 5120, 128)}


def test_annotations_are_as_torch_writes_them(tmp_path: Path) -> None:
    """An annotation in a trace of torch, here without a GPU, has the operator's name, and is found with a kernel."""
    cpu = [torch.profiler.ProfilerActivity.CPU]
    name = f"{ANNOTATION}blocks.0/conv"
    with torch.profiler.profile(activities=cpu) as profiler, torch.profiler.record_function(name):
        torch.ones(8).relu()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    (own,) = [event for event in trace["traceEvents"] if event.get("cat") == "user_annotation"]
    trace["traceEvents"] += [_launch(1, own["ts"] + own["dur"] / 2), _kernel(1, 8, 0, [32])]
    assert {name: entry.threads for name, entry in resources_of(trace).items()} == {"blocks.0/conv": 32}
