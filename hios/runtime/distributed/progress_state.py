"""What a rank is doing, for error messages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hios.kernels import CompiledOperator


class ProgressState:
    """What a rank is doing. Written by the threads that run the schedule; read by the one that reports.

    Attributes:
        doing: what is being done, in words, such as the name of the schedule that runs.
        stages: stage of every operator of this rank in that schedule.
        waiting: what this rank waits for, in words, and the rank that must send it; None while it does not wait.
    """

    def __init__(self) -> None:
        self.doing = "starting"
        self.stages: Mapping[str, int | None] = {}
        self.waiting: tuple[str, int] | None = None
        self._running: dict[str, None] = {}
        self._last = ""

    def text(self) -> str:
        """In words: schedule, stage, operator, and what it waits for."""
        running = next(iter(dict(self._running)), "")
        waiting = self.waiting
        parts = [self.doing]
        if running:
            parts.append(self._place(running))
        elif waiting is not None:
            parts.append(f"waiting for {waiting[0]}")
        elif self._last:
            parts.append(f"behind {self._place(self._last)}")
        return ": ".join(parts)

    def waits_for(self) -> int | None:
        """The rank that this one waits for; None if it is busy."""
        waiting = self.waiting
        return None if waiting is None else waiting[1]

    @contextmanager
    def wait(self, what: str, rank: int) -> Iterator[None]:
        """A context in which this rank waits for another one."""
        self.waiting = what, rank
        yield  # not reset after an error, as it shows where the rank failed
        self.waiting = None

    def enter(self, doing: str, stages: Mapping[str, int | None] | None = None) -> None:
        """Record that something else begins."""
        self.doing, self.stages, self._last = doing, stages or {}, ""

    def watched(self, operator: CompiledOperator, progress: Callable[[], None]) -> CompiledOperator:
        """An operator that records when it runs, and lets messages progress after it.

        ``progress`` is called after the operator if that runs on the thread that calls this method.
        """
        run, name, running, caller = operator.run, operator.id, self._running, threading.get_ident()

        def call(*tensors: Any) -> Any:
            running[name] = None
            try:
                result = run(*tensors)
            finally:
                del running[name]
                self._last = name
            if threading.get_ident() == caller:
                progress()
            return result

        return replace(operator, run=call)

    def _place(self, operator: str) -> str:
        stage = self.stages.get(operator)
        return f"operator {operator}" if stage is None else f"operator {operator}, stage {stage}"
