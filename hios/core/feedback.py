"""Costs as a run measured them: what its operators and hand-overs took inside of a schedule.

Operators are profiled alone. In a schedule they take other times: beside other devices, and as parts of segments, which
another runtime computes as one call. Costs that were fed back are those of schedules that run in the same way, on as
many devices.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from msgspec.structs import replace

from hios.core.costs import Costs, CostsFile, TransferCost
from hios.core.graph import Graph
from hios.core.schedule import Placement
from hios.errors import ArtifactError

#: A schedule whose predicted latency differs by this share of the measured one needs no other costs.
CLOSE = 0.03


def fed_back(costs: CostsFile, graph: Graph, runs: Sequence[Sequence[Placement]]) -> CostsFile:
    """The costs with t(v) as runs of a schedule measured it, and t(u,v) of edges between its devices; medians.

    Where an operator waited for a value, t(u,v) is the time from its producer's finish to its own start; elsewhere at
    most that. Stages, merges and demands that include these operators are left to the models.

    Raises:
        ArtifactError: the runs are of another graph, or costs lack an operator or edge.
    """
    known = Costs.of(costs)
    for name in graph.index:
        known.operator_ms(name)  # raises
    before = {(edge.source, edge.target): known.transfer_ms(edge) for edge in graph.edges}
    taken: dict[str, list[float]] = {name: [] for name in graph.index}
    passed: dict[tuple[str, str], list[float]] = {edge: [] for edge in before}
    for run in runs:
        rows = {row.operator: row for row in run}
        if rows.keys() != graph.index.keys():
            raise ArtifactError(
                f"run: found operators other than those of {graph.source}; allowed: a run of this graph"
            )
        for name, row in rows.items():
            if not row.devices:  # t(v, k) is another time
                taken[name].append(row.finish_ms - row.start_ms)
        for edge, gap_ms, waited in _gaps(rows, before):
            passed[edge].append(gap_ms if waited else min(gap_ms, before[edge]))
    return replace(
        costs,
        operators={
            name: replace(
                cost, time_ms=median(own), p20_ms=None, p80_ms=None, interval_ms=None, repeats=None, demand=None
            )
            if (own := taken.get(name))
            else cost
            for name, cost in costs.operators.items()
        },
        transfers=tuple(
            TransferCost(source=source, target=target, time_ms=median(passed[source, target] or [time_ms]))
            for (source, target), time_ms in before.items()
        ),
        stages=tuple(row for row in costs.stages if not any(taken.get(name) for own in row.groups for name in own)),
        merges=tuple(row for row in costs.merges if not any(map(taken.get, row.operators))),
        overheads=None,  # in the times themselves, as what devices cost each other is
        corun=(),
    )


def _gaps(
    rows: Mapping[str, Placement], edges: Mapping[tuple[str, str], float]
) -> Iterator[tuple[tuple[str, str], float, bool]]:
    """Edges between devices, with the time from finish to start, and whether nothing else kept the operator waiting."""
    finishes: dict[int, list[float]] = {}
    for row in rows.values():
        for device in row.held_devices:
            finishes.setdefault(device, []).append(row.finish_ms)
    for own in finishes.values():
        own.sort()
    arrivals: dict[str, list[str]] = {}
    for source, target in edges:
        if rows[source].device not in rows[target].held_devices:
            arrivals.setdefault(target, []).append(source)
    for target, sources in arrivals.items():
        start, own = rows[target].start_ms, finishes[rows[target].device]
        earlier = bisect_right(own, start)
        free = own[earlier - 1] if earlier else 0.0
        last = max(rows[source].finish_ms for source in sources)
        for source in sources:
            finish = rows[source].finish_ms
            yield (source, target), max(start - finish, 0.0), finish == last and finish >= free
