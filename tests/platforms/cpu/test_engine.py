"""The persistent executor: outputs, lifetimes, and that nothing remains after it is closed."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from hios.core.schedule import StreamPlan
from hios.errors import FailedCallError, HiosError, PlatformError
from hios.machine.description import usable_cores
from hios.platforms.cpu import engine as engine_module
from hios.platforms.cpu import worker as device
from hios.platforms.cpu.engine import Engine, Task
from hios.platforms.cpu.segment_runtimes import Choosing
from hios.platforms.program import ABORT
from hios.workers.arena import ABORTED, Arena
from hios.workers.pool import WorkerPool
from tests.runtime import faults
from tests.runtime.small import (
    alternating,
    branches,
    image,
    require_right,
    require_right_run,
    sequential,
    small_engine,
)
from tests.workers.processes import children, eventually, killed, running

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """An engine for tests that leave it as it is."""
    with small_engine() as made:
        yield made


def _alone() -> Engine:
    """One with a single worker, for tests that end it."""
    network = branches()
    return Engine(network.graph, network.tensors, {"first": Task(sequential())}, [[usable_cores()[0]]], 120.0)


@pytest.mark.parametrize("name", ["first", "second", "both"])
def test_outputs_are_those_of_the_model(engine: Engine, name: str) -> None:
    """Every task computes what the model does, for inputs that change from call to call."""
    for seed in range(5):
        require_right_run(engine, name, seed)


def test_operators_may_take_several_devices() -> None:
    """A plan whose operators take both devices runs too, whichever workers the devices are."""
    network, (first, *_, last) = branches(), [*usable_cores(), usable_cores()[0]]
    order = tuple(network.graph.order)
    plan = StreamPlan(((order,), (order[1:],)), order, dict.fromkeys(order[1:], (0, 1)))
    tasks = {"wide": Task(plan), "turned": Task(plan, (1, 0))}
    with Engine(network.graph, network.tensors, tasks, [[first], [last]]) as made:
        for name in tasks:
            for seed in range(3):
                require_right_run(made, name, seed)


def _refusing_tasks() -> dict[str, Task]:
    """Plans of all kinds on two devices, in each of which a device waits for the other."""
    order = tuple(branches().graph.order)
    streams = StreamPlan(((order[:2], order[3:]), (order[2:3],)), order)
    wide = StreamPlan(((order,), (order[1:],)), order, dict.fromkeys(order[1:], (0, 1)))
    return {
        "stages": Task(alternating()),
        "streams": Task(streams),
        "turned": Task(streams, (1, 0)),
        "wide": Task(wide),
    }


def test_a_failed_operator_leaves_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator that refuses its values ends that call alone, named, whatever else waits for it meanwhile."""
    monkeypatch.setattr(device, "load", faults.load_refusing)
    network, cores, before = branches(), usable_cores(), set(children())
    with Engine(network.graph, network.tensors, _refusing_tasks(), [[cores[0]], [cores[-1]]], 120.0) as made:
        workers = set(children()) - before
        for name in (*_refusing_tasks(), *_refusing_tasks()):
            for call in (made.run, made.timeline):
                with pytest.raises(
                    FailedCallError, match=rf"worker \d: operator {network.graph.operators[1].id}.*: too"
                ):
                    call(name, (image(0)[0] * faults.LARGE,))
            require_right_run(made, name, 1)
        assert set(children()) - before == workers


def test_outputs_belong_to_the_caller(engine: Engine) -> None:
    """A later call leaves the outputs of an earlier one as they were."""
    (first,) = engine.run("both", image(1))
    kept = first.clone()
    engine.run("both", image(2))
    assert torch.equal(first, kept)


def test_inputs_need_not_be_contiguous(engine: Engine) -> None:
    """Inputs in another order in memory, views and lazily negated ones are read as they are meant."""
    (plain,) = image(3)
    turned = plain.contiguous(memory_format=torch.channels_last)
    negated = torch._neg_view(-plain)
    assert not turned.is_contiguous()
    assert negated.is_neg()
    for value in (turned, negated, plain.transpose(2, 3).contiguous().transpose(2, 3)):
        (output,) = engine.run("first", (value,))
        require_right(output, plain)


@pytest.mark.parametrize(
    ("inputs", "shown"),
    [
        ((torch.zeros(2, 3, 16, 16),), "float32 [2, 3, 16, 16]"),
        ((torch.zeros(1, 3, 16, 16).double(),), "float64 [1, 3, 16, 16]"),
        ((), "none"),
    ],
)
def test_other_inputs_are_refused(engine: Engine, inputs: tuple[Tensor, ...], shown: str) -> None:
    """Inputs of another shape, dtype or number are refused in one line, and the engine goes on."""
    with pytest.raises(PlatformError) as error:
        engine.run("first", inputs)
    assert str(error.value) == f"inputs: found {shown}; allowed: float32 [1, 3, 16, 16], on the CPU"
    require_right_run(engine, "first", 4)


def test_tasks_that_do_not_fit_are_refused() -> None:
    """A task that is added may need no more devices or flags than the engine has; one that fits still runs."""
    network, cores = branches(), [[usable_cores()[0]], [usable_cores()[-1]]]
    order, choosing = tuple(network.graph.order), Choosing(image(0), None, 0.0)
    turns = {place: ((0, 1), (1, 0))[number % 2] for number, place in enumerate(order)}
    wide = Task(StreamPlan(((order,), (order,)), order, turns))
    with Engine(network.graph, network.tensors, {"one": Task(sequential())}, cores[:1], choosing=choosing) as made:
        with pytest.raises(PlatformError, match=r"^task both: found 2 devices; allowed: at most 1$"):
            made.add("both", Task(alternating()), network.tensors, choosing)
        require_right_run(made, "one", 0)
    with Engine(network.graph, network.tensors, {"one": Task(alternating())}, cores, choosing=choosing) as made:
        with pytest.raises(PlatformError, match=r"^task wide: needs more shared memory than this engine has; allowed"):
            made.add("wide", wide, network.tensors, choosing)
        made.add("both", Task(alternating(), (1, 0)), network.tensors, choosing)
        require_right_run(made, "both", 1)


def test_a_task_that_fails_while_it_is_recorded_is_released() -> None:
    """Nothing of it stays in the workers."""
    worker: Any = SimpleNamespace(state={"programs": {"a": None, "b": None}, "segments": {"a": []}})
    device.forget(worker, ["a"])
    assert worker.state == {"programs": {"b": None}, "segments": {}}


def test_threads_take_turns(engine: Engine) -> None:
    """Calls from several threads at once each get the outputs of their own inputs."""
    failed: list[BaseException] = []

    def call(seed: int) -> None:
        try:
            for number in range(10):
                require_right_run(engine, "both", 100 * seed + number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_a_forked_process_is_refused(engine: Engine) -> None:
    """In a forked process the engine refuses in one line, and goes on in its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            engine.run("first", image(0))
        except PlatformError as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        message = stream.read()
    os.waitpid(child, 0)
    assert message.startswith(f"this engine belongs to process {os.getpid()}; allowed: to use it there")
    assert "\n" not in message
    require_right_run(engine, "both", 5)


def test_a_forked_process_closes_nothing(engine: Engine) -> None:
    """Nor does it wait for a call that runs in the process that it is a copy of."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with engine._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        try:
            engine.close()
        finally:
            os._exit(0)
    ended = eventually(lambda: os.waitpid(child, os.WNOHANG)[0] == child, 60.0)
    done.set()
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended
    thread.join()
    require_right_run(engine, "both", 6)


def test_only_waits_that_were_aborted_leave_all_intact(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that hangs while an operator of another worker fails still runs: the engine must not go on."""
    arena = Arena(1, 0)
    arena.write(ABORT, 1)
    worker: Any = SimpleNamespace(arena=arena)
    for error, answer in ((PlatformError(ABORTED), ABORTED), (FailedCallError("operator a: no"), "operator a: no")):
        monkeypatch.setattr(device, "run", Mock(side_effect=error))
        assert engine_module.run_quietly(worker, "net", 1, timed=False) == answer
    monkeypatch.setattr(device, "run", Mock(side_effect=PlatformError("operator a did not end")))
    with pytest.raises(PlatformError, match="did not end"):
        engine_module.run_quietly(worker, "net", 1, timed=False)


def test_what_is_gone_is_refused() -> None:
    """A task that was dropped while a call waited; after close the workers, which closing again does not change."""
    before = set(children())
    made = small_engine()
    assert len(set(children()) - before) == 2
    made.keep_only("second")
    with pytest.raises(PlatformError, match=r"^this engine has no task first any more; allowed: second$"):
        made.run("first", image(0))
    require_right_run(made, "second", 3)
    made.close()
    made.close()
    assert set(children()) <= before
    assert made.closed
    with pytest.raises(PlatformError, match="closed; make another one"):
        made.run("first", image(0))


def test_a_forgotten_engine_ends() -> None:
    """The workers of an engine end when nothing refers to it any longer."""
    before = set(children())
    made = _alone()
    del made
    gc.collect()
    assert eventually(lambda: set(children()) <= before)


def test_weights_have_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While workers load them, weights lie in no file that a killed program would leave behind."""
    seen: dict[str, list[Path]] = {}

    class Pool(WorkerPool):
        def call_each(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> dict[int, Any]:
            seen[function.__name__] = list(tmp_path.iterdir())
            return super().call_each(function, *arguments, **keywords)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(engine_module, "WorkerPool", Pool)
    _alone().close()
    assert seen == {"load": [], "prepare": []}


def test_a_dead_worker_closes_the_engine() -> None:
    """A worker that is killed ends a call with a line that names it, and the engine with it."""
    before = set(children())
    made = _alone()
    (worker,) = set(children()) - before
    os.kill(worker, signal.SIGKILL)
    with pytest.raises(HiosError, match=r"worker \d.* died by signal SIGKILL"):
        made.run("first", image(0))
    assert made.closed
    assert set(children()) <= before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "message"),
    [
        (
            faults.load_dying_at_the_end,
            "worker 0 died by signal SIGKILL (run_quietly), last at {at}; the machine may be out of memory; ",
        ),
        (faults.load_hanging_at_the_end, "worker 0 did not answer within 10 s (run_quietly), last at {at}; "),
    ],
)
def test_operator_and_stage_are_named(load: Callable[..., None], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that dies or hangs ends a call with a line that names the operator and the stage that it was at."""
    monkeypatch.setattr(device, "load", load)
    graph = branches().graph
    at = f"operator {graph.operators[-1].id}, stage {list(graph.order).index(len(graph.operators) - 1)}"
    before = set(children())
    made = _alone()
    if load is faults.load_hanging_at_the_end:
        made._pool.timeout_s = 10.0  # only now, as loading may take longer
    with pytest.raises(PlatformError) as error:
        made.run("first", image(0))
    assert str(error.value) == f"{message.format(at=at)}the run was ended"
    assert made.closed
    assert set(children()) <= before


def test_an_interrupt_closes_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted call ends the workers, as nobody would take their answers."""
    before = set(children())
    made = _alone()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(made._pool, "call_each", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.run("first", image(0))
    assert made.closed
    assert set(children()) <= before


def _process(end: str) -> subprocess.Popen[str]:
    branches()  # which the process then reads
    command = [sys.executable, "-m", "tests.platforms.cpu.engine_process", end]
    return subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interrupted_start_leaves_no_workers(workers: int) -> None:
    """Workers of an engine that is interrupted while the first one starts are gone, though the program goes on."""
    with _process("interrupted") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "starts\n"
        assert eventually(lambda: len(children(process.pid, servers_too=True)) >= workers)
        started = children(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert eventually(lambda: not any(map(running, {*started, *children(process.pid)})))
        assert process.poll() is None
        process.stdin.write("\n")


@pytest.mark.slow
def test_workers_outlive_the_thread_that_made_them() -> None:
    """An engine made in a thread that has ended runs, and its workers end when the program does."""
    with _process("exit") as process:
        output, _ = process.communicate(timeout=300)
    workers, outputs = output.splitlines()
    assert process.returncode == 0
    assert outputs == "1"
    assert eventually(lambda: not any(map(running, map(int, workers.split()))))


@pytest.mark.slow
def test_workers_end_with_a_killed_process() -> None:
    """Workers that sleep when their process is killed end too."""
    with killed(_process("wait")):
        pass
