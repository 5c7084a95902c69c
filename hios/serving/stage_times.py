"""Times of stages on the device that tasks share: groups packed on lanes, or a GPU that overlaps them.

What no policy can pass, and rates that share a device evenly.
"""

from __future__ import annotations

import functools
import heapq
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from hios.core.bounds import least_of_all
from hios.core.problem import Group, Problem, Stage
from hios.core.schedule import StagedPlan
from hios.core.sharing import DemandShares, together_ms
from hios.core.sums import add_up
from hios.formats.scenario import LEAST_INTERVAL_S, Overheads
from hios.schedulers.ios import ios
from hios.serving.pipeline import SubBlock, UnionStage
from hios.serving.scenario import Scenario, ServedModel


def longest_load(times: Sequence[float], lanes: int) -> float:
    """Load of the fullest lane when groups are packed longest first, each on the lane that is least loaded (LPT)."""
    if lanes == 1 or len(times) == 1:
        return add_up(times)
    if len(times) <= lanes:
        return max(times)
    loads = [0.0] * lanes
    for time in sorted(times, reverse=True):
        heapq.heapreplace(loads, loads[0] + time)
    return max(loads)


@dataclass(frozen=True, eq=False)
class Device:
    """How long stages take on the device of a scenario; ``shared``: other runs work beside a stage.

    On lanes, the groups of a stage are packed longest first, each where it ends earliest: a group that reads values
    that another lane made in the same run begins later by their transfer. Operators take as many times as long as the
    co-run factor says of the lanes that work at once: those of the stage, or all lanes where other runs work beside it.

    On a GPU a stage of one model takes ``Problem.stage_ms``; one of several models takes a*sum(t) + (1-a)*max(sum(t*u),
    longest group), with the largest alpha of the models, or its longest group without contention.
    """

    scenario: Scenario
    shared: bool = False

    @property
    def overheads(self) -> Overheads:
        """What stages and runs take beyond their operators."""
        return self.scenario.file.overheads

    def run_s(
        self, members: Sequence[SubBlock], present: int, stages: Sequence[UnionStage], lanes: int
    ) -> tuple[float, float]:
        """How long a run on so many lanes takes, and how long it keeps lanes busy, in seconds.

        The stages are those of the sub-blocks that are present, as bits.
        """
        time = self.overheads.run_ms + _firsts(members, present) * self.overheads.task_ms
        busy = 0.0
        lane_of: dict[tuple[int, int], int] = {}
        for stage in stages:
            if self.scenario.gpu:
                span = self.stage_ms([(members[place][0], group) for place, group in stage], 1)
                work = span
            else:
                loads, work = self._packed(members, stage, lanes, lane_of)
                span = max(loads) + self._over_ms(sum(load > 0 for load in loads))
            time, busy = time + span, busy + work
        return time / 1e3, busy / 1e3

    def threaded_run_s(
        self, members: Sequence[SubBlock], present: int, stages: Sequence[UnionStage]
    ) -> tuple[float, float]:
        """The same of a run on all lanes that takes operators one after another, each with a thread on every lane."""
        firsts = _firsts(members, present)
        time = self.overheads.run_ms + self.overheads.threads_run_ms + firsts * self.overheads.task_ms
        busy = 0.0
        for place, group in (entry for stage in stages for entry in stage):
            model, _ = members[place]
            times, factor = threaded_ms(self.scenario, model), self.scenario.factor(model)
            time += factor * add_up(times[v][0] for v in group)
            busy += factor * add_up(times[v][0] * times[v][1] for v in group)
        return time / 1e3, busy / 1e3

    def orders(
        self, members: Sequence[SubBlock], stages: Sequence[UnionStage], lanes: int
    ) -> list[list[tuple[int, int]]]:
        """Operators of every lane in order, each with the place of its sub-block, as `run_s` packs them."""
        lane_of: dict[tuple[int, int], int] = {}
        orders: list[list[tuple[int, int]]] = [[] for _ in range(lanes)]
        for stage in stages:
            self._packed(members, stage, lanes, lane_of)
            for place, group in stage:
                orders[lane_of[place, group[0]]] += [(place, v) for v in group]
        return orders

    def stage_ms(self, groups: Sequence[tuple[int, Group]], lanes: int) -> float:
        """Time of a stage alone, without values from other stages, in milliseconds; groups come with their models."""
        if self.scenario.gpu:
            models = self.scenario.models
            span_ms = _gpu_stage_ms([(model, models[model].problem, group) for model, group in groups])
            return span_ms + self.overheads.stage_ms
        used = min(lanes, len(groups))
        times = [self._group_ms(model, group, used) for model, group in groups]
        return longest_load(times, lanes) + self._over_ms(used)

    def _over_ms(self, used: int) -> float:
        return self.overheads.stage_ms + (self.overheads.hand_over_ms if used > 1 else 0.0)

    def _group_ms(self, number: int, group: Group, used: int) -> float:
        """Time of a group while so many lanes work at once."""
        model = self.scenario.models[number]
        # What other runs take from this one is known by pair of models where the scenario is calibrated.
        outside = self.shared and self.scenario.calibration is None
        factor = model.costs.corun_factor(self.scenario.lanes if outside else used) * self.scenario.factor(number)
        return factor * add_up(model.problem.time[v] for v in group)

    def _packed(
        self, members: Sequence[SubBlock], stage: UnionStage, lanes: int, lane_of: dict[tuple[int, int], int]
    ) -> tuple[list[float], float]:
        """When every lane ends in a stage, and the time of its groups; notes which lane runs which operator."""
        used = min(lanes, len(stage))
        timed = [(self._group_ms(members[place][0], group, used), place, group) for place, group in stage]
        loads = [0.0] * lanes
        for time, place, group in sorted(timed, key=lambda entry: -entry[0]):
            entries = [self._entry_ms(members[place][0], place, group, lane, lane_of) for lane in range(lanes)]
            lane = min(range(lanes), key=lambda number: (loads[number] + entries[number], number))
            loads[lane] += entries[lane] + time
            lane_of.update({(place, v): lane for v in group})
        return loads, add_up(time for time, _, _ in timed)

    def _entry_ms(self, model: int, place: int, group: Group, lane: int, lane_of: dict[tuple[int, int], int]) -> float:
        """The longest transfer of a value that another lane has made in this run."""
        predecessors = self.scenario.models[model].problem.predecessors
        return max(
            (transfer for v in group for u, transfer in predecessors[v] if lane_of.get((place, u), lane) != lane),
            default=0.0,
        )


def _firsts(members: Sequence[SubBlock], present: int) -> int:
    """How many of the sub-blocks that are present are the first of their model, where tasks begin."""
    return sum(block == 0 and present >> place & 1 for place, (_, block) in enumerate(members))


def _gpu_stage_ms(groups: Sequence[tuple[int, Problem, Group]]) -> float:
    """Groups come with their model by number, as copies of a model share a problem; measured stages are of one task."""
    problems = {model: problem for model, problem, _ in groups}
    if len(problems) == 1:
        (problem,) = problems.values()
        return problem.stage_ms(tuple(group for _, _, group in groups))
    if any(problem.demand for problem in problems.values()):
        return _shared_ms(groups)
    longest = max(add_up(problem.time[v] for v in group) for _, problem, group in groups)
    known = [problem.alpha for problem in problems.values() if problem.alpha is not None]
    if not known:
        return longest
    alpha = max(known)
    total = add_up(problem.time[v] for _, problem, group in groups for v in group)
    work = add_up(problem.time[v] * problem.utilization[v] for _, problem, group in groups for v in group)
    return alpha * total + (1 - alpha) * max(work, longest)


def _shared_ms(groups: Sequence[tuple[int, Problem, Group]]) -> float:
    """Groups of several models that share a GPU's resources."""
    time: list[float] = []
    demand: list[DemandShares] = []
    numbers: list[list[int]] = []
    for _, problem, group in groups:
        numbers.append(list(range(len(time), len(time) + len(group))))
        time += [problem.time[v] for v in group]
        demand += [problem.demand[v] for v in group]
    barrier_ms = max(problem.barrier_ms for _, problem, _ in groups)
    return together_ms(numbers, time, demand, range(len(time))) + (len(groups) - 1) * barrier_ms


def on_all_lanes(model: ServedModel, lanes: int) -> frozenset[int]:
    """Operators that costs.json has times of on all lanes at once, with a thread on each."""
    return frozenset(v for v, times in model.problem.wide_ms.items() if lanes in times)


@functools.lru_cache(maxsize=64)
def threaded_ms(scenario: Scenario, number: int) -> tuple[tuple[float, int], ...]:
    """Time of every operator of a model on all lanes, with a thread on each, in milliseconds; and the lanes it uses.

    Operators without such a time run on one lane. Costs have the times of operators alone; a calibration has those of
    tasks, by which they are scaled.
    """
    model, lanes = scenario.models[number], scenario.lanes
    wide, problem, alone = on_all_lanes(model, lanes), model.problem.on(lanes), model.problem.time
    spans = [(problem.time_on(v, lanes), lanes) if v in wide else (alone[v], 1) for v in range(len(problem))]
    measured = {} if scenario.calibration is None else scenario.calibration.threads
    whole = add_up(time for time, _ in spans)
    ratio = measured[model.label] * add_up(alone) / whole if model.label in measured and whole else 1.0
    return tuple((time * ratio, used) for time, used in spans)


class _LaneProblem(Problem):
    """A model on lanes, for the search of IOS: a stage takes what `Device.stage_ms` says."""

    def __init__(self, device: Device, number: int) -> None:
        model = device.scenario.models[number]
        super().__init__(model.problem.graph, model.costs)
        self._device, self._number = device, number

    def stage_ms(self, stage: Stage) -> float:
        return self._device.stage_ms([(self._number, group) for group in stage], self._device.scenario.lanes)


@functools.lru_cache(maxsize=64)
def block_stages(scenario: Scenario, number: int) -> tuple[tuple[Stage, ...], ...]:
    """Stages of every block of a model, by IOS with groups beside each other on the lanes, without merges."""
    model, r, s = scenario.models[number], scenario.file.top.r, scenario.file.top.s
    problem = model.problem if scenario.gpu else _LaneProblem(Device(scenario), number)
    (stages,) = cast(StagedPlan, ios(problem, 1, r=r, s=s, mode="parallel").plan).devices
    home = {operator: block for block, operators in enumerate(model.blocks) for operator in operators}
    by_block: list[list[Stage]] = [[] for _ in model.blocks]
    for stage in stages:
        by_block[home[stage[0][0]]].append(stage)
    return tuple(map(tuple, by_block))


def side_by_side(parts: Sequence[Sequence[Stage]], s: int) -> tuple[UnionStage, ...]:
    """Stages of several parts that do not depend on each other, beside each other as far as ``s`` groups a stage allow.

    A stage takes the next stage of every part, those with the most stages left first, as long as there is room for its
    groups; what finds no room comes later. Two parts with few groups: the first stages of both, then the second ones. A
    stage of a part that has more than ``s`` groups is a stage by itself.
    """
    following = [0] * len(parts)
    union: list[UnionStage] = []
    while waiting := [place for place, stages in enumerate(parts) if following[place] < len(stages)]:
        taken: list[tuple[int, Group]] = []
        chosen = []
        for place in sorted(waiting, key=lambda place: following[place] - len(parts[place])):
            stage = parts[place][following[place]]
            if not taken or len(taken) + len(stage) <= s:
                taken += [(place, group) for group in stage]
                chosen.append(place)
        for place in chosen:
            following[place] += 1
        union.append(tuple(sorted(taken, key=lambda entry: entry[0])))
    return tuple(union)


def restricted(stages: Sequence[UnionStage], present: int) -> list[UnionStage]:
    """Stages with the groups of the sub-blocks that are present; empty stages are left out (D5).

    They stay valid: sub-blocks do not depend on each other.
    """
    kept = [tuple((place, group) for place, group in stage if present >> place & 1) for stage in stages]
    return [stage for stage in kept if stage]


def least_work_s(model: ServedModel, *, gpu: bool = False) -> float:
    """The least device time of a task in seconds: how long all its operators keep lanes, or a GPU, busy at least.

    On lanes an operator takes t(v), or k*t(v, k) with k lanes at once where that is less. On a GPU its kernels leave
    room for others, as far as contention model and measured stages allow (`hios.core.bounds`); without contention it
    takes none.
    """
    problem = model.problem
    if not gpu:
        wide = problem.wide_ms
        work = [min([t, *(k * time for k, time in wide.get(v, {}).items())]) for v, t in enumerate(problem.time)]
        return add_up(work) / 1e3
    if problem.alpha is None:
        return 0.0
    return add_up(least_of_all(problem).work) / 1e3


def least_works_s(scenario: Scenario) -> list[float]:
    """The least device time of a task of each model in seconds, as long as operators take on the machine simulated.

    Without a calibration, as long as the costs say.
    """
    calibration = scenario.calibration
    if calibration is None:
        return [least_work_s(model, gpu=scenario.gpu) for model in scenario.models]
    steady = min(1.0, statistics.fmean(calibration.jitter))
    works = []
    for number, model in enumerate(scenario.models):
        widths = zip(model.problem.time, threaded_ms(scenario, number), strict=True)
        least_ms = add_up(min(alone, used * time) for alone, (time, used) in widths)
        works.append(steady * scenario.factor(number) * least_ms / 1e3)
    return works


def bound_per_s(scenario: Scenario, offered_per_s: Sequence[float]) -> float:
    """Upper bound of the tasks per second that a policy can complete.

    The linear program: maximize sum(x) with 0 <= x_i <= offered_i and sum(x_i w_i) <= lanes, where w_i is the least
    device time of a task. With one constraint the models with the least work come first (Dantzig), so no solver is
    needed.
    """
    left, total = float(scenario.lanes), 0.0
    for least, offered in sorted(zip(least_works_s(scenario), offered_per_s, strict=True)):
        served = offered if least * offered <= left else left / least
        total += served
        left -= served * least
    return total


def even_intervals_s(scenario: Scenario, work_s: Sequence[float]) -> list[float]:
    """Seconds between two tasks of each model, so that the device's time is shared evenly (water-filling).

    The device time that all together ask for is filled up like vessels: every model gets what it asks for or the common
    level, whichever is less, and the levels add up to the lanes. Where all get what they ask for, the time that is left
    is divided in proportion, so that bursts are not held back. Intervals are at most 1 s, as TOP has them; one that is
    shorter than any launcher has is 0, as soon as there is room.
    """
    asked = [model.rate * work for model, work in zip(scenario.models, work_s, strict=True)]
    share = scenario.lanes / add_up(asked) if add_up(asked) > 0 else math.inf
    level = _level(asked, scenario.lanes)
    granted = [share * ask if share >= 1 else min(ask, level) for ask in asked]
    intervals_s = [
        min(1.0, work / grant) if grant > 0 and work > 0 else 0.0 for work, grant in zip(work_s, granted, strict=True)
    ]
    return [interval_s if interval_s >= LEAST_INTERVAL_S else 0.0 for interval_s in intervals_s]


def fair_rates(scenario: Scenario, offered_per_s: Sequence[float]) -> list[float]:
    """Tasks per second of each model where the device's time is shared evenly: what it offers, or its fair share."""
    works = least_works_s(scenario)
    level = _level([offered * work for offered, work in zip(offered_per_s, works, strict=True)], scenario.lanes)
    return [min(offered, level / work) if work else offered for offered, work in zip(offered_per_s, works, strict=True)]


def _level(asked: Sequence[float], capacity: float) -> float:
    """The level at which sum(min(asked, level)) is the capacity; infinite where all together ask for less."""
    left = capacity
    for place, ask in enumerate(sorted(asked)):
        level = left / (len(asked) - place)
        if ask >= level:
            return level
        left -= ask
    return math.inf
