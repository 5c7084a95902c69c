"""Combined blocks, their endings, counted and found by number, and passes over them (Algorithm 2 of TOP).

A combined block is blocks of one or several networks that run together, as one problem (TOP section IV).

An ending is what IOS calls one (`hios.schedulers.ios_search`): at most s groups of at most r operators, each an
operator with all its descendants that are left. Four Inception blocks have 16 million of them, so they are not listed.
A block falls into sub-blocks without edges between them; the endings of all are the products of those of each. They
are numbered in the order of the first sub-block, then of the second, and so on, and within a sub-block by the number
of groups, so that the last ending is one of the largest.

Groups that share an operator are in conflict, so endings are the independent sets of a graph of conflicts. Their
numbers by size are a polynomial: those of parts without conflicts between them multiply, and those of a part are the
sets without one of its groups plus those with it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import msgspec

from hios.core.costs import Costs, Demand
from hios.core.graph import Call, Edge, Graph, Operator, Value
from hios.core.problem import Group, Problem, Stage, members
from hios.errors import HiosError
from hios.schedulers.deadline import check_deadline
from hios.schedulers.ios_search import as_set, blocks_and_pieces


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

    There is at least one block, none twice. With ``one_block`` all are one block of the graph, so that stages may span
    them; else each is one.

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


#: Groups of a connected part beyond which counting could take exponential time.
LARGEST = 32


class Choices(Protocol):
    """Sets of groups; ``counts[k]`` is the number of those with k groups."""

    counts: tuple[int, ...]

    def choice(self, size: int, index: int) -> tuple[int, ...]:
        """The set of ``size`` groups with a number from 0 to ``counts[size]`` - 1, as positions of groups."""


class _OneOf:
    """No group, or one of several that are all in conflict."""

    def __init__(self, members: tuple[int, ...]) -> None:
        self._members = members
        self.counts: tuple[int, ...] = (1, len(members)) if members else (1,)

    def choice(self, size: int, index: int) -> tuple[int, ...]:
        return (self._members[index],) if size else ()


class _Branch:
    """The sets without a group, then those with it."""

    def __init__(self, member: int, without: Choices, beside: Choices, most: int) -> None:
        self._member, self._without, self._beside = member, without, beside
        both = itertools.zip_longest(without.counts, (0, *beside.counts), fillvalue=0)
        self.counts: tuple[int, ...] = tuple(map(sum, both))[: most + 1]

    def choice(self, size: int, index: int) -> tuple[int, ...]:
        first = self._without.counts[size] if size < len(self._without.counts) else 0
        if index < first:
            return self._without.choice(size, index)
        return (self._member, *self._beside.choice(size - 1, index - first))


class _Product:
    """A set from each of several parts, in the order of the first part, then of the second, and so on."""

    def __init__(self, parts: Sequence[Choices], most: int) -> None:
        self._parts = parts
        self._rest: list[tuple[int, ...]] = [(1,)]
        for part in reversed(parts):
            self._rest.append(product(part.counts, self._rest[-1], most))
        self._rest.reverse()
        self.counts = self._rest[0]

    def choice(self, size: int, index: int) -> tuple[int, ...]:
        chosen: tuple[int, ...] = ()
        for part, rest in zip(self._parts, self._rest[1:], strict=True):
            for own, count in enumerate(part.counts[: size + 1]):
                others = rest[size - own] if size - own < len(rest) else 0
                if index < count * others:
                    break
                index -= count * others
            place, index = divmod(index, others)
            chosen += part.choice(own, place)
            size -= own
        return chosen


def independent_sets(groups: Sequence[int], most: int) -> Choices:
    """The sets of at most ``most`` groups, given as sets of operators, that have no operator in common.

    Where more than ``LARGEST`` groups are connected, each in conflict with only some of the others, those of several
    operators with the most conflicts are left out.
    """
    conflicts = [
        sum(1 << other for other, group in enumerate(groups) if group & own and other != place)
        for place, own in enumerate(groups)
    ]
    return _counted((1 << len(groups)) - 1, groups, conflicts, most, {})


def _counted(
    among: int, groups: Sequence[int], conflicts: Sequence[int], most: int, known: dict[int, Choices]
) -> Choices:
    if among not in known:
        parts = list(_connected(among, conflicts))
        made = [_part(part, groups, conflicts, most, known) for part in parts]
        known[among] = made[0] if len(made) == 1 else _Product(made, most)
    return known[among]


def _part(part: int, groups: Sequence[int], conflicts: Sequence[int], most: int, known: dict[int, Choices]) -> Choices:
    """The sets within a connected part."""
    degree = _degrees(part, conflicts)
    if _all_in_conflict(degree):
        return _OneOf(tuple(degree))
    if len(degree) > LARGEST:
        return _counted(_thinned(part, groups, conflicts), groups, conflicts, most, known)
    worst = max(degree, key=degree.__getitem__)
    without = _counted(part ^ (1 << worst), groups, conflicts, most, known)
    beside = _counted(part & ~(1 << worst) & ~conflicts[worst], groups, conflicts, most, known)
    return _Branch(worst, without, beside, most)


def _thinned(part: int, groups: Sequence[int], conflicts: Sequence[int]) -> int:
    """A connected part without the groups that are left out, so that all of what is connected can be counted."""
    kept, waiting = 0, [part]
    while waiting:  # a loop, as thousands may be left out
        part = waiting.pop()
        degree = _degrees(part, conflicts)
        if len(degree) <= LARGEST or _all_in_conflict(degree):
            kept |= part
            continue
        worst = max((m for m in degree if groups[m].bit_count() > 1), key=degree.__getitem__)
        waiting += _connected(part ^ (1 << worst), conflicts)
    return kept


def _degrees(part: int, conflicts: Sequence[int]) -> dict[int, int]:
    """The number of conflicts of every group within a part."""
    return {member: (conflicts[member] & part).bit_count() for member in members(part)}


def _all_in_conflict(degree: Mapping[int, int]) -> bool:
    return all(count == len(degree) - 1 for count in degree.values())


def _connected(among: int, conflicts: Sequence[int]) -> Iterator[int]:
    """The parts without conflicts between them, by their first groups."""
    while among:
        part = waiting = among & -among
        while waiting:
            member = (waiting & -waiting).bit_length() - 1
            added = conflicts[member] & among & ~part
            part |= added
            waiting = (waiting & (waiting - 1)) | added
        yield part
        among &= ~part


def product(first: Sequence[int], second: Sequence[int], most: int) -> tuple[int, ...]:
    """The product of two polynomials up to the power ``most``."""
    counts = [0] * min(len(first) + len(second) - 1, most + 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second[: len(counts) - i]):
            counts[i + j] += a * b
    return tuple(counts)


#: Rounds in which operators are distinguished by their neighbors.
_ROUNDS = 8


class SubBlock:
    """Operators that are connected, as bits by their places in ``operators``, with the limits r and s of stages.

    ``operators`` are numbers in topological order; ``predecessors`` has those of each of them, and others do not count.
    """

    def __init__(self, operators: Sequence[int], predecessors: Sequence[Iterable[int]], r: int, s: int) -> None:
        place = {operator: position for position, operator in enumerate(operators)}
        self.operators = tuple(operators)
        self.r, self.s = r, s
        self.predecessors = [as_set(place[u] for u in before if u in place) for before in predecessors]
        self.successors = [0] * len(operators)
        for position, before in enumerate(self.predecessors):
            for predecessor in members(before):
                self.successors[predecessor] |= 1 << position
        self._states: dict[int, SubBlockState] = {}
        whole = (1 << len(operators)) - 1
        self.start = self.state(whole, as_set(p for p, after in enumerate(self.successors) if not after))

    def state(self, left: int, leaves: int) -> SubBlockState:
        """The state in which some operators are left, ``leaves`` being those without a successor among them."""
        if left not in self._states:
            self._states[left] = SubBlockState(self, left, leaves)
        return self._states[left]


class SubBlockState:
    """What is left of a sub-block; ``counts[k]`` is the number of its endings with k groups, k = 0 included."""

    def __init__(self, block: SubBlock, left: int, leaves: int) -> None:
        self.block, self.left, self.leaves = block, left, leaves
        self._groups = self._small_groups()
        self._choices = independent_sets(self._groups, block.s)
        self.counts = self._choices.counts

    def _small_groups(self) -> list[int]:
        """Every operator with its descendants that are left, where these are at most r.

        All successors of such an operator head such groups themselves, so they are found from the leaves upwards.
        """
        block = self.block
        groups: dict[int, int] = {}
        waiting = list(members(self.leaves))
        for position in waiting:  # grows
            group = 1 << position
            for successor in members(block.successors[position] & self.left):
                group |= groups[successor]
            if position in groups or group.bit_count() > block.r:
                continue
            groups[position] = group
            waiting += [
                before
                for before in members(block.predecessors[position])
                if all(after in groups for after in members(block.successors[before] & self.left))
            ]
        return [groups[root] for root in sorted(groups, key=lambda root: self._rank(root, groups[root]))]

    def _rank(self, root: int, group: int) -> tuple[int, int, int]:
        """Place of a group among all: last come those that make no other operator wait for their stage, long ones."""
        outside = 0
        for position in members(group & ~(1 << root)):
            outside |= self.block.predecessors[position]
        return -(outside & self.left & ~group).bit_count(), group.bit_count(), -root

    def ending(self, groups: int, index: int) -> tuple[int, ...]:
        """The ending of ``groups`` groups with a number from 0 to ``counts[groups]`` - 1, as its groups."""
        return tuple(self._groups[place] for place in self._choices.choice(groups, index))

    def after(self, groups: Iterable[int]) -> SubBlockState:
        """What is left when an ending has been taken out."""
        taken = 0
        for group in groups:
            taken |= group
        if not taken:
            return self
        left = self.left & ~taken
        leaves = self.leaves & ~taken
        for position in members(taken):
            for before in members(self.block.predecessors[position] & left):
                if not self.block.successors[before] & left:
                    leaves |= 1 << before
        return self.block.state(left, leaves)


class Ending(NamedTuple):
    """A stage, and what is left of the combined block before it."""

    stage: Stage
    left: CombinedState


class CombinedState:
    """What is left of a combined block; ``count`` is M, the number of its endings."""

    def __init__(self, states: tuple[SubBlockState, ...]) -> None:
        self.states = states
        self._most = most = states[0].block.s if states else 0
        ways: list[tuple[int, ...]] = [(1,)]
        for state in reversed(states):
            ways.append(product(state.counts, ways[-1], most))
        #: For every sub-block and number of groups, in how many ways it and those after it have at most that many.
        self._at_most = [_cumulative(counts, most) for counts in reversed(ways)]
        self.count = self._at_most[0][most] - 1

    @property
    def key(self) -> Hashable:
        """Equal for states of one combined block in which the same operators are left."""
        return tuple(state.left for state in self.states)

    @property
    def leaves(self) -> list[int]:
        """Numbers of the operators without a successor that is left."""
        return [state.block.operators[place] for state in self.states for place in members(state.leaves)]

    def ending(self, index: int) -> Ending:
        """The ending with a number from 0 to ``count`` - 1; an IndexError if there is none of it."""
        if not 0 <= index < self.count:
            raise IndexError(f"ending {index}: found {self.count} endings")
        number, left = index + 1, self._most  # number 0 is that of no group at all
        stage: list[Group] = []
        states: list[SubBlockState] = []
        for state, at_most in zip(self.states, self._at_most[1:], strict=True):
            for groups, count in enumerate(state.counts[: left + 1]):
                others = at_most[left - groups]
                if number < count * others:
                    break
                number -= count * others
            place, number = divmod(number, others)
            chosen = state.ending(groups, place)
            stage += [tuple(state.block.operators[p] for p in members(group)) for group in chosen]
            states.append(state.after(chosen))
            left -= groups
        return Ending(tuple(stage), CombinedState(tuple(states)))


def combined(blocks: Iterable[SubBlock]) -> CombinedState:
    """All operators of a combined block, given by its sub-blocks."""
    return CombinedState(tuple(block.start for block in blocks))


def labels_of(problem: Problem) -> list[Any]:
    """Labels for `sub_blocks`: what the policy and the times of stages tell operators apart by."""
    return [
        (operator.type, problem.time[v], problem.utilization[v]) for v, operator in enumerate(problem.graph.operators)
    ]


def sub_blocks(
    operators: Sequence[int], predecessors: Sequence[Iterable[int]], labels: Sequence[Any], r: int, s: int
) -> list[SubBlock]:
    """The connected parts of some operators of a graph, in an order that does not depend on how they are numbered.

    ``operators`` are in topological order; ``predecessors`` and ``labels`` are those of every operator of the graph;
    labels are sortable and hashable values that distinguish operators.
    """
    inside = set(operators)
    before = {v: sorted({u for u in predecessors[v] if u in inside}) for v in operators}
    depth: dict[int, int] = {}
    home: dict[int, int] = {v: v for v in operators}

    def root(operator: int) -> int:
        while home[operator] != operator:
            home[operator] = home[home[operator]]
            operator = home[operator]
        return operator

    for v in operators:
        depth[v] = max((depth[u] + 1 for u in before[v]), default=0)
        for u in before[v]:
            home[root(u)] = root(v)
    color = _colors(operators, before, labels)
    parts: dict[int, list[int]] = {}
    for v in sorted(operators, key=lambda v: (depth[v], color[v])):
        parts.setdefault(root(v), []).append(v)
    ordered = sorted(parts.values(), key=lambda part: [color[v] for v in part])
    return [SubBlock(part, [before[v] for v in part], r, s) for part in ordered]


def _colors(operators: Sequence[int], before: dict[int, list[int]], labels: Sequence[Any]) -> dict[int, int]:
    """Numbers that are equal only for operators that look alike, their neighbors and theirs included."""
    after: dict[int, list[int]] = {v: [] for v in operators}
    for v, predecessors in before.items():
        for u in predecessors:
            after[u].append(v)
    color = _ranks({v: labels[v] for v in operators})

    def colors(neighbors: Sequence[int]) -> tuple[int, ...]:
        return tuple(sorted(color[u] for u in neighbors))

    for _ in range(_ROUNDS):
        classes = len(set(color.values()))
        color = _ranks({v: (color[v], colors(before[v]), colors(after[v])) for v in operators})
        if len(set(color.values())) == classes:
            break
    return color


def _ranks(values: dict[int, Any]) -> dict[int, int]:
    rank = {value: number for number, value in enumerate(sorted(set(values.values())))}
    return {v: rank[value] for v, value in values.items()}


def _cumulative(counts: Sequence[int], most: int) -> list[int]:
    return list(itertools.accumulate([*counts[: most + 1], *[0] * (most + 1 - len(counts))]))


#: Numbers up to here are exact as floats.
_EXACT = 2**53
#: m of a state, at least 0; 1 and more stand for the last ending.
Action = Callable[[CombinedState], float]

#: Share of the steps of later passes in which a random ending is taken.
_EXPLORED = 0.25


def largest(state: CombinedState) -> float:
    """The action without a policy: the last ending, one of those with most groups."""
    return 1.0


def index_of(action: float, count: int) -> int:
    """The index of an ending, floor(m M), the last one where m is 1."""
    if count <= _EXACT:
        return min(int(action * count), count - 1)
    return min(int(action * _EXACT) * count // _EXACT, count - 1)  # there may be more endings than floats reach


@dataclass(frozen=True, slots=True)
class _Tail:
    """The best that is known for a state: the ending to take, and the time of all that is left."""

    ending: Ending
    latency_ms: float


class Passes:
    """Several passes, of which each profits from those before.

    The first takes the actions of the policy. In later ones a quarter of the steps, at random, take any ending. The
    others take the ending that led to the least time from a state on where it was reached before, and the action of
    the policy elsewhere.

    ``stage_ms`` gives the time of a stage in milliseconds; ``seed`` is that of the random steps.
    """

    def __init__(self, stage_ms: Callable[[Stage], float], action: Action, seed: int) -> None:
        self._stage_ms, self._action = stage_ms, action
        self._chance = random.Random(seed)
        self._best: dict[Hashable, _Tail] = {}

    def run(self, start: CombinedState, passes: int) -> tuple[list[Stage], float]:
        """The best stages found, in the order in which they run, and their time in milliseconds."""
        for number in range(passes):
            self._run(start, explore=number > 0)
        stages: list[Stage] = []
        state = start
        while state.count:
            stages.append(self._best[state.key].ending.stage)
            state = self._best[state.key].ending.left
        return stages[::-1], self._best[start.key].latency_ms if stages else 0.0

    def _run(self, start: CombinedState, *, explore: bool) -> None:
        taken: list[tuple[Hashable, Ending]] = []
        state = start
        while state.count:
            check_deadline()
            key = state.key
            ending = self._chosen(state, key, explore=explore)
            taken.append((key, ending))
            state = ending.left
        for key, ending in reversed(taken):
            rest = self._best[ending.left.key].latency_ms if ending.left.count else 0.0
            latency = self._stage_ms(ending.stage) + rest
            known = self._best.get(key)
            if known is None or latency < known.latency_ms:
                self._best[key] = _Tail(ending, latency)

    def _chosen(self, state: CombinedState, key: Hashable, *, explore: bool) -> Ending:
        if explore and self._chance.random() < _EXPLORED:
            return state.ending(self._chance.randrange(state.count))
        if (known := self._best.get(key)) is not None:
            return known.ending
        return state.ending(index_of(self._action(state), state.count))
