"""What the processes that hold GPUs do beside launching: where models run, and what memory is counted."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
import torch
from torch import Tensor

from hios.files.base import Platform
from hios.frontends.extraction_check import flat
from hios.frontends.program import export, save
from hios.platforms import reference
from hios.platforms.cuda import cuda_reference, devices, distributing, executor, worker
from hios.platforms.program import Buffer
from hios.workers.worker import Worker
from tests.runtime.small import Branches

_NUMBERS = Buffer(0, (2, 3), "float32")


class _OnGpu(Tensor):
    """Values that NumPy cannot read, as those in the memory of a GPU."""

    def numpy(self, *_: Any, **__: Any) -> Any:
        """Refuse, as torch does."""
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor")

    def cpu(self, *_: Any, **__: Any) -> Tensor:
        """A copy on the host."""
        return torch.Tensor(self.as_subclass(Tensor).clone())


def _worker(*tensors: Tensor) -> Worker:
    """A worker whose buffers are these, by their offsets."""
    arena = SimpleNamespace(tensor=lambda offset, *_: tensors[offset])
    return cast("Worker", SimpleNamespace(state={}, arena=arena))


def _gpu() -> distributing.DistributedGpu:
    gpu = object.__new__(distributing.DistributedGpu)
    gpu.place = torch.device("cuda", 0)
    return gpu


def test_onnx_files_run_on_the_host_of_a_rank(tmp_path: Path) -> None:
    """Inputs lie on the GPU of the rank, ONNX Runtime reads the memory of the host."""
    helper, onnx = pytest.importorskip("onnx.helper"), pytest.importorskip("onnx")
    types = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, _NUMBERS.shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", types[:1], types[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "program.onnx")
    given, made = torch.randn(_NUMBERS.shape), torch.zeros(_NUMBERS.shape)
    rank = _worker(given.as_subclass(_OnGpu), made)
    buffers = [_NUMBERS], [Buffer(1, _NUMBERS.shape, _NUMBERS.dtype)]
    _gpu().load_reference(rank, str(tmp_path / "program.onnx"), *buffers, False)
    reference.run(rank)
    assert made.equal(given.relu())


@pytest.mark.parametrize(("major", "tf32"), [(9, True), (7, False)])
def test_ranks_compute_as_costs_were_measured(monkeypatch: pytest.MonkeyPatch, major: int, tf32: bool) -> None:
    """A rank leaves torch's precision as it is, which `hios profile` measures in, and says which that is."""
    for name in ("set_device", "Event"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (major, 0))
    described = Platform(
        "cuda", 1, gpus=("a test",), gpu_indices=(0,), compute_capability=(f"{major}.0",), memory_gb=(1.0,)
    )
    monkeypatch.setattr(devices, "describe", lambda devices: described)
    monkeypatch.setattr(devices, "uuids", lambda indices: [f"uuid {index}" for index in indices])
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    gpu = distributing.DistributedGpu(0)
    assert (torch.backends.cudnn.allow_tf32, gpu.reduced is not None) == (True, tf32)
    with gpu.exactly():
        assert not torch.backends.cudnn.allow_tf32
    joined, used = distributing.joined([gpu.describe(), {**gpu.describe(), "tf32": False}])
    assert (joined["tf32"], joined["gpus"], used) == (tf32, ["a test"] * 2, [[0], [0]])


def test_ranks_may_have_different_gpus() -> None:
    """A run names every rank's GPU, and has no hardware that costs of one of them would be measured on.

    Each may see its own alone, as GPU 0, and both share none then.
    """
    alike = {"driver": "580.82", "cuda": "13.0", "cudnn": "91900", "gpu_indices": [0]}
    one = {**alike, "gpus": ["NVIDIA H100"], "compute_capability": ["9.0"], "memory_gb": [85.0], "tf32": True}
    two = {**alike, "gpus": ["Tesla T4"], "compute_capability": ["7.5"], "memory_gb": [15.8], "tf32": False}
    joined, used = distributing.joined([{**one, "uuid": "a"}, {**two, "uuid": "b"}])
    ranks = msgspec.convert({"name": "cuda", **joined}, Platform)
    assert (ranks.gpus, ranks.compute_capability) == (("NVIDIA H100", "Tesla T4"), ("9.0", "7.5"))
    assert (ranks.memory_gb, ranks.tf32, used) == ((85.0, 15.8), True, [[0], [1]])
    assert ranks.hardware == "NVIDIA H100, Tesla T4"


class _Event:
    """An event of a stream on which something takes a millisecond between any two."""

    made = 0
    _now_ms = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        type(self).made += 1

    def record(self) -> None:
        """Now."""
        _Event._now_ms += 1
        self.at_ms = _Event._now_ms

    def query(self) -> bool:
        """It is over."""
        return True

    def elapsed_time(self, end: _Event) -> float:
        """Milliseconds until another one."""
        return end.at_ms - self.at_ms


def test_events_of_a_run_serve_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making them takes as long as launching a short operator; times are those of the run at hand."""
    for name, replaced in (("Event", _Event), ("set_device", lambda index: None), ("synchronize", lambda: None)):
        monkeypatch.setattr(torch.cuda, name, replaced)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    gpu = distributing.DistributedGpu(0)
    for _ in range(3):
        began = gpu.begin()
        rows = [("conv", 0, 0, gpu._now(), gpu._now())]
        _, timed = gpu.finish(rows, time.monotonic() + 60)
        assert timed == [("conv", 0, 0, began + 1_000_000, began + 2_000_000)]
    assert _Event.made == 4  # where the run begins, around the operator, where all has finished
    before = _Event._now_ms
    gpu.begin(recording=False)
    rows = [("conv", 0, 0, gpu._now(), gpu._now())]
    assert gpu.finish(rows, time.monotonic() + 60)[1] == []
    assert _Event._now_ms - before == 2  # none around operators in timed runs


def test_models_move_to_their_device(tmp_path: Path) -> None:
    """A program, its weights and inputs are moved under inference mode, as the process of a GPU does it."""
    save(export(Branches().eval(), (torch.randn(1, 3, 8, 8),)), tmp_path / "program.pt2")
    place = object.__new__(cuda_reference.ReferenceGpu)
    place._device, place._graphs = torch.device("meta"), False
    made = _worker(torch.zeros(1, 3, 8, 8), torch.zeros(1, 16, 8, 8))
    buffers = [Buffer(0, (1, 3, 8, 8), "float32")], [Buffer(1, (1, 16, 8, 8), "float32")]
    with torch.inference_mode():
        loaded = reference.load(made, str(tmp_path / "program.pt2"), *buffers, place=place)
        (output,) = flat(made.state["module"](*made.state["inputs"]))
    assert loaded is None
    assert (output.device.type, output.shape) == ("meta", (1, 16, 8, 8))


class _Memory:
    """What torch counts on a GPU: the peak since it was last reset, trials of libraries included."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held, self.peak = 100, 5000
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda gpu: self.held)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda gpu: self.peak)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", self._reset)

    def _reset(self, gpu: object) -> None:
        self.peak = self.held

    def run(self, *_: object) -> None:
        """Need 30 bytes for a while."""
        self.peak = max(self.peak, self.held + 30)


def test_memory_of_trials_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither of a schedule, which counts its weights and what its run needs, nor of the model itself."""
    memory, state = _Memory(monkeypatch), dict[str, Any]()
    prepared = object.__new__(executor.Executor)
    monkeypatch.setattr(prepared, "run_exactly", memory.run)
    monkeypatch.setattr(prepared, "placed_bytes", lambda: 70)
    state.update(executor=prepared, gpus=[0, 1])
    process = cast("Worker", SimpleNamespace(state=state))
    assert worker.peak_memory_bytes(process, "sequential") == 70 + 2 * 30
    memory.peak = 5000
    place = object.__new__(cuda_reference.ReferenceGpu)
    place._device, place._graphs = torch.device("meta"), False
    assert place.peak_memory_bytes(memory.run) == 130
