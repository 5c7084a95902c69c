"""Cutting a graph into the blocks that IOS searches one by one (IOS section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from hios.blocks import in_order, pieces
from hios.graph import Graph
from hios.schedulers.ios_space import Block, as_set, grown

#: States of a stated block beyond which a search of it would not end: where nothing cuts a network, all of it is one
#: block. The largest of the papers' networks, a stage of RandWire, has 5421.
LARGEST = 1 << 16


def blocks(graph: Graph, most_states: int) -> list[Block]:
    """All parts of `searched_parts` in one list."""
    return [part for parts in searched_parts(graph, most_states) for part in parts]


def searched_parts(graph: Graph, most_states: int) -> list[list[Block]]:
    """Blocks in an order in which they can run one after another, each as the parts that are searched one by one.

    A block of several parts may have better schedules than the search finds: no stage crosses a border of parts.

    Blocks are the blocks that the graph states, whole. Operators in no block, which is all of them where the graph
    states none, and those of a block of more than ``LARGEST`` states are cut into parts: first after every operator
    that has a path from or to each of the others, which loses nothing, since no stage of several groups can hold it;
    then into as many consecutive operators in topological order as have at most ``most_states`` states, and at least
    one.

    Args:
        graph: with or without blocks.
        most_states: largest number of states of a part, at least 2.

    Raises:
        ArtifactError: an operator is in two blocks, or the blocks cannot run one after another.
    """
    predecessors: list[list[int]] = [[] for _ in graph.operators]
    for edge in graph.edges:
        predecessors[graph.index[edge.target]].append(graph.index[edge.source])
    parts: list[list[Block]] = []
    loose: list[int] = []  # operators in no block, one after another
    for operators, stated in [*in_order(graph), ([], True)]:
        if not stated:
            loose += operators
            continue
        parts += _cut(loose, predecessors, most_states)
        loose = []
        if operators:
            whole = _parts(operators, predecessors, max(LARGEST, most_states))
            parts += [whole] if len(whole) == 1 else _cut(operators, predecessors, most_states)
    return parts


def _cut(operators: Sequence[int], predecessors: Sequence[Sequence[int]], most_states: int) -> list[list[Block]]:
    return [_parts(piece, predecessors, most_states) for piece in pieces(operators, predecessors)]


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
