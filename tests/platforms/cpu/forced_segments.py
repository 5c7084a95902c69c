"""Choices of segments' runtimes that tests make in workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hios.errors import PlatformError
from hios.formats.run import SegmentResult
from hios.platforms.cpu import segment_runtimes
from hios.workers.worker import Worker

_choose = segment_runtimes.choose


def sessions(worker: Worker) -> dict[str, int]:
    """How many segments a worker has in which runtime."""
    return dict(Counter(kind for kind, _ in worker.state["sessions"]))


def choose(worker: Worker, name: str, folder: Path | None, **arguments: Any) -> list[SegmentResult]:
    """What ``segment_runtimes.choose`` does, with the last word of the task's name as the fastest runtime of all.

    What is kept is in a folder for each runtime, as it has the choice.
    """
    wanted = name.rpartition(" ")[2]

    def timed(_: Any, __: Any, computing: Mapping[str, Callable[[], object]]) -> dict[str, float]:
        return {kind: float(kind != wanted) for kind in (segment_runtimes.PACKED, *computing)}

    segment_runtimes.Converter._timed = timed  # type: ignore[method-assign, assignment]
    made = _choose(worker, name, folder=folder and folder / wanted, **arguments)
    for result in made:
        if result.runtime != wanted:
            raise PlatformError(f"{result.operators} ran in {result.runtime}: {result.refused}")
    return made
