"""Plans with operators on several devices at once, enumerated, and timed by the definition alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hios import Problem
from hios.core.schedule import StreamPlan

#: Where an operator runs: its devices, the first of which keeps its value.
Choice = tuple[int, ...]
#: Operators that run as one, with their time by number of devices.
Unit = tuple[frozenset[int], dict[int, float]]
#: Of every unit those whose values it takes, with the transfers.
Inputs = Sequence[Sequence[tuple[int, float]]]


def plan_of(order: tuple[int, ...], choices: tuple[Choice, ...], devices: int) -> StreamPlan:
    """The plan in which operators take their devices in one order."""
    rows = tuple((tuple(operator for operator in order if device in choices[operator]),) for device in range(devices))
    return StreamPlan(rows, order, {operator: row for operator, row in enumerate(choices) if len(row) > 1})


def units_of(instance: Problem, merges: tuple[frozenset[int], ...] = ()) -> list[Unit]:
    """Operators by number, each by itself, but for those that are merged, which come last."""
    merged = frozenset().union(*merges)
    units: list[Unit] = [
        (frozenset((v,)), {1: instance.time[v], **instance.wide_ms.get(v, {})})
        for v in range(len(instance))
        if v not in merged
    ]
    for merge in merges:
        alone = instance.merge_ms(merge)
        assert alone is not None
        units.append((merge, {1: alone, **instance.merge_wide_ms.get(merge, {})}))
    return units


def device_choices(unit: Unit, devices: int) -> Iterator[Choice]:
    """Every first device with every set of others."""
    for width in unit[1]:
        for first in range(devices):
            rest = [device for device in range(devices) if device != first]
            for others in itertools.combinations(rest, width - 1):
                yield (first, *others)


def orders(inputs: Inputs) -> Iterator[tuple[int, ...]]:
    """Every topological order."""
    for order in itertools.permutations(range(len(inputs))):
        if all(order.index(u) < order.index(v) for v in order for u, _ in inputs[v]):
            yield order


def times_of(
    units: Sequence[Unit], inputs: Inputs, order: tuple[int, ...], choices: tuple[Choice, ...], devices: int
) -> dict[int, tuple[float, float]]:
    """Start and finish by the definition: all devices free, all inputs on the first."""
    free = [0.0] * devices
    times: dict[int, tuple[float, float]] = {}
    for unit in order:
        held = choices[unit]
        arrivals = [times[u][1] + (transfer if choices[u][0] != held[0] else 0.0) for u, transfer in inputs[unit]]
        start = max([*arrivals, *(free[device] for device in held)])
        times[unit] = (start, start + units[unit][1][len(held)])
        for device in held:
            free[device] = times[unit][1]
    return times


def least_latency(instance: Problem, devices: int) -> float:
    """The least latency of all plans with one stream a device, in milliseconds; measured merges may be in them."""
    measured = sorted(instance.measured_merges.keys() | instance.merge_wide_ms.keys(), key=sorted)
    chosen = (merges for count in range(len(measured) + 1) for merges in itertools.combinations(measured, count))
    return min(
        _least_of_units(instance, units_of(instance, merges), devices)
        for merges in chosen
        if len(frozenset().union(*merges)) == sum(map(len, merges))
    )


def _least_of_units(instance: Problem, units: list[Unit], devices: int) -> float:
    home = {operator: number for number, (operators, _) in enumerate(units) for operator in operators}
    inputs = [
        [(home[u], transfer) for v in operators for u, transfer in instance.predecessors[v]] for operators, _ in units
    ]
    every = [tuple(device_choices(unit, devices)) for unit in units]
    return min(
        max(finish for _, finish in times_of(units, inputs, order, choices, devices).values())
        for order in orders(inputs)
        for choices in itertools.product(*every)
    )
