"""hios as a rank of torchrun whose values travel as in NCCL: without tags, in the order in which they are sent."""

from __future__ import annotations

from hios.cli import main
from hios.runtime.distributed.transports import Channel, Gloo, Pairs


def _channel(ranks: Gloo, deadline: float) -> Channel:
    return Pairs(ranks.rank, ranks.size, deadline, "gloo")


if __name__ == "__main__":
    Gloo.channel = _channel  # type: ignore[method-assign, assignment]
    main()
