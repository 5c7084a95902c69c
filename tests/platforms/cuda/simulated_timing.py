"""What timing on GPUs asks of torch, on a clock that only advances by what is launched."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from hios.errors import HiosError

#: Milliseconds between the launch of a graph and its first kernel.
START_MS = 0.007
#: Milliseconds that launching takes the host: a graph, and each of its nodes more.
LAUNCH_MS, NODE_MS = 0.005, 0.0003
#: How long an operator takes whose weights and inputs are in the cache, over the time that it takes otherwise.
CACHED = 0.4
#: Floating-point operations that a convolution does in a millisecond.
FLOPS_PER_MS = 1e10
#: What torch says of a GPU, as for one with compute capability 9.0.
PROPERTIES = {
    "major": 9,
    "minor": 0,
    "multi_processor_count": 4,
    "max_threads_per_multi_processor": 2048,
    "shared_memory_per_multiprocessor": 1 << 16,
}


class Device(nullcontext[None]):
    """A GPU."""

    def __init__(self, kind: str, index: int) -> None:
        super().__init__()
        self.index = index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.index == self.index

    __hash__ = None  # type: ignore[assignment]


def _nothing() -> None:
    """What a view launches: no node of a graph."""


@dataclass
class Machine:
    """GPUs whose streams have a clock each, and a host whose launches take time: nothing begins before its launch.

    Attributes:
        log: every replay of a graph, by its number of launches.
        refused: what cannot be captured.
        broken: what cannot run.
        slower: how many times as long convolutions take as usual.
        cache_bytes: what the cache of a GPU holds: what was read last, whole copies of operators.
        free_bytes: how much memory of a GPU is free.
        sync_ms: how long after a stream another one that waits for it goes on.
        recording: pools that captures record to; of one that fails it stays so, as in torch up to 2.12.
    """

    clock: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    host_ms: float = 0.0
    stream: Any = None
    recorded: list[Callable[[], None]] | None = None
    log: list[int] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    broken: set[str] = field(default_factory=set)
    slower: float = 1.0
    cache_bytes: int = 0
    free_bytes: int = 1 << 20
    sync_ms: float = 0.0
    recording: set[object] = field(default_factory=set)
    _cached: dict[object, int] = field(default_factory=dict)

    def launch(self, what: str, cost_ms: float, read: object = None, nbytes: int = 0) -> None:
        """Have the current stream busy, with something that reads so many bytes of its own."""
        own = id(self.stream)
        if what in self.broken:
            raise RuntimeError("no kernel image is available\nfor execution")
        if self.recorded is not None and what in self.refused:
            raise RuntimeError(f"operation not permitted when stream is capturing\nin {what}")
        self._do((lambda: self._advance(own, self._factor(read, nbytes) * cost_ms)) if cost_ms else _nothing)

    def _factor(self, read: object, nbytes: int) -> float:
        """How much faster it is to read something now; from now on it is in the cache."""
        held = self._cached.pop(read, None)
        self._cached[read] = nbytes
        while sum(self._cached.values()) > self.cache_bytes:
            del self._cached[next(iter(self._cached))]
        return 1.0 if held is None or not nbytes else CACHED

    def wait(self, stream: Any, other: Any) -> None:
        """Have a stream wait for what was launched on another."""
        own, awaited = id(stream), id(other)
        self._do(lambda: self._advance(own, max(self.clock[awaited] + self.sync_ms - self.clock[own], 0.0)))

    def _convolution(self, values: Any, weight: Any, *, padding: int, groups: int) -> None:
        batch, _, height, width = values.shape
        out, into, rows, columns = weight.shape
        assert values.shape[1] == into * groups
        assert padding == rows // 2
        flops = 2 * batch * out * into * rows * columns * height * width
        self.launch("convolution", self.slower * flops / FLOPS_PER_MS)

    def _advance(self, stream: int, time_ms: float) -> None:
        self.clock[stream] += time_ms

    def _do(self, action: Callable[[], None]) -> None:
        if self.recorded is None:
            action()
        else:
            self.recorded.append(action)

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        """Make a stream the current one."""
        before, self.stream = self.stream, stream
        yield
        self.stream = before

    @contextmanager
    def capture(self, graph: Any, pool: object, stream: Any, capture_error_mode: str) -> Iterator[None]:
        """Record instead of running; the end of a capture that failed raises, as that of torch does."""
        if pool in self.recording:
            raise RuntimeError("beginAllocateToPool: already recording")
        self.recording.add(pool)
        self.recorded = graph.actions
        try:
            with self.on(stream):
                yield
        except RuntimeError:
            raise RuntimeError("capture was invalidated")  # noqa: B904 - as a context manager of C++ does
        else:
            self.recording.remove(pool)
        finally:
            self.recorded = None

    def torch(self) -> SimpleNamespace:
        """The part of torch that is used."""
        machine = self

        class Stream:
            def __init__(self, device: Device) -> None:
                self.device = device

            def wait_stream(self, other: Stream) -> None:
                machine.wait(self, other)

            def synchronize(self) -> None:
                pass

        class Graph:
            def __init__(self) -> None:
                self.actions: list[Callable[[], None]] = []

            def replay(self) -> None:
                machine.log.append(len(self.actions))
                machine.host_ms += LAUNCH_MS + NODE_MS * sum(action is not _nothing for action in self.actions)
                own = id(machine.stream)
                machine.clock[own] = max(machine.clock[own], machine.host_ms) + START_MS
                for action in self.actions:
                    action()

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                self.time_ms = 0.0

            def record(self) -> None:
                self.time_ms = machine.clock[id(machine.stream)]

            def synchronize(self) -> None:
                machine.host_ms = max(machine.host_ms, self.time_ms)

            def elapsed_time(self, later: Event) -> float:
                return later.time_ms - self.time_ms

        cuda = SimpleNamespace(
            Stream=Stream,
            CUDAGraph=Graph,
            Event=Event,
            stream=self.on,
            graph=self.capture,
            MemPool=lambda: SimpleNamespace(id=object()),
            device=lambda device: nullcontext(),
            mem_get_info=lambda index: (self.free_bytes, 2 * self.free_bytes),
            get_device_properties=lambda index: SimpleNamespace(
                uuid=f"GPU {index}", L2_cache_size=self.cache_bytes, **PROPERTIES
            ),
        )
        return SimpleNamespace(
            __version__="2.13.0",
            cuda=cuda,
            backends=SimpleNamespace(
                cudnn=SimpleNamespace(benchmark=False, allow_tf32=True, flags=lambda **given: nullcontext())
            ),
            randn=lambda *shape, generator, device: SimpleNamespace(shape=shape),
            nn=SimpleNamespace(functional=SimpleNamespace(conv2d=self._convolution)),
            device=Device,
            Generator=lambda device: SimpleNamespace(manual_seed=lambda seed: None),
            OutOfMemoryError=MemoryError,
            ones=lambda size, dtype, device: Tensor(self, size),
            uint8=None,
        )


class Tensor:
    """Bytes whose copies take a millisecond a million."""

    def __init__(self, machine: Machine, size: int) -> None:
        self._machine, self._size = machine, size

    def copy_(self, other: Tensor, *, non_blocking: bool) -> None:
        """Copy from another tensor."""
        assert self._size == other._size
        assert self is not other
        self._machine.launch("copy", self._size / 1e6)

    def add_(self, number: int) -> None:
        """Add a number in place."""
        self._machine.launch("add", 0.002)


class InProcess:
    """A pool whose one worker is this process."""

    def __init__(self, *_: object) -> None:
        self._worker = SimpleNamespace(state={}, mark=lambda number: None)

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, worker: int, function: Callable[..., Any], **arguments: Any) -> Any:
        """Call a function with that worker."""
        assert worker == 0
        return function(self._worker, **arguments)

    def close(self) -> None:
        """End nothing."""


def workload(machine: Machine, costs_ms: Mapping[str, float], nbytes: int) -> Callable[..., Any]:
    """Operators that take as long as the costs state; creating one during a capture is an error."""

    class Workload:
        def __init__(self, graph: Any, operator: Any, generator: Any) -> None:
            if machine.recorded is not None:
                raise HiosError("an operator cannot be made now")
            self.operator, self.nbytes = operator.id, nbytes

        def run(self) -> None:
            machine.launch(self.operator, costs_ms[self.operator], self, nbytes)

    return Workload


def merged(machine: Machine, costs_ms: Mapping[str, float], bytes_each: int) -> type:
    """Merges that take as long as their longest operator; each operator has weights of its own."""

    class Merged:
        def __init__(self, graph: Any, operators: Any, generator: Any) -> None:
            self.operators, self.nbytes = operators, bytes_each * len(operators)

        def run_together(self) -> None:
            machine.launch("merge", max(map(costs_ms.__getitem__, self.operators)), self, self.nbytes)

        def run_apart(self) -> None:
            for operator in self.operators:
                machine.launch(operator, costs_ms[operator], (self, operator), bytes_each)

    return Merged
