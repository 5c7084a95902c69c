"""A persistent executor: workers that keep a network loaded and run schedules of it on request.

Soon after a call the workers fall asleep, so that the program has its cores to itself. A call copies the inputs into
shared memory, wakes the workers that take part, sleeps until they answer and copies the outputs back.
``python benchmarks/optimize_gain.py --overhead`` prints what that costs.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from hios.core.graph import Graph
from hios.core.schedule import Placement, Plan
from hios.errors import FailedCallError, PlatformError
from hios.files import option_defaults
from hios.formats.run import SegmentResult
from hios.kernels.executable import require_executable
from hios.machine.description import private_bytes
from hios.platforms.cpu import segment_runtimes, thread_team
from hios.platforms.cpu import worker as cpu_worker
from hios.platforms.program import ABORT, ArenaPlan, DeviceProgram, is_wide
from hios.platforms.segments import segmented
from hios.platforms.workloads import arena_tensor, copy_alone
from hios.workers.arena import ABORTED, Arena, memory_file
from hios.workers.pool import WorkerPool
from hios.workers.worker import Worker, reason


@dataclass(frozen=True, slots=True)
class Task:
    """A plan and the workers that are its devices, by device number; workers 0, 1, ... where none are named."""

    plan: Plan
    workers: tuple[int, ...] = ()

    def programs(self, arena: ArenaPlan, cores: Sequence[Sequence[int]], *, cut: bool) -> dict[int, DeviceProgram]:
        """What each worker that takes part does; in segments if it is to be cut. Workers have these cores."""
        parts = arena.program(self.plan)
        workers = [self.workers[part.device] if self.workers else part.device for part in parts]
        if cut:
            parts = segmented(parts, arena.graph, concurrent=any(len(cores[worker]) > 1 for worker in workers))
        return dict(zip(workers, parts, strict=True))


class Engine:
    """Workers with a network loaded, ready to run it by one or more plans.

    Several threads may use it, and then take turns; a process forked from its creator may not. Workers end with
    ``close``, when the engine is garbage-collected, at exit, and whenever the process ends. Tasks are what it can run,
    by name. The workers keep copies of the weights, the engine keeps none; each uses as many threads inside an operator
    as it has cores. One call takes ``timeout_s`` at most. With ``choosing``, devices run segments, each in the runtime
    that is the fastest for it.

    Raises:
        HiosError: the graph cannot be run, or a worker failed.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[str, Tensor],
        tasks: Mapping[str, Task],
        cores: Sequence[Sequence[int]],
        timeout_s: float = option_defaults.TIMEOUT_S,
        choosing: segment_runtimes.Choosing | None = None,
    ) -> None:
        require_executable(graph)
        deadline = 0.0 if choosing is None else time.monotonic() + choosing.seconds
        self._plan = plan = ArenaPlan(graph, max(len(task.plan.devices) for task in tasks.values()))
        self._cores, self._cut = cores, choosing is not None
        programs = {name: task.programs(plan, cores, cut=self._cut) for name, task in tasks.items()}
        if self._cut:
            plan.reserve()  # for `add`
        self._arena = arena = Arena(plan.flags, plan.size)
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._epoch = 0
        #: What runs the segments of each task, where devices run segments.
        self.segments: dict[str, list[SegmentResult]] = {}
        #: Workers of each task, each with the device that it is.
        self._workers: dict[str, dict[int, int]] = {}
        self._inputs = [arena_tensor(arena, buffer) for buffer in plan.inputs.values()]
        self._outputs = [arena_tensor(arena, buffer) for buffer in plan.outputs]
        opened = list[WorkerPool]()
        self._end = weakref.finalize(self, _close, opened, self._process)
        wide = any(is_wide(task.plan) for task in tasks.values())
        environment = dict.fromkeys(range(len(cores)), thread_team.environment()) if wide else {}
        try:
            names = [f"worker {number}" for number in range(len(cores))]
            self._pool = WorkerPool(cores, arena, timeout_s, names, environment)
            opened.append(self._pool)
            self._pool.describe = partial(thread_team.text, graph)
            with memory_file(graph.to_bytes()) as known, memory_file(save(dict(weights))) as values:
                files: dict[str, Any] = {"graph": known, "weights": values}
                given = {**files, "inputs": plan.inputs, "timeout_s": timeout_s * cpu_worker.WAIT_SHARE}
                self._pool.call_each(cpu_worker.load, dict.fromkeys(range(len(cores)), given))
                for name, parts in programs.items():
                    self._prepare(name, parts, values, choosing, deadline)
        except BaseException:
            self.close()
            raise

    def _prepare(
        self,
        name: str,
        parts: Mapping[int, DeviceProgram],
        weights: str,
        choosing: segment_runtimes.Choosing | None,
        deadline: float,
    ) -> None:
        """Bind a task to its workers, and choose what runs its segments."""
        own = {part.device: list(self._cores[worker]) for worker, part in parts.items()}
        shared = {"name": name, "cores": own, "segments": self._cut}
        self._workers[name] = {worker: part.device for worker, part in parts.items()}
        self._ask(cpu_worker.prepare, {worker: {**shared, "program": part} for worker, part in parts.items()})
        if choosing is not None:
            self._choose(name, choosing, weights, deadline)

    def add(self, name: str, task: Task, weights: Mapping[str, Tensor], choosing: segment_runtimes.Choosing) -> None:
        """Take another task, on workers that it has, to an engine whose devices run segments; weights are the same.

        Raises:
            PlatformError: it needs more devices, or shared memory, than the engine has; the engine is as before.
            FailedCallError: an operator failed on the example; the engine is as before.
            HiosError: a worker failed, which closes the engine.
        """
        deadline, plan, arena = time.monotonic() + choosing.seconds, self._plan, self._arena
        if len(task.plan.devices) > plan.devices:
            raise PlatformError(f"task {name}: found {len(task.plan.devices)} devices; allowed: at most {plan.devices}")
        parts = task.programs(plan, self._cores, cut=self._cut)
        if plan.flags > arena.flags_count or plan.size > arena.size:
            plan.flags, plan.size = arena.flags_count, arena.size
            raise PlatformError(
                f"task {name}: needs more shared memory than this engine has; allowed: operators on several devices "
                "only in tasks that it was made with"
            )
        with self._lock, memory_file(save(dict(weights))) as values:
            try:
                self._prepare(name, parts, values, choosing, deadline)
            except BaseException:
                if not self.closed:
                    self.forget(name)
                raise

    def forget(self, name: str) -> None:
        """Release what the workers of a task have for it alone; it cannot run any more."""
        with self._lock:
            self.segments.pop(name, None)
            self._ask(cpu_worker.forget, {worker: {"names": [name]} for worker in self._workers.pop(name)})

    def run(self, name: str, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Run a task once on a tensor for every input of the graph, in order, of its shape and dtype.

        Returns the outputs in the order of the graph: new tensors that no later call touches.

        Raises:
            FailedCallError: an operator failed; the engine takes the next call.
            PlatformError: the engine is closed, belongs to another process, or takes other inputs; or a worker died or
                hung, which closes the engine.
        """
        self._check(inputs)
        with self._lock:
            self._call(name, inputs)
            return [copy_alone(buffer, torch.empty(buffer.shape, dtype=buffer.dtype)) for buffer in self._outputs]

    def timeline(self, name: str, inputs: Sequence[Tensor]) -> list[Placement]:
        """Where and when each operator ran in one run of a task, none of them on several devices, as in `run`.

        Raises:
            FailedCallError, PlatformError: as in `run`.
        """
        self._check(inputs)
        with self._lock:
            answers = self._call(name, inputs, timed=True)
            return cpu_worker.joined({self._workers[name][worker]: own for worker, own in answers.items()})[1]

    def _call(self, name: str, inputs: Sequence[Tensor], *, timed: bool = False) -> dict[int, Any]:
        """Run a task in its workers; their replies if timed."""
        if not self._end.alive:
            raise PlatformError("this engine is closed; make another one")
        if name not in self._workers:
            raise PlatformError(f"this engine has no task {name} any more; allowed: {', '.join(self._workers)}")
        for buffer, value in zip(self._inputs, inputs, strict=True):
            copy_alone(value, buffer)
        self._epoch += 1
        given = {"name": name, "epoch": self._epoch, "timed": timed}
        answers = self._ask(run_quietly, dict.fromkeys(self._workers[name], given))
        failed = {worker: why for worker, why in answers.items() if isinstance(why, str)}
        if failed:
            self._arena.write(ABORT, 0)
            worker, why = next((worker, why) for worker, why in failed.items() if why != ABORTED)
            raise FailedCallError(f"worker {worker}: {why}")
        return answers

    def _ask(
        self,
        function: Callable[..., Any],
        arguments: Mapping[int, Mapping[str, Any]],
        timeout_s: float | None = None,
    ) -> dict[int, Any]:
        """Call a function in workers; failing closes the engine."""
        try:
            return self._pool.call_each(function, arguments, timeout_s)
        except BaseException:  # also on an interrupt: late answers would be mistaken for those of the next call
            self.close()
            raise

    def _choose(self, name: str, choosing: segment_runtimes.Choosing, weights: str, deadline: float) -> None:
        """Choose what runs the segments of a task."""
        workers = self._workers[name]
        self.run(name, choosing.example)  # weights are packed in the first run
        self._ask(segment_runtimes.record, {worker: {"name": name} for worker in workers})
        self.run(name, choosing.example)
        given = {
            "name": name,
            "weights": weights,
            "folder": choosing.folder,
            "seconds": deadline - time.monotonic(),
            "kinds": choosing.kinds,
        }
        chosen = self._ask(segment_runtimes.choose, dict.fromkeys(workers, given), segment_runtimes.TIMEOUT_S)
        self.segments[name] = [row for own in chosen.values() for row in own]

    def _check(self, inputs: Sequence[Tensor]) -> None:
        if os.getpid() != self._process:
            raise PlatformError(
                f"this engine belongs to process {self._process}; allowed: to use it there. A forked process "
                "has no workers: make an engine in each process, after the fork"
            )
        stated = [(value.shape, value.dtype, value.device.type) for value in inputs]
        required = [(buffer.shape, buffer.dtype, "cpu") for buffer in self._inputs]
        if stated != required:
            raise PlatformError(f"inputs: found {_text(inputs)}; allowed: {_text(self._inputs)}, on the CPU")

    def memory_bytes(self, name: str) -> int:
        """Memory that only the workers of a task have, in bytes; 0 if the system does not tell."""
        return sum(private_bytes(self.process_ids[worker]) for worker in self._workers[name])

    @property
    def process_ids(self) -> list[int]:
        """Process numbers of the workers."""
        return self._pool.process_ids

    def keep_only(self, name: str) -> None:
        """End the workers that a task does not need, and forget all other tasks."""
        with self._lock:
            needed, others = self._workers[name], [other for other in self._workers if other != name]
            self._pool.release([number for number in range(len(self._pool.process_ids)) if number not in needed])
            self._workers = {name: needed}
            if not self.closed:
                self._ask(cpu_worker.forget, {worker: {"names": others} for worker in needed})
                if self._cut:
                    self._ask(segment_runtimes.release, {worker: {} for worker in needed})

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""
        return not self._end.alive

    def close(self) -> None:
        """End the workers and wait for them, after a call that runs; closing twice does nothing.

        A forked process has neither workers nor the thread that runs a call, for which it would wait for ever.
        """
        with self._lock if os.getpid() == self._process else contextlib.nullcontext():
            self._end()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_quietly(worker: Worker, name: str, epoch: int, timed: bool) -> Any:
    """What ``worker.run`` replies, None unless timed; why an operator failed, after which all workers are intact."""
    try:
        reply = cpu_worker.run(worker, name, epoch, timed)
    except FailedCallError as error:
        worker.arena.write(ABORT, 1)  # others may wait for this worker
        return reason(error)
    except PlatformError as error:
        if str(error) == ABORTED:  # by a worker in which an operator failed
            return ABORTED
        raise
    return reply if timed else None


def _close(pools: list[WorkerPool], process: int) -> None:
    """Close the pool, once, in the process that has it."""
    if os.getpid() == process:
        with contextlib.suppress(IndexError):
            pools.pop().close()


def _text(tensors: Sequence[Tensor]) -> str:
    return ", ".join(f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for tensor in tensors) or "none"
