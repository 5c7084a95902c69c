"""Other runtimes beside the schedules: torch.compile, ONNX Runtime and OpenVINO."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from hios import Graph, HiosWarning
from hios.errors import PlatformError
from hios.files import artifacts
from hios.files.base import Platform
from hios.frontends.models import RUNTIMES
from hios.machine.description import usable_cores
from hios.platforms.cpu import devices as cpu
from hios.platforms.cpu import executing
from hios.platforms.cpu.executing import references
from hios.platforms.reference import Reference
from hios.runtime.competitors import require
from tests.frontends.small_networks import Model, write_files
from tests.openvino_marker import needs_openvino
from tests.refusals import refused
from tests.runtime import faults
from tests.runtime.conftest import DEVICES
from tests.runtime.schedules import random_plan, run_schedules, write_schedules


def _two(_: Any, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
    """Two inputs of two dtypes and two outputs."""
    a = F.relu(x)
    return {"sum": torch.cat([a + a, x], 1), "picked": x[:, :, 0].gather(1, y)}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++")
@needs_openvino
def test_other_runtimes_take_turns(tmp_path: Path) -> None:
    """Every other runtime gets the inputs in their places, and its outputs are checked.

    One thread is enough for all but ONNX Runtime, which alone does something else with more.
    """
    files = write_files(tmp_path, Model(_two), (torch.randn(2, 5, 4), torch.tensor([[1, 4], [0, 2]])))
    graph = Graph.read(files.graph)
    for devices, baselines in ((1, ("openvino", "compile")), (DEVICES, ("onnxruntime",))):
        paths = write_schedules(tmp_path, graph, {"random": random_plan(graph, devices, seed=1)})
        run_schedules(files, paths, program=True, devices=devices, runs=2, baselines=baselines)
        run = artifacts.read(tmp_path / "run.json", "run")
        ran = [(entry["name"], entry["kind"]) for entry in run["references"] if entry["kind"] != "engine"]
        threads = [f"{count} thread{'s' * (count > 1)}" for count in range(1, devices + 1)]
        expected = []
        for kind in [kind for kind in cpu.RUNTIMES if kind in ("eager", *baselines)]:
            expected += [(f"{RUNTIMES[kind]}, {count}", kind) for count in threads]
            if kind == "onnxruntime" and devices > 1:
                expected.append((f"ONNX Runtime, parallel, {threads[-1]}", kind))
        assert ran == expected
        for entry in run["references"]:
            assert entry["largest_difference"] < 1e-4
            assert len(entry["latency_ms"]["runs"]) == 2
            assert ("compile_time_s" in entry) == (entry["kind"] == "compile")
            assert entry.get("compile_time_s", 1.0) > 0
            assert entry.get("precision") == ("f32" if entry["kind"] == "openvino" else None)
        if "openvino" in baselines:
            assert run["versions"]["openvino"] == metadata.version("openvino")
    assert list(tmp_path.glob("*.onnx")) == []


@pytest.mark.parametrize(
    ("load", "why"),
    [
        (faults.reference_without_memory, r"CUDA out of memory\. Tried to allocate 2\.00 GiB"),
        (faults.reference_failing_at_once, "an illegal memory access was encountered"),
        (faults.reference_failing_later, "an illegal memory access was encountered"),
        (faults.reference_wrong_later, "output 0 differs from the reference by up to 1; allowed: .*"),
    ],
)
def test_a_runtime_that_fails_costs_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: Callable[..., float | None], why: str
) -> None:
    """Whenever it fails, it is left out with a warning that says why, and all others are measured to the end."""
    files = write_files(tmp_path, Model(_two), (torch.randn(2, 5, 4), torch.tensor([[1, 4], [0, 2]])))
    cores = usable_cores()[:1]
    eager = [Reference(f"eager {number}", number, cores, 1) for number in (1, 3)]
    bad = Reference("torch.compile, 1 thread", 2, cores, 1, "eager", load)
    monkeypatch.setattr(executing, "references", lambda *_: [eager[0], bad, eager[1]])
    graph = Graph.read(files.graph)
    paths = write_schedules(tmp_path, graph, {"random": random_plan(graph, 1, seed=1)})
    with pytest.warns(HiosWarning, match=rf"^torch\.compile, 1 thread: {why}; it is left out$"):
        run_schedules(files, paths, program=True, devices=1, runs=3)
    run = artifacts.read(tmp_path / "run.json", "run")
    assert [entry["name"] for entry in run["references"]] == ["eager 1", "eager 3"]
    assert {len(entry["latency_ms"]["runs"]) for entry in [*run["references"], *run["results"]]} == {3}


def test_what_outputs_are_compared_with_is_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the reference itself fails in the middle of a session, the session ends in one line."""
    files = write_files(tmp_path, Model(_two), (torch.randn(2, 5, 4), torch.tensor([[1, 4], [0, 2]])))
    bad = Reference("eager PyTorch, 1 thread", 1, usable_cores()[:1], 1, "eager", faults.reference_failing_later)
    monkeypatch.setattr(executing, "references", lambda *_: [bad])
    graph = Graph.read(files.graph)
    paths = write_schedules(tmp_path, graph, {"random": random_plan(graph, 1, seed=1)})
    with pytest.raises(PlatformError, match=r"^eager PyTorch, 1 thread: an illegal memory access was encountered$"):
        run_schedules(files, paths, program=True, devices=1, runs=3)


def _devices(cores: list[list[int]]) -> Platform:
    """Devices with these cores."""
    return Platform("cpu", len(cores), tuple(map(tuple, cores)))


def test_workers_and_cores() -> None:
    """Each has its own worker, numbered after those of the engine, and as many cores as threads."""
    entries = references(_devices([[0], [1], [2]]), "eager", ["onnxruntime", "eager"])
    assert [entry.worker for entry in entries] == [4, 5, 6, 7, 8]
    assert [entry.cores for entry in entries] == [[0], [0, 1, 2], [0], [0, 1, 2], [0, 1, 2]]
    assert [entry.options.get("parallel", False) for entry in entries] == [False] * 4 + [True]
    assert [(entry.name, entry.worker) for entry in references(_devices([[3]]), "eager", ["eager"])] == [
        ("eager PyTorch, 1 thread", 1)
    ]


def test_onnx_files_run_in_onnx_runtime_only() -> None:
    """Neither eager PyTorch nor torch.compile can run an ONNX file; what it is compared with comes first."""
    every = list(RUNTIMES)
    assert {entry.kind for entry in references(_devices([[0], [1]]), "onnxruntime", every)} == {"onnxruntime"}
    assert len(references(_devices([[0], [1]]), "onnxruntime", every)) == 3
    assert len(references(_devices([[0], [1]]), "onnxruntime", ["eager"])) == 2


def test_baselines_need_a_program() -> None:
    """Without a program there is nothing that another runtime could run."""
    require(["eager"], None)
    with pytest.raises(PlatformError, match=r"^--baselines: found compile; allowed with --program only"):
        require(["eager", "compile"], None)


def test_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile without a C++ compiler is refused in one line before anything runs, and only there."""
    monkeypatch.setenv("CXX", "no-such-compiler")
    require(["eager"], "eager")
    require(["compile"], "onnxruntime")
    with refused("baseline compile: ", " there is no no-such-compiler; install g++, ", kind=PlatformError):
        require(["compile"], "eager")


def test_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime without the exporter's package is refused with what to install."""
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "onnxscript" else known(name))
    with pytest.raises(PlatformError, match=r"^baseline onnxruntime: needs onnxscript, .* pip install 'hios\[onnx\]'$"):
        require(["onnxruntime"], "eager")


def test_openvino_is_left_out_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its package OpenVINO takes no part, a warning says so and what to install, and the others do."""
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "openvino" else known(name))
    with pytest.warns(HiosWarning, match=r"^baseline openvino: needs openvino, .*'hios\[openvino\]'; it is left out$"):
        assert require(["eager", "openvino"], "eager") == ("eager",)
    assert require(["eager"], "eager") == ("eager",)
