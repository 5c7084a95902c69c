"""Threads of a worker on the cores of several devices, for operators that use all of them at once.

OpenMP gives every thread that runs operators a team of helpers. Those that the first device of an operator has beyond
its own cores are pinned to the cores of its other devices, whose workers meanwhile only poll a flag and yield their
core after every poll (`Arena.wait`). So a sleeping helper is woken on a core that is awake, which takes microseconds;
waking an idle core takes ten times as long, and more in virtual machines. After its work a helper spins for less than
0.1 ms, waiting for the next loop; meanwhile the worker that owns the core cannot continue.

Which operator a device is running stands as a marker in shared memory, which survives the death of the worker.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

import torch

from hios.core.graph import Graph
from hios.workers.worker import Worker

#: Elements of a loop for every thread of a team: torch does not split smaller loops.
_GRAIN = 1 << 15
#: How long helpers spin, for GNU's OpenMP (polls of a flag, some 20 to 50 ns each) and for that of LLVM and Intel
#: (milliseconds).
_SPINNING = {"GOMP_SPINCOUNT": "1500", "KMP_BLOCKTIME": "0"}
#: The same where nothing else keeps their cores awake: longer than it takes to go from one operator to the next.
_SPINNING_ALONE = {"GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "1"}


def environment(*, alone: bool = False, pinned: Sequence[int] = ()) -> dict[str, str]:
    """Environment variables for workers with such teams; variables set by the user are kept.

    Args:
        alone: whether the workers that own the helpers' cores sleep meanwhile.
        pinned: cores to pin the threads to, the main thread to the first one, where nothing else pins them. Linux may
            put two threads of a team on one core when others wake up, and leaves them there for milliseconds.
    """
    stated = dict(_SPINNING_ALONE if alone else _SPINNING)
    if pinned:
        stated |= {"OMP_PROC_BIND": "true", "OMP_PLACES": ",".join(f"{{{core}}}" for core in pinned)}
    return {name: value for name, value in stated.items() if name not in os.environ}


class ThreadTeam:
    """The intra-operator threads of a worker's main thread; a worker has one team.

    The main thread and the helpers for the cores of the worker's own device keep these. The others are told from them,
    and from threads of runtimes and of streams, by when they start: while the team grows. Teams of all sizes begin with
    those that started first; the last ones end when the team of GNU's OpenMP gets smaller, and wait in that of LLVM and
    Intel.
    """

    def __init__(self, own: Sequence[int]) -> None:
        self._own = self._current = tuple(own)
        self._size = len(own)
        #: Thread ids of the other helpers, in the order of the team; the last ones may have ended.
        self._helpers: list[int] = []
        self._pinned: tuple[int, ...] = ()
        if self._size > 1:  # starts the helpers that are not pinned
            torch.set_num_threads(self._size)
            _loop(self._size)

    @classmethod
    def of(cls, worker: Worker, own: Sequence[int]) -> ThreadTeam:
        """The team of a worker, created on first use."""
        if "team" not in worker.state:
            worker.state["team"] = cls(own)
        return worker.state["team"]

    def release(self) -> None:
        """Restrict operators to the cores of the worker's own device."""
        self.take(self._own)

    def take(self, cores: tuple[int, ...]) -> None:
        """Let operators use the given cores, one thread on each; those of the worker's own device come first."""
        if cores == self._current:
            return
        size = len(cores)
        torch.set_num_threads(size)
        if size > 1 and size != self._size:  # a team of a different size has different threads
            before = _threads()
            _loop(size)
            started = sorted(_threads() - before)
            if started:  # none if the team got smaller, or those of an earlier one waited
                self._helpers[max(0, size - len(self._own) - len(started)) :] = started
            self._size, self._pinned = size, ()
        if cores not in (self._own, self._pinned):
            for helper, core in zip(self._helpers, cores[len(self._own) :], strict=False):
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(helper, {core})
            self._pinned = cores
        self._current = cores


def _loop(threads: int) -> None:
    """Run a loop that torch splits over as many threads."""
    torch.zeros(threads * _GRAIN, dtype=torch.uint8).fill_(1)


def _threads() -> set[int]:
    """Thread ids of this process."""
    return {int(task.name) for task in Path("/proc/self/task").iterdir()}


# Of a 64-bit flag: the lowest bits are the operator, then the stage, each plus one, then the stream.
_OPERATOR_BITS, _STAGE_BITS = 24, 20


def marker(operator: int, stage: int | None, stream: int) -> int:
    """A position as a number above 0: operator index in the graph, stage (None in stream schedules), stream."""
    return operator + 1 | (0 if stage is None else stage + 1) << _OPERATOR_BITS | stream << _OPERATOR_BITS + _STAGE_BITS


def text(graph: Graph, marker: int) -> str:
    """A marker in words; empty for 0, when no operator has started."""
    if not marker:
        return ""
    operator = marker % (1 << _OPERATOR_BITS) - 1
    stage = (marker >> _OPERATOR_BITS) % (1 << _STAGE_BITS) - 1
    stream = marker >> _OPERATOR_BITS + _STAGE_BITS
    return f"operator {graph.operators[operator].id}, {f'stream {stream}' if stage < 0 else f'stage {stage}'}"
