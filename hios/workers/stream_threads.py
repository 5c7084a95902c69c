"""Streams of a cpu device: threads that run groups or streams concurrently and share its cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import torch

#: Gets None, or the error, of every function as it finishes.
Done = SimpleQueue[BaseException | None]
#: A function, the queue that it reports its end to, and the number of threads of its operators.
_Work = tuple[Callable[[], None], Done, int]


class Streams:
    """Runs functions concurrently, each on a thread of its own.

    Threads start when first needed and stay. Functions that run concurrently share the cores of the device:
    operators of each use an equal part of them, and at least one.
    """

    def __init__(self, cores: int = 1) -> None:
        self._cores = cores
        self._work: list[SimpleQueue[_Work]] = []

    def start(self, functions: Sequence[Callable[[], None]]) -> Done:
        """Start all functions, each on its own thread; the thread at each position is the same in every call."""
        return self._start(functions, self._shares(len(functions)))

    def run(self, functions: Sequence[Callable[[], None]]) -> None:
        """Run all functions, the first on the calling thread, and return when the last has finished.

        The first error is raised.
        """
        own, *others = self._shares(len(functions))
        done = self._start(functions[1:], others)
        if own < self._cores:
            torch.set_num_threads(own)
        errors = [_attempt(functions[0]), *(done.get() for _ in others)]
        if own < self._cores:
            torch.set_num_threads(self._cores)
        for error in errors:
            if error is not None:
                raise error

    def _shares(self, functions: int) -> list[int]:
        """Intra-operator threads for each of several functions."""
        each, more = divmod(self._cores, functions)
        return [max(1, each + (number < more)) for number in range(functions)]

    def _start(self, functions: Sequence[Callable[[], None]], threads: Sequence[int]) -> Done:
        done: Done = SimpleQueue()
        while len(self._work) < len(functions):
            self._start_thread()
        for queue, function, own in zip(self._work, functions, threads, strict=False):
            queue.put((function, done, own))
        return done

    def _start_thread(self) -> None:
        queue: SimpleQueue[_Work] = SimpleQueue()
        threading.Thread(target=_serve, args=(queue,), daemon=True).start()
        self._work.append(queue)


def _serve(queue: SimpleQueue[_Work]) -> None:
    threads = torch.get_num_threads()  # else torch would set it later, to what another thread has asked for
    with torch.inference_mode():
        while True:
            function, done, wanted = queue.get()
            if wanted != threads:
                torch.set_num_threads(wanted)
                threads = wanted
            done.put(_attempt(function))


def _attempt(function: Callable[[], None]) -> BaseException | None:
    try:
        function()
    except BaseException as error:  # handed to the caller of run, whatever it is
        return error
    return None
