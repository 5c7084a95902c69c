"""Which lane runs which operators of a run: stages packed on lanes as the simulator does, or a plan over the lanes."""

from __future__ import annotations

from hios.problem import Problem
from hios.schedule import Plan, StreamPlan
from hios.serving.lane_program import Order
from hios.serving.pipeline import Pipeline
from hios.serving.scenario import Scenario
from hios.serving.stage_times import Device, restricted


def orders_of(scenario: Scenario, pipeline: Pipeline, combined: int, present: int) -> list[Order]:
    """Operators of every lane for the sub-blocks of a combined block that are present.

    Args:
        scenario: models.
        pipeline: of them, with stages or plans.
        combined: number of the combined block.
        present: bit k is set where the k-th sub-block is present; it is part 0, 1 and so on among those.
    """
    members = pipeline.combined[combined]
    problems = [scenario.models[model].problem for model, _ in members]
    if pipeline.plans:  # then such a combined block is one whole model
        return _of_plan(pipeline.plans[members[0][0]], problems[0], pipeline.lanes)
    places = [place for place in range(len(members)) if present >> place & 1]
    part = {place: number for number, place in enumerate(places)}
    device = Device(scenario, shared=pipeline.take == "shared")
    stages = restricted(pipeline.stages[combined], present)
    rows = device.orders([model for model, _ in members], stages, pipeline.lanes)
    return [[(part[place], problems[place].ids[operator]) for place, operator in row] for row in rows]


def _of_plan(plan: Plan, problem: Problem, lanes: int) -> list[Order]:
    """Operators of every device of a plan, those of several streams in the order in which they are launched."""
    if isinstance(plan, StreamPlan):
        place = {operator: position for position, operator in enumerate(plan.launch or problem.order)}
        rows = [sorted((v for stream in row for v in stream), key=place.__getitem__) for row in plan.devices]
    else:
        rows = [[operator for stage in row for group in stage for operator in group] for row in plan.devices]
    rows += [[] for _ in range(lanes - len(rows))]
    return [[(0, problem.ids[operator]) for operator in row] for row in rows]
