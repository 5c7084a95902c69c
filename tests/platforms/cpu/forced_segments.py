"""Choices of segments' runtimes that tests make in workers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from hios.errors import PlatformError
from hios.formats.run import SegmentResult
from hios.platforms.cpu import segment_runtimes
from hios.workers.worker import Worker

#: Environment variable that names the runtime.
RUNTIME = "HIOS_TEST_RUNTIME"
_timed, _choose = segment_runtimes.Converter._timed, segment_runtimes.choose


def sessions(worker: Worker) -> dict[str, int]:
    """How many segments a worker has in which runtime."""
    return dict(Counter(kind for kind, _ in worker.state["sessions"]))


def choose(worker: Worker, **arguments: Any) -> list[SegmentResult]:
    """What ``segment_runtimes.choose`` does, with the runtime named in the environment as the fastest of all."""
    wanted = os.environ[RUNTIME]

    def timed(own: Any, segment: Any, computing: Mapping[str, Callable[[], object]]) -> dict[str, float]:
        return {kind: taken if kind != wanted else 0.0 for kind, taken in _timed(own, segment, computing).items()}

    segment_runtimes.Converter._timed = timed  # type: ignore[method-assign, assignment]
    made = _choose(worker, **arguments)
    for result in made:
        if result.runtime != wanted:
            raise PlatformError(f"{result.operators} ran in {result.runtime}: {result.refused}")
    return made
