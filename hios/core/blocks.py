"""Blocks of a graph: parts that run one after another, such as the modules of Inception or the cells of NASNet.

IOS searches them one by one (section 4.2), and pictures show them. A graph states its blocks (graph.json), or they are
found here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hios.core.graph import Graph, topological_order
from hios.errors import ArtifactError, HiosError


def found_blocks(graph: Graph) -> tuple[tuple[str, ...], ...]:
    """Operator ids by block: the graph cut after every operator that all paths lead through (cut vertices).

    Such an operator ends a block, which begins after the previous operator of that kind; several of them in direct
    succession are one block, a chain. So Inception-v3 is divided into its stem, its modules and its last pool.
    """
    predecessors: list[list[int]] = [[] for _ in graph.operators]
    for edge in graph.edges:
        predecessors[graph.index[edge.target]].append(graph.index[edge.source])
    place = {operator: position for position, operator in enumerate(graph.order)}
    last_reader = dict(place)
    for operator, read in enumerate(predecessors):
        for source in read:
            last_reader[source] = max(last_reader[source], place[operator])
    blocks: list[list[int]] = []
    block: list[int] = []
    furthest, chain = 0, False
    for piece in pieces(graph.order, predecessors):
        block += piece
        furthest = max([furthest, *(last_reader[operator] for operator in piece[:-1])])
        if furthest <= place[piece[-1]]:  # nothing produced before this operator is read after it
            if chain and len(block) == 1:
                blocks[-1] += block
            else:
                blocks.append(block)
                chain = len(block) == 1
            block = []
        furthest = max(furthest, last_reader[piece[-1]])
    return tuple(tuple(graph.operators[operator].id for operator in part) for part in blocks)


def declared_blocks(
    graph: Graph, modules: Mapping[str, Sequence[str]], paths: Sequence[str]
) -> tuple[tuple[str, ...], ...]:
    """Operator ids by block, where a model declares some of its modules as blocks.

    Operators are in the order in which the model computes them; ``modules`` has by operator id the paths of the modules
    that compute it. Each sequence of operators outside of the modules at ``paths`` is a block too; blocks that cannot
    run one after another are refused.
    """
    members: dict[tuple[str, int], list[str]] = {}
    runs = 0
    for operator in graph.operators:
        path = next((path for module in modules[operator.id] if (path := _innermost(module, paths))), "")
        if path:
            runs += ("", runs) in members
        members.setdefault((path, 0 if path else runs), []).append(operator.id)
    blocks = tuple(tuple(block) for block in members.values())
    try:
        order = in_order(replace(graph, blocks=blocks))
    except ArtifactError as error:
        raise HiosError(
            f"the blocks that the model declares ({', '.join(paths)}) cannot run one after another: a value leads from "
            "one into another and back; declare modules that do not"
        ) from error
    return tuple(tuple(graph.operators[operator].id for operator in block) for block, _ in order)


def _innermost(module: str, paths: Sequence[str]) -> str:
    """The longest of the paths that holds the module, "" if none does."""
    return max((path for path in paths if f"{module}.".startswith(f"{path}.")), key=len, default="")


def in_order(graph: Graph) -> list[tuple[list[int], bool]]:
    """Stated blocks, and every other operator alone, in topological order; says which are stated."""
    place = {operator: position for position, operator in enumerate(graph.order)}
    members = [sorted((graph.index[operator] for operator in block), key=place.__getitem__) for block in graph.blocks]
    members = [block for block in members if block]
    home: dict[int, int] = {}
    for number, block in enumerate(members):
        for operator in block:
            if operator in home:
                raise ArtifactError(
                    f"{graph.source}: blocks: operator {graph.operators[operator].id} is in two blocks; allowed: one"
                )
            home[operator] = number
    stated = len(members)
    for operator in graph.order:
        if operator not in home:
            home[operator] = len(members)
            members.append([operator])
    order = _sorted(graph, members, home)
    return [(members[number], number < stated) for number in order]


def _sorted(graph: Graph, members: Sequence[Sequence[int]], home: dict[int, int]) -> list[int]:
    """Numbers of blocks in topological order, ties by their first operator."""
    followers: list[set[int]] = [set() for _ in members]
    for edge in graph.edges:
        source, target = home[graph.index[edge.source]], home[graph.index[edge.target]]
        if source != target:
            followers[source].add(target)
    order = topological_order(followers, sorted(range(len(members)), key=lambda number: members[number][0]))
    if len(order) < len(members):
        stuck = min(set(range(len(members))) - set(order))
        raise ArtifactError(
            f"{graph.source}: blocks: the block of operator {graph.operators[members[stuck][0]].id} waits for others "
            "that wait for it; allowed: blocks that can run one after another"
        )
    return order


def pieces(operators: Sequence[int], predecessors: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Operators in topological order, cut after each that is an ancestor or a descendant of all the others.

    The operator in place i is one if each later operator has a predecessor in place i or later, and each earlier
    one a successor in place i or earlier.
    """
    count = len(operators)
    place = {operator: position for position, operator in enumerate(operators)}
    latest = [-1] * count
    first = [count] * count
    for position, operator in enumerate(operators):
        for predecessor in (place[u] for u in predecessors[operator] if u in place):
            latest[position] = max(latest[position], predecessor)
            first[predecessor] = min(first[predecessor], position)
    after = [count] * count
    for position in reversed(range(count - 1)):
        after[position] = min(after[position + 1], latest[position + 1])
    parts, begin, before = [], 0, -1
    for position in range(count):
        if position == count - 1 or before <= position <= after[position]:
            parts.append(operators[begin : position + 1])
            begin = position + 1
        before = max(before, first[position])
    return parts
