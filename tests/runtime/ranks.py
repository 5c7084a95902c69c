"""hios as a rank of a launcher, with an operator spoilt: ``python ranks.py RANK OPERATOR HOW [ARGUMENTS OF HIOS]``."""

from __future__ import annotations

import sys

from hios.cli import main
from hios.platforms.cpu import worker as device
from hios.workers.worker import Worker
from tests.runtime.faults import spoil


def _spoiling(rank: int, operator: str, how: str) -> None:
    """Have the operator fail, hang or end its process on one rank."""
    load = device.load

    def spoilt(worker: Worker, *arguments: object) -> None:
        load(worker, *arguments)  # type: ignore[arg-type]
        if worker.number == rank:
            spoil(worker, operator, how)

    device.load = spoilt  # type: ignore[assignment]


if __name__ == "__main__":
    _spoiling(int(sys.argv[1]), *sys.argv[2:4])
    sys.argv[1:] = sys.argv[4:]
    main()
