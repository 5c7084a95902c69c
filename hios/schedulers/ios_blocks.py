"""How a graph is cut into the blocks that IOS searches one by one (IOS section 4.2)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from hios.errors import ArtifactError
from hios.graph import Graph
from hios.problem import positions
from hios.schedulers.ios_space import Block, as_set, grown


def blocks(graph: Graph, most_states: int) -> list[Block]:
    """Blocks in an order in which they can run one after another.

    They are the blocks that the graph states, whole, however large. Operators in no block, which is all of them
    where the graph states none, are cut into parts: first after every operator that has a path from or to each of
    the others, which loses nothing, since no stage of several groups can hold it; then into as many consecutive
    operators in topological order as have at most ``most_states`` states, and at least one.

    Args:
        graph: with or without blocks.
        most_states: largest number of states of a part, at least 2.

    Raises:
        ArtifactError: an operator is in two blocks, or the blocks cannot run one after another.
    """
    predecessors: list[list[int]] = [[] for _ in graph.operators]
    for edge in graph.edges:
        predecessors[graph.index[edge.target]].append(graph.index[edge.source])
    found: list[Block] = []
    loose: list[int] = []  # operators in no block, one after another
    for operators, stated in [*_in_order(graph), ([], True)]:
        if not stated:
            loose += operators
            continue
        for piece in _pieces(loose, predecessors):
            found += _parts(piece, predecessors, most_states)
        loose = []
        if operators:
            found.append(Block.of(operators, predecessors))
    return found


def _in_order(graph: Graph) -> list[tuple[list[int], bool]]:
    """Stated blocks, and every other operator alone, in topological order; says which are stated."""
    place = positions(graph.order)
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
    waiting = [0] * len(members)
    for edge in graph.edges:
        source, target = home[graph.index[edge.source]], home[graph.index[edge.target]]
        if source != target and target not in followers[source]:
            followers[source].add(target)
            waiting[target] += 1
    ready = [(block[0], number) for number, block in enumerate(members) if waiting[number] == 0]
    heapq.heapify(ready)
    order = []
    while ready:
        _, number = heapq.heappop(ready)
        order.append(number)
        for follower in followers[number]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, (members[follower][0], follower))
    if len(order) < len(members):
        stuck = next(number for number, count in enumerate(waiting) if count > 0)
        raise ArtifactError(
            f"{graph.source}: blocks: the block of operator {graph.operators[members[stuck][0]].id} waits for others "
            "that wait for it; allowed: blocks that can run one after another"
        )
    return order


def _pieces(operators: Sequence[int], predecessors: Sequence[Sequence[int]]) -> list[Sequence[int]]:
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
    pieces, begin, before = [], 0, -1
    for position in range(count):
        if position == count - 1 or before <= position <= after[position]:
            pieces.append(operators[begin : position + 1])
            begin = position + 1
        before = max(before, first[position])
    return pieces


def _parts(piece: Sequence[int], predecessors: Sequence[Sequence[int]], most_states: int) -> list[Block]:
    """Consecutive operators, as many together as have at most ``most_states`` states."""
    parts: list[list[int]] = []
    states: list[int] = []
    place: dict[int, int] = {}
    for operator in piece:
        needed = as_set(place[u] for u in predecessors[operator] if u in place)
        added = grown(states, len(place), needed)
        if not parts or len(states) + len(added) > most_states:
            parts.append([])
            place = {}
            states, added = [0], [1]
        parts[-1].append(operator)
        place[operator] = len(place)
        states += added
    return [Block.of(part, predecessors) for part in parts]
