"""Plans with operators on several devices at once, enumerated, and timed by the definition alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from hios import Problem
from hios.core.schedule import StreamPlan

#: Where an operator runs: its devices, the first of which keeps its value.
Choice = tuple[int, ...]


def plan_of(order: tuple[int, ...], choices: tuple[Choice, ...], devices: int) -> StreamPlan:
    """The plan in which operators take their devices in one order."""
    rows = tuple((tuple(operator for operator in order if device in choices[operator]),) for device in range(devices))
    return StreamPlan(rows, order, {operator: row for operator, row in enumerate(choices) if len(row) > 1})


def device_choices(instance: Problem, operator: int, devices: int) -> Iterator[Choice]:
    """Every first device with every set of others."""
    for width in (1, *(width for width in instance.wide_ms.get(operator, ()) if width <= devices)):
        for first in range(devices):
            rest = [device for device in range(devices) if device != first]
            for others in itertools.combinations(rest, width - 1):
                yield (first, *others)


def orders(instance: Problem) -> Iterator[tuple[int, ...]]:
    """Every topological order."""
    for order in itertools.permutations(range(len(instance))):
        if all(order.index(u) < order.index(v) for v in order for u, _ in instance.predecessors[v]):
            yield order


def times_of(
    instance: Problem, order: tuple[int, ...], choices: tuple[Choice, ...], devices: int
) -> dict[int, tuple[float, float]]:
    """Start and finish by the definition: all devices free, all inputs on the first."""
    free = [0.0] * devices
    times: dict[int, tuple[float, float]] = {}
    for operator in order:
        held = choices[operator]
        arrivals = [
            times[u][1] + (transfer if choices[u][0] != held[0] else 0.0)
            for u, transfer in instance.predecessors[operator]
        ]
        start = max([*arrivals, *(free[device] for device in held)])
        length = instance.time[operator] if len(held) == 1 else instance.wide_ms[operator][len(held)]
        times[operator] = (start, start + length)
        for device in held:
            free[device] = start + length
    return times


def least_latency(instance: Problem, devices: int) -> float:
    """The least latency of all plans with one stream a device, in milliseconds."""
    every = [tuple(device_choices(instance, operator, devices)) for operator in range(len(instance))]
    return min(
        max(finish for _, finish in times_of(instance, order, choices, devices).values())
        for order in orders(instance)
        for choices in itertools.product(*every)
    )


def least_merged_latency(instance: Problem, devices: int) -> float:
    """The least latency of all plans with one stream a device in which measured merges may run as one operator."""
    measured = sorted(instance.measured_merges.keys() | instance.merge_wide_ms.keys(), key=sorted)
    chosen = (merges for count in range(len(measured) + 1) for merges in itertools.combinations(measured, count))
    return min(
        _least_of_units(instance, _units(instance, merges), devices)
        for merges in chosen
        if len(frozenset().union(*merges)) == sum(map(len, merges))
    )


#: Operators that run as one, with their time by number of devices.
_Unit = tuple[frozenset[int], dict[int, float]]


def _units(instance: Problem, merges: tuple[frozenset[int], ...]) -> list[_Unit]:
    merged = frozenset().union(*merges)
    units: list[_Unit] = [
        (frozenset((v,)), {1: instance.time[v], **instance.wide_ms.get(v, {})})
        for v in range(len(instance))
        if v not in merged
    ]
    for merge in merges:
        alone = instance.merge_ms(merge)
        assert alone is not None
        units.append((merge, {1: alone, **instance.merge_wide_ms.get(merge, {})}))
    return units


def _least_of_units(instance: Problem, units: list[_Unit], devices: int) -> float:
    home = {operator: number for number, (operators, _) in enumerate(units) for operator in operators}
    inputs = [
        [(home[u], transfer) for v in operators for u, transfer in instance.predecessors[v]] for operators, _ in units
    ]
    choices = [
        [
            (devices_of[0], frozenset(devices_of), time)
            for width, time in times.items()
            if width <= devices
            for devices_of in itertools.permutations(range(devices), width)
        ]
        for _, times in units
    ]
    least = float("inf")
    for order in itertools.permutations(range(len(units))):
        if any(order.index(u) > order.index(v) for v in order for u, _ in inputs[v]):
            continue
        for choice in itertools.product(*choices):
            free = [0.0] * devices
            finish = [0.0] * len(units)
            for unit in order:
                first, held, time = choice[unit]
                arrivals = [finish[u] + (transfer if choice[u][0] != first else 0.0) for u, transfer in inputs[unit]]
                finish[unit] = max([*arrivals, *(free[device] for device in held)]) + time
                for device in held:
                    free[device] = finish[unit]
            least = min(least, max(finish))
    return least
