"""The one evaluator: start and finish of every operator of a plan under the cost model.

Staged plans (IOS, HIOS) follow HIOS section III; the operators of stream plans (LIOS, Nimble, Opara, hios-wide)
progress at the rate that contention leaves them, and may take several devices at once. The times mean the same for all
algorithms, so their schedules can be compared. Plans that cannot be evaluated, as the devices of wide or merged
operators are inconsistent or stages wait for each other, are refused.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec.structs import replace

from hios.core.contraction import Contraction
from hios.core.problem import Problem, Stage, positions
from hios.core.schedule import Placement, Plan, StagedPlan, StreamPlan
from hios.core.sharing import SharedDevice
from hios.core.sums import add_up
from hios.errors import ScheduleError


def require_wide(problem: Problem, plan: StreamPlan) -> None:
    """Refuse streams without merges, whose operators may take several devices, that cannot be evaluated.

    An operator stands once on each of its devices, takes a number of devices that the costs list, and does not share a
    device that has several streams. The problem has the times on the devices of the plan (``Problem.on``).
    """
    placed = Counter(
        (operator, device) for device, streams in enumerate(plan.devices) for stream in streams for operator in stream
    )
    total = Counter(operator for operator, _ in placed.elements())
    for operator, name in enumerate(problem.ids):
        devices = plan.wide.get(operator)
        if devices is None:
            _require_once(name, total[operator])
            continue
        if total[operator] != len(devices) or any(placed[operator, device] != 1 for device in devices):
            raise ScheduleError(f"operator {name}: found devices other than those of its streams; allowed: the same")
        _require_width(problem, operator, len(devices))
    for device in sorted({device for devices in plan.wide.values() for device in devices}):
        if len(plan.devices[device]) > 1:
            raise ScheduleError(
                f"device {device}: found {len(plan.devices[device])} streams; allowed: 1, as an operator takes this "
                "device together with others, and must have it alone"
            )


def require_merges(problem: Problem, plan: StreamPlan) -> None:
    """Refuse streams with merges, each of operators that can run as one, that cannot be evaluated.

    Operators of a merge have the same devices, are consecutive, take a number of devices that the costs list for the
    merge, and do not share a device that has several streams. The problem has the times on the devices of the plan.
    """
    for merge in sorted(map(sorted, plan.merges)):
        names = ", ".join(problem.ids[operator] for operator in merge)
        held = {plan.wide.get(operator, ()) for operator in merge}
        rows = [stream for streams in plan.devices for stream in streams if not set(merge).isdisjoint(stream)]
        if len(held) > 1 or not all(_follow(merge, row) for row in (*rows, *([plan.launch] if plan.launch else ()))):
            raise ScheduleError(
                f"operators {names}: found them merged, on different devices or with others between them; allowed: one "
                "after another on the same devices"
            )
        width = len(held.pop()) or 1
        allowed = (1, *problem.merge_wide_ms.get(frozenset(merge), ()))
        if width not in allowed:
            raise ScheduleError(
                f"operators {names}: found {width} devices; allowed: {', '.join(map(str, allowed))}, those of their "
                "merge's wide_ms in the costs"
            )
        if any(len(streams) > 1 for streams in plan.devices if any(row in rows for row in streams)):
            raise ScheduleError(
                f"operators {names}: found them merged on a device of several streams; allowed: a device of one, which "
                "a merged operator has alone"
            )


def _follow(merge: Sequence[int], row: Sequence[int]) -> bool:
    """Whether all operators of a merge follow each other in a row."""
    places = [place for place, operator in enumerate(row) if operator in merge]
    return len(places) == len(merge) and places[-1] - places[0] < len(merge)


def _require_operators(problem: Problem, plan: Plan) -> None:
    """Refuse operators that there are not, stages and groups without any, and launches that are not once of each."""
    if isinstance(plan, StagedPlan):
        groups = [group for row in plan.devices for stage in row for group in stage]
        if not all(groups) or not all(stage for row in plan.devices for stage in row):
            raise ScheduleError("found a stage or group without operators in the plan; allowed: at least one")
    else:
        groups = [stream for streams in plan.devices for stream in streams]
    for operator in (*itertools.chain(*groups), *getattr(plan, "launch", ())):
        if not 0 <= operator < len(problem):
            raise ScheduleError(f"found operator {operator} in the plan; allowed: 0 to {len(problem) - 1}")
    if isinstance(plan, StreamPlan) and plan.launch and sorted(plan.launch) != list(range(len(problem))):
        raise ScheduleError("launch: found other operators than those of the graph, or one twice; allowed: each once")


def _require_launches(problem: Problem, plan: StreamPlan) -> None:
    """Refuse launches in another order than that of the streams, or before a predecessor's."""
    place = {operator: number for number, operator in enumerate(plan.launch)}
    rows = (stream for streams in plan.devices for stream in streams)
    if place and any(place[before] > place[after] for row in rows for before, after in pairwise(row)):
        raise ScheduleError("launch: found another order than that of the streams; allowed: the same")
    for operator in plan.launch:
        for before, _ in problem.predecessors[operator]:
            if place[before] > place[operator]:
                raise ScheduleError(
                    f"launch: found operator {problem.ids[operator]} before its predecessor {problem.ids[before]}; "
                    "allowed: after it"
                )


def _require_once(name: str, count: int) -> None:
    if count != 1:
        raise ScheduleError(f"operator {name} is in the plan {count} times; allowed: once")


def _require_width(problem: Problem, operator: int, width: int) -> None:
    allowed = (1, *problem.wide_ms.get(operator, ()))
    if width not in allowed or width == 1:
        raise ScheduleError(
            f"operator {problem.ids[operator]}: found {width} devices; allowed: {', '.join(map(str, allowed))}, those "
            "of its wide_ms in the costs"
        )


_NAMED = 5


def deadlock(problem: Problem, waiting: Sequence[int]) -> ScheduleError:
    """An error that names operators that never start."""
    names = ", ".join(problem.ids[operator] for operator in waiting[:_NAMED])
    more = f" and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else ""
    return ScheduleError(f"the schedule deadlocks: {names}{more} wait for each other")


#: A stage with its device and its number there.
_Numbered = tuple[int, int, Stage]


def staged_times(problem: Problem, plan: StagedPlan) -> list[tuple[float, float, int, int]]:
    """Start, finish, device and number of every stage, in an order in which they can run.

    A stage starts when the stage before it on its device has finished and every input has arrived; an input
    from another device arrives t(u,v) after the stage that makes it finished (HIOS section III).

    Raises:
        ScheduleError: the plan deadlocks, operators of one stage depend on each other across groups, or operators
            are merged that cannot be.
    """
    _check_merges(problem, plan)
    stages = [(device, number, stage) for device, row in enumerate(plan.devices) for number, stage in enumerate(row)]
    for _, _, stage in stages:
        _check_independent(problem, stage)
    successors, waiting = _dependencies(problem, stages)
    start = [0.0] * len(stages)
    ready = [(0.0, index) for index, count in enumerate(waiting) if count == 0]
    heapq.heapify(ready)
    result: list[tuple[float, float, int, int]] = []
    while ready:
        begin, index = heapq.heappop(ready)
        device, number, stage = stages[index]
        end = begin + _stage_ms(problem, plan, stage)
        result.append((begin, end, device, number))
        for other, transfer in successors[index]:
            start[other] = max(start[other], end + transfer)
            waiting[other] -= 1
            if waiting[other] == 0:
                heapq.heappush(ready, (start[other], other))
    if len(result) < len(stages):
        stuck = [index for index, count in enumerate(waiting) if count > 0]
        raise deadlock(problem, [operator for index in stuck for group in stages[index][2] for operator in group])
    return result


def _check_merges(problem: Problem, plan: StagedPlan) -> None:
    """Check that every merge is a stage of operators that can run as one."""
    if not plan.merges:
        return
    merged = {frozenset(group[0] for group in stage) for row in plan.devices for stage in row if plan.is_merged(stage)}
    for merge in plan.merges:
        if merge not in merged or not problem.can_merge(merge):
            names = ", ".join(problem.ids[operator] for operator in sorted(merge))
            raise ScheduleError(f"operators {names} are not a stage that can run as one operator")


def _stage_ms(problem: Problem, plan: StagedPlan, stage: Stage) -> float:
    merged = problem.merge_ms(group[0] for group in stage) if plan.is_merged(stage) else None
    return problem.stage_ms(stage) if merged is None else merged


def _dependencies(problem: Problem, stages: list[_Numbered]) -> tuple[list[list[tuple[int, float]]], list[int]]:
    """The successors of every stage with delays, and the number of stages each waits for.

    The stage after it on its device is a successor too.
    """
    home = [-1] * len(problem)
    for index, (_, _, stage) in enumerate(stages):
        for group in stage:
            for operator in group:
                home[operator] = index
    successors: list[list[tuple[int, float]]] = [[] for _ in stages]
    waiting = [0] * len(stages)
    for index, (device, _, stage) in enumerate(stages):
        links = [
            (home[successor], transfer)
            for group in stage
            for operator in group
            for successor, transfer in problem.successors[operator]
            if home[successor] != index
        ]
        successors[index] = [(other, 0.0 if stages[other][0] == device else transfer) for other, transfer in links]
        if index + 1 < len(stages) and stages[index + 1][0] == device:
            successors[index].append((index + 1, 0.0))
        for other, _ in successors[index]:
            waiting[other] += 1
    return successors, waiting


def _check_independent(problem: Problem, stage: Stage) -> None:
    """Check that operators of different groups of a stage are independent."""
    if sum(map(len, stage)) == 1:
        return
    place = {operator: (number, rank) for number, group in enumerate(stage) for rank, operator in enumerate(group)}
    for operator, (number, rank) in place.items():
        for predecessor, _ in problem.predecessors[operator]:
            if predecessor in place and (place[predecessor][0] != number or place[predecessor][1] > rank):
                raise ScheduleError(
                    f"operator {problem.ids[operator]} depends on {problem.ids[predecessor]}, "
                    "which does not run before it in the same stage"
                )


def evaluate_staged(problem: Problem, plan: StagedPlan) -> list[Placement]:
    """Times of every operator; those of a group share the span of the stage in proportion to their own times."""
    placements = []
    for start, finish, device, number in staged_times(problem, plan):
        for stream, group in enumerate(plan.devices[device][number]):
            total = add_up(problem.time[operator] for operator in group)
            done = 0.0
            begin = start
            for rank, operator in enumerate(group, start=1):
                done += problem.time[operator] / total if total > 0 else 1 / len(group)
                # Every group ends when its stage ends, to the last bit.
                end = finish if rank == len(group) else start + (finish - start) * min(done, 1.0)
                placements.append(Placement(problem.ids[operator], device, stream, number, begin, end))
                begin = end
    return placements


def evaluate_streams(problem: Problem, plan: StreamPlan) -> list[Placement]:
    """Times of every operator, in the plan's launch order, or by start if it has none.

    An operator starts when the operator before it on its stream and all its predecessors have finished, plus
    t(u,v) where a predecessor is on another device. While the set C runs on a device, each member progresses at
    the rate 1/(a*|C| + (1-a)*max(sum of u over C, 1)), or 1 without contention, or that of `hios.core.sharing` if
    operators share resources. What another stream of the device made is there after the time of a synchronization.

    An operator on several devices is in the stream of each, so it starts when the operator before it on every one
    of them has finished and its inputs have arrived on the first. It is alone on all of them and takes t(v, k).

    Raises:
        ScheduleError: the plan deadlocks.
    """
    return _Simulation(problem, plan).run()


class _Device:
    """The running operators of one device, each progressing at the rate that contention allows."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._left: dict[int, float] = {}
        self._since = 0.0

    def _rate(self) -> float:
        alpha = self._problem.alpha
        if alpha is None or len(self._left) == 1:
            return 1.0
        demand = add_up(self._problem.utilization[operator] for operator in self._left)
        return 1.0 / (alpha * len(self._left) + (1 - alpha) * max(demand, 1.0))

    def _advance(self, now: float) -> None:
        progress = (now - self._since) * self._rate() if self._left else 0.0
        for operator in self._left:
            self._left[operator] = max(self._left[operator] - progress, 0.0)
        self._since = now

    def start(self, operator: int, now: float, time: float) -> None:
        self._advance(now)
        self._left[operator] = time

    def finish(self, operator: int, now: float) -> None:
        self._advance(now)
        del self._left[operator]

    def next_finish(self) -> tuple[float, int] | None:
        if not self._left:
            return None
        operator = min(self._left, key=lambda running: (self._left[running], running))
        return self._since + self._left[operator] / self._rate(), operator


class _Simulation:
    """Operators become ready, start, progress and finish; each finish may make others ready."""

    def __init__(self, problem: Problem, plan: StreamPlan) -> None:
        self._problem = problem
        self._plan = plan
        self._rank = {operator: number for number, operator in enumerate(plan.launch or problem.order)}
        self._devices: list[_Device] | list[SharedDevice]
        if problem.demand:
            # Without a launch order, operators count as launched in the order of their starts, as rows state it.
            self._launched = positions(plan.launch) if plan.launch else [0] * len(problem)
            self._devices = [SharedDevice(problem.demand, self._launched) for _ in plan.devices]
        else:
            self._devices = [_Device(problem) for _ in plan.devices]
        self._where: dict[int, tuple[int, int]] = {}
        self._following: dict[int, list[int]] = {}
        self._time = problem.time
        self._waiting = [len(row) for row in problem.predecessors]
        for device, streams in enumerate(plan.devices):
            for stream, row in enumerate(streams):
                self._where.update(dict.fromkeys(row, (device, stream)))
                for before, after in pairwise(row):
                    self._following.setdefault(before, []).append(after)
                    self._waiting[after] += 1
        if plan.wide:
            # The other devices of an operator wait for it, so it runs on the first one alone.
            self._where.update({operator: (devices[0], 0) for operator, devices in plan.wide.items()})
            self._time = list(problem.time)
            for operator, devices in plan.wide.items():
                self._time[operator] = problem.time_on(operator, len(devices))
        self._ready_at = [0.0] * len(problem)
        self._start: dict[int, float] = {}
        self._finish: dict[int, float] = {}
        self._ready = [(0.0, self._rank[op], op) for op in self._where if self._waiting[op] == 0]
        heapq.heapify(self._ready)

    def run(self) -> list[Placement]:
        while self._step():
            pass
        if len(self._finish) < len(self._where):
            raise deadlock(self._problem, [operator for operator in self._where if self._waiting[operator] > 0])
        by_start: Iterable[int] = self._start  # in the order of starts
        if not self._problem.demand:
            by_start = sorted(self._where, key=lambda op: (self._start[op], self._finish[op], self._rank[op]))
        rows = [
            Placement(
                self._problem.ids[operator], *self._where[operator], None, self._start[operator], self._finish[operator]
            )
            for operator in self._plan.launch or by_start
        ]
        if not self._plan.wide:
            return rows
        devices = {self._problem.ids[operator]: row for operator, row in self._plan.wide.items()}
        return [row if row.operator not in devices else replace(row, devices=devices[row.operator]) for row in rows]

    def _step(self) -> bool:
        """Process the next event, finishes before starts at equal times; False if there is none."""
        ends = [(*event, device) for device in self._devices if (event := device.next_finish()) is not None]
        end = min(ends, key=lambda candidate: candidate[:2], default=None)
        if self._ready and (end is None or self._ready[0][0] < end[0]):
            now, _, operator = heapq.heappop(self._ready)
            if self._problem.demand and not self._plan.launch:
                self._launched[operator] = len(self._start)
            self._start[operator] = now
            self._devices[self._where[operator][0]].start(operator, now, self._time[operator])
            return True
        if end is None:
            return False
        now, operator, device = end
        device.finish(operator, now)
        self._finish[operator] = now
        for after in self._following.get(operator, ()):
            self._release(after, now)
        for successor, transfer in self._problem.successors[operator]:
            here, there = self._where[operator], self._where[successor]
            if here[0] != there[0]:
                self._release(successor, now + transfer)
            else:
                self._release(successor, now if here == there else now + self._problem.sync_ms)
        return True

    def _release(self, operator: int, at: float) -> None:
        self._ready_at[operator] = max(self._ready_at[operator], at)
        self._waiting[operator] -= 1
        if self._waiting[operator] == 0:
            heapq.heappush(self._ready, (self._ready_at[operator], self._rank[operator], operator))


def evaluate(problem: Problem, plan: Plan) -> list[Placement]:
    """Times of every operator, rows in launch order; those of a schedule for the devices of the plan (``Problem.on``).

    Args:
        problem: graph and costs.
        plan: where and in what order operators run, by operator number.

    Returns:
        A `Placement` for every operator, with start and finish in milliseconds.

    Raises:
        ScheduleError: the plan does not hold every operator once, or on each of its devices, or launches them in
            another order than its streams have; it gives an operator a number of devices that the costs do not list; it
            merges operators of streams that cannot run as one or do not stand together; or it deadlocks. The message
            names operators.

    Notes:
        Stages follow HIOS, section III: a stage starts when the one before it on its device has finished and all inputs
        have arrived. Operators on streams progress at the rate that contention leaves them.

    References:
        Kundu and Shu, "HIOS: Hierarchical Inter-Operator Scheduler for Real-Time Inference of DAG-Structured Deep
        Learning Models on Multiple GPUs", section III.

    Examples:
        >>> import hios
        >>> graph = hios.Graph("pair", (hios.Operator("a", "conv"), hios.Operator("b", "conv")), (hios.Edge("a", "b"),))
        >>> problem = hios.Problem(graph, hios.Costs({"a": 1.0, "b": 2.0}, {("a", "b"): 0.5}))
        >>> apart = hios.StagedPlan(((((0,),),), (((1,),),)))  # a on device 0, b on device 1
        >>> [(row.operator, row.device, row.start_ms, row.finish_ms) for row in hios.evaluate(problem, apart)]
        [('a', 0, 0.0, 1.0), ('b', 1, 1.5, 3.5)]
    """
    problem = problem.on(len(plan.devices))
    _require_operators(problem, plan)
    if isinstance(plan, StagedPlan):
        held = Counter(operator for row in plan.devices for stage in row for group in stage for operator in group)
        for operator, name in enumerate(problem.ids):
            _require_once(name, held[operator])
        return evaluate_staged(problem, plan)
    if plan.merges:
        rows = _evaluate_merged(problem, plan)
    else:
        require_wide(problem, plan)
        rows = evaluate_streams(problem, plan)
    _require_launches(problem, plan)
    return rows


def _evaluate_merged(problem: Problem, plan: StreamPlan) -> list[Placement]:
    """Times of streams with merges: each merge is one operator, and its operators all have its times."""
    contraction = Contraction(problem, plan.merges)
    require_merges(problem, plan)
    rows = evaluate(contraction.problem, contraction.contracted(plan))
    number = contraction.problem.graph.index
    return [
        replace(row, operator=problem.ids[operator])
        for row in rows
        for operator in contraction.members[number[row.operator]]
    ]


def latency_ms(placements: list[Placement]) -> float:
    """Latency of placements: the last finish, in milliseconds."""
    return max(row.finish_ms for row in placements)
