"""Streams of a device: threads that run groups side by side."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch

from hios.workers.stream_threads import Streams


def test_each_stream_has_a_thread_that_stays() -> None:
    """The first function runs on the caller's thread, each other on one of its own, the same in every run."""
    streams = Streams()
    seen: list[dict[int, int]] = []
    for count in (3, 2, 3):
        threads: dict[int, int] = {}
        streams.run([_noting(threads, number) for number in range(count)])
        seen.append(threads)
    assert seen[0][0] == threading.get_ident()
    assert len(set(seen[0].values())) == 3
    assert seen[2] == seen[0]
    assert seen[1] == {0: seen[0][0], 1: seen[0][1]}


def _noting(threads: dict[int, int], number: int) -> Callable[[], None]:
    def run() -> None:
        threads[number] = threading.get_ident()

    return run


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_is_raised_after_all_have_finished(failing: int) -> None:
    """Whichever stream fails, the others finish first, and the next run is not affected."""
    streams = Streams()
    done: list[int] = []
    gate = threading.Event()

    def step(number: int) -> Callable[[], None]:
        def run() -> None:
            if number == failing:
                gate.set()
                raise ValueError(f"stream {number}")
            gate.wait(60)
            done.append(number)

        return run

    with pytest.raises(ValueError, match=f"stream {failing}"):
        streams.run([step(number) for number in range(3)])
    assert sorted(done) == [number for number in range(3) if number != failing]
    streams.run([lambda: done.append(7), lambda: done.append(8)])
    assert sorted(done)[2:] == [7, 8]


@pytest.mark.parametrize(("functions", "expected"), [(1, [4]), (2, [2, 2]), (3, [2, 1, 1]), (6, [1] * 6)])
def test_streams_share_the_cores_of_a_device(functions: int, expected: list[int]) -> None:
    """Operators of functions that run side by side use equal parts of the cores, then the caller has all again."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        streams, threads = Streams(4), dict[int, int]()

        def note(number: int) -> Callable[[], None]:
            return lambda: threads.update({number: torch.get_num_threads()})

        for _ in range(2):
            streams.run([note(number) for number in range(functions)])
            assert [threads[number] for number in range(functions)] == expected
            assert torch.get_num_threads() == 4
        done = streams.start([note(10 + number) for number in range(functions)])
        assert [done.get() for _ in range(functions)] == [None] * functions
        assert [threads[10 + number] for number in range(functions)] == expected
    finally:
        torch.set_num_threads(before)
