"""Measuring what happens between devices: transfers, and how devices that run at once slow each other."""

from __future__ import annotations

import time
from collections import Counter

from hios.profiling import links
from hios.profiling.cache import Measured, now
from hios.profiling.measurements import Session
from hios.profiling.sampling import Effort, sample
from hios.progress import Meter
from hios.statistics import is_precise

#: Hand-overs measured per size, and of one call; they take microseconds.
_TRANSFERS, _TRANSFERS_CHUNK = 100, 25
#: How often devices that run at once are measured at least.
_CORUNS = 10


def measure_transfers(session: Session, deadline: float) -> None:
    """t(u,v) for the sizes of all edges, and for those that a link is fitted to."""
    effort = Effort(_TRANSFERS, deadline, _TRANSFERS_CHUNK)
    edges = {edge.bytes or 0 for edge in session.graph.edges}
    sizes = sorted(edges | set(links.ladder(max(edges, default=0))))
    what = {size: {"bytes": size, **session.bench.ends(2)} for size in sizes}
    for size in sizes:
        found = session.known("transfer", what[size], effort)
        if found is not None and effort.is_settled(found.samples):
            session.transfers[size] = found
    needed = [size for size in sizes if size not in session.transfers]
    if not needed:
        return

    def run(keys: list[int], rounds: int) -> dict[int, list[float]]:
        session.probe.take_if_due()
        return session.bench.time_transfers(keys, rounds, next(session.turns))

    with Meter(len(needed) * effort.repeats, "measuring transfers", "runs", effort.deadline) as meter:
        samples = sample(needed, run, effort, meter)
    for size, own in samples.items():
        session.transfers[size] = Measured(own, now())
        session.cache.put("transfer", what[size], session.transfers[size])


def measure_corun(session: Session, deadline: float) -> None:
    """How much longer a network takes on a device while others run it too, for every number of devices."""
    network = [session.stand_in[session.graph.operators[number].id] for number in session.graph.order]
    session.load(Counter(network))
    most = session.bench.devices
    for devices in range(2, most + 1):
        share = (deadline - time.monotonic()) / (most + 1 - devices)
        effort = Effort(min(session.repeats, _CORUNS), time.monotonic() + share)
        what = {"operators": [session.digest[operator] for operator in network], **session.bench.ends(devices)}
        found = session.known("corun", what, effort)
        if found is None or not effort.is_settled(found.samples):
            found = _at_once(session, network, devices, effort)
        session.corun[devices] = found
        if is_precise(found.samples):  # else other programs may have had a part in it
            session.cache.put("corun", what, found)


def _at_once(session: Session, network: list[str], devices: int, effort: Effort) -> Measured:
    """Ratios of inferences on all devices at once to inferences on one of them; the devices take turns."""
    alone_ms = sum(map(session.median_ms().__getitem__, network))

    def run(keys: list[int], rounds: int) -> dict[int, list[float]]:
        session.probe.take_if_due()
        ratios = [session.bench.corun(next(session.turns), devices, network, alone_ms) for _ in range(rounds)]
        return dict.fromkeys(keys, ratios)

    with Meter(effort.repeats, f"measuring {devices} devices at once", "runs", effort.deadline) as meter:
        samples = sample([devices], run, effort, meter)[devices]
    return Measured(samples, now())
