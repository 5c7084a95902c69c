"""Combined blocks: blocks of one or several networks that run together, as one problem (TOP section IV)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from hios.core.costs import Costs, Demand
from hios.core.graph import Call, Edge, Graph, Operator, Value
from hios.core.problem import Problem
from hios.errors import HiosError
from hios.schedulers.ios_search import blocks_and_pieces


class ModelBlock(NamedTuple):
    """A block of a model; ``label`` identifies the model, ``operators`` are numbers of the problem."""

    label: str
    problem: Problem
    operators: tuple[int, ...]


def model_blocks(label: str, problem: Problem) -> list[ModelBlock]:
    """The blocks of a model, in an order in which they can run one after another.

    Blocks are those that the graph states. Operators in none are cut after each that has a path from or to all others.

    Raises:
        ArtifactError: the stated blocks cannot run one after another.
    """
    predecessors = [[u for u, _ in before] for before in problem.predecessors]
    blocks = blocks_and_pieces(problem.graph, predecessors)
    return [ModelBlock(label, problem, tuple(operators)) for operators, _ in blocks]


def combined_problem(blocks: Sequence[ModelBlock], *, one_block: bool = True) -> Problem:
    """The problem of several blocks, each a sub-block of its own.

    Edges between blocks are left out, those between two blocks of one model as well: they belong to different tasks.
    Operators are called LABEL/ID. Times, measured stages and measured merges within a block are those of its problem.

    Args:
        blocks: at least one, none twice.
        one_block: whether all are one block of the graph, so that stages may span them; else each is one.

    Raises:
        HiosError: their costs have different contention models.
    """
    if len({(block.problem.alpha, bool(block.problem.demand)) for block in blocks}) > 1:
        raise HiosError(
            "costs of several models: found different contention models; allowed: the same contention in all of them, "
            "as their operators share a device"
        )
    models = {block.label: block.problem for block in blocks}
    names = [[f"{block.label}/{block.problem.ids[v]}" for v in block.operators] for block in blocks]
    home = [dict.fromkeys(block.operators, number) for number, block in enumerate(blocks)]
    transfers = {
        (f"{block.label}/{block.problem.ids[u]}", f"{block.label}/{block.problem.ids[v]}"): time
        for number, block in enumerate(blocks)
        for v in block.operators
        for u, time in block.problem.predecessors[v]
        if u in home[number]
    }
    graph = Graph(
        "+".join(models),
        tuple(_labeled(block.label, block.problem.graph.operators[v]) for block in blocks for v in block.operators),
        tuple(Edge(source, target) for source, target in transfers),
        weights=tuple(
            msgspec.structs.replace(weight, name=f"{label}/{weight.name}")
            for label, problem in models.items()
            for weight in problem.graph.weights
        ),
        blocks=(tuple(name for row in names for name in row),) if one_block else tuple(tuple(row) for row in names),
        source="combined blocks",
    )
    combined, first = Problem(graph, _costs(blocks, transfers)), blocks[0].problem
    # Launches and synchronization are in the times already.
    combined.launch_ms, combined.sync_ms, combined.barrier_ms = first.launch_ms, first.sync_ms, first.barrier_ms
    return combined


def _costs(blocks: Sequence[ModelBlock], transfers: dict[tuple[str, str], float]) -> Costs:
    time: dict[str, float] = {}
    utilization: dict[str, float] = {}
    demand: dict[str, Demand] = {}
    stages: dict[frozenset[tuple[str, ...]], float] = {}
    merges: dict[frozenset[str], float] = {}
    for label, problem, operators in blocks:
        name = {v: f"{label}/{problem.ids[v]}" for v in operators}
        time |= {name[v]: problem.time[v] for v in operators}
        utilization |= {name[v]: problem.utilization[v] for v in operators}
        demand |= {name[v]: Demand(*problem.demand[v]) for v in operators if problem.demand}
        for stage, measured in problem.measured.items():
            if all(v in name for group in stage for v in group):
                stages[frozenset(tuple(name[v] for v in group) for group in stage)] = measured
        for merge, measured in problem.measured_merges.items():
            if all(v in name for v in merge):
                merges[frozenset(name[v] for v in merge)] = measured
    alpha = blocks[0].problem.alpha
    model: dict[str, Any] = {"contention": "none"} if alpha is None else {"contention": "blend", "alpha": alpha}
    if demand:
        model = {"contention": "resources", "demand": demand}
    predicted_for = next((b.problem.predicted_for for b in blocks if b.problem.predicted_for), "")
    return Costs(time, transfers, utilization, stages, merges=merges, predicted_for=predicted_for, **model)


def _labeled(label: str, operator: Operator) -> Operator:
    calls = tuple(
        Call(call.function, tuple(_value(label, value) for value in call.arguments), call.attributes)
        for call in operator.calls
    )
    return msgspec.structs.replace(operator, id=f"{label}/{operator.id}", calls=calls)


def _value(label: str, value: Value) -> Value:
    named = {kind: f"{label}/{name}" for kind in ("operator", "input", "weight") if (name := getattr(value, kind))}
    return msgspec.structs.replace(value, **named)
