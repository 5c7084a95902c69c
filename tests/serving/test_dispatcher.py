"""The dispatcher by itself, with lanes that answer what a test has them answer."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
from hios.serving.admission import Admission, LiveTask, TaskFailedError
from hios.serving.dispatcher import Dispatcher
from hios.serving.lane import Answer, LaneEvent
from hios.serving.pipeline import Pipeline, QueueRules
from hios.workers.arena import Arena
from hios.workers.ring import Bell
from tests.serving.scenarios import chains

_LANES, _MODELS = 3, 2


class _Lane:
    """Notes the runs that it is sent."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.runs: list[int] = []
        self.answers: deque[Answer] = deque()

    def send(self, run: int, program: int, slots: Sequence[int]) -> None:
        """Note a run."""
        self.runs.append(run)

    def answer(self) -> Answer | None:
        """What the test put there."""
        return self.answers.popleft() if self.answers else None

    def clear(self) -> None:
        """Nothing to discard."""

    def ends(self, run: int, *, aborted: bool = False) -> None:
        """Answer a run."""
        self.answers.append(Answer(run, aborted, 0, 0, 0, "aborted" if aborted else ""))


def _made(pipeline: Pipeline, queues: Sequence[Admission], lanes: Sequence[_Lane], arena: Arena) -> Dispatcher:
    """A dispatcher whose thread does not run, of models of one block without values: alone on a lane, or on all."""
    nothing = SimpleNamespace(slots=[], inputs=[], outputs=[], blocks=[["operator"]])
    models = range(len(queues))
    programs: Any = SimpleNamespace(
        joined=False,
        values=[nothing for _ in models],
        slots_of=lambda members: [],
        alone={(model, 0): model for model in models},
        together={((model, 0),): (len(models), list(range(len(lanes)))) for model in models},
    )
    return Dispatcher(pipeline, programs, queues, lanes, arena, Bell(), 60.0)  # type: ignore[arg-type]


def _dispatcher() -> tuple[Dispatcher, list[_Lane], Arena]:
    """A dispatcher with all lanes up."""
    times = (((0.0,) * _LANES, (1.0,) * _LANES),) * _MODELS
    combined = tuple(((model, 0),) for model in range(_MODELS))
    pipeline = Pipeline(_LANES, (1,) * _MODELS, combined, times, times, "shared")
    queues = [Admission(f"model {model}", QueueRules(8)) for model in range(_MODELS)]
    lanes, arena = [_Lane(number) for number in range(_LANES)], Arena(1, 0)
    made = _made(pipeline, queues, lanes, arena)
    for lane in range(_LANES):
        made.event(LaneEvent(lane, "ready"))
    return made, lanes, arena


def _turn(dispatcher: Dispatcher) -> None:
    """What the thread does each time that it wakes up."""
    now = time.perf_counter()
    dispatcher._read_answers(now)
    dispatcher._take_events(now)
    dispatcher._launch(now)
    dispatcher._start_all(now)


def _sent(dispatcher: Dispatcher, model: int, number: int) -> Future[list[Any]]:
    task = LiveTask(model, (), Future(), time.perf_counter(), number=number)
    dispatcher._queues[model].put(task)
    return task.answer


def test_lanes_are_told_to_give_up_until_all_have() -> None:
    """A lane that dies in a run on three lanes: the flag stays until both others have answered, whatever else ends."""
    dispatcher, lanes, arena = _dispatcher()
    shared = _sent(dispatcher, 0, 1)
    _turn(dispatcher)
    assert [lane.runs for lane in lanes] == [[1], [1], [1]]
    dispatcher.event(LaneEvent(0, "down", "lane 0 died"))
    _turn(dispatcher)
    lanes[1].ends(1, aborted=True)
    other = _sent(dispatcher, 1, 2)
    _turn(dispatcher)
    assert [lane.runs for lane in lanes] == [[1], [1, 2], [1]]  # lane 2 is still inside an operator
    lanes[1].ends(2)
    _turn(dispatcher)
    assert other.result(0) == []
    assert arena.read(0) == 1
    dispatcher.event(LaneEvent(0, "ready"))
    later = _sent(dispatcher, 1, 3)
    _turn(dispatcher)
    assert sum(3 in lane.runs for lane in lanes) == 1  # no run on several lanes begins while the flag is set
    lanes[2].ends(1, aborted=True)
    _turn(dispatcher)
    assert arena.read(0) == 0
    with pytest.raises(TaskFailedError, match="lane 0 died"):
        shared.result(0)
    assert not later.done()


def test_an_error_of_the_dispatcher_ends_nothing_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its thread meets, all requests fail with that reason, and later ones are refused."""
    dispatcher, lanes, _ = _dispatcher()
    running, waiting = _sent(dispatcher, 0, 1), _sent(dispatcher, 1, 2)
    _turn(dispatcher)
    assert lanes[0].runs == [1]

    def failing(now: float) -> None:
        raise ValueError("no such thing")

    monkeypatch.setattr(dispatcher, "_read_answers", failing)
    dispatcher.start()
    for answer in (running, waiting):
        with pytest.raises(TaskFailedError, match="the dispatcher failed: ValueError: no such thing"):
            answer.result(60)
    assert dispatcher.lost == "the dispatcher failed: ValueError: no such thing"
    with pytest.raises(Exception, match="not taken: the dispatcher failed: ValueError: no such thing"):
        _sent(dispatcher, 0, 3)
    dispatcher.stop(drain=True)
    assert all(queue.counts.unaccounted == queue.counts.in_flight == 0 for queue in dispatcher._queues)


def test_a_run_that_starts_makes_room() -> None:
    """The place before the first block is free once a run has taken its task: the next one leaves the queue."""
    dispatcher, lanes, _ = _dispatcher()
    for number in range(1, 4):
        _sent(dispatcher, 0, number)
    _turn(dispatcher)
    assert [lane.runs for lane in lanes] == [[1]] * _LANES
    assert len(dispatcher._queues[0]) == 1
    for lane in lanes:
        lane.ends(1)
    _turn(dispatcher)
    assert [lane.runs for lane in lanes] == [[1, 2]] * _LANES
    assert len(dispatcher._queues[0]) == 0


def test_the_dispatcher_wakes_to_stop_what_hangs() -> None:
    """Where the time limit of a run ends; never for that without runs."""
    dispatcher, _, _ = _dispatcher()
    assert dispatcher._check_hanging(0.0) == math.inf
    _sent(dispatcher, 0, 1)
    _turn(dispatcher)
    (run,) = dispatcher._runs.values()
    assert dispatcher._check_hanging(run.began_s) == run.began_s + 60.0


def test_a_tick_waits_only_for_a_task_that_finds_no_room() -> None:
    """A tick without a task is lost, one that finds a task but no room waits, and is lost when the task expires."""
    queue = Admission("one", QueueRules(9, deadline_s=1.0, interval_s=1.0))
    dispatcher = _made(chains([1.5], in_flight=1), [queue], [], Arena(1, 0))
    began_s = dispatcher._began_s
    launched = []
    for after_s, arrives in (
        (0.0, False),  # a tick without a task
        (0.5, True),  # waits for the next tick
        (1.0, False),  # leaves
        (1.25, True),  # no room from here on
        (2.0, False),  # a tick that waits for room
        (2.25, False),  # the task expires
        (2.5, True),
    ):
        now = began_s + after_s
        if arrives:
            queue.put(LiveTask(0, (), Future(), now))
        queue.expire(now)
        dispatcher._launch(now)
        launched.append(dispatcher.instances.in_flight)
    assert launched == [0, 0, 1, 1, 1, 1, 1]
    assert queue.counts.expired == 1
    dispatcher.instances.drain()
    dispatcher._launch(began_s + 2.75)
    assert dispatcher.instances.in_flight == 0  # although there is room
    dispatcher._launch(began_s + 3.0)
    assert dispatcher.instances.in_flight == 1
