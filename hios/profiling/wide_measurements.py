"""Measuring operators on several devices at once: t(v, k)."""

from __future__ import annotations

from collections.abc import Sequence

from hios.errors import PlatformError
from hios.profiling.measurement_cache import Measured, now
from hios.profiling.measurements import Session
from hios.profiling.sampling import Effort, sample
from hios.progress import Meter


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
        raise PlatformError(f"widths: found {', '.join(map(str, widths))}; allowed: each once")


def measure_wide(session: Session, widths: Sequence[int], deadline: float) -> None:
    """t(v, k) over t(v) of all operators that are measured, for every width k.

    Rounds over the whole network on k devices and on the first of them alone take turns, so that their ratio is free of
    the machine's drift and an operator finds the caches as others leave them.
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


def _ratios(session: Session, operators: list[str], width: int, effort: Effort) -> dict[str, list[float]]:
    def run(keys: list[str], rounds: int) -> dict[str, list[float]]:
        session.probe.take_if_due()
        pairs = session.timer.time_wide(width, keys, rounds, 1)
        return {operator: [wide / narrow for wide, narrow in own] for operator, own in pairs.items()}

    what = f"measuring the {len(operators)} operators that differ on {width} devices at once"
    with Meter(len(operators) * effort.repeats, what, "runs", effort.deadline) as meter:
        return sample(operators, run, effort, meter, whole=True)
