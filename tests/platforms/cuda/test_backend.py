"""What the backend asks of torch, in which order; torch's own functions say whether they could be called so."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from hios.platforms.cuda.backend import CudaBackend, out_of_memory
from hios.platforms.cuda.plan import Lane

_RECORD = inspect.signature(torch.cuda.Event.record)


class _Stream:
    """A stream by its number."""

    def __init__(self, log: list[str], name: str, gpu: int) -> None:
        self.log, self.name = log, name
        # Devices of the machine at hand that tensors can be on: what counts is whether they are the same.
        self.device = torch.device(("cpu", "meta")[gpu or 0])

    def wait_event(self, event: str) -> None:
        self.log.append(f"{self.name} waits for {event}")

    def wait_stream(self, other: _Stream) -> None:
        self.log.append(f"{self.name} waits for all of {other.name}")

    def record_event(self) -> str:
        self.log.append(f"{self.name} is recorded")
        return f"{self.name}'s event"


class _Torch:
    """Stands in for torch.cuda, and notes what it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[str] = []
        self.recording = set[str]()
        self._streams = self._pools = 0
        self._monkeypatch = monkeypatch
        self.replace("Stream", torch.cuda.Stream.__new__, self.make_stream, bound=True)
        self.replace("Event", torch.cuda.Event.__new__, self.make_event, bound=True)
        self.replace("stream", torch.cuda.stream, lambda stream: self.within(f"stream {stream.name}"))
        self.replace("device", torch.cuda.device.__init__, lambda gpu: self.within(f"device {gpu}"), bound=True)
        self.replace("synchronize", torch.cuda.synchronize, lambda gpu: self.log.append(f"synchronize {gpu}"))
        self.replace("MemPool", torch.cuda.MemPool.__init__, self.make_pool, bound=True)
        self.replace("use_mem_pool", torch.cuda.use_mem_pool, lambda pool, gpu: self.within(f"{pool.id} on {gpu}"))
        self.replace("set_stream", torch.cuda.set_stream, lambda stream: self.log.append(f"set stream {stream.name}"))
        self.replace("CUDAGraph", torch.cuda.CUDAGraph.__new__, self.make_graph, bound=True)
        self.replace("graph", torch.cuda.graph.__init__, self.capture, bound=True)

    def replace(self, name: str, real: Callable[..., Any], fake: Callable[..., Any], *, bound: bool = False) -> None:
        """Put a function in the place of one of torch's, which is asked whether it takes the arguments.

        Those that are ``bound`` take an object or a class ahead of them.
        """

        def checked(*arguments: Any, **keywords: Any) -> Any:
            inspect.signature(real).bind(*[None] * bound, *arguments, **keywords)
            return fake(*arguments, **keywords)

        self._monkeypatch.setattr(torch.cuda, name, checked)

    @contextlib.contextmanager
    def within(self, what: str) -> Iterator[None]:
        self.log.append(f"enter {what}")
        yield
        self.log.append(f"leave {what}")

    def make_stream(self, gpu: int) -> _Stream:
        self._streams += 1
        return _Stream(self.log, f"{gpu}.{self._streams}", gpu)

    def make_event(self, **kind: bool) -> Any:
        log = self.log

        class Event:
            def record(self, stream: _Stream) -> None:
                _RECORD.bind(None, stream)
                log.append(f"record {'timed ' if kind else ''}on {stream.name}")

        assert kind in ({}, {"enable_timing": True, "external": True})
        return Event()

    def make_pool(self) -> Any:
        self._pools += 1
        pool = type("Pool", (), {})()
        pool.id = f"pool {self._pools}"
        self.log.append(f"make {pool.id}")
        return pool

    def make_graph(self) -> Any:
        log = self.log

        class Graph:
            def replay(self) -> None:
                log.append("replay")

            def reset(self) -> None:
                log.append("reset")

        return Graph()

    @contextlib.contextmanager
    def capture(self, graph: Any, pool: str, stream: _Stream, **mode: str) -> Iterator[None]:
        """A capture that an error invalidates leaves its pool recording, as in torch up to 2.12; others do not."""
        assert mode == {"capture_error_mode": "thread_local"}
        if pool in self.recording:
            raise RuntimeError(f"beginAllocateToPool: already recording to {pool}")
        self.recording.add(pool)
        valid = True
        try:
            with self.within(f"capture on {stream.name} with {pool}"):
                yield
        except RuntimeError as error:
            valid = "not permitted" not in str(error)
            raise
        finally:
            if valid:
                self.recording.remove(pool)

    def end_recording(self, gpu: int, pool: str) -> None:
        """As torch has it, which refuses to end what is not under way."""
        if pool not in self.recording:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.log.append(f"end recording of {gpu} to {pool}")
        self.recording.remove(pool)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> _Torch:
    """Torch without a GPU."""
    return _Torch(monkeypatch)


def test_streams_are_those_of_their_lanes(cuda: _Torch) -> None:
    """A lane keeps its stream; virtual devices of one GPU have their own."""
    backend = CudaBackend([0, 0])
    for lane in (Lane(0), Lane(1), Lane(0), Lane(0, 1)):
        assert backend.run(lane, lambda x: x + 1, [1], 1) == [2]
    entered = [entry for entry in cuda.log if entry.startswith("enter")]
    assert entered == ["enter stream 0.1", "enter stream 0.2", "enter stream 0.1", "enter stream 0.3"]
    assert backend.run(Lane(0), lambda: (1, 2), [], 2) == [1, 2]


def test_copies_between_gpus_have_two_streams(cuda: _Torch) -> None:
    """The stream that a value leaves on is entered first, so that the destination is where the copy is made."""
    backend = CudaBackend([0, 1])
    value = torch.ones(2, 3).t()
    copied = backend.copy(Lane(1, source=0), value)
    assert (copied.device.type, copied.shape, copied.stride()) == ("meta", value.shape, value.stride())
    entered = [entry for entry in cuda.log if not entry.startswith("leave")]
    assert entered == ["None.2 waits for all of 1.1", "enter stream None.2", "enter stream 1.1"]


def test_copies_on_one_gpu_have_one_stream(cuda: _Torch) -> None:
    """On virtual devices a copy is made too, on the stream on which values arrive."""
    backend = CudaBackend([0, 0])
    value = torch.ones(2, 3)
    copied = backend.copy(Lane(1, source=0), value)
    assert copied.data_ptr() != value.data_ptr()
    assert torch.equal(copied, value)
    assert cuda.log == ["enter stream 0.1", "leave stream 0.1"]


def test_timed_events_are_recorded_where_torch_looks_for_a_capture(cuda: _Torch) -> None:
    """Torch asks the current stream whether it is captured, so a timed event is recorded within its own stream."""
    backend = CudaBackend([0])
    event = backend.record(Lane(0))
    assert backend.record(Lane(0), event) is event
    backend.record(Lane(0), timed=True)
    assert cuda.log == ["record on 0.1"] * 2 + ["enter stream 0.1", "record timed on 0.1", "leave stream 0.1"]


def test_captures_fork_and_join_all_streams(cuda: _Torch) -> None:
    """All happens within one capture: pools of other GPUs, fork, launches, join; it is replayed on its stream."""
    backend = CudaBackend([0, 1])
    lanes = (Lane(0), Lane(1), Lane(0, 1))
    replay, captured = backend.capture(lanes, lambda: cuda.log.append("launch") or "outputs")
    assert captured == "outputs"
    assert cuda.log == [
        "enter device 0",
        "make pool 1",
        "leave device 0",
        "enter device 1",
        "make pool 2",
        "leave device 1",
        "synchronize 0",
        "synchronize 1",
        "enter stream 0.1",
        "enter capture on 0.1 with pool 1",
        "enter pool 2 on 1",
        "0.1 is recorded",
        "1.2 waits for 0.1's event",
        "0.3 waits for 0.1's event",
        "launch",
        "1.2 is recorded",
        "0.1 waits for 1.2's event",
        "0.3 is recorded",
        "0.1 waits for 0.3's event",
        "leave pool 2 on 1",
        "leave capture on 0.1 with pool 1",
        "leave stream 0.1",
    ]
    cuda.log.clear()
    replay()
    assert cuda.log == ["set stream 0.1", "replay"]
    del replay
    assert cuda.log[-1] == "reset"


@pytest.mark.parametrize(("version", "ends"), [("2.11.0+cu130", True), ("2.12.1", True), ("2.13.0", False)])
def test_a_failed_capture_spoils_no_later_one(
    cuda: _Torch, monkeypatch: pytest.MonkeyPatch, version: str, ends: bool
) -> None:
    """The next capture has a pool that nothing records to; graphs of earlier pools can still be replayed."""
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion(version))
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", cuda.end_recording, raising=False)
    backend, launched = CudaBackend([0]), list[str]()

    def fail() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    before, _ = backend.capture((Lane(0),), lambda: launched.append("first"))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="not permitted"):
            backend.capture((Lane(0),), fail)
    after, _ = backend.capture((Lane(0),), lambda: launched.append("last"))
    ended = [entry for entry in cuda.log if entry.startswith("end recording")]
    assert ended == ["end recording of 0 to pool 1", "end recording of 0 to pool 2"][: 2 * ends]
    assert [entry for entry in cuda.log if entry.startswith("make")] == ["make pool 1", "make pool 2", "make pool 3"]
    assert launched == ["first", "last"]
    assert "reset" not in cuda.log  # neither the earlier graph nor those that failed
    before()
    after()
    assert cuda.log[-4:] == ["set stream 0.1", "replay"] * 2


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), ValueError("of the network")])
def test_an_error_in_a_valid_capture_is_told(cuda: _Torch, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Torch 2.11 has ended the recording then; that it cannot be ended again hides no error, and spoils no capture."""
    monkeypatch.setattr(torch, "__version__", torch.torch_version.TorchVersion("2.11.0+cu130"))
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", cuda.end_recording, raising=False)
    backend = CudaBackend([0])

    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        backend.capture((Lane(0),), fail)
    assert raised.value is error
    assert backend.capture((Lane(0),), lambda: "outputs")[1] == "outputs"
    assert [entry for entry in cuda.log if entry.startswith("make")] == ["make pool 1", "make pool 2"]


def test_graphs_share_pools(cuda: _Torch) -> None:
    """A second capture takes its memory from the pools of the first."""
    backend = CudaBackend([0])
    for _ in range(2):
        backend.capture((Lane(0),), lambda: None)
    assert sum(entry.startswith("make pool") for entry in cuda.log) == 1
    assert sum(entry.startswith("enter capture on 0.1 with pool 1") for entry in cuda.log) == 2


def test_copies_that_share_a_gpu_have_pools_of_their_own(cuda: _Torch) -> None:
    """Independent copies run at once: memory that one of them releases must not be reused by another."""
    backend = CudaBackend([0, 0])
    kept = [backend.capture((Lane(device),), lambda: None) for device in range(2)]
    entered = [entry for entry in cuda.log if entry.startswith("enter capture")]
    assert [entry.split()[-1] for entry in entered] == ["1", "2"]
    assert len(kept) == 2


def test_lack_of_memory_is_said_in_one_line() -> None:
    """What torch says of it stands behind what can be done."""
    error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has\nmore")
    assert out_of_memory(error) == CudaBackend([0]).why(error)
    assert out_of_memory(error).startswith("out of memory: a smaller batch needs less")
    assert "Tried to allocate 2.00 GiB" in out_of_memory(error)
    assert "\n" not in out_of_memory(error)
