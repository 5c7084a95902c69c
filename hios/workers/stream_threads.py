"""Streams of a cpu device: threads that run groups or streams beside each other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import torch

#: Gets None, or the error, of every function as it finishes.
Done = SimpleQueue[BaseException | None]
_Work = tuple[Callable[[], None], Done]


class Streams:
    """Runs functions beside each other, each on a thread of its own.

    Threads start when first needed and stay; each uses one thread inside its operators.
    """

    def __init__(self) -> None:
        self._work: list[SimpleQueue[_Work]] = []

    def start(self, functions: Sequence[Callable[[], None]]) -> Done:
        """Start all functions, each on a thread of its own, the same for its place in every call.

        Returns:
            A queue that gets None, or the error, of every function as it finishes.
        """
        done: Done = SimpleQueue()
        while len(self._work) < len(functions):
            self._start_thread()
        for queue, function in zip(self._work, functions, strict=False):
            queue.put((function, done))
        return done

    def run(self, functions: Sequence[Callable[[], None]]) -> None:
        """Run all functions, the first on the calling thread, and return when the last has finished.

        The first error is raised.
        """
        done = self.start(functions[1:])
        errors = [_attempt(functions[0]), *(done.get() for _ in functions[1:])]
        for error in errors:
            if error is not None:
                raise error

    def _start_thread(self) -> None:
        queue: SimpleQueue[_Work] = SimpleQueue()
        threading.Thread(target=_serve, args=(queue,), daemon=True).start()
        self._work.append(queue)


def _serve(queue: SimpleQueue[_Work]) -> None:
    torch.set_num_threads(1)
    with torch.inference_mode():
        while True:
            function, done = queue.get()
            done.put(_attempt(function))


def _attempt(function: Callable[[], None]) -> BaseException | None:
    try:
        function()
    except BaseException as error:  # handed to the caller of run, whatever it is
        return error
    return None
