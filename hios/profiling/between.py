"""Measuring what happens between devices: transfers, and how devices that run at once slow each other."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterable
from itertools import count

from hios.profiling import handovers, kernels, links
from hios.profiling.cache import Measured, now
from hios.profiling.progress import Meter
from hios.profiling.sampling import Effort, sample
from hios.profiling.session import Session
from hios.profiling.statistics import is_precise

#: Hand-overs measured per size, and of one call; they take microseconds. Those before are to warm up.
_TRANSFERS, _TRANSFERS_CHUNK, _WARMUP = 100, 25, 3
#: Inferences that devices run at once between two looks at the clock, and seconds before them; how often at least.
_INFERENCES, _LEAD_S, _CORUNS = 3, 0.005, 10


def measure_transfers(session: Session, deadline: float) -> None:
    """t(u,v) for the sizes of all edges, and for those that a link is fitted to."""
    effort = Effort(_TRANSFERS, deadline, _TRANSFERS_CHUNK)
    edges = {edge.bytes or 0 for edge in session.graph.edges}
    sizes = sorted(edges | set(links.ladder(max(edges, default=0))))
    what = {size: {"bytes": size, "cores": [list(own) for own in session.cores[:2]]} for size in sizes}
    for size in sizes:
        found = session.known("transfer", what[size], effort)
        if found is not None and effort.is_settled(found.samples):
            session.transfers[size] = found
    needed = [size for size in sizes if size not in session.transfers]
    if not needed:
        return
    epochs = count(step=len(needed) * (_TRANSFERS_CHUNK + _WARMUP))

    def run(keys: list[int], rounds: int) -> dict[int, list[float]]:
        if len(session.cores) > 1:
            return _hand_overs(session, keys, rounds, next(epochs))
        found: dict[int, list[float]] = session.pool.call(0, handovers.time_copies, sizes=keys, rounds=rounds)
        return found

    with Meter(len(needed) * effort.repeats, "measuring transfers", "runs", effort.deadline) as meter:
        samples = sample(needed, run, effort, meter)
    for size, own in samples.items():
        session.transfers[size] = Measured(own, now())
        session.cache.put("transfer", what[size], session.transfers[size])


def _hand_overs(session: Session, sizes: list[int], rounds: int, epoch: int) -> dict[int, list[float]]:
    """Milliseconds of hand-overs between the first two devices, which take turns in sending."""
    sender = next(session.turns) % 2
    both = {"sizes": sizes, "rounds": rounds + _WARMUP, "epoch": epoch}
    times = session.pool.call_each(
        handovers.hand_over, {sender: {"part": "send", **both}, 1 - sender: {"part": "receive", **both}}
    )
    began, seen = times[sender], times[1 - sender]
    return {
        size: [(end - begin) / 1e6 for begin, end in zip(began[size], seen[size], strict=True)][_WARMUP:]
        for size in sizes
    }


def measure_corun(session: Session, deadline: float) -> None:
    """How much longer a network takes on a device while others run it too, for every number of devices."""
    network = [session.stand_in[session.graph.operators[number].id] for number in session.graph.order]
    session.load(Counter(network))
    most = len(session.cores)
    for devices in range(2, most + 1):
        share = (deadline - time.monotonic()) / (most + 1 - devices)
        effort = Effort(min(session.repeats, _CORUNS), time.monotonic() + share)
        cores = [list(own) for own in session.cores[:devices]]
        what = {"operators": [session.digest[operator] for operator in network], "cores": cores}
        found = session.known("corun", what, effort)
        if found is None or not effort.is_settled(found.samples):
            found = _at_once(session, network, devices, effort)
        session.corun[devices] = found
        if is_precise(found.samples):  # else other programs may have had a part in it
            session.cache.put("corun", what, found)


def _at_once(session: Session, network: list[str], devices: int, effort: Effort) -> Measured:
    """Ratios of inferences on all devices at once to inferences on one of them, taken right after each other."""
    alone_ms = sum(map(session.median_ms().__getitem__, network))

    def run(keys: list[int], rounds: int) -> dict[int, list[float]]:
        ratios = []
        for _ in range(rounds):
            device = next(session.turns) % devices
            alone = _inferences(session, network, [device], alone_ms)[device]
            together = _inferences(session, network, range(devices), alone_ms)[device]
            ratios.append(statistics.median(together) / statistics.median(alone))
        return dict.fromkeys(keys, ratios)

    with Meter(effort.repeats, f"measuring {devices} devices at once", "runs", effort.deadline) as meter:
        samples = sample([devices], run, effort, meter)[devices]
    return Measured(samples, now())


def _inferences(
    session: Session, network: list[str], devices: Iterable[int], alone_ms: float
) -> dict[int, list[float]]:
    """Milliseconds of inferences on devices that run at once, after one on each to warm up."""
    begin = time.perf_counter_ns() + round(_LEAD_S * 1e9 + alone_ms * 1e6)
    span = {"begin_ns": begin, "end_ns": begin + round(_INFERENCES * alone_ms * 1e6 + _LEAD_S * 1e9)}
    arguments = {device: {"operators": network, **span} for device in devices}
    found: dict[int, list[float]] = session.pool.call_each(kernels.time_inferences, arguments)
    return found
