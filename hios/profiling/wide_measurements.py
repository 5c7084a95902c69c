"""Measuring operators, and merges of them, on several devices at once: t(v, k)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hios.errors import PlatformError
from hios.platforms.device_timer import Merge
from hios.profiling.measurement_cache import Measured, now
from hios.profiling.measurements import Session
from hios.profiling.sampling import Effort, sample
from hios.profiling.stage_requests import StageRequests
from hios.progress import Meter

_Samples = dict[Merge, list[float]]


def check_widths(widths: Sequence[int], devices: int) -> None:
    """Refuse numbers of devices that an operator cannot take.

    Raises:
        PlatformError: one is less than 2 or more than there are devices, or is given twice.
    """
    for width in widths:
        if not 2 <= width <= devices:
            allowed = f"2 to {devices}, the devices" if devices > 1 else "none, with one device"
            raise PlatformError(f"widths: found {width}; allowed: {allowed}")
    if len(set(widths)) < len(widths):
        raise PlatformError(f"widths: found {', '.join(map(str, widths))}; allowed: each number once")


def measure_wide(session: Session, widths: Sequence[int], deadline: float) -> None:
    """t(v, k) over t(v) of all operators that are measured, for every width k.

    Rounds over the whole network on k devices and on the first of them alone take turns, so that the machine's drift
    cancels in their ratio, and an operator finds the caches as the others leave them.
    """
    operators = list(
        dict.fromkeys(session.stand_in[session.graph.operators[number].id] for number in session.graph.order)
    )
    session.load(dict.fromkeys(operators, 1))
    for width in widths:
        effort = Effort(session.repeats, deadline)
        what = {operator: {"operator": session.digest[operator], **session.timer.ends(width)} for operator in operators}
        known = {operator: session.known("wide", what[operator], effort) for operator in operators}
        if all(entry is not None and effort.is_settled(entry.samples) for entry in known.values()):
            session.wide |= {(width, operator): entry for operator, entry in known.items() if entry is not None}
            continue
        for operator, own in _ratios(session, operators, width, effort).items():
            session.wide[width, operator] = Measured(own, now())
            session.cache.put("wide", what[operator], session.wide[width, operator])


def measure_wide_merges(session: Session, asked: StageRequests, widths: Sequence[int], deadline: float) -> None:
    """Times of merges on k devices over those of their operators one after another on one, for every width k.

    Of the merges that are asked for, those that were measured on one device.
    """
    merges = sorted(session.merges.keys() & set(asked.merges.values()))
    for width in widths:
        effort = Effort(session.repeats, deadline)
        what = {merge: {"merge": session.digests("merge", merge), **session.timer.ends(width)} for merge in merges}
        known = {merge: session.known("wide_merge", what[merge], effort) for merge in merges}
        session.wide_merges |= {(width, merge): entry for merge, entry in known.items() if entry is not None}
        needed = [m for m, entry in known.items() if entry is None or not effort.is_settled(entry.samples)]
        if not needed or effort.is_over():
            continue
        with Meter(
            len(needed) * effort.repeats,
            f"measuring the {len(needed)} merges that differ on {width} devices at once",
            "runs",
            deadline,
        ) as meter:
            later = len(needed)
            for batch in session.batches(needed, needed):
                later -= len(batch)
                session.timer.load_merges([asked.merge_of(alike) for alike in batch])
                samples = sample(batch, _merges_on(session, width, batch), effort, meter, later=later * effort.repeats)
                for merge, own in samples.items():
                    session.wide_merges[width, merge] = Measured(own, now())
                    session.cache.put("wide_merge", what[merge], session.wide_merges[width, merge])
                if effort.is_over():
                    break


def _merges_on(session: Session, width: int, batch: list[Merge]) -> Callable[[list[Merge], int], _Samples]:
    """What measures loaded merges on several devices."""
    place = {alike: number for number, alike in enumerate(batch)}

    def run(keys: list[Merge], rounds: int) -> _Samples:
        session.probe.take_if_due()
        pairs = session.timer.time_wide_merges(width, [place[key] for key in keys], rounds, 1)
        return {key: [wide / apart for wide, apart in own] for key, own in zip(keys, pairs, strict=True)}

    return run


def _ratios(session: Session, operators: list[str], width: int, effort: Effort) -> dict[str, list[float]]:
    def run(keys: list[str], rounds: int) -> dict[str, list[float]]:
        session.probe.take_if_due()
        pairs = session.timer.time_wide(width, keys, rounds, 1)
        return {operator: [wide / narrow for wide, narrow in own] for operator, own in pairs.items()}

    what = f"measuring the {len(operators)} operators that differ on {width} devices at once"
    with Meter(len(operators) * effort.repeats, what, "runs", effort.deadline) as meter:
        return sample(operators, run, effort, meter, whole=True)
