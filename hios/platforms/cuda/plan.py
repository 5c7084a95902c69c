"""A schedule as launches on the streams of GPUs.

A stream runs its launches in order; streams are ordered only by events: a launch waits for its dependencies, except
those implied by earlier waits of its stream. A value that another device needs is copied there once, right after it was
produced, on a stream for values from that device. The plan also says when the memory of each value may be reused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, zip_longest

from hios.core.graph import Graph, topological_order
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.errors import ScheduleError

#: ("operator", id, item) or ("input", name, 0).
Value = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Lane:
    """A stream of a device; with ``source``, the stream on which values from that device arrive."""

    device: int
    number: int = 0
    source: int | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """What operators read and produce, by id, and the outputs of the network.

    Attributes:
        reads: of every operator what it reads, inputs of the network too, each value once.
        makes: of every operator its outputs.
        outputs: of the network.
        views: for an output that may lie in the memory of what its operator reads, what that is. Whether it does may
            depend on strides, which differ between devices, as copies between them are dense.
    """

    reads: Mapping[str, Sequence[Value]]
    makes: Mapping[str, Sequence[Value]]
    outputs: Sequence[Value]
    views: Mapping[Value, Collection[Value]]


@dataclass(slots=True)
class Step:
    """A launch with its dependencies: earlier launches by position, and values on its device or on the source."""

    lane: Lane
    operators: tuple[str, ...]
    streams: tuple[int, ...]
    stage: int | None
    needs: list[int]
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]
    copied: Value | None = None


class VectorClocks:
    """For every stream, how many of its launches are known to have finished before each launch.

    Attributes:
        place: number of every launch on its stream, from 1.
        before: clock with which every launch begins.
        waits: for every launch, the earlier ones that it has to wait for.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.lanes = [step.lane for step in steps]
        self.place: list[int] = []
        self.before: list[dict[Lane, int]] = []
        self.waits: list[tuple[int, ...]] = []
        after: list[dict[Lane, int]] = []
        last: dict[Lane, int] = {}
        for number, step in enumerate(steps):
            clock = dict(after[last[step.lane]]) if step.lane in last else {}
            waits = []
            # The latest first, as it may imply the others but not vice versa.
            for other in sorted(set(step.needs), reverse=True):
                if clock.get(self.lanes[other], 0) < self.place[other]:
                    waits.append(other)
                    for lane, count in after[other].items():
                        clock[lane] = max(clock.get(lane, 0), count)
            self.before.append(clock)
            self.place.append(clock.get(step.lane, 0) + 1)
            after.append({**clock, step.lane: self.place[number]})
            self.waits.append(tuple(sorted(waits)))
            last[step.lane] = number

    def begins_after(self, launch: int, others: Iterable[int]) -> bool:
        """Whether a launch begins after others have finished."""
        clock = self.before[launch]
        return all(clock.get(self.lanes[other], 0) >= self.place[other] for other in others)


@dataclass(frozen=True, slots=True)
class Launch:
    """Work for one stream: an operator, several merged into one, or a copy.

    Attributes:
        lane: the stream.
        operators: ids; of a copy that of the operator whose value it copies.
        streams: of every operator, its stream in the schedule, or its group in the stage; 0 of a copy.
        stage: of the operators; None in stream schedules, and of a copy.
        copied: the value, of a copy.
        waits: earlier launches of other streams, by place, for which it has to wait.
        awaited: whether a later launch waits for this one.
        lets_go: values that its stream made, which nothing uses from here on, nor what may lie in their memory.
    """

    lane: Lane
    operators: tuple[str, ...]
    streams: tuple[int, ...]
    stage: int | None
    copied: Value | None
    waits: tuple[int, ...]
    awaited: bool
    lets_go: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Launches in order, their streams in order of first use, and where outputs are produced."""

    launches: tuple[Launch, ...]
    lanes: tuple[Lane, ...]
    outputs: tuple[tuple[int, Value], ...]


def launch_plan(graph: Graph, flow: Flow, plan: Plan) -> LaunchPlan:
    """The launches of a plan.

    A stage begins when the stage before it on its device has finished and all its inputs have arrived; its outputs
    leave when all of it has finished. Streams keep their order, and launches that of ``plan.launch`` as far as it
    follows from the plan.

    Raises:
        ScheduleError: the plan deadlocks.
    """
    draft = _Draft(graph, flow, plan)
    if isinstance(plan, StagedPlan):
        draft.launch_stages(plan)
    else:
        draft.launch_streams(plan)
    order = VectorClocks(draft.steps)
    awaited = {other for waits in order.waits for other in waits}
    lets_go = let_go(draft.steps, order, flow, draft.home, draft.outputs)
    launches = tuple(
        Launch(
            step.lane,
            step.operators,
            step.streams,
            step.stage,
            step.copied,
            order.waits[place],
            place in awaited,
            tuple(lets_go[place]),
        )
        for place, step in enumerate(draft.steps)
    )
    return LaunchPlan(launches, tuple(dict.fromkeys(step.lane for step in draft.steps)), draft.outputs)


def runs(planned: LaunchPlan) -> list[tuple[int, ...]]:
    """Launches in a row on their stream, by place, of which the first alone waits and the last alone is waited for.

    Every operator is in one of them. Copies, and operators that are merged, are in none.
    """
    made: list[list[int]] = []
    open_runs: dict[Lane, list[int]] = {}
    for place, launch in enumerate(planned.launches):
        if launch.copied is not None or len(launch.operators) > 1:
            open_runs.pop(launch.lane, None)
            continue
        if launch.waits or launch.lane not in open_runs:
            open_runs[launch.lane] = []
            made.append(open_runs[launch.lane])
        open_runs[launch.lane].append(place)
        if launch.awaited:
            del open_runs[launch.lane]
    return [tuple(run) for run in made]


def joined(planned: LaunchPlan, together: Iterable[tuple[int, ...]]) -> LaunchPlan:
    """The plan with some of its `runs` as one launch each, at the place of the first.

    All that the others read has been launched by then, as they wait for nothing. What they would let go of is let go of
    by the next launch on their stream.
    """
    run_of = {place: run for run in together for place in run}
    places: dict[int, int] = {}
    late: dict[Lane, list[Value]] = defaultdict(list)
    launches: list[Launch] = []
    for place, launch in enumerate(planned.launches):
        if place in places:
            continue
        run = run_of.get(place, (place,))
        places.update(dict.fromkeys(run, len(launches)))
        own = [planned.launches[other] for other in run]
        launches.append(
            replace(
                launch,
                operators=tuple(name for each in own for name in each.operators),
                streams=tuple(stream for each in own for stream in each.streams),
                waits=tuple(sorted({places[other] for other in launch.waits})),
                awaited=own[-1].awaited,
                lets_go=(*late.pop(launch.lane, ()), *launch.lets_go),
            )
        )
        late[launch.lane] += [value for each in own[1:] for value in each.lets_go]
    return replace(planned, launches=tuple(launches))


class _Draft:
    """Launches in order, each with its dependencies."""

    def __init__(self, graph: Graph, flow: Flow, plan: Plan) -> None:
        self.graph = graph
        self.flow = flow
        self.steps: list[Step] = []
        self.home = {graph.operators[place].id: device for device, place in _placed(plan)}
        #: Devices that need a value that another one makes.
        self._destinations: dict[Value, dict[int, None]] = defaultdict(dict)
        for operator in graph.operators:
            for value in self.flow.reads[operator.id]:
                if self._is_away(value, self.home[operator.id]):
                    self._destinations[value][self.home[operator.id]] = None
        #: Place of the copy by device and value, and of what makes it where it is made.
        self._arrivals: dict[tuple[int, Value], int] = {}
        self._made: dict[str, int] = {}
        self.outputs = tuple((self.home[value[1]], value) for value in flow.outputs)

    def _is_away(self, value: Value, device: int) -> bool:
        return value[0] == "operator" and self.home[value[1]] != device

    def launch_stages(self, plan: StagedPlan) -> None:
        """Launch all stages, lower numbers first among independent ones."""
        before: dict[int, list[int]] = defaultdict(list)
        for number, device in self._stage_order(plan):
            stage = plan.devices[device][number]
            groups = [[self.graph.operators[place].id for place in group] for group in stage]
            names = [name for group in groups for name in group]
            needs = [*before[device], *self._arriving(names, device)]
            if plan.is_merged(stage):
                before[device] = [self._launch(names, Lane(device), range(len(names)), number, needs)]
            else:
                # Groups are launched in turns, so that none waits for the host to launch all of another.
                last = {}
                for rank, row in enumerate(zip_longest(*groups)):
                    for group, name in enumerate(row):
                        if name is not None:
                            lane, own = Lane(device, group), needs if rank == 0 else []
                            last[group] = self._launch([name], lane, [group], number, own)
                before[device] = list(last.values())
            self._send(names, device, before[device])

    def _stage_order(self, plan: StagedPlan) -> list[tuple[int, int]]:
        """Number and device of every stage, in an order in which they can run."""
        stage_of = {
            self.graph.operators[place].id: (number, device)
            for device, row in enumerate(plan.devices)
            for number, stage in enumerate(row)
            for group in stage
            for place in group
        }
        stages = sorted((number, device) for device, row in enumerate(plan.devices) for number in range(len(row)))
        rank = {stage: place for place, stage in enumerate(stages)}
        successors: list[set[int]] = [set() for _ in stages]
        for number, device in stages:
            if number:
                successors[rank[number - 1, device]].add(rank[number, device])
        for edge in self.graph.edges:
            if stage_of[edge.source] != stage_of[edge.target]:
                successors[rank[stage_of[edge.source]]].add(rank[stage_of[edge.target]])
        return [stages[place] for place in _runnable(successors)]

    def launch_streams(self, plan: StreamPlan) -> None:
        """Launch all operators, in launch order as far as that can run."""
        graph = self.graph
        stream_of = {}
        successors: list[set[int]] = [set() for _ in graph.operators]
        for row in plan.devices:
            for number, stream in enumerate(row):
                stream_of.update(dict.fromkeys(stream, number))
                for earlier, later in pairwise(stream):
                    successors[earlier].add(later)
        for edge in graph.edges:
            successors[graph.index[edge.source]].add(graph.index[edge.target])
        for place in _runnable(successors, plan.launch or graph.order):
            name = graph.operators[place].id
            device = self.home[name]
            local = [value[1] for value in self.flow.reads[name] if value[0] == "operator"]
            before = [self._made[other] for other in local if self.home[other] == device]
            before += self._arriving([name], device)
            made = self._launch([name], Lane(device, stream_of[place]), [stream_of[place]], None, before)
            self._send([name], device, [made])

    def _arriving(self, names: Iterable[str], device: int) -> list[int]:
        """Positions of the copies that operators read."""
        values = dict.fromkeys(value for name in names for value in self.flow.reads[name])
        return [self._arrivals[device, value] for value in values if self._is_away(value, device)]

    def _launch(
        self, names: Sequence[str], lane: Lane, streams: Iterable[int], stage: int | None, needs: list[int]
    ) -> int:
        """Add a launch; returns its position."""
        place = len(self.steps)
        reads = tuple(dict.fromkeys(value for name in names for value in self.flow.reads[name]))
        makes = tuple(value for name in names for value in self.flow.makes[name])
        self.steps.append(Step(lane, tuple(names), tuple(streams), stage, needs, reads, makes))
        self._made.update(dict.fromkeys(names, place))
        return place

    def _send(self, names: Iterable[str], device: int, needs: list[int]) -> None:
        """Add copies of the outputs of operators to the devices that need them."""
        for value in (value for name in names for value in self.flow.makes[name]):
            for destination in self._destinations.get(value, ()):
                self._arrivals[destination, value] = len(self.steps)
                lane = Lane(destination, source=device)
                self.steps.append(Step(lane, (value[1],), (0,), None, needs, (value,), (value,), value))


def _placed(plan: Plan) -> Iterator[tuple[int, int]]:
    """Device and number of every operator."""
    if isinstance(plan, StagedPlan):
        rows: Iterable[Iterable[Iterable[int]]] = [[group for stage in row for group in stage] for row in plan.devices]
    else:
        rows = plan.devices
    for device, row in enumerate(rows):
        yield from ((device, place) for part in row for place in part)


def _runnable(successors: Sequence[Iterable[int]], preference: Iterable[int] | None = None) -> list[int]:
    """Nodes in topological order; a `ScheduleError` if some of them wait for each other."""
    order = topological_order(successors, preference)
    if len(order) < len(successors):
        raise ScheduleError("the schedule deadlocks: some of its launches wait for each other")
    return order


def let_go(
    steps: Sequence[Step],
    order: VectorClocks,
    flow: Flow,
    home: Mapping[str, int],
    outputs: Iterable[tuple[int, Value]],
) -> Mapping[int, list[Value]]:
    """The values that can be freed right before each launch.

    torch's allocator gives memory that no value refers to any more to the next operator on the stream that it was
    allocated on, at once, whatever other streams are doing. So what a launch made is let go right before the first
    launch on its stream that begins after all launches have finished that read it, or what may lie in its memory. A
    value that does lie there may be let go later, on another stream, which is then the moment that the memory is free:
    its own stream has come past that launch by then. Outputs of the network stay.
    """
    users = _users(steps, flow, home)
    following: dict[Lane, list[int]] = defaultdict(list)
    for place, step in enumerate(steps):
        following[step.lane].append(place)
    kept = set(outputs)
    freed: dict[int, list[Value]] = defaultdict(list)
    for made, step in enumerate(steps):
        if not kept.isdisjoint((step.lane.device, value) for value in step.makes):
            continue
        own = following[step.lane][order.place[made] :]
        first = next((place for place in own if order.begins_after(place, users[made])), None)
        if first is not None:
            freed[first] += step.makes
    return freed


def _users(steps: Sequence[Step], flow: Flow, home: Mapping[str, int]) -> list[list[int]]:
    """For every launch, itself and those that read what may lie in memory that it allocated."""
    users: list[list[int]] = [[place] for place in range(len(steps))]
    #: By device and value, the launches in whose memory it may lie; inputs of the network lie in none.
    made_by: dict[tuple[int, Value], set[int]] = {}
    for place, step in enumerate(steps):
        device = step.lane.device
        source = device if step.copied is None else home[step.copied[1]]
        for launch in set[int]().union(*(made_by.get((source, value), ()) for value in step.reads)):
            users[launch].append(place)
        for value in step.makes:
            others = () if step.copied is not None else flow.views.get(value, ())
            made_by[device, value] = {place}.union(*(made_by.get((device, other), ()) for other in others))
    return users
