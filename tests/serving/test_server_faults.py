"""What goes wrong while requests are served stays with the request, or with the lane, that it happens to."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hios.errors import HiosError
from hios.serving import lane, lane_worker
from hios.serving.admission import LiveTask, TaskFailedError
from hios.serving.lane import LaneEvent, LaneProcess
from hios.serving.server import Server
from hios.workers.arena import Layout
from hios.workers.pool import WorkerPool
from tests.serving import lane_faults
from tests.serving.served import ask_both, inputs, require_nothing_held, require_right, scenario
from tests.workers.processes import children, eventually, running

_COMBINED = [{"branches": [0], "blocks": [0]}, {"branches": [1], "blocks": [1]}]


@pytest.fixture(scope="module", params=["top", pytest.param("one-per-lane", marks=pytest.mark.slow)])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose operators fail for large inputs: on both lanes at once, and each lane on its own."""
    before = set(children())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lane_worker, "prepare", lane_faults.prepare)
        given = scenario(tmp_path_factory.mktemp("faults"), top={"combined": _COMBINED})
        with Server(given, request.param, virtual=True) as made:
            yield made
    assert set(children()) <= before


def _is_told(server: Server, lane: int, victim: int) -> bool:
    """Whether the server has noticed the death of a lane, to which it sends requests until then."""
    return server.lanes_up < 2 or server.process_ids[lane] not in (0, victim)


def test_an_operator_that_raises_fails_its_own_task(server: Server) -> None:
    """The task fails with the operator's name; those beside it, in the same combined block too, are right."""
    before = server.counts["branches"].failed
    for number in range(5):
        good = [(label, inputs(label, number)) for label in ("blocks", "branches", "blocks")]
        bad = inputs("branches", number, scale=lane_faults.RAISES)
        answers = [server.submit(label, given) for label, given in good]
        answers.insert(1, server.submit("branches", bad))
        with pytest.raises(TaskFailedError, match=r"^model branches: operator \S+: no such kernel$"):
            answers.pop(1).result(60)
        for (label, given), answer in zip(good, answers, strict=True):
            require_right(label, given, answer.result(60))
    assert server.counts["branches"].failed == before + 5
    require_nothing_held(server)


def test_numbers_that_are_none_stay_with_their_task(server: Server) -> None:
    """An operator that makes NaN gives its task NaN, as it would alone; slots that held it give the next task none."""
    for number in range(3):
        bad = server.submit("blocks", inputs("blocks", number, scale=lane_faults.MAKES_NAN))
        given = inputs("blocks", number)
        good = server.submit("blocks", given)
        assert torch.isnan(bad.result(60)[0]).any()
        require_right("blocks", given, good.result(60))
    ask_both(server, 4, 10)


def test_a_killed_lane_comes_back(server: Server) -> None:
    """A lane that is killed while it is idle, or by what it runs, fails what it ran alone, and is started again."""
    victim = server.process_ids[1]
    os.kill(victim, signal.SIGKILL)
    assert eventually(partial(_is_told, server, 1, victim))
    ask_both(server, 4, 20)  # the other lane serves both models meanwhile
    assert eventually(lambda: server.lanes_up == 2)  # within 5 s on an idle machine: benchmarks/serving_soak.py
    assert victim not in server.process_ids
    failed = server.counts["branches"].failed
    bad = server.submit("branches", inputs("branches", 0, scale=lane_faults.DIES))
    with pytest.raises(
        TaskFailedError, match=r"^model branches: lane \d died by signal SIGKILL .*operator \S+ of model branches"
    ):
        bad.result(60)
    ask_both(server, 4, 30)
    assert server.counts["branches"].failed == failed + 1
    assert eventually(lambda: server.lanes_up == 2)
    ask_both(server, 4, 40)
    require_nothing_held(server)


@pytest.mark.slow
def test_lanes_killed_again_and_again_under_load(server: Server) -> None:
    """Whatever is killed when, every request is answered or fails, no other answer is wrong, and nothing is held."""
    over, wrong = threading.Event(), []
    answered = {"right": 0, "failed": 0}

    def ask(label: str) -> None:
        number = 0
        while not over.is_set():
            given, number = inputs(label, number), number + 1
            try:
                require_right(label, given, server.infer(label, given, timeout_s=60))
                answered["right"] += 1
            except TaskFailedError:
                answered["failed"] += 1
            except BaseException as error:
                wrong.append(error)
                return

    def have_answered(right: int) -> bool:
        return answered["right"] >= right or bool(wrong)

    asking = [threading.Thread(target=ask, args=(label,)) for label in ("branches", "blocks")]
    for thread in asking:
        thread.start()
    try:
        for lane in (0, 1):
            assert eventually(partial(have_answered, answered["right"] + 10))
            if pid := server.process_ids[lane]:
                os.kill(pid, signal.SIGKILL)
                assert eventually(partial(_is_told, server, lane, pid))
            assert eventually(lambda: server.lanes_up == 2)
    finally:
        over.set()
        for thread in asking:
            thread.join()
    assert wrong == []
    assert answered["right"] > answered["failed"]
    require_nothing_held(server)


@pytest.mark.parametrize("change", ["larger", "smaller", "gone"])
def test_inputs_that_change_while_they_wait(server: Server, change: str) -> None:
    """A request whose inputs are not those that were accepted fails alone."""
    blocked, given = threading.Event(), inputs("blocks", 0)
    queue = server._queues[1]
    take = queue.take

    def late() -> LiveTask | None:
        assert blocked.wait(60)
        return take()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queue, "take", late)
        answer = server.submit("blocks", given)
        if change == "gone":
            given.clear()
        else:
            given[0].resize_(1, 3, 12, 24 if change == "larger" else 6)
        blocked.set()
        with pytest.raises(TaskFailedError, match="model blocks: inputs: "):
            answer.result(60)
    ask_both(server, 4, 50)
    require_nothing_held(server)


def test_an_error_of_a_watcher_is_told(tmp_path: Path) -> None:
    """What the caller's own function raises ends the server, not silently: requests fail, others are refused."""

    def watch(*_: object) -> None:
        raise ValueError("wrong")

    with Server(scenario(tmp_path, {"blocks": {}}, lanes=1), "one-per-lane", virtual=True, watch=watch) as server:
        with pytest.raises(TaskFailedError, match="the dispatcher failed: ValueError: wrong"):
            server.infer("blocks", inputs("blocks", 0), timeout_s=60)
        assert server.lost == "the dispatcher failed: ValueError: wrong"
        with pytest.raises(HiosError, match="the dispatcher failed: ValueError: wrong"):
            server.submit("blocks", inputs("blocks", 0))


@pytest.mark.slow
def test_a_lane_that_hangs_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that exceeds its time limit fails its task, and the lane is restarted."""
    monkeypatch.setattr(lane_worker, "prepare", lane_faults.prepare)
    given = scenario(tmp_path, {"blocks": {}}, lanes=1)
    with Server(given, "one-per-lane", virtual=True, timeout_s=10.0) as server:
        with pytest.raises(TaskFailedError, match=r"^model blocks: it did not end within 10 s$"):
            server.infer("blocks", inputs("blocks", 0, scale=lane_faults.HANGS), timeout_s=60)
        value = inputs("blocks", 1)
        require_right("blocks", value, server.infer("blocks", value, timeout_s=300))  # once the lane is back
        require_nothing_held(server)


@pytest.mark.slow
def test_a_lane_that_cannot_start_ends_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong at the first start is an error of the constructor, in one line, and no process is left."""
    monkeypatch.setattr(lane_worker, "prepare", lane_faults.prepare_failing)
    before = set(children())
    with pytest.raises(HiosError, match=r"^lane \d: no such kernel$"):
        Server(scenario(tmp_path), "one-per-lane", virtual=True)
    assert set(children()) <= before


def test_a_lane_that_is_stopped_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker is given nothing to load, which may take minutes: nobody could tell it to end before it was there."""
    own, events = LaneProcess(0, [0], Layout(), 1, 8), list[LaneEvent]()

    @contextlib.contextmanager
    def started() -> Iterator[SimpleNamespace]:
        own.stop()
        yield SimpleNamespace(process_ids=[0])  # what is asked of it fails, which would be told

    monkeypatch.setattr(own, "_started", started)
    own.start(events.append)
    own.join()
    assert events == []


def test_a_lane_without_files_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot be started, as with too many open files, is one failed start; anything else ends a lane."""
    starts = ["no files", "no files", "as usual", "fails"]

    def pool(*arguments: Any, **more: Any) -> WorkerPool:
        how = starts.pop(0)
        if how == "fails":
            raise ValueError("wrong\nsecond line")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Not 0, with which no other thread could poll the files that it has.
        resource.setrlimit(resource.RLIMIT_NOFILE, (3 if how == "no files" else soft, hard))
        try:
            return WorkerPool(*arguments, **more)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with Server(scenario(tmp_path, lanes=1), "one-per-lane", virtual=True) as server:
        monkeypatch.setattr(lane, "WorkerPool", pool)
        os.kill(server.process_ids[0], signal.SIGKILL)
        assert eventually(lambda: starts == ["fails"] and server.lanes_up == 1)
        value = inputs("blocks", 1)
        require_right("blocks", value, server.infer("blocks", value, timeout_s=60))
        os.kill(server.process_ids[0], signal.SIGKILL)
        assert eventually(lambda: bool(server.lost))
        assert server.lost == "lane 0 failed: ValueError: wrong"


@pytest.mark.slow
def test_other_lanes_go_on_without_one_that_never_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that fails to start again and again is lost; the others answer, and with the last one the server ends.

    What waits fails then, and requests are refused.
    """
    with Server(scenario(tmp_path, lanes=2), "one-per-lane", virtual=True) as server:
        monkeypatch.setattr(lane_worker, "prepare", lane_faults.prepare_failing)
        os.kill(server.process_ids[0], signal.SIGKILL)
        assert eventually(lambda: server._dispatcher._gone == {0})
        for seed in range(3):
            value = inputs("blocks", seed)
            require_right("blocks", value, server.infer("blocks", value, timeout_s=60))
        assert (server.lanes_up, server.lost) == (1, "")
        os.kill(server.process_ids[1], signal.SIGKILL)
        assert eventually(lambda: bool(server.lost))
        assert server.lost == "lane 1: no such kernel"
        with pytest.raises(HiosError, match="no such kernel"):
            server.submit("blocks", inputs("blocks", 0))
    assert not any(map(running, filter(None, server.process_ids)))
