"""Applying a schedule to the same graph with other shapes, such as another batch or image size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from hios.core.bounds import lower_bound_ms
from hios.core.evaluate import evaluate, latency_ms
from hios.core.graph import Graph
from hios.core.problem import Problem
from hios.core.schedule import Schedule
from hios.errors import ScheduleError, shown

#: Operators and edges named in a message.
_NAMED = 3


def retarget(schedule: Schedule, own: Graph, problem: Problem) -> Schedule:
    """The schedule with its times on another graph of the same structure (IOS, table 3).

    Devices, streams, stages, merges and the order of launches stay; latency and bound are those of the other costs. The
    scheduling time stays that of the schedule.

    ``own`` is the graph that the schedule was made for. The graph of the problem has the same operators by id, type and
    Relax operators, and the same edges; shapes may differ.

    Raises:
        ScheduleError: the graphs differ in more than shapes, or it is no schedule of ``own``, or of operators that can
            be merged in both.
    """
    schedule.plan(own)
    _check_structure(own, problem.graph)
    target = problem.on(schedule.devices)
    moved = replace(schedule, graph_fingerprint=target.graph.fingerprint, graph=target.graph.name)
    placements = evaluate(target, moved.plan(target.graph))
    latency = latency_ms(placements)
    made_for = f"made for {own.name}, graph {own.fingerprint}, and taken to other shapes"
    notes = {key: text for key, text in schedule.notes.items() if key != "costs"}
    said = target.predicted_for or target.disturbed
    return replace(
        moved,
        latency_ms=latency,
        lower_bound_ms=lower_bound_ms(target, schedule.devices),
        staged_lower_bound_ms=0.0,
        placements=tuple(placements),
        notes={**notes, "retargeted": made_for, **({"costs": said} if said else {})},
        probe=target.probe,
        cores_per_device=target.cores_per_device,
        hardware=target.hardware,
    )


def _check_structure(own: Graph, other: Graph) -> None:
    """Refuse graphs that differ in more than shapes."""
    for what, one, two in zip(("operator", "edge"), _structure(own), _structure(other), strict=True):
        if missing := list((one - two).elements()):
            raise ScheduleError(f"{other.source}: {what}s: {_listed(missing)} of {own.source} is not there; {_ALLOWED}")
        if added := list((two - one).elements()):
            raise ScheduleError(f"{other.source}: {what}s: found {_listed(added)}, not in {own.source}; {_ALLOWED}")


_ALLOWED = "allowed: the same operators (id, type, Relax operators) and edges, with other shapes; schedule this graph"


def _structure(graph: Graph) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
    """Operators and edges of a graph, without their shapes."""
    operators = Counter((op.id, op.type, *(call.function for call in op.calls)) for op in graph.operators)
    return operators, Counter((edge.source, edge.target) for edge in graph.edges)


def _listed(entries: Iterable[tuple[str, ...]]) -> str:
    named = [" -> ".join(shown(part, quoted=False) for part in entry[:2]) for entry in entries]
    more = f" (and {len(named) - _NAMED} more)" if len(named) > _NAMED else ""
    return f"{', '.join(named[:_NAMED])}{more}"
