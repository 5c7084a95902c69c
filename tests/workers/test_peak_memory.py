"""Peak memory of workers during a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hios.machine.description import usable_cores
from hios.workers.arena import Arena
from hios.workers.pool import WorkerPool, peak_bytes
from tests.workers.tasks import hold_briefly

_MB = 1_000_000

pytestmark = pytest.mark.skipif(
    not os.access(f"/proc/{os.getpid()}/clear_refs", os.W_OK) or not Path("/proc/self/smaps_rollup").exists(),
    reason="the system does not count peaks of processes",
)


def test_the_peak_of_one_run() -> None:
    """What a run holds for a moment counts, what an earlier one held does not; other workers do not count."""
    with WorkerPool([usable_cores()[:1]] * 2, Arena(16, 0), 60.0) as pool:

        def peak(size: int, workers: tuple[int, ...] = (0,)) -> int:
            peaks = peak_bytes(
                pool, workers, lambda: pool.call_each(hold_briefly, {worker: {"size": size} for worker in workers})
            )
            assert peaks is not None
            return peaks

        small, large, again = peak(1 * _MB), peak(200 * _MB), peak(1 * _MB)
        assert 150 * _MB < large - small < 250 * _MB
        assert abs(again - small) < 50 * _MB
        assert peak(200 * _MB, (0, 1)) > 1.5 * large
