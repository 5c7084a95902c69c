"""hios as a rank of a launcher, not quite as it is: ``python ranks.py HOW ... [HOW ...] [ARGUMENTS OF HIOS]``.

``spoilt RANK OPERATOR FAULT``: an operator fails, hangs or ends its process on one rank. ``ordered``: values travel as
in NCCL, without tags, in the order in which they are sent. ``differing FROM TO``: on rank 1 a word of the command line
is another. ``elsewhere PROCESSOR``: the machine of rank 1 has another processor. ``unwritten``: run.json is never done.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable

from hios.cli import main
from hios.files import artifacts
from hios.machine import description
from hios.platforms.cpu import worker as device
from hios.runtime.distributed.transports import Channel, Gloo, Pairs
from hios.workers.worker import Worker
from tests.runtime.faults import spoil


def _spoilt(rank: str, operator: str, fault: str, *arguments: str) -> tuple[str, ...]:
    load = device.load

    def spoilt(worker: Worker, *given: object) -> None:
        load(worker, *given)  # type: ignore[arg-type]
        if worker.number == int(rank):
            spoil(worker, operator, fault)

    device.load = spoilt  # type: ignore[assignment]
    return arguments


def _ordered(*arguments: str) -> tuple[str, ...]:
    def channel(ranks: Gloo, deadline: float) -> Channel:
        return Pairs(ranks.rank, ranks.size, deadline, "gloo")

    Gloo.channel = channel  # type: ignore[method-assign, assignment]
    return arguments


def _is_second() -> bool:
    return os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK")) == "1"


def _differing(before: str, after: str, *arguments: str) -> tuple[str, ...]:
    return tuple(after if word == before and _is_second() else word for word in arguments)


def _elsewhere(processor: str, *arguments: str) -> tuple[str, ...]:
    if _is_second():
        description.processor = lambda: processor
    return arguments


def _unwritten(*arguments: str) -> tuple[str, ...]:
    artifacts.write = lambda *_: time.sleep(600)
    return arguments


if __name__ == "__main__":
    ways: dict[str, Callable[..., Iterable[str]]] = {
        "spoilt": _spoilt,
        "ordered": _ordered,
        "differing": _differing,
        "elsewhere": _elsewhere,
        "unwritten": _unwritten,
    }
    while sys.argv[1] in ways:
        sys.argv[1:] = ways[sys.argv[1]](*sys.argv[2:])
    main()
