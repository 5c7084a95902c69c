"""Random scheduling problems for hypothesis, and small ones by hand."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import strategies as st

from benchmarks.networks import synthetic_costs
from hios import ALGORITHMS, Costs, Edge, Graph, Operator, Placement, Problem, Schedule, StagedPlan, evaluate
from hios.core.costs import CostOverheads, Demand
from hios.core.evaluate import latency_ms
from hios.core.schedule import Plan
from hios.files import artifacts


def problem(
    times: Mapping[str, float],
    edges: Mapping[tuple[str, str], float],
    *,
    utilization: Mapping[str, float] | None = None,
    stages: Mapping[frozenset[Any], float] | None = None,
    contention: str = "blend",
    alpha: float = 0.5,
    corun: Mapping[int, float] | None = None,
    wide: Mapping[str, Mapping[int, float]] | None = None,
    demand: Mapping[str, Demand] | None = None,
    overheads: CostOverheads | None = None,
    blocks: Sequence[Sequence[str]] = (),
) -> Problem:
    """A problem from times by operator and transfer times by edge."""
    graph = Graph(
        "test",
        tuple(Operator(name, "task") for name in times),
        tuple(Edge(source, target) for source, target in edges),
        blocks=tuple(map(tuple, blocks)),
    )
    costs = Costs(
        dict(times),
        dict(edges),
        utilization or {},
        stages or {},
        contention,
        alpha,
        corun=corun or {},
        wide_ms=wide or {},
        demand=demand or {},
        overheads=overheads or CostOverheads(),
    )
    return Problem(graph, costs)


def write_files(instance: Problem, folder: Path) -> None:
    """Write graph.json and costs.json of a problem without measured stages."""
    names = instance.ids
    times = zip(names, instance.time, instance.utilization, strict=True)
    costs = {
        "operators": {name: {"time_ms": time, "utilization": share} for name, time, share in times},
        "transfers": [
            {"source": names[source], "target": names[target], "time_ms": transfer}
            for target, row in enumerate(instance.predecessors)
            for source, transfer in row
        ],
    }
    instance.graph.write(folder / "graph.json")
    artifacts.write(folder / "costs.json", "costs", costs)


def synthetic_problem(graph: Graph) -> Problem:
    """A graph with the costs that the benchmarks give networks of papers."""
    return Problem(graph, synthetic_costs(graph))


def predecessors_of(instance: Problem) -> list[list[int]]:
    """The operators that each one reads from."""
    return [[operator for operator, _ in row] for row in instance.predecessors]


def rows_of(plan: StagedPlan) -> list[list[int]]:
    """The operators of every device, in a plan with one operator a stage."""
    return [[operator for ((operator,),) in row] for row in plan.devices]


def in_sequence(instance: Problem, devices: int) -> StagedPlan:
    """All operators one after another on the first of some devices."""
    return StagedPlan((tuple(((operator,),) for operator in instance.order), *((),) * (devices - 1)))


def schedule_of(instance: Problem, plan: Plan) -> Schedule:
    """The schedule of a plan: its rows have the times of the evaluator."""
    rows = evaluate(instance, plan)
    merges = tuple(tuple(instance.ids[operator] for operator in sorted(merge)) for merge in plan.merges)
    return Schedule("test", {}, len(plan.devices), latency_ms(rows), 0.0, 0.0, tuple(rows), merges=merges)


def spans(rows: Iterable[Placement]) -> dict[str, tuple[float, float]]:
    """Start and finish of every operator."""
    return {row.operator: (row.start_ms, row.finish_ms) for row in rows}


def with_row(schedule: Schedule, position: int, **changes: object) -> Schedule:
    """A schedule with one of its rows changed."""
    rows = list(schedule.placements)
    rows[position] = msgspec.structs.replace(rows[position], **changes)
    return dataclasses.replace(schedule, placements=tuple(rows))


def random_problem(
    draw: random.Random, operators: int, edges: int, *, ties: bool, utilization: Callable[[], float]
) -> Problem:
    """Operators and transfers of 0 to 4 ms, in whole milliseconds if many sums are to tie."""

    def milliseconds() -> float:
        return float(draw.randrange(4)) if ties else draw.uniform(0.1, 4.0)

    names = [f"v{number:03}" for number in range(operators)]
    pairs = [sorted(draw.sample(range(operators), 2)) for _ in range(edges)]
    times = {name: milliseconds() for name in names}
    transfers = {(names[u], names[v]): milliseconds() for u, v in pairs}
    return problem(times, transfers, utilization={name: utilization() for name in names})


_TIMES = st.one_of(st.just(0.0), st.sampled_from([1.0, 2.0]), st.floats(0.01, 10.0))


@st.composite
def problems(draw: st.DrawFn, largest: int = 12) -> Problem:
    """Graphs of 1 to ``largest`` operators: ties, zero times, no edges, parts apart, one fed by all."""
    count = draw(st.integers(1, largest))
    names = [f"v{number}" for number in range(count)]
    pairs = [(source, target) for target in range(count) for source in range(target)]
    shape = draw(st.sampled_from(["any", "none", "fan-in", "chain"]))
    if shape == "any":
        chosen: Sequence[tuple[int, int]] = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    else:
        keep = {"none": lambda s, t: False, "fan-in": lambda s, t: t == count - 1, "chain": lambda s, t: t == s + 1}
        chosen = [pair for pair in pairs if keep[shape](*pair)]
    # Operators are not listed in topological order.
    listed = draw(st.permutations(names))
    times = {name: draw(_TIMES) for name in listed}
    # Measured stages: faster and slower than the model, also of operators that cannot share a stage.
    sets = st.lists(st.sampled_from(names), min_size=2, max_size=3, unique=True)
    measured = draw(st.lists(sets, max_size=3)) if count > 1 else []
    return problem(
        times,
        {(names[source], names[target]): draw(_TIMES) for source, target in chosen},
        utilization={name: draw(st.floats(0.1, 1.0)) for name in names},
        stages={frozenset((name,) for name in stage): draw(_TIMES) for stage in measured},
        contention=draw(st.sampled_from(["blend", "none"])),
        alpha=draw(st.sampled_from([0.0, 0.5, 1.0])),
    )


_SHARES = st.one_of(st.sampled_from([0.25, 0.5, 1.0]), st.floats(0.05, 1.0))


@st.composite
def sharing_problems(draw: st.DrawFn, largest: int = 12) -> Problem:
    """The same, with overheads, of operators that share resources or blend."""
    own = draw(problems(largest))
    demands = st.builds(Demand, slots=_SHARES, compute=_SHARES, memory=_SHARES)
    milliseconds = st.sampled_from([0.0, 0.25, 1.0])
    overheads = st.builds(CostOverheads, launch_ms=milliseconds, sync_ms=milliseconds, stage_ms=milliseconds)
    return problem(
        dict(zip(own.ids, own.time, strict=True)),
        {(own.ids[u], own.ids[v]): time for v, row in enumerate(own.predecessors) for u, time in row},
        utilization=dict(zip(own.ids, own.utilization, strict=True)),
        stages={frozenset(tuple(own.ids[v] for v in group) for group in s): t for s, t in own.measured.items()},
        contention=draw(st.sampled_from(["resources", "resources", "blend", "none"])),
        corun={2: draw(st.sampled_from([1.0, 1.5]))},
        demand={name: draw(demands) for name in own.ids if draw(st.booleans())},
        overheads=draw(overheads),
    )


@st.composite
def wide_problems(draw: st.DrawFn, largest: int = 4, devices: int = 4) -> Problem:
    """Small graphs whose operators may take up to ``devices`` devices: with and without gain, some on one only."""
    count = draw(st.integers(1, largest))
    names = [f"v{number}" for number in range(count)]
    pairs = [(names[source], names[target]) for target in range(count) for source in range(target)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    time = st.one_of(st.integers(0, 6).map(float), st.floats(0.01, 6.0))
    widths = st.dictionaries(st.integers(2, devices), time, max_size=2)
    scale = draw(st.sampled_from([0.0, 0.2, 1.0]))
    return problem(
        {name: draw(time) for name in names},
        {edge: draw(time) * scale for edge in edges},
        utilization={name: draw(st.sampled_from([1.0, 0.5])) for name in names},
        alpha=draw(st.sampled_from([0.5, 1.0])),
        wide={name: draw(widths) for name in names},
    )


def briefly(name: str) -> dict[str, float]:
    """Parameters that keep an algorithm from using all the time it would be given by default."""
    return {p.name: 0.02 for p in ALGORITHMS[name].parameters if p.name == "time_limit"}
