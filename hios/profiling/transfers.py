"""Transfers between devices: which sizes are measured, and the link model fitted to them.

The clock is that of the platform: ``timing`` of its package.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from hios.core.costs import LinkError, LinkModel, LinkSpeed
from hios.machine.terminal import Meter
from hios.profiling.measurements import Effort, Session, sample

#: Transfers measured per size, and per call; they take microseconds.
_TRANSFERS, _TRANSFERS_CHUNK = 100, 25


def measure_transfers(session: Session, deadline: float) -> None:
    """t(u,v) for the sizes of all edges and for the sizes that the link model is fitted to."""
    effort = Effort(_TRANSFERS, deadline, _TRANSFERS_CHUNK)
    edges = {edge.bytes or 0 for edge in session.graph.edges}
    sizes = sorted(edges | set(sizes_to_fit(max(edges, default=0))))
    what = {size: {"bytes": size, **session.timer.ends(2)} for size in sizes}
    for size in sizes:
        known = None if session.has_drifted else session.known("transfer", what[size], effort)
        if known is not None and effort.is_settled(known.samples):
            session.transfers[size] = known
    needed = [size for size in sizes if size not in session.transfers]
    if not needed:
        return

    def run(keys: list[int], rounds: int) -> dict[int, list[float]]:
        session.probe.take_if_due()
        return session.timer.time_transfers(keys, rounds, next(session.turns))

    with Meter(len(needed) * effort.repeats, "measuring transfers", "runs", effort.deadline) as meter:
        samples = sample(needed, run, effort, meter)
    for size, own in samples.items():
        session.transfers[size] = session.keep("transfer", what[size], own)


#: The smallest transfer that a link is fitted to, in bytes, and the factor between sizes added to those of edges.
_SMALLEST, _STEP = 1 << 10, 4


def sizes_to_fit(largest: int) -> list[int]:
    """Sizes in bytes from 1 KB to the largest, to fit the link model to."""
    sizes, size = [], _SMALLEST
    while size < largest:
        sizes.append(size)
        size *= _STEP
    return [*sizes, largest] if sizes else []


def fit_link(time_ms: Mapping[int, float]) -> LinkSpeed | None:
    """Latency L >= 0 and bandwidth B that minimize the squared relative errors of L + bytes/B.

    Sizes are in bytes; those below 1 KB, which show the latency twice, are left out. None if there are fewer than two
    others, or if times do not grow with size, so that there is no bandwidth to fit.
    """
    points = [(size, time) for size, time in time_ms.items() if size >= _SMALLEST and time > 0]
    if len(points) < 2:
        return None
    # Rows (1/t, n/t) against 1: the normal equations, by their determinant.
    ones = sum(1 / time**2 for _, time in points)
    mixed = sum(size / time**2 for size, time in points)
    squares = sum(size**2 / time**2 for size, time in points)
    first = sum(1 / time for _, time in points)
    second = sum(size / time for size, time in points)
    determinant = ones * squares - mixed * mixed
    if determinant <= 0:
        return None
    latency = (first * squares - second * mixed) / determinant
    per_byte = (ones * second - mixed * first) / determinant
    if latency < 0:
        latency, per_byte = 0.0, second / squares
    if per_byte <= 0:
        return None
    model = LinkModel(latency, 8 / (per_byte * 1e6))
    errors = [abs(model.time_ms(size) - time) / time for size, time in points]
    error = LinkError(statistics.median(errors), max(errors), len(points))
    return LinkSpeed(model.latency_ms, model.bandwidth_gbps, error)
