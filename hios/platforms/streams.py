"""Streams of a cpu device: threads that run the groups of a stage beside each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import torch


class Streams:
    """Runs functions beside each other: the first on the calling thread, each other on a thread of its own.

    Threads start when first needed and stay; each uses one thread inside its operators.
    """

    def __init__(self) -> None:
        self._work: list[SimpleQueue[Callable[[], None]]] = []
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()

    def run(self, functions: Sequence[Callable[[], None]]) -> None:
        """Run all functions and return when the last has finished; the first error is raised."""
        while len(self._work) < len(functions) - 1:
            self._start_thread()
        for queue, function in zip(self._work, functions[1:], strict=False):
            queue.put(function)
        errors = [_attempt(functions[0]), *(self._done.get() for _ in functions[1:])]
        for error in errors:
            if error is not None:
                raise error

    def _start_thread(self) -> None:
        queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._work.append(queue)
        threading.Thread(target=self._serve, args=(queue,), daemon=True).start()

    def _serve(self, queue: SimpleQueue[Callable[[], None]]) -> None:
        torch.set_num_threads(1)
        with torch.inference_mode():
            while True:
                self._done.put(_attempt(queue.get()))


def _attempt(function: Callable[[], None]) -> BaseException | None:
    try:
        function()
    except BaseException as error:  # handed to the caller of run, whatever it is
        return error
    return None
