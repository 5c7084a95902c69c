"""The programs of a pipeline: every block on any one lane, every run over all lanes, and the arena for all of it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace

from hios.core.problem import Problem
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.errors import HiosError
from hios.serving.lane_program import BlockValues, Handovers, LaneProgram, Order, Slots, lane_programs, slots_of
from hios.serving.pipeline import Pipeline, SubBlock
from hios.serving.scenario import Scenario
from hios.serving.stage_times import Device, restricted
from hios.workers.arena import Layout


class RunPrograms:
    """Programs by number, and where their values lie.

    A model's blocks are its own, or all of them are one, as in the pipeline. The arena's layout grows, and its flags
    are free from ``first_flag`` on. Pipelines may follow whose combined blocks have ``later`` sub-blocks; 0: none.

    Attributes:
        values: values between blocks, by model.
        slots: all of them.
        flags: number of flags of the arena.
        words: numbers of an order to a lane at most.
        joined: whether the lane is a GPU, which runs all sub-blocks of a run as one program.
        alone: number of the program of a block on any one lane.
        together: number of the program of a run over all lanes, and the lanes that take part, by its sub-blocks.
        slots_of: the slots that a run states, in order, each with the place of its sub-block.
    """

    def __init__(
        self,
        scenario: Scenario,
        pipeline: Pipeline,
        layout: Layout,
        first_flag: int,
        *,
        later: int = 0,
    ) -> None:
        self._scenario, self._count, self.joined = scenario, pipeline.lanes, scenario.gpu
        running = pipeline.lanes if pipeline.several else 1
        self.values: list[BlockValues] = []
        self.slots: list[Slots] = []
        for model, count in zip(scenario.models, pipeline.blocks, strict=True):
            ids = model.problem.ids
            made = BlockValues(
                model.label,
                model.problem.graph,
                [[ids[v] for v in block] for block in (model.blocks if count > 1 else [model.problem.order])],
                waiting=pipeline.slots,
                running=running,
                layout=layout,
                first=len(self.slots),
            )
            self.values.append(made)
            self.slots += made.slots
        self._handovers = Handovers(layout.size, first_flag)
        self.alone: dict[SubBlock, int] = {}
        self.together: dict[tuple[SubBlock, ...], tuple[int, list[int]]] = {}
        self.slots_of = functools.cache(functools.partial(slots_of, values=self.values))
        #: By number: one program for any lane, or one for each lane.
        self._programs: list[list[LaneProgram]] = []
        self._compile_blocks()
        self._compile_runs(pipeline)
        if later:
            self._handovers.reserve(self.values, later)
        layout.size, self.flags = self._handovers.size, self._handovers.flags
        most = max(later, *map(len, pipeline.combined))
        self.words = 2 + most * max(len(self.slots_of((member,))) for member in self.alone)

    def extend(self, pipeline: Pipeline) -> int:
        """Add the programs of another pipeline of the same blocks, lanes and slots; returns the first new number.

        Raises:
            HiosError: its combined blocks have more sub-blocks than there is room for.
        """
        first, size, flags = len(self._programs), self._handovers.size, self._handovers.flags
        self._compile_runs(pipeline)
        if self._handovers.size > size or self._handovers.flags > flags:
            raise HiosError("combined blocks: found one with more sub-blocks than the server has room for")
        return first

    def _compile_blocks(self) -> None:
        for model, own in enumerate(self.values):
            graph = own.graph
            place = {operator: position for position, operator in enumerate(graph.order)}
            for block, operators in enumerate(own.blocks):
                order = sorted(operators, key=lambda operator: place[graph.index[operator]])
                self.alone[model, block] = self._add([(model, block)], [[(0, operator) for operator in order]])

    def _compile_runs(self, pipeline: Pipeline) -> None:
        """Programs of all runs over all lanes that do not exist yet."""
        if not self.joined and (pipeline.take == "one" or pipeline.lanes == 1):
            return
        for combined, members in enumerate(pipeline.combined):
            for present in range(1, 1 << len(members)):
                if pipeline.strict and present.bit_count() < len(members):
                    continue
                if pipeline.most_lanes(combined, present) < pipeline.lanes:
                    continue
                there = pipeline.members(combined, present)
                if there in self.together:
                    continue
                if self.joined:
                    order, plan = joined_order(self._scenario, pipeline, combined, present)
                    number = self._add(there, [order], plan)
                else:
                    number = self._add(there, orders_of(self._scenario, pipeline, combined, present))
                lanes = [lane for lane, program in enumerate(self._programs[number]) if program.steps]
                self.together[there] = number, lanes

    def _add(self, members: Sequence[SubBlock], orders: Sequence[Order], plan: Plan | None = None) -> int:
        programs = lane_programs(members, orders, self.values, self._handovers)
        self._programs.append([replace(program, plan=plan) for program in programs])
        return len(self._programs) - 1

    def of_lane(self, lane: int, first: int = 0) -> dict[int, LaneProgram]:
        """Programs of a lane by number, from a number on; behind the lanes, those of the worker with their threads."""
        own = {}
        for number, programs in enumerate(self._programs[first:], first):
            if len(programs) == 1 and lane < self._count:
                own[number] = programs[0]
            elif 1 < len(programs) > lane:
                own[number] = programs[lane]
        return {number: program for number, program in own.items() if program.steps}


def orders_of(scenario: Scenario, pipeline: Pipeline, combined: int, present: int) -> list[Order]:
    """Operators of every lane for the sub-blocks of a combined block that are present, as bits.

    A row for every lane, and where the run has a thread on every lane inside its operators, a last one for the worker
    that has these threads. Sub-blocks are numbered among those that are present.
    """
    members = pipeline.combined[combined]
    problems = [scenario.models[model].problem for model, _ in members]
    if pipeline.plans:  # then such a combined block is one whole model
        return _of_plan(pipeline.plans[members[0][0]], problems[0], pipeline.lanes)
    places = [place for place in range(len(members)) if present >> place & 1]
    part = {place: number for number, place in enumerate(places)}
    device = Device(scenario, shared=pipeline.take == "shared")
    stages = restricted(pipeline.stages[combined], present)
    if pipeline.threaded and pipeline.threaded[combined][present]:
        every = [(part[place], problems[place].ids[v]) for stage in stages for place, group in stage for v in group]
        return [*([] for _ in range(pipeline.lanes)), every]
    rows = device.orders(members, stages, pipeline.lanes)
    return [[(part[place], problems[place].ids[operator]) for place, operator in row] for row in rows]


def joined_order(scenario: Scenario, pipeline: Pipeline, combined: int, present: int) -> tuple[Order, Plan]:
    """Operators of the sub-blocks that are present, and where they run on a GPU: a plan of their numbers here."""
    members = pipeline.combined[combined]
    problems = [scenario.models[model].problem for model, _ in members]
    if pipeline.plans:
        plan = pipeline.plans[members[0][0]]
        (order,) = _of_plan(plan, problems[0], 1)
        number = {problems[0].graph.index[operator]: place for place, (_, operator) in enumerate(order)}
        merges = frozenset(frozenset(number[v] for v in merged) for merged in plan.merges)
        if isinstance(plan, StreamPlan):
            (streams,) = ([tuple(number[v] for v in stream) for stream in row] for row in plan.devices)
            return order, StreamPlan((tuple(streams),), tuple(number[v] for v in plan.launch), merges=merges)
        (row,) = plan.devices
        groups = [tuple(tuple(number[v] for v in group) for group in stage) for stage in row]
        return order, StagedPlan((tuple(groups),), merges)
    part = {place: number for number, place in enumerate(p for p in range(len(members)) if present >> p & 1)}
    numbers = itertools.count()
    order, stages = [], []
    for stage in restricted(pipeline.stages[combined], present):
        order += [(part[place], problems[place].ids[v]) for place, group in stage for v in group]
        stages.append(tuple(tuple(next(numbers) for _ in group) for _, group in stage))
    return order, StagedPlan((tuple(stages),))


def _of_plan(plan: Plan, problem: Problem, lanes: int) -> list[Order]:
    """Operators of every device of a plan, those of several streams in the order in which they are launched."""
    if isinstance(plan, StreamPlan):
        place = {operator: position for position, operator in enumerate(plan.launch or problem.order)}
        rows = [sorted((v for stream in row for v in stream), key=place.__getitem__) for row in plan.devices]
    else:
        rows = [[operator for stage in row for group in stage for operator in group] for row in plan.devices]
    rows += [[] for _ in range(lanes - len(rows))]
    return [[(0, problem.ids[operator]) for operator in row] for row in rows]
