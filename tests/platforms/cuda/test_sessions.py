"""Sessions on the platform cuda, with GPUs that are streams of this machine."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hios import Graph, HiosWarning, Schedule
from hios.core.schedule import Plan
from hios.errors import PlatformError
from hios.files import artifacts
from hios.files.base import Platform
from hios.formats.run import Run
from hios.machine.description import usable_cores
from hios.platforms import find
from hios.platforms.cuda import cuda_reference, executing, gpu_probe
from hios.platforms.cuda import devices as cuda
from hios.platforms.cuda import worker as device
from hios.platforms.reference import Reference
from hios.runtime.competitors import BASELINE, require
from hios.runtime.distributed.session import refuse_segments
from hios.runtime.run_table import latency_table
from hios.runtime.session import LEAST_RUNS
from tests.frontends.small_networks import Files, write_network
from tests.platforms.cuda import simulated
from tests.platforms.cuda.simulated import DEVICES
from tests.runtime.schedules import (
    merged_plan,
    one_by_one,
    random_plan,
    random_streams,
    run_schedules,
    schedule_of,
    write_schedules,
)
from tests.runtime.small import branches
from tests.workers.processes import children

RUNS = LEAST_RUNS


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A small network with two branches."""
    return write_network(tmp_path_factory.mktemp("branches"), branches())


@pytest.fixture
def run(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Runs plans in a session, whose worker loads what is named; afterwards no process is left."""
    description = Platform("cuda", DEVICES, gpus=("a test",) * DEVICES, gpu_indices=tuple(range(DEVICES)))
    monkeypatch.setattr(cuda, "describe", lambda *_, **__: description)
    eager = [Reference("eager PyTorch", 1, usable_cores()[:1], 1)]
    monkeypatch.setattr(executing, "references", lambda *_: eager)
    before = set(children())

    def run(
        load: Callable[..., bool], plans: dict[str, Plan], *, program: bool = True, **changes: Any
    ) -> dict[str, Any]:
        monkeypatch.setattr(device, "load", load)
        monkeypatch.setattr(gpu_probe, "time_probe", simulated.time_probe)
        paths = write_schedules(tmp_path, Graph.read(files.graph), plans)
        asked: dict[str, Any] = {"devices": DEVICES, "runs": RUNS, "warmup": 1, "platform": "cuda", **changes}
        asked |= {"traces": tmp_path / "traces", "chosen": tmp_path / "chosen.json"}
        try:
            run_schedules(files, paths, program=program, **asked)
        finally:
            assert set(children()) <= before
        return artifacts.read(tmp_path / "run.json", "run")

    return run


def _plans(files: Files) -> dict[str, Plan]:
    graph = Graph.read(files.graph)
    return {
        "sequential": one_by_one(graph),
        "merged": merged_plan(graph, 1),
        "random": random_plan(graph, DEVICES, seed=1),
        "streams": random_streams(graph, DEVICES, 2, seed=1),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("load", "launch"), [(simulated.load, "graph"), (simulated.load_streams, "streams")])
def test_schedules_take_turns(
    run: Callable[..., dict[str, Any]], files: Files, tmp_path: Path, load: Callable[..., bool], launch: str
) -> None:
    """Schedules run in one process that holds all devices; run.json says how they were launched, with a row each.

    The table names those that were launched operator by operator, with the reason.
    """
    plans = _plans(files)
    result = run(load, plans)
    graph = Graph.read(files.graph)
    platform = dict(result["platform"])
    assert platform.pop("allocation")["cores"] == sorted(os.sched_getaffinity(0))
    assert platform == {
        "name": "cuda",
        "devices": DEVICES,
        "gpus": ["a test"] * DEVICES,
        "gpu_indices": [0, 1],
        "tf32": False,
    }
    assert result["baseline"]["launch"] == launch
    assert [entry["devices"] for entry in result["ceilings"]] == [DEVICES]
    assert [entry["kind"] for entry in result["references"]] == ["eager"]  # no device of several cores
    for entry in result["results"]:
        assert entry["launch"] == launch
        assert ("no_graph" in entry) == (launch == "streams")
        assert len(entry["latency_ms"]["runs"]) == RUNS
        assert entry["largest_difference"] < 1e-4
        expected = {row.operator: row for row in schedule_of(graph, plans[entry["label"]]).placements}
        rows = {row["operator"]: row for row in entry["measured"]}
        assert rows.keys() == expected.keys()
        for operator, row in rows.items():
            placed = expected[operator]
            assert (row["device"], row["stream"], row["stage"]) == (placed.device, placed.stream, placed.stage)
    assert sorted(path.stem for path in (tmp_path / "traces").iterdir()) == sorted(plans)
    assert result["chosen"]["label"] in {*plans, BASELINE}
    assert Schedule.read(tmp_path / "chosen.json").plan(graph) is not None
    note = latency_table(msgspec.convert(result, Run)).splitlines()[-1]
    assert note.startswith("launched operator by operator, not as CUDA graphs: ") == (launch == "streams")
    if launch == "streams":
        labels, reason = note.partition(": ")[2].split(" (")
        assert sorted(labels.split(", ")) == sorted(["sequential on one device", *plans])
        assert reason == "operation not permitted when stream is capturing)"


@pytest.mark.slow
def test_graphs_give_what_the_sequential_one_gives(run: Callable[..., dict[str, Any]], files: Files) -> None:
    """A graph that is off by less than TF32 explains is refused: all schedules compute alike in one process."""
    message = (
        r"^\S+: output 0 differs from that of the sequential schedule, timed alike, by up to \S+; allowed: 0\.0001 "
    )
    with pytest.raises(PlatformError, match=message):
        run(simulated.load_corrupting, {"random": random_plan(Graph.read(files.graph), DEVICES, seed=1)})


def test_what_fails_beside_the_runs_costs_itself(
    run: Callable[..., dict[str, Any]], files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runtime that cannot be loaded is left out, and run.json is written without the times of operators."""
    cores = usable_cores()[:1]
    eager = Reference("eager PyTorch", 1, cores, 1)
    other = Reference("PyTorch, CUDA graph", 2, cores, 1, "cudagraph", simulated.refuse)
    monkeypatch.setattr(executing, "references", lambda *_: [eager, other])
    with pytest.warns(HiosWarning) as warned:
        result = run(simulated.load_failing, {"random": random_plan(Graph.read(files.graph), DEVICES, seed=1)})
    said = [str(one.message) for one in warned]
    assert any(text.endswith("in a CUDA graph: no reason; it is left out") for text in said)
    assert any(text.startswith("memory and times of operators are incomplete: ") for text in said)
    assert [entry["kind"] for entry in result["references"]] == ["eager"]
    assert [(entry["measured"], len(entry["latency_ms"]["runs"])) for entry in result["results"]] == [([], RUNS)]


def test_without_a_program(run: Callable[..., dict[str, Any]], files: Files) -> None:
    """The sequential schedule is then what outputs are compared with."""
    result = run(simulated.load, {"random": random_plan(Graph.read(files.graph), DEVICES, seed=1)}, program=False)
    assert (result["checked_against"], result["references"]) == ("sequential", [])


@pytest.mark.slow
def test_a_device_that_hangs_is_named(run: Callable[..., dict[str, Any]], files: Files) -> None:
    """A replay that does not end is ended in time, with device and schedule, and nothing is written."""
    message = (
        r"^platform cuda did not answer within 120 s \(\w+\), last at device 1, which runs all of 2 independent copies"
        "; the run was ended$"
    )
    with pytest.raises(PlatformError, match=message):
        run(simulated.load_hanging, {"sequential": _plans(files)["sequential"]}, timeout_s=120.0)


def test_a_process_that_dies_is_named(run: Callable[..., dict[str, Any]], files: Files, tmp_path: Path) -> None:
    """The message says what the process was launching when it died: device, operator and stage; no process remains."""
    message = (
        r"^platform cuda died by signal SIGKILL \(\w+\), last at device 1, operator \S+, stage 0; the machine may be "
    )
    with pytest.raises(PlatformError, match=message):
        run(simulated.load_dying, {"random": random_plan(Graph.read(files.graph), DEVICES, seed=1)})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["random.json"]


def test_runtimes_on_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a worker of its own behind the one of the GPUs; eager PyTorch comes first, and always takes part."""
    monkeypatch.setattr(cuda, "uuids", list)
    entries = executing.references(Platform("cuda"), "eager", ["compile-max-autotune", "cudagraph"])
    assert [(entry.kind, entry.worker, entry.options.get("gpu"), entry.threads) for entry in entries] == [
        ("eager", 1, 0, 1),
        ("cudagraph", 2, 0, 1),
        ("compile-max-autotune", 3, 0, 1),
    ]
    assert all(entry.load is cuda_reference.load_network for entry in entries)
    (onnx,) = executing.references(Platform("cuda"), "onnxruntime", ["eager"])
    assert onnx.load is not cuda_reference.load_network
    assert (onnx.kind, onnx.options.get("gpu"), onnx.threads) == ("onnxruntime", None, len(usable_cores()))


@pytest.mark.parametrize("name", sorted({*find("cuda").RUNTIMES} - {*find("cpu").RUNTIMES}))
def test_runtimes_of_gpus_are_refused_on_cores(name: str) -> None:
    """One line says where they run, and what does here."""
    allowed = "allowed on platform cpu: eager, compile, onnxruntime, openvino"
    message = rf"^--baselines: found {name}, which is for platform cuda; {allowed}$"
    with pytest.raises(PlatformError, match=message):
        require([name], "eager", "cpu")


@pytest.mark.slow
def test_devices_run_segments(run: Callable[..., dict[str, Any]], files: Files) -> None:
    """What one stream runs between two waits is a segment: compared in inductor, and no other operator is in it."""
    known, graph = _plans(files), Graph.read(files.graph)
    plans = {name: known[name] for name in ("sequential", "merged", "streams")}
    result = run(simulated.load_in_tf32, plans, engine="segments")
    assert result["engine"] == "segments"
    assert result["platform"]["tf32"] is True
    for entry in result["results"]:
        assert entry["launch"] == "graph"
        assert entry["largest_difference"] < 1e-4
        assert sorted(row["operator"] for row in entry["measured"]) == sorted(graph.index)
        for segment in entry["segments"]:
            compared = {*segment["latency_ms"], *segment.get("refused", {})}
            assert compared == {"packed", "inductor"}
            assert segment["runtime"] in segment["latency_ms"]
    (sequential,) = [entry for entry in result["results"] if entry["label"] == "sequential"]
    (whole,) = sequential["segments"]
    assert len(whole["operators"]) == len(graph.index)


@pytest.mark.slow
def test_less_precise_runs_are_checked_once_in_full(run: Callable[..., dict[str, Any]], files: Files) -> None:
    """Where runs are timed in TF32, differences stated are those of the run in full float32, with merges too."""
    result = run(simulated.load_in_tf32, _plans(files))
    assert result["platform"]["tf32"] is True
    assert all(0 <= entry["largest_difference"] < 1e-4 for entry in result["results"])


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["operators", "segments"])
def test_other_kernels_are_compared_launch_by_launch(
    run: Callable[..., dict[str, Any]], files: Files, engine: str
) -> None:
    """Graphs with merges or segments give what their launches give one by one."""
    with pytest.raises(PlatformError, match=r"^[^:]+: output 0 differs from those of its launches one by one, timed"):
        run(simulated.load_corrupting, {"merged": merged_plan(Graph.read(files.graph), 1)}, engine=engine)


def test_segments_are_refused_for_ranks_with_gpus() -> None:
    """One line says what runs there."""
    with pytest.raises(PlatformError, match=r"^--engine: found segments; allowed where ranks are on platform cuda: op"):
        refuse_segments("segments", "cuda")
    refuse_segments("segments", "cpu")
    refuse_segments("operators", "cuda")


def test_runtimes_that_gpus_lack(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime runs on cores here, TensorRT and torch.compile need packages of their own."""
    with pytest.raises(PlatformError, match=r"^--baselines: found onnxruntime, which is for platform cpu; allowed on"):
        require(["onnxruntime"], "eager", "cuda")
    with pytest.raises(PlatformError, match=r"^baseline tensorrt: needs torch_tensorrt, which is not installed; "):
        require(["tensorrt"], "eager", "cuda")
    monkeypatch.setenv("CXX", sys.executable)  # there may be no compiler, which would be said first
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(PlatformError, match=r"^baseline compile-max-autotune: torch\.compile needs triton for GPUs, "):
        require(["compile-max-autotune"], "eager", "cuda")
