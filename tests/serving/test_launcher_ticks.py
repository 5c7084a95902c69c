"""Ticks of the launcher beside lanes: the same as in the simulator."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

from hios.serving.admission import Admission, LiveTask
from hios.serving.dispatcher import Dispatcher
from hios.serving.pipeline import QueueRules
from hios.serving.run_programs import RunPrograms
from tests.serving.scenarios import chains


def _dispatcher(queue: Admission) -> Dispatcher:
    """A dispatcher of one model without values, one task in flight and a tick every second; it is not started."""
    pipeline = chains([1.5], in_flight=1)
    values: Any = [SimpleNamespace(blocks=((0,),), slots=(), inputs=(), outputs=())]
    programs = cast(RunPrograms, SimpleNamespace(values=values))
    nothing: Any = None
    return Dispatcher(pipeline, programs, [queue], [], nothing, nothing, 60.0)


def _put(queue: Admission, arrived_s: float) -> None:
    queue.put(LiveTask(0, (), Future(), arrived_s))


def test_a_tick_waits_only_for_a_task_that_finds_no_room() -> None:
    """A tick without a task is lost, one that finds a task but no room waits, and is lost when the task expires."""
    queue = Admission("one", QueueRules(9, deadline_s=1.0, interval_s=1.0))
    dispatcher = _dispatcher(queue)
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
            _put(queue, now)
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
