"""Launches of a plan: what has to happen before what does, and nothing else is waited for."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection
from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hios import ALGORITHMS, Edge, Graph, Operator, Problem, schedule
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.errors import ScheduleError
from hios.platforms.cuda.plan import Flow, Lane, LaunchPlan, Value, launch_plan
from tests.problems import briefly, problems
from tests.runtime.schedules import random_plan, random_streams


def flow_of(graph: Graph, seed: int = 0) -> Flow:
    """Values of a graph without calls: operators with one or two outputs, some of which may lie in memory of others."""
    choose = random.Random(seed)
    makes = {
        operator.id: [("operator", operator.id, item) for item in range(choose.choice([1, 1, 2]))]
        for operator in graph.operators
    }
    reads: dict[str, list[Value]] = {operator.id: [] for operator in graph.operators}
    for edge in graph.edges:
        reads[edge.target].append(choose.choice(makes[edge.source]))
    views: dict[Value, list[Value]] = {}
    for operator, own in reads.items():
        own += [("input", "x", 0)] if not own or choose.random() < 0.1 else []
        if choose.random() < 0.3:
            views |= {value: choose.sample(own, min(len(own), 2)) for value in makes[operator]}
    read = {value for own in reads.values() for value in own}
    made = [value for own in makes.values() for value in own]
    outputs = [value for value in made if value not in read] or made[-1:]
    return Flow(reads, makes, outputs, views)


class Checker:
    """A plan's launches against the graph, by reachability: none of this uses the clocks that the planner has."""

    def __init__(self, graph: Graph, flow: Flow, plan: Plan, launching: LaunchPlan) -> None:
        self.graph, self.flow, self.plan, self.launch_plan = graph, flow, plan, launching
        self.launches = launching.launches
        self.before: list[list[int]] = []  # direct predecessors
        self.past: list[int] = []  # all of them, as bits
        last: dict[Lane, int] = {}
        for place, launch in enumerate(self.launches):
            assert all(other < place for other in launch.waits)  # launched in this order, nothing waits for ever
            direct = [*launch.waits, *([last[launch.lane]] if launch.lane in last else [])]
            self.before.append(direct)
            self.past.append(0)
            for other in direct:
                self.past[place] |= self.past[other] | 1 << other
            last[launch.lane] = place
        self.made = {
            (launch.lane.device, operator): place
            for place, launch in enumerate(self.launches)
            if launch.copied is None
            for operator in launch.operators
        }
        self.home = {operator: device for device, operator in self.made}
        self.copies = {
            (launch.lane.device, launch.copied): place
            for place, launch in enumerate(self.launches)
            if launch.copied is not None
        }

    def follows(self, later: int, earlier: int) -> bool:
        """Whether a launch begins after another one has finished."""
        return bool(self.past[later] >> earlier & 1)

    def check(self) -> None:
        """All of it."""
        self.check_places()
        self.check_values()
        self.check_waits()
        if isinstance(self.plan, StagedPlan):
            self.check_stages(self.plan)
        else:
            self.check_streams(self.plan)
        self.check_memory()

    def check_places(self) -> None:
        """Every operator is launched once, every stream is listed, and outputs are where they are made."""
        names = [name for launch in self.launches if launch.copied is None for name in launch.operators]
        assert sorted(names) == sorted(self.graph.index)
        assert set(self.launch_plan.lanes) == {launch.lane for launch in self.launches}
        assert [value for _, value in self.launch_plan.outputs] == list(self.flow.outputs)
        assert all(self.home[value[1]] == device for device, value in self.launch_plan.outputs)

    def check_values(self) -> None:
        """Whatever is read has been made, or has arrived, on the device that reads it; copies are made once."""
        needed = set()
        for (device, operator), place in self.made.items():
            for value in self.flow.reads[operator]:
                if value[0] == "operator" and self.home[value[1]] == device:
                    assert self.follows(place, self.made[device, value[1]])
                elif value[0] == "operator":
                    needed.add((device, value))
                    assert self.follows(place, self.copies[device, value])
        assert needed == set(self.copies)
        assert len(self.copies) == sum(launch.copied is not None for launch in self.launches)
        for (device, value), place in self.copies.items():
            assert self.launches[place].lane == Lane(device, source=self.home[value[1]])
            assert self.follows(place, self.made[self.home[value[1]], value[1]])

    def check_waits(self) -> None:
        """No wait is implied by others, and launches that are waited for know it."""
        for place, launch in enumerate(self.launches):
            for waited in launch.waits:
                assert not any(self.follows(other, waited) for other in self.before[place])
        awaited = {other for launch in self.launches for other in launch.waits}
        assert {place for place, launch in enumerate(self.launches) if launch.awaited} == awaited

    def check_stages(self, plan: StagedPlan) -> None:
        """Stages of a device follow one another, begin when all inputs are there, and outputs leave at their end."""
        ids = [operator.id for operator in self.graph.operators]
        for device, row in enumerate(plan.devices):
            places = [[[self.made[device, ids[place]] for place in group] for group in stage] for stage in row]
            for earlier, later in pairwise(places):
                assert all(self.follows(b, a) for b in chain(*later) for a in chain(*earlier))
            for number, (stage, own) in enumerate(zip(row, places, strict=True)):
                if not plan.is_merged(stage):
                    assert all(self.follows(b, a) for group in own for a, b in pairwise(group))
                names = [ids[place] for group in stage for place in group]
                arrivals = [self.copies.get((device, value)) for name in names for value in self.flow.reads[name]]
                assert all(self.follows(b, a) for b in chain(*own) for a in arrivals if a is not None)
                leaving = [place for (_, value), place in self.copies.items() if value[1] in names]
                assert all(self.follows(b, a) for b in leaving for a in chain(*own))
                for group, launched in enumerate(own):
                    for place in launched:
                        assert self.launches[place].stage == number
                        assert group in self.launches[place].streams

    def check_streams(self, plan: StreamPlan) -> None:
        """Operators of a stream follow one another on it."""
        ids = [operator.id for operator in self.graph.operators]
        for device, row in enumerate(plan.devices):
            for number, stream in enumerate(row):
                places = [self.made[device, ids[place]] for place in stream]
                assert places == sorted(places)
                assert {self.launches[place].lane for place in places} <= {Lane(device, number)}
                assert all(self.launches[place].streams == (number,) for place in places)

    def _makes(self, place: int) -> list[Value]:
        """The values that a launch makes on its device."""
        launch = self.launches[place]
        if launch.copied is not None:
            return [launch.copied]
        return [value for operator in launch.operators for value in self.flow.makes[operator]]

    def _reads(self, place: int) -> list[tuple[int, Value]]:
        """Device and value of what a launch reads."""
        launch = self.launches[place]
        if launch.copied is not None:
            return [(self.home[launch.copied[1]], launch.copied)]
        return [(launch.lane.device, value) for operator in launch.operators for value in self.flow.reads[operator]]

    def _views(self, place: int, value: Value) -> Collection[Value]:
        """In the memory of which values one that a launch makes may lie; a copy lies in none."""
        return () if self.launches[place].copied is not None else self.flow.views.get(value, ())

    def _maker(self, device: int, value: Value) -> int:
        home = self.home[value[1]]
        return self.made[device, value[1]] if home == device else self.copies[device, value]

    def _lies_in(self, device: int, value: Value) -> set[int]:
        """The launches in whose memory a value may lie."""
        makers, waiting = dict[Value, int](), [value]
        while waiting:
            value = waiting.pop()
            if value[0] == "operator" and value not in makers:
                makers[value] = self._maker(device, value)
                waiting += self._views(makers[value], value)
        return set(makers.values())

    def check_memory(self) -> None:
        """What is let go was used for the last time, on the stream that gets its memory, and as early as can be."""
        users = {place: {place} for place in range(len(self.launches))}
        for place in users:
            for device, value in self._reads(place):
                for made in self._lies_in(device, value):
                    users[made].add(place)
        kept = {self._maker(device, value) for device, value in self.launch_plan.outputs}
        expected: dict[int, list[Value]] = defaultdict(list)
        for made, own in users.items():
            again = [place for place in self._on_lane(made) if all(self.follows(place, user) for user in own)]
            if again and made not in kept:
                expected[again[0]] += self._makes(made)
        gone = {place: sorted(launch.lets_go) for place, launch in enumerate(self.launches) if launch.lets_go}
        assert gone == {place: sorted(own) for place, own in expected.items()}
        for seed in range(3):
            self.check_views(random.Random(seed))

    def check_views(self, choose: random.Random) -> None:
        """Whatever turns out to lie in whose memory, nothing is still used that the next launch may overwrite."""
        #: The launch that allocated the memory in which a value lies; None for that of inputs.
        lies_in: dict[tuple[int, Value], int | None] = {}
        users: dict[int, set[int]] = defaultdict(set)
        held: dict[int, list[tuple[int, Value]]] = defaultdict(list)
        for place, launch in enumerate(self.launches):
            device = launch.lane.device
            made = [(device, value) for value in self._makes(place)]
            for key in made:
                others = [(device, other) for other in self._views(place, key[1])]
                where = choose.choice([None, *others])
                lies_in[key] = place if where is None else lies_in.get(where)
            for key in (*made, *self._reads(place)):
                if (root := lies_in.get(key)) is not None:
                    users[root].add(place)
                    held[root] += [key] if key in made else []
        gone = {
            (launch.lane.device, value): place for place, launch in enumerate(self.launches) for value in launch.lets_go
        }
        for root, keys in held.items():
            if all(key in gone for key in keys):
                free = max(gone[key] for key in keys)
                for place in self._on_lane(root):
                    assert place < free or all(self.follows(place, user) for user in users[root])

    def _on_lane(self, place: int) -> list[int]:
        """Later launches on the same stream."""
        lane = self.launches[place].lane
        return [other for other in range(place + 1, len(self.launches)) if self.launches[other].lane == lane]


def _check(graph: Graph, flow: Flow, plan: Plan) -> LaunchPlan:
    launching = launch_plan(graph, flow, plan)
    Checker(graph, flow, plan, launching).check()
    return launching


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@given(instance=problems(), devices=st.integers(1, 4), seed=st.integers(0, 1000))
def test_launches_of_every_algorithm(name: str, instance: Problem, devices: int, seed: int) -> None:
    """Schedules of all algorithms, read back as plans, are launched in a safe order, with no wait too many."""
    scheduled = schedule(instance, name, devices if ALGORITHMS[name].several_devices else 1, briefly(name))
    _check(instance.graph, flow_of(instance.graph, seed), scheduled.plan(instance.graph))


@given(instance=problems(24), devices=st.integers(1, 4), streams=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_launches_of_any_plan(instance: Problem, devices: int, streams: int, seed: int) -> None:
    """The same of random stages and of random streams, whose launch order says what comes first."""
    graph, flow = instance.graph, flow_of(instance.graph, seed)
    _check(graph, flow, random_plan(graph, devices, seed))
    plan = random_streams(graph, devices, streams, seed)
    launching = _check(graph, flow, plan)
    launched = [graph.index[launch.operators[0]] for launch in launching.launches if launch.copied is None]
    assert launched == list(plan.launch)


def _graph(edges: list[tuple[str, str]]) -> Graph:
    names = dict.fromkeys(name for edge in edges for name in edge)
    return Graph("test", tuple(Operator(name, "task") for name in names), tuple(Edge(*edge) for edge in edges))


def _plain(graph: Graph) -> Flow:
    """One output an operator, no shared memory."""
    reads: dict[str, list[Value]] = {operator.id: [] for operator in graph.operators}
    for edge in graph.edges:
        reads[edge.target].append(("operator", edge.source, 0))
    makes: dict[str, list[Value]] = {name: [("operator", name, 0)] for name in reads}
    sources = {edge.source for edge in graph.edges}
    return Flow(reads, makes, [makes[name][0] for name in reads if name not in sources], {})


DIAMOND = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]


def test_sequential_schedules_wait_for_nothing() -> None:
    """On one stream nothing is waited for, and a value goes before the launch that follows its last reader."""
    graph = _graph(DIAMOND)
    launching = _check(graph, _plain(graph), StagedPlan((tuple(((place,),) for place in range(4)),)))
    assert [launch.waits for launch in launching.launches] == [()] * 4
    assert [[value[1] for value in launch.lets_go] for launch in launching.launches] == [[], [], [], ["a"]]


def test_groups_join_at_the_end_of_their_stage() -> None:
    """The stage of b and c begins after a and ends before d; c alone has to wait for another stream."""
    graph = _graph(DIAMOND)
    launching = _check(graph, _plain(graph), StagedPlan(((((0,),), ((1,), (2,)), ((3,),)),)))
    assert [(launch.operators[0], launch.lane.number, launch.waits) for launch in launching.launches] == [
        ("a", 0, ()),
        ("b", 0, ()),
        ("c", 1, (0,)),
        ("d", 0, (2,)),
    ]


def test_values_are_copied_once_after_their_stage() -> None:
    """What two stages of another device read arrives once; later stages do not wait for it again."""
    graph = _graph([("a", "b"), ("a", "c"), ("s", "b")])
    index = graph.index
    plan = StagedPlan(((((index["a"],), (index["s"],)),), (((index["b"],),), ((index["c"],),))))
    launching = _check(graph, _plain(graph), plan)
    rows = [(launch.operators[0], launch.copied is not None, launch.waits) for launch in launching.launches]
    assert rows == [
        ("a", False, ()),
        ("s", False, ()),
        ("a", True, (0, 1)),
        ("s", True, ()),
        ("b", False, (3,)),
        ("c", False, ()),
    ]


def test_memory_stays_while_a_view_is_read() -> None:
    """Memory of a is let go only after c, which reads a view of it."""
    graph = _graph([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])
    plain = _plain(graph)
    flow = Flow(plain.reads, plain.makes, plain.outputs, {("operator", "b", 0): [("operator", "a", 0)]})
    plan = StagedPlan((tuple(((place,),) for place in range(5)),))
    launching = _check(graph, flow, plan)
    assert [sorted(value[1] for value in launch.lets_go) for launch in launching.launches] == [
        [],
        [],
        [],
        ["a", "b"],
        ["c"],
    ]


def test_memory_stays_while_what_may_be_a_view_is_read() -> None:
    """A copy on the link of an arrival may not overwrite it while r reads v, which may lie in it, beside that copy."""
    graph = _graph([("s", "v"), ("v", "q"), ("v", "r"), ("q", "p"), ("p", "f"), ("p", "z"), ("z", "g")])
    plain, index = _plain(graph), graph.index
    flow = Flow(plain.reads, plain.makes, plain.outputs, {("operator", "v", 0): [("operator", "s", 0)]})
    devices = tuple((tuple(index[name] for name in own),) for own in ("spz", "vqrfg"))
    launch = tuple(index[name] for name in "svqrpfzg")
    launching = _check(graph, flow, StreamPlan(devices, launch))
    gone = {own.operators[0]: [value[1] for value in own.lets_go] for own in launching.launches if own.copied is None}
    assert gone == {"s": [], "v": [], "q": [], "r": [], "p": ["s"], "f": ["v", "q"], "z": [], "g": []}
    assert [own.lets_go for own in launching.launches if own.copied is not None] == [()] * 4


def test_memory_is_not_used_again_beside_a_reader() -> None:
    """Of two streams, the one that made a value may not use its memory while the other one still reads it."""
    graph = _graph([("a", "b"), ("a", "c"), ("c", "d"), ("b", "d")])
    index = graph.index
    streams = ((index["a"], index["b"], index["d"]), (index["c"],))
    launch = tuple(index[name] for name in ("a", "c", "b", "d"))
    launching = _check(graph, _plain(graph), StreamPlan((streams,), launch))
    assert {launch.operators[0]: [value[1] for value in launch.lets_go] for launch in launching.launches} == {
        "a": [],
        "c": [],
        "b": [],  # c may still run
        "d": ["a"],
    }


def test_deadlocks_are_refused() -> None:
    """Streams that wait for each other are refused, whatever the launch order."""
    graph = _graph([("a", "b"), ("c", "d")])
    index = graph.index
    rows = ((index["d"], index["a"]), (index["b"], index["c"]))
    with pytest.raises(ScheduleError, match=r"^the schedule deadlocks"):
        launch_plan(graph, _plain(graph), StreamPlan((rows,), tuple(range(4))))
