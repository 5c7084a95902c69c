"""Streams on this machine: threads with queues that behave as streams of GPUs do, with delays at random.

What is launched on a stream runs in order, some time after it was launched; nothing but events orders streams. Memory
is overwritten once all values in it were let go, by the next launch on the stream that made the first of them, as
torch's allocator has it, so that whoever still reads it shows.
"""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Any, TypeVar

import torch
from torch import Tensor

from hios.errors import first_line
from hios.platforms.cuda.compiled_network import as_list
from hios.platforms.cuda.plan import Lane

_T = TypeVar("_T")
#: Longest delay of a launch in seconds.
_DELAY_S = 3e-4
_TIMEOUT_S = 60.0


class Handle:
    """A value that may not be there yet.

    What was captured stays where the first replay put it, as the addresses of a CUDA graph are fixed.
    """

    def __init__(self, *, captured: bool = False) -> None:
        self._captured = captured
        self._value: Tensor | None = None
        self.kept: _Memory | None = None
        #: The memory that it lies in, unless that is not of a launch; and before which launch it was let go.
        self.block: _Block | None = None
        self.gone_before = math.inf

    @property
    def value(self) -> Tensor:
        """The value, once it was computed."""
        if self._value is None:
            raise RuntimeError("a value was read before it was computed")
        return self._value

    def __del__(self) -> None:
        if self.block is not None:
            self.block.lose(self)

    def put(self, value: Tensor) -> None:
        """Hold a value that was computed."""
        if self._captured and self._value is not None:
            self._value.copy_(value)
        else:
            self._value = value


class _Block:
    """Memory that a launch on a stream allocated, by the values in it as far as these are held.

    ``launches`` is the number of launches so far.
    """

    def __init__(self, stream: tuple[int, int], launches: Callable[[], int]) -> None:
        self.stream, self._launches = stream, launches
        self.handles = weakref.WeakSet[Handle]()
        #: Launch before which the values that are no longer held were let go.
        self._lost_before = 0

    def lose(self, handle: Handle) -> None:
        """Note that a value is not held any more: what is launched by now has memory of its own."""
        before = self._launches() + 1 if handle.gone_before == math.inf else handle.gone_before
        self._lost_before = max(self._lost_before, int(before))

    def is_overwritten(self, launch: int) -> bool:
        """Overwrite it if all values in it were let go before a launch; whether that is so."""
        handles = list(self.handles)
        if any(before > launch for before in (self._lost_before, *(handle.gone_before for handle in handles))):
            return False
        for handle in handles[:1]:
            torch.empty(0, dtype=torch.uint8).set_(handle.value.untyped_storage()).fill_(0xFF)
        return True


class Happening:
    """An event: what was last recorded, and when that was."""

    def __init__(self) -> None:
        self.recorded = threading.Event()
        self.at = 0.0


class HostBackend:
    """Any number of devices, all of them this machine.

    Args:
        seed: of the delays.
        capturing: whether launches can be captured.
        streams: how many there are on a device; lanes beyond share them.
    """

    def __init__(self, seed: int = 0, *, capturing: bool = True, streams: int = 1000) -> None:
        self._delay = random.Random(seed)
        self._capturing = capturing
        self._streams = streams
        self._lanes: dict[Lane, tuple[int, int]] = {}
        self._queues: dict[tuple[int, int], SimpleQueue[Callable[[], None]]] = {}
        self._recording: list[tuple[Lane, Callable[[], None]]] | None = None
        self._recorded: list[threading.Event] = []
        self._lock = threading.Lock()
        self._launches = 0
        #: By stream, memory that holds something.
        self._blocks = defaultdict[tuple[int, int], set[_Block]](set)
        self.errors: list[Exception] = []
        self.exact = 0
        self.copies = 0
        self.captures = 0

    def _launch(self, lane: Lane, work: Callable[[], None]) -> None:
        if self._recording is not None:
            self._recording.append((lane, work))
            return
        stream = self._stream(lane)
        if stream not in self._queues:
            self._queues[stream] = SimpleQueue()
            threading.Thread(target=self._serve, args=(self._queues[stream],), daemon=True).start()
        self._queues[stream].put(work)

    def _stream(self, lane: Lane) -> tuple[int, int]:
        if lane not in self._lanes:
            self._lanes[lane] = lane.device, len(self._lanes) % self._streams
        return self._lanes[lane]

    def _serve(self, queue: SimpleQueue[Callable[[], None]]) -> None:
        torch.set_num_threads(1)
        with torch.inference_mode():
            while True:
                work = queue.get()
                try:
                    work()
                except Exception as error:  # raised where the host waits
                    self.errors.append(error)

    def run(self, lane: Lane, function: Callable[..., Any], arguments: list[Any], outputs: int) -> list[Any]:
        """Have a stream compute a function of values."""
        return self._later(lane, function, arguments, outputs)

    def copy(self, lane: Lane, value: Any) -> Any:
        """Have a stream copy a value."""
        self.copies += 1
        return self._later(lane, torch.clone, [value], 1)[0]

    def _later(self, lane: Lane, function: Callable[..., Any], arguments: list[Any], outputs: int) -> list[Any]:
        handles = [Handle(captured=self._recording is not None) for _ in range(outputs)]
        delay, stream = self._delay.uniform(0, _DELAY_S), self._stream(lane)
        launch = self._launches = self._launches + 1

        def work() -> None:
            time.sleep(delay)
            with self._lock:
                blocks = self._blocks[stream]
                blocks -= {block for block in blocks if block.is_overwritten(launch)}
            results = as_list(function(*[_tensor(argument) for argument in arguments]), outputs)
            known = {_address(_tensor(own)): own.block if isinstance(own, Handle) else None for own in arguments}
            for handle, result in zip(handles, results, strict=True):
                handle.put(result)
                self._place(handle, known, _address(result), stream)

        self._launch(lane, work)
        return handles

    def _place(self, handle: Handle, known: dict[int, _Block | None], address: int, stream: tuple[int, int]) -> None:
        """Note the memory that a value lies in: that of an argument or of another output, else some of its stream."""
        with self._lock:
            if handle.block is None and address not in known:
                known[address] = _Block(stream, lambda: self._launches)
            block = handle.block = handle.block or known.get(address)
            if block is not None:
                block.handles.add(handle)
                self._blocks[block.stream].add(block)

    def record(self, lane: Lane, event: Happening | None = None, *, timed: bool = False) -> Happening:
        """An event that a stream comes to; one given is used again."""
        happening = event or Happening()
        recorded = happening.recorded = threading.Event()
        if self._recording is not None:
            self._recorded.append(recorded)

        def work() -> None:
            happening.at = time.perf_counter()
            recorded.set()

        self._launch(lane, work)
        return happening

    def wait(self, lane: Lane, event: Happening) -> None:
        """Have a stream wait for what was last recorded."""
        recorded = event.recorded

        def work() -> None:
            if not recorded.wait(_TIMEOUT_S):
                raise TimeoutError("an event did not happen")

        self._launch(lane, work)

    def forget(self, lane: Lane, values: list[Any]) -> None:
        """Have the memory of values overwritten, once nothing else that is in it is held."""
        for value in values:
            value.gone_before = self._launches + 1

    def elapsed_ms(self, event: Happening, later: Happening) -> float:
        """Milliseconds between two events."""
        return (later.at - event.at) * 1e3

    def capture(self, lanes: tuple[Lane, ...], launch: Callable[[], _T]) -> tuple[Callable[[], None], _T]:
        """Record what a function launches; returns what launches it."""
        if not self._capturing:
            raise RuntimeError("operation not permitted when stream is capturing\nmore")
        self._recording, self._recorded = [], []
        self.captures += 1
        try:
            outputs = launch()
        finally:
            work, self._recording = self._recording, None
        assert {lane for lane, _ in work} <= set(lanes)
        recorded = self._recorded

        def replay() -> None:
            for event in recorded:
                event.clear()
            for lane, entry in work:
                self._launch(lane, entry)

        return replay, outputs

    @contextlib.contextmanager
    def _exactly(self) -> Any:
        self.exact += 1
        yield

    def exactly(self) -> AbstractContextManager[None]:
        """Counts how often it was asked for."""
        return self._exactly()

    def synchronize(self, device: int) -> None:
        """Wait for all streams of a device; what failed on any is raised."""
        for stream, queue in list(self._queues.items()):
            if stream[0] == device:
                done = threading.Event()
                queue.put(done.set)
                assert done.wait(_TIMEOUT_S)
        if self.errors:
            raise self.errors[0]

    def why(self, error: Exception) -> str:
        """The first line of an error."""
        return first_line(error)


class _Memory:
    """Bytes that the next value on their stream takes once nobody holds them, as torch's allocator has it."""

    def __init__(self, free: list[Tensor]) -> None:
        self.again = bool(free)
        self.bytes = free.pop() if free else torch.empty(1 << 20, dtype=torch.uint8)
        weakref.finalize(self, free.append, self.bytes)


class PooledBackend(HostBackend):
    """Devices whose graphs share a pool: what one leaves there the others overwrite, and so does it itself."""

    def __init__(self) -> None:
        super().__init__()
        self._free = defaultdict[Lane, list[Tensor]](list)
        self.taken_again = 0

    def _later(self, lane: Lane, function: Callable[..., Any], arguments: list[Any], outputs: int) -> list[Any]:
        if self._recording is None:
            return super()._later(lane, function, arguments, outputs)
        values, delay = [_tensor(argument) for argument in arguments], self._delay.uniform(0, _DELAY_S)
        handles, places = [], list[Tensor]()
        for result in as_list(function(*values), outputs):
            handle, memory = Handle(), result.untyped_storage().data_ptr()
            alike = [number for number, value in enumerate(values) if value.untyped_storage().data_ptr() == memory]
            if alike:  # a view keeps the memory that it lies in
                handle.kept = getattr(arguments[alike[0]], "kept", None)
            else:
                handle.kept = _Memory(self._free[lane])
                self.taken_again += handle.kept.again
                result = handle.kept.bytes[: result.nbytes].view(result.dtype).view(result.shape).copy_(result)
            handle.put(result)
            handles.append(handle)
            places.append(result)

        def work() -> None:
            time.sleep(delay)
            for place, result in zip(places, as_list(function(*values), outputs), strict=True):
                if place.data_ptr() != result.data_ptr():
                    place.copy_(result)

        self._launch(lane, work)
        return handles

    def forget(self, lane: Lane, values: list[Any]) -> None:
        """Nothing in a graph: who holds no value any more has let it go."""
        if self._recording is None:
            super().forget(lane, values)


def _address(value: Tensor) -> int:
    """Of the memory that it lies in."""
    return value.untyped_storage().data_ptr()


def _tensor(value: Any) -> Tensor:
    return value.value if isinstance(value, Handle) else value
