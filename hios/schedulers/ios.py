"""IOS: dynamic programming over the last stage of every set of operators (Algorithm 1 of IOS).

`searched_parts` cuts a graph into the blocks that are searched one by one (IOS section 4.2).
"""

from __future__ import annotations

import importlib.util
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from hios.core.blocks import pieces
from hios.core.graph import Graph
from hios.core.problem import Problem, Stage
from hios.core.schedule import Solution, StagedPlan
from hios.core.sums import ROUNDING
from hios.schedulers.deadline import check_deadline
from hios.schedulers.ios_search import (
    MOST_OPERATORS,
    SearchedBlock,
    SearchSpace,
    StageTimes,
    as_set,
    blocks_and_pieces,
    grown,
    network_space,
)
from hios.schedulers.registry import Parameter, register

_NEVER = float("inf")

#: States of a part of a graph without blocks: 200 operators in 14 layers take about half a second, and more states gain
#: nothing there.
STATES = 1024

#: States of a stated block beyond which a search would not end, so that the block is cut: where nothing cuts a network,
#: all of it is one block. The largest of the papers' networks, a stage of RandWire, has 5421.
LARGEST = 1 << 16

#: States of a graph from which on the search is compiled, if it can be: in Python these take half a second, which is
#: what it takes to load numba.
COMPILED_FROM = 4096

#: A stage of a block by positions, and whether its operators are merged.
_Found = tuple[list[tuple[int, ...]], bool]
#: Cached stages of blocks, by all that their search depends on, by contention and by parameters; None without a cache.
_searched: ContextVar[dict[Any, dict[Any, list[_Found]]] | None] = ContextVar("searched", default=None)


@contextmanager
def searching_once() -> Iterator[None]:
    """A context in which blocks that are alike in structure and costs are searched only once.

    The problems may differ in transfers or in the number of devices. Plans stay the same; the scheduling time of all
    but the first is meaningless.
    """
    token = _searched.set({})
    try:
        yield
    finally:
        _searched.reset(token)


@register(
    "ios",
    paper="IOS (MLSys 2021), Algorithm 1",
    summary="best stages of one device by dynamic programming, block by block, with operator merge",
    several_devices=False,
    demand="slots, arithmetic and bandwidth, in t(S)",
    parameters=(
        Parameter("r", 3, "largest number of operators in a group", minimum=1),
        Parameter("s", 8, "largest number of groups in a stage", minimum=1),
        Parameter(
            "mode", "both", "stages of groups, of a merged operator, or both", choices=("both", "parallel", "merge")
        ),
        Parameter("states", STATES, "largest number of states of a part of a graph without blocks", minimum=2),
    ),
)
def ios(
    problem: Problem, devices: int, *, r: int = 3, s: int = 8, mode: str = "both", states: int = STATES
) -> Solution:
    """The best schedule of every block among those whose stages are endings pruned by r and s.

    cost[S] = min over endings S' of S of cost[S - S'] + t(S'), with the last stage recorded that gives it. t(S') is
    the time of its groups run concurrently or of its operators merged into one, whichever is less: both are
    measured where costs.json holds them and modeled otherwise (``Problem.stage_ms``, ``Problem.merge_ms``).

    Modes are those of section 6.1: ``both`` (IOS-Both), ``parallel`` (IOS-Parallel: no merges) and ``merge``
    (IOS-Merge: a stage is one group or one merged operator; the paper's sentence on it repeats that on IOS-Parallel,
    but where nothing can be merged it "gets the same schedule as Sequential"). r and s as in the text of section
    7.1; that of section 4.3 calls both s. Values of at least the number of operators prune nothing.

    Choices where the paper is silent, and deviations:

    - Endings are rooted, as in the released program: see ``SearchedBlock.endings``.
    - Blocks are those that the graph states; graphs without, and blocks too large for any search, are cut into parts,
      whose size ``states`` limits by the number of their states, which is what the search takes (see ``blocks``).
      Borders of blocks are borders of stages. ``cuts`` of the result counts the borders that ``states`` put inside
      of blocks; with none, the schedule of every block is the best that r and s allow. Blocks that are alike in
      structure and costs are searched once.
    - Merging is restricted to where it is correct (``hios.core.merging``), which the released program does not check.
    - At equal times the groups run concurrently, and among equal schedules the first one is taken, with endings
      of fewer groups tried first; Algorithm 1 merges at equal times (Lines 30 to 33).

    Where no stage was measured and nothing can be merged, the search of large graphs is compiled (extra ``opt``).

    O(transitions), at most O((n/d + 1)^d (r + 1)^s) for a block of n operators and width d.
    """
    stages: list[Stage] = []
    merges: set[frozenset[int]] = set()
    kept = _searched.get()
    # What all blocks of a problem have in common.
    settings = problem.alpha, problem.launch_ms, problem.barrier_ms, r, s, mode
    results = {} if kept is None or type(problem) is not Problem else kept.setdefault(settings, {})
    parts_of_blocks = searched_parts(problem.graph, states)
    parts = [part for parts_of_block in parts_of_blocks for part in parts_of_block]
    search = _Search(problem, r, s, mode, _pays_to_compile(parts))
    for block, likeness in zip(parts, _likenesses(problem, parts), strict=True):
        if likeness not in results:
            results[likeness] = search.best(block)
        for groups, merged in results[likeness]:
            stages.append(tuple(tuple(block.operators[position] for position in group) for group in groups))
            if merged:
                merges.add(frozenset(block.operators[position] for (position,) in groups))
    return Solution(
        StagedPlan((tuple(stages),), frozenset(merges)),
        cuts=sum(len(parts_of_block) - 1 for parts_of_block in parts_of_blocks),
    )


def _pays_to_compile(parts: Sequence[SearchedBlock]) -> bool:
    """Whether the search takes longer than loading the compiler."""
    if importlib.util.find_spec("numba") is None:
        return False
    return sum(len(part.states()) for part in parts) >= COMPILED_FROM


def search_space(graph: Graph, block: int | None = None, *, r: int | None = None, s: int | None = None) -> SearchSpace:
    """Number of states, transitions (S, S') and schedules of a block or a network (IOS table 1).

    ``block`` is a number in the order in which blocks run; None: the network, whose blocks' states and transitions add
    up and whose blocks' schedules multiply. Limits are those of the algorithm, None for any.

    Raises:
        ArtifactError: the blocks cannot run one after another.
    """
    parts = blocks(graph, STATES)
    return network_space(parts if block is None else [parts[block]], r, s)


@dataclass(frozen=True)
class _Search:
    """Algorithm 1 for a block."""

    problem: Problem
    r: int
    s: int
    mode: str
    compiled: bool

    def best(self, block: SearchedBlock) -> list[_Found]:
        """INTEROPERATORSCHEDULER: the stages of the best schedule, in order.

        States are taken in ascending order instead of recursively (SCHEDULER): what is left of a state after its
        last stage is a smaller number.
        """
        times = StageTimes(self.problem, block, self.mode)
        fits = times.is_modeled and not times.can_merge and len(block.operators) <= MOST_OPERATORS
        if self.compiled and fits:
            from hios.schedulers.ios_kernel import best_endings

            choice = best_endings(self.problem, block, self.r, self.s, single_groups=self.mode == "merge")
        else:
            choice = self._choices(block, times)
        stages = []
        state = (1 << len(block.operators)) - 1
        while state:
            ending = choice[state]
            stages.append((block.groups(ending), ending in times.merged))
            state ^= ending
        return stages[::-1]

    def _choices(self, block: SearchedBlock, times: StageTimes) -> dict[int, int]:
        """The last stage of the best schedule of every state."""
        cost = {0: 0.0}
        choice: dict[int, int] = {}
        for state in block.states()[1:]:
            check_deadline()
            best = limit = _NEVER
            for ending in block.endings(state, self.r, self.s):
                latency = cost[state ^ ending] + times[ending]
                if latency < limit:
                    best, choice[state] = latency, ending
                    limit = best * (1 - ROUNDING)
            cost[state] = best
        return choice


def _likenesses(problem: Problem, parts: Sequence[SearchedBlock]) -> list[Any]:
    """For every block a key of all that its search depends on; equal keys have equal solutions."""
    home = {operator: (number, place) for number, b in enumerate(parts) for place, operator in enumerate(b.operators)}
    measured: list[set[Any]] = [set() for _ in parts]
    for stage, time in problem.measured.items():
        places = [[home[operator] for operator in group] for group in stage]
        if len(inside := {number for group in places for number, _ in group}) == 1:
            key = frozenset(tuple(place for _, place in group) for group in places)
            measured[inside.pop()].add(("stage", key, time))
    for merge, time in problem.measured_merges.items():
        if len(inside := {home[operator][0] for operator in merge}) == 1:
            measured[inside.pop()].add(("merge", frozenset(home[operator][1] for operator in merge), time))
    return [
        (
            block.predecessors,
            tuple(problem.time[operator] for operator in block.operators),
            tuple((problem.demand or problem.utilization)[operator] for operator in block.operators),
            _convolutions(problem, block),
            frozenset(own),
        )
        for block, own in zip(parts, measured, strict=True)
    ]


def _convolutions(problem: Problem, block: SearchedBlock) -> tuple[Any, ...]:
    """What can be merged inside a block, the values that convolutions read numbered as they come."""
    names: dict[Any, int] = defaultdict(lambda: len(names))
    members = [problem.convolutions[operator] for operator in block.operators]
    return tuple(None if m is None else replace(m, value=("", "", names[m.value])) for m in members)


def blocks(graph: Graph, most_states: int) -> list[SearchedBlock]:
    """All parts of `searched_parts` in one list."""
    return [part for parts in searched_parts(graph, most_states) for part in parts]


def searched_parts(graph: Graph, most_states: int) -> list[list[SearchedBlock]]:
    """Blocks in an order in which they can run one after another, each as the parts that are searched one by one.

    A block of several parts may have better schedules than the search finds: no stage crosses a border of parts.

    Blocks are the blocks that the graph states, whole. Operators in no block, which is all of them where the graph
    states none, and those of a block of more than ``LARGEST`` states are cut into parts: first after every operator
    that has a path from or to each of the others, which loses nothing, since no stage of several groups can hold it;
    then into as many consecutive operators in topological order as have at most ``most_states`` states, and at least
    one. ``most_states`` is at least 2.

    Raises:
        ArtifactError: an operator is in two blocks, or the blocks cannot run one after another.
    """
    predecessors: list[list[int]] = [[] for _ in graph.operators]
    for edge in graph.edges:
        predecessors[graph.index[edge.target]].append(graph.index[edge.source])
    parts: list[list[SearchedBlock]] = []
    for operators, stated in blocks_and_pieces(graph, predecessors):
        whole = _parts(operators, predecessors, max(LARGEST, most_states) if stated else most_states)
        if stated and len(whole) > 1:
            parts += [_parts(piece, predecessors, most_states) for piece in pieces(operators, predecessors)]
        else:
            parts.append(whole)
    return parts


def _parts(piece: Sequence[int], predecessors: Sequence[Sequence[int]], most_states: int) -> list[SearchedBlock]:
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
    return [SearchedBlock.of(part, predecessors) for part in parts]
