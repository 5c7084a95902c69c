"""Schedules by hand and at random for the engine."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hios import Costs, Graph, Problem, Schedule, evaluate
from hios.cli.files import execute
from hios.core.contraction import Contraction
from hios.core.merging import convolutions, merge_candidates, merged_kernel
from hios.core.problem import Stage
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.formats.run import Run
from hios.formats.settings import Settings

if TYPE_CHECKING:
    from tests.frontends.small_networks import Files


def schedule_of(graph: Graph, plan: Plan) -> Schedule:
    """A schedule with some times, whatever the plan: the engine does not read them."""
    return Schedule(
        "test",
        {},
        len(plan.devices),
        1.0,
        0.0,
        0.0,
        tuple(evaluate(Problem(graph, free(graph)), plan)),
        graph.name,
        tuple(tuple(graph.operators[operator].id for operator in sorted(merge)) for merge in plan.merges),
    )


def write_schedules(folder: Path, graph: Graph, plans: Mapping[str, Plan]) -> list[Path]:
    """Files of schedules with these plans, named after them."""
    paths = [folder / f"{label}.json" for label in plans]
    for path, plan in zip(paths, plans.values(), strict=True):
        schedule_of(graph, plan).write(path)
    return paths


def run_schedules(
    files: Files, schedules: Sequence[Path], *, program: bool = False, output: str = "run.json", **options: Any
) -> Run:
    """Execute schedules, one run without warm-up where ``options`` do not say otherwise; run.json is beside them.

    With ``program``, outputs are compared with those of the model itself.
    """
    paths = {name: options.pop(name) for name in ("traces", "chosen") if name in options}
    settings = Settings(**{"runs": 1, "warmup": 0, **options})
    reference = files.program if program else None
    beside = schedules[0].with_name(output)
    return execute(files.graph, files.weights, schedules, beside, settings, program=reference, **paths)


def one_by_one(graph: Graph) -> StagedPlan:
    """All operators one after another on one device."""
    return StagedPlan((tuple(((operator,),) for operator in graph.order),))


def free(graph: Graph) -> Costs:
    """Costs of zero for all that there is, on any number of devices."""
    return Costs(
        dict.fromkeys(graph.index, 0.0),
        {(edge.source, edge.target): 0.0 for edge in graph.edges},
        wide_ms={operator: dict.fromkeys(range(2, 9), 0.0) for operator in graph.index},
        merge_wide_ms={
            frozenset(graph.operators[operator].id for operator in merge): dict.fromkeys(range(2, 9), 0.0)
            for merge in merge_candidates(convolutions(graph))
        },
    )


def random_plan(graph: Graph, devices: int, seed: int) -> StagedPlan:
    """Chunks of a random topological order on random devices; each chunk a stage with as many groups as it has parts.

    As chunks follow one another in topological order, the plan cannot deadlock.
    """
    shuffle = random.Random(seed)
    left = _random_order(graph, shuffle)
    rows: list[list[Stage]] = [[] for _ in range(devices)]
    while left:
        size = shuffle.choice([1, 1, 2, 3, 5, 8])
        chunk, left = left[:size], left[size:]
        rows[shuffle.randrange(devices)].append(_groups(graph, chunk, shuffle))
    return StagedPlan(tuple(tuple(row) for row in rows))


def random_streams(graph: Graph, devices: int, streams: int, seed: int) -> StreamPlan:
    """A random topological order, each operator on a random stream of a random device.

    Streams hold their operators in the order of the launch, so the plan cannot deadlock.
    """
    shuffle = random.Random(seed)
    launch = _random_order(graph, shuffle)
    rows: list[list[list[int]]] = [[[] for _ in range(streams)] for _ in range(devices)]
    for operator in launch:
        rows[shuffle.randrange(devices)][shuffle.randrange(streams)].append(operator)
    return StreamPlan(tuple(tuple(tuple(stream) for stream in row if stream) for row in rows), tuple(launch))


def merged_plan(graph: Graph, devices: int) -> StagedPlan:
    """Stages of one operator, but of two that are merged where two can be, dealt to devices in turn."""
    known = convolutions(graph)
    stages: list[Stage] = []
    merges = set()
    for operator in graph.order:
        member, before = known[operator], stages[-1] if stages else ()
        if len(before) == 1 and member is not None and merged_kernel([known[before[0][0]], member]) is not None:
            stages[-1] = (*before, (operator,))
            merges.add(frozenset(group[0] for group in stages[-1]))
        else:
            stages.append(((operator,),))
    return StagedPlan(tuple(tuple(stages[device::devices]) for device in range(devices)), frozenset(merges))


def _random_order(graph: Graph, shuffle: random.Random) -> list[int]:
    index = graph.index
    predecessors: list[set[int]] = [set() for _ in graph.operators]
    for edge in graph.edges:
        predecessors[index[edge.target]].add(index[edge.source])
    order: list[int] = []
    left = set(range(len(graph.operators)))
    while left:
        ready = sorted(operator for operator in left if not predecessors[operator] & left)
        order.append(shuffle.choice(ready))
        left.remove(order[-1])
    return order


def _groups(graph: Graph, chunk: list[int], shuffle: random.Random) -> Stage:
    """Operators that depend on each other in one group, in order; independent parts side by side in up to four."""
    index = graph.index
    part = {operator: {operator} for operator in chunk}
    for edge in graph.edges:
        source, target = index[edge.source], index[edge.target]
        if source in part and target in part and part[source] is not part[target]:
            part[source] |= part[target]
            for operator in part[target]:
                part[operator] = part[source]
    stream: dict[int, int] = {}
    groups: list[list[int]] = [[] for _ in range(4)]
    for operator in chunk:
        groups[stream.setdefault(id(part[operator]), len(stream) % 4)].append(operator)
    shuffle.shuffle(groups)
    return tuple(tuple(group) for group in groups if group)


def random_wide(graph: Graph, devices: int, seed: int) -> StreamPlan:
    """A random topological order, each operator on one to all devices, of which a random one keeps its value."""
    shuffle = random.Random(seed)
    order = tuple(_random_order(graph, shuffle))
    choices = {operator: tuple(shuffle.sample(range(devices), shuffle.randint(1, devices))) for operator in order}
    rows = tuple((tuple(operator for operator in order if device in choices[operator]),) for device in range(devices))
    return StreamPlan(rows, order, {operator: row for operator, row in choices.items() if len(row) > 1})


def random_merged(graph: Graph, devices: int, seed: int, *, narrow: bool = False) -> StreamPlan:
    """The same with operators merged where that is possible, or each on one device in that order."""
    merges: list[frozenset[int]] = []
    for merge in merge_candidates(convolutions(graph)):
        if all(merge.isdisjoint(other) for other in merges):
            merges.append(merge)
    contraction = Contraction(Problem(graph, free(graph)).on(devices), merges)
    plan = random_wide(contraction.problem.graph, 1 if narrow else devices, seed)
    if narrow:
        rows = tuple((plan.launch[device::devices],) for device in range(devices))
        plan = StreamPlan(rows, plan.launch)
    return contraction.expanded(plan)
