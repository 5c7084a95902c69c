"""Worker processes: calls, failures and what is left of them."""

from __future__ import annotations

import importlib
import math
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from hios.errors import HiosError, PlatformError
from hios.files.versions import versions
from hios.machine.description import usable_cores
from hios.platforms.cpu import devices as cpu
from hios.workers import channel, pipe_messages, worker
from hios.workers import pool as pool_module
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool
from hios.workers.stream_threads import Streams
from tests.workers import tasks
from tests.workers.processes import children, eventually, killed, running

ROOT = Path(__file__).resolve().parents[2]


def _cores(workers: int) -> list[list[int]]:
    """A core for each worker; they share cores on a machine that has too few."""
    usable = usable_cores()
    return [[usable[number % len(usable)]] for number in range(workers)]


class _Pool(WorkerPool):
    """Two workers with an arena of their own."""

    def __init__(self) -> None:
        self.arena = Arena(8, 4096)
        super().__init__(_cores(2), self.arena, 120.0)
        self.pids = [answer["pid"] for answer in self.call_each(tasks.who, {0: {}, 1: {}}).values()]

    def is_gone(self) -> bool:
        """Whether no worker is left, not even as a zombie."""
        return not set(self.pids) & set(children()) and not any(map(running, self.pids))


@pytest.fixture(scope="module")
def shared() -> Iterator[_Pool]:
    """A pool for tests that leave it as it is; OpenMP was told to bind threads to cores of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_PROC_BIND", "true")
        patch.setenv("GOMP_CPU_AFFINITY", str(usable_cores()[0]))
        pool = _Pool()
    with pool:
        yield pool
    assert pool.is_gone()


@pytest.fixture
def pool() -> Iterator[_Pool]:
    """A pool for a test that breaks it; nothing of it may be left after the failure."""
    made = _Pool()
    yield made
    assert made.is_gone()


@pytest.fixture
def impatient(pool: _Pool) -> _Pool:
    """A pool as above that waits for five seconds, once it is ready."""
    pool.timeout_s = 5.0
    return pool


def test_workers_are_pinned_and_use_one_thread(shared: _Pool) -> None:
    """Each worker runs on its core only, with one thread inside operators, without gradients; it collects garbage."""
    answers = shared.call_each(tasks.who, {0: {}, 1: {}})
    for number, cores in enumerate(_cores(2)):
        pid = answers[number].pop("pid")
        assert pid in children()
        del answers[number]["parent"]
        settings = {"threads": 1, "omp": "1", "inference": True, "garbage": True}
        assert answers[number] == {"number": number, "cores": cores, **settings}
    assert os.sched_getaffinity(0) == set(usable_cores())  # the controller is not pinned


def test_calls_run_at_the_same_time(shared: _Pool) -> None:
    """Calls of several workers overlap: each ends only if the other runs; results stand under their worker."""
    shared.arena.write(1, 0)
    shared.arena.write(2, 0)
    answers = shared.call_each(tasks.meet, {1: {"flag": 2, "other": 1}, 0: {"flag": 1, "other": 2}})
    assert answers == {0: "worker 0", 1: "worker 1"}


@pytest.mark.parametrize("timeout_s", [3e6, math.inf])
def test_a_time_out_may_be_any_number(shared: _Pool, timeout_s: float) -> None:
    """Also one that is longer than what the kernel waits at once."""
    assert shared.call_each(tasks.echo, {0: {"value": 1}}, timeout_s) == {0: 1}


def test_results_stand_in_the_order_of_the_workers(shared: _Pool) -> None:
    """Results come in the order in which the workers were named, whichever answers first."""
    for order in ((0, 1), (1, 0)):
        shared.arena.write(1, 0)
        slow, quick = order
        answers = shared.call_each(tasks.late, {slow: {"late": True}, quick: {"late": False}})
        assert list(answers.items()) == [(slow, slow), (quick, quick)]


def test_one_worker_at_a_time(shared: _Pool) -> None:
    """A call to one worker reaches that worker and no other; its state stays until the next call."""
    assert shared.call(1, tasks.remember, name="x", value=[1, 2]) is None
    assert shared.call(0, tasks.remember, name="x", value=None) is None
    assert shared.call(1, tasks.remember, name="x", value=3) == [1, 2]


def test_arena_is_shared(shared: _Pool) -> None:
    """What workers write into the arena the controller reads."""
    shared.arena.write(1, 0)
    shared.call_each(tasks.fill, {0: {"offset": 0, "value": 1.0}, 1: {"offset": 64, "value": 2.0}})
    assert shared.arena.read(1) == 7
    assert shared.arena.tensor(0, (10,), torch.float32).tolist() == [1.0] * 10
    assert shared.arena.tensor(64, (10,), torch.float32).tolist() == [2.0] * 10


def test_streams_run_at_the_same_time(shared: _Pool) -> None:
    """Functions on streams overlap (each waits for the next) and use one thread inside operators."""
    for flag in (1, 2, 3):
        shared.arena.write(flag, 0)
    assert shared.call(0, tasks.streams) == [("third", 1), ("second", 1), ("first", 1)]


def test_an_exception_names_the_device(pool: _Pool) -> None:
    """An exception is one line with the device; the other worker, which waits for it, is ended too."""
    with pytest.raises(HiosError, match=r"^device 0: no such kernel$"):
        pool.call_each(tasks.fail, {0: {"message": "no such kernel\nand more"}, 1: {"message": ""}})


@pytest.mark.parametrize(
    ("function", "answer"),
    [
        ("fail", (False, "ValueError (fail)")),
        ("run_out_of_memory", (False, "out of memory (run_out_of_memory)")),
        ("refuse", (False, "refused on purpose")),
        ("no_such_function", (False, "module 'tests.workers.tasks' has no attribute 'no_such_function'")),
        ("remember", (True, None)),
    ],
)
def test_answers_are_one_line(function: str, answer: tuple[bool, object]) -> None:
    """A worker answers with a result, or with one line about what went wrong."""
    arguments: dict[str, dict[str, Any]] = {"fail": {"message": ""}, "remember": {"name": "x", "value": 1}}
    keywords = arguments.get(function, {})
    reply = worker._answer(worker.Worker(0, Arena(4, 0), Streams()), f"{tasks.__name__}:{function}", keywords)
    assert reply == answer


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("kill", r"died by signal SIGKILL \(die\); the machine may be out of memory"),
        ("real-time signal", r"died by signal 40 \(die\)"),
        ("exit", r"died with exit status 3 \(die\)"),
    ],
)
def test_a_dead_worker_is_named(pool: _Pool, how: str, expected: str) -> None:
    """A worker that dies is named with the cause, and the other one is shut down."""
    with pytest.raises(PlatformError, match=f"^device 0 {expected}; the run was ended$"):
        pool.call_each(tasks.die, {0: {"how": how}, 1: {"how": how}})


def test_a_worker_that_only_closes_its_connection_is_ended(pool: _Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that runs but can no longer answer is named, and all workers are shut down."""
    monkeypatch.setattr(pool_module, "_DYING_S", 0.2)
    with pytest.raises(PlatformError, match=r"^device 0 closed its connection \(hang_up\); the run was ended$"):
        pool.call_each(tasks.hang_up, {0: {}, 1: {}})


def test_a_worker_that_died_between_calls_is_named(pool: _Pool) -> None:
    """A worker that is gone before a call is found by the call."""
    os.kill(pool.pids[1], signal.SIGTERM)
    assert eventually(lambda: not running(pool.pids[1]))
    with pytest.raises(PlatformError, match=r"^device 1 died by signal SIGTERM"):
        pool.call_each(tasks.who, {0: {}, 1: {}})


def test_a_hang_ends(impatient: _Pool) -> None:
    """A worker that never answers is named after the time-out, and all workers are shut down."""
    with pytest.raises(PlatformError, match=r"^device 0 did not answer within 5 s \(hang\); the run was ended$"):
        impatient.call_each(tasks.hang, {0: {}, 1: {}})


def test_a_call_goes_on_after_the_controller_was_stopped(shared: _Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by Ctrl-Z: it waits for what was left of the time-out, although the clock went on far beyond it."""
    shared.arena.write(1, 0)
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        if looks == 6:  # not before it has waited in vain
            shared.arena.write(1, 1)
        return 0.0 if looks < 3 else 1e6

    monkeypatch.setattr(time, "monotonic", clock)
    assert shared.call(0, tasks.late, late=True) == 0


@pytest.mark.slow
def test_a_worker_that_takes_no_message_is_named(impatient: _Pool) -> None:
    """A worker that is stopped ends a call with more than its pipe holds after the time-out."""
    os.kill(impatient.pids[1], signal.SIGSTOP)
    with pytest.raises(PlatformError, match=r"^device 1 did not answer within 5 s \(remember\); the run was ended$"):
        impatient.call(1, tasks.remember, name="x", value=bytes(1 << 22))


@pytest.mark.parametrize(
    "size",
    [
        0,
        1,
        *range(channel.SHORT - 60, channel.SHORT + 2),
        pipe_messages.PART - 1,
        pipe_messages.PART,
        pipe_messages.PART + 1,
        3 * pipe_messages.PART,
        1 << 22,
    ],
)
def test_messages_of_all_sizes_arrive(shared: _Pool, size: int) -> None:
    """Arguments and results come as they were, also where they fill parts exactly or are far larger than a pipe."""
    values = {0: bytes(size), 1: os.urandom(size)}
    answers = shared.call_each(tasks.echo, {worker: {"value": value} for worker, value in values.items()})
    assert answers == values


def test_parts_make_up_the_message() -> None:
    """Only the last part is shorter than the others, also where the message ends with a whole one."""
    for size in range(2 * pipe_messages.PART - 40, 2 * pipe_messages.PART + 2):
        parts, inbox = list(pipe_messages.parts(pickle.dumps(bytes(size)))), pipe_messages.Inbox()
        assert [inbox.add(part) for part in parts] == [False] * (len(parts) - 1) + [True]
        assert inbox.message() == bytes(size)


def test_a_wait_in_vain_says_for_what() -> None:
    """A worker that waits for a value that never arrives names it; workers can be given names."""
    with (
        WorkerPool(_cores(1), Arena(4, 0), 300.0, ["the only device"]) as pool,
        pytest.raises(HiosError, match=r"^the only device: waited 0\.2 s for the output of operator conv1$"),
    ):
        pool.call(0, tasks.wait_in_vain)


def test_workers_import_from_where_the_controller_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Workers find a module on the path of this process, but none of the folder that it is in."""
    for folder, name, text in (("here", "queue", "raise SystemExit"), ("mine", "own_tasks", "def one(_): return 1")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend("")
    monkeypatch.syspath_prepend(tmp_path / "mine")
    with WorkerPool(_cores(1), Arena(4, 0), 300.0) as pool:
        assert pool.call(0, importlib.import_module("own_tasks").one) == 1


def test_a_worker_that_does_not_start_is_named() -> None:
    """A core that does not exist ends the pool with a message instead of a hang."""
    missing = os.cpu_count() or 1
    before = set(children())
    with pytest.raises(PlatformError, match=r"^device 1 died with exit status 1 \(starting\); the run was ended$"):
        WorkerPool([*_cores(1), [missing + 1000]], Arena(4, 0), 300.0)
    assert set(children()) <= before


_CONTROLLER = """
import time
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool
from hios.workers.stream_threads import Streams
from tests.workers import tasks
pool = WorkerPool({cores}, Arena(8, 64), 600.0)
print(*(found["pid"] for found in pool.call_each(tasks.who, {{0: {{}}, 1: {{}}}}).values()), flush=True)
pool.call_each(tasks.hang, {{0: {{}}, 1: {{}}}})
"""


def test_workers_die_with_a_killed_controller() -> None:
    """Workers, busy or idle, vanish when the controller is killed and cannot clean up."""
    command = [sys.executable, "-c", _CONTROLLER.format(cores=_cores(2))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with killed(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)):
        pass


def test_devices_are_cores() -> None:
    """A device is one core, in the order in which the machine offers them."""
    usable = usable_cores()
    assert cpu.device_cores(len(usable)) == [[core] for core in usable]
    assert cpu.device_cores(1) == [[usable[0]]]


@pytest.mark.parametrize("devices", [0, -1, 10_000])
def test_wrong_numbers_of_devices_are_refused(devices: int) -> None:
    """No devices, or more than there are cores, names what is allowed."""
    allowed = len(usable_cores())
    with pytest.raises(PlatformError, match=f"platform cpu: devices: found {devices}; allowed: 1 to {allowed}"):
        cpu.device_cores(devices)


def test_platform_is_described() -> None:
    """Artifacts state platform, cores, processor and versions."""
    platform = cpu.describe(1)
    assert platform.name == "cpu"
    assert platform.cores == ((usable_cores()[0],),)
    assert platform.processor
    # Packages of torch say what they are built for in one of the two only.
    assert versions()["torch"].partition("+")[0] == torch.__version__.partition("+")[0]
