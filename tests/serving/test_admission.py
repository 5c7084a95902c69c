"""Queues by themselves."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import Future

import pytest

pytest.importorskip("torch")
from hios.serving.admission import Admission, LiveTask
from hios.serving.pipeline import QueueRules


def test_answered_requests_are_freed_at_once() -> None:
    """A request and its answer do not hold each other: with their tensors, they would wait for a full collection."""
    queue = Admission("one", QueueRules(1))
    gc.disable()
    try:
        task = LiveTask(0, (), Future(), 0.0)
        held = weakref.ref(task)
        queue.put(task)
        assert queue.take() is task
        task.answer.set_result([])
        queue.end(failed=False)
        del task
        assert held() is None
    finally:
        gc.enable()


def test_a_request_that_is_given_up_frees_its_place() -> None:
    """Another one may take it, and it counts as dropped."""
    queue = Admission("one", QueueRules(1))
    first, second = (LiveTask(0, (), Future(), 0.0, number=number) for number in (1, 2))
    queue.put(first)
    assert first.answer.cancel()
    queue.put(second)
    assert queue.take() is second
    assert queue.counts.dropped == 1
    assert queue.counts.unaccounted == 0
