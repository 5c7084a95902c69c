"""Functions that tests run inside workers, to make operators fail and to query them; runs with a spoilt operator."""

from __future__ import annotations

import _thread
import dataclasses
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from hios import Graph
from hios.core.schedule import Plan, StreamPlan
from hios.frontends.extraction_check import flat
from hios.platforms import reference
from hios.platforms.cpu import thread_team
from hios.platforms.cpu import worker as device
from hios.platforms.cpu.devices import device_cores
from hios.platforms.cpu.thread_team import ThreadTeam, environment
from hios.platforms.program import ArenaPlan
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool
from hios.workers.worker import Worker
from tests.workers.processes import children

if TYPE_CHECKING:
    from tests.frontends.small_networks import Files


def load_dying(worker: Worker, **arguments: Any) -> None:
    """What ``device.load`` does, but an operator ends the process as Linux does where memory is short."""
    device.load(worker, **arguments)
    spoil(worker, "fire4.squeeze", "kill")


def load_dying_at_the_end(worker: Worker, **arguments: Any) -> None:
    """What ``device.load`` does, but the last operator ends the process as Linux does where memory is short."""
    device.load(worker, **arguments)
    spoil(worker, worker.state["graph"].operators[-1].id, "kill")


def load_refusing(worker: Worker, **arguments: Any) -> None:
    """What ``device.load`` does, but a branch in the middle of `Branches` refuses an input whose numbers are large."""
    device.load(worker, **arguments)
    operators = worker.state["operators"]
    name = worker.state["graph"].operators[1].id
    run = operators[name].run

    def refusing(*values: Any) -> Any:
        if max(float(value.abs().max()) for value in values) > LARGE / 100:
            raise ValueError("too large")
        return run(*values)

    operators[name] = dataclasses.replace(operators[name], run=refusing)


class _NoMemory(reference.Place):
    """Has no memory for the inputs."""

    def inputs(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB\nmore")


class _Faulty(reference.Place):
    """Runs a model rightly up to a run, which fails or, with ``wrong``, has other outputs."""

    def __init__(self, run: int, wrong: bool = False) -> None:
        self.left, self.wrong = run, wrong

    def timed(self, module: Callable[..., Any], inputs: Sequence[torch.Tensor]) -> tuple[Any, int]:
        given, taken = super().timed(module, inputs)
        self.left -= 1
        if self.left > 0:
            return given, taken
        if not self.wrong:
            raise RuntimeError("an illegal memory access was encountered")
        return [output + 1 for output in flat(given)], taken


def reference_without_memory(worker: Worker, **given: Any) -> float | None:
    """A runtime that runs out of memory as it is loaded."""
    return reference.load(worker, **given, place=_NoMemory())


def reference_failing_at_once(worker: Worker, **given: Any) -> float | None:
    """A runtime that fails in its first run."""
    return reference.load(worker, **given, place=_Faulty(1))


def reference_failing_later(worker: Worker, **given: Any) -> float | None:
    """A runtime that fails in its third run."""
    return reference.load(worker, **given, place=_Faulty(3))


def reference_wrong_later(worker: Worker, **given: Any) -> float | None:
    """A runtime whose outputs are wrong from its third run on."""
    return reference.load(worker, **given, place=_Faulty(3, wrong=True))


def load_hanging_at_the_end(worker: Worker, **arguments: Any) -> None:
    """What ``device.load`` does, but the last operator hangs."""
    device.load(worker, **arguments)
    spoil(worker, worker.state["graph"].operators[-1].id, "hang")


def spoil(worker: Worker, operator: str, how: str) -> None:
    """Have an operator fail, hang, say that it hangs, make nothing, or stop or end its process, from now on."""
    operators = worker.state["operators"]

    def run(*_: Any) -> Any:
        if how == "say":
            os.write(1, b"spoilt\n")
        if how in ("hang", "say"):
            time.sleep(600)
        elif how == "die":
            os._exit(3)
        elif how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif how == "memory":
            raise MemoryError
        elif how == "empty":
            return torch.empty(0)
        raise ValueError("no such kernel\nsecond line")

    operators[operator] = dataclasses.replace(operators[operator], run=run)


#: Numbers that operators refuse after `load_refusing`.
LARGE = 1e6
#: Seconds until the controller gives up on a device that loads.
_TIMEOUT_S = 600.0
#: How an operator is spoilt on device 0, and the message of the run about it there, with the time-out of the run.
MESSAGES = {
    "fail": "device 0: operator {at}: no such kernel",
    "memory": "device 0: operator {at}: out of memory",
    "die": "device 0 died with exit status 3 (run), last at operator {at}; the run was ended",
    "kill": "device 0 died by signal SIGKILL (run), last at operator {at}; the machine may be out of memory; "
    "the run was ended",
    "hang": "device 0 did not answer within {timeout_s:g} s (run), last at operator {at}; the run was ended",
}


@contextmanager
def loaded(files: Files, graph: Graph, plan: Plan, wait_s: float) -> Iterator[tuple[WorkerPool, list[Any]]]:
    """Workers with the graph loaded that wait for each other for ``wait_s`` at most, and the programs of the plan."""
    layout = ArenaPlan(graph, len(plan.devices))
    programs, cores = layout.program(plan), device_cores(len(plan.devices))
    # Operators on several devices at once have threads on the cores of all of them.
    environments = {0: environment()} if isinstance(plan, StreamPlan) and plan.wide else {}
    with WorkerPool(cores, Arena(layout.flags, layout.size), _TIMEOUT_S, environment=environments) as pool:
        read = {"graph": str(files.graph), "weights": str(files.weights)}
        given = {**read, "inputs": layout.inputs, "timeout_s": wait_s}
        pool.call_each(device.load, dict.fromkeys(range(len(cores)), given))
        yield pool, programs


def run_spoilt(
    files: Files,
    graph: Graph,
    plan: Plan,
    spoilt_on: Sequence[int],
    operator: str,
    how: str,
    *,
    wait_s: float,
    timeout_s: float,
) -> None:
    """Run a plan once with an operator spoilt on some devices; afterwards no process is left.

    Devices wait for each other for ``wait_s`` at most, and the run takes ``timeout_s`` at most.
    """
    cores = dict(enumerate(device_cores(len(plan.devices))))
    before = set(children())
    try:
        with loaded(files, graph, plan, wait_s) as (pool, programs):
            pool.describe = partial(thread_team.text, graph)
            pool.call_each(spoil, {key: {"operator": operator, "how": how} for key in spoilt_on})
            prepared = {part.device: {"name": "spoilt", "program": part, "cores": cores} for part in programs}
            pool.call_each(device.prepare, prepared)
            pool.call_each(device.run, {key: {"name": "spoilt", "epoch": 1} for key in cores}, timeout_s)
    finally:
        assert set(children()) <= before


def team(worker: Worker, own: list[int], cores: list[int]) -> tuple[int, list[list[int]]]:
    """Have operators use some cores; threads inside operators, and the cores of each helper on other devices."""
    threads = ThreadTeam.of(worker, own)
    threads.take(tuple(cores))
    others = threads._helpers[: max(1, len(cores) - len(own))]
    return torch.get_num_threads(), [sorted(os.sched_getaffinity(helper)) for helper in others]


def team_beside_others(worker: Worker, own: list[int], cores: list[int]) -> tuple[list[list[int]], list[list[int]]]:
    """Have operators use some cores twice; the cores of each helper on other devices, and those of other threads.

    These are helpers on the own cores, as operators have run there before, and a thread that starts after the team was
    made, which Python does not list.
    """
    torch.zeros(1 << 20, dtype=torch.uint8).fill_(1)
    threads, held = ThreadTeam.of(worker, own), _thread.allocate_lock()
    held.acquire()
    _thread.start_new_thread(held.acquire, ())
    others = thread_team._threads()
    for taken in (cores, own, cores):
        threads.take(tuple(taken))
    helpers = threads._helpers[: len(cores) - len(own)]
    pinned, free = ([sorted(os.sched_getaffinity(thread)) for thread in own] for own in (helpers, others))
    held.release()
    return pinned, sorted(free)


def programs(worker: Worker) -> list[str]:
    """Names of the programs that are prepared."""
    return sorted(worker.state["programs"])
