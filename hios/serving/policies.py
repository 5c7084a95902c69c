"""The policies by name: what each makes of a scenario."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from hios.core.evaluate import evaluate, latency_ms
from hios.core.problem import Problem, Stage
from hios.core.schedule import Plan, StreamPlan
from hios.core.sums import add_up
from hios.errors import HiosError, suggestion
from hios.files.base import MOST_SUB_BLOCKS
from hios.schedulers import find
from hios.serving.pipeline import Pipeline, QueueRules, SubBlock, UnionStage, queue_rules
from hios.serving.scenario import Scenario, ServedModel
from hios.serving.stage_times import (
    Device,
    block_stages,
    even_intervals_s,
    least_work_s,
    on_all_lanes,
    side_by_side,
    threaded_ms,
)
from hios.serving.top_pipeline import TopPipelines, run_times

#: Not a pipeline or launcher of its own: the best of the others on other traces.
AUTO = "auto"
#: When tasks leave the queues: as soon as there is room or as soon as a run can take them, at the paper's fixed
#: intervals, or sharing the device evenly.
LAUNCHERS = ("open", "deadline", "fixed", "water-filling")


@dataclass(frozen=True)
class Policy:
    """A policy: name, one line, and the pipeline that it makes of a scenario.

    A GPU has no times for those that run on lanes only: what several tasks at once take there is in no costs.json. In
    strict rounds a task waits for one of every other model, which may never come: ``auto`` does not choose these.
    """

    name: str
    summary: str
    build: Callable[[Scenario], Pipeline]
    lanes_only: bool = False
    strict: bool = False


def _sequential(scenario: Scenario) -> Pipeline:
    return _whole_tasks(scenario, _lane_stages(scenario), lanes=1)


def _one_per_lane(scenario: Scenario) -> Pipeline:
    return _whole_tasks(scenario, _lane_stages(scenario), each_on_a_lane=True)


def _ios(scenario: Scenario) -> Pipeline:
    return _whole_tasks(scenario, _ios_stages(scenario))


def _threads(scenario: Scenario) -> Pipeline:
    lanes, plans, times = scenario.lanes, [], []
    for number, model in enumerate(scenario.models):
        wide = on_all_lanes(model, lanes)
        if lanes > 1 and not wide:
            raise HiosError(
                f"{scenario.source}: policy threads: {model.settings.costs} has no times of operators on {lanes} "
                f"lanes; required: wide_ms, as hios profile --widths {lanes} measures them"
            )
        order = tuple(model.problem.order)
        rest = tuple(v for v in order if v in wide)
        rows = ((order,), *((rest,) for _ in range(lanes - 1)))
        plans.append(StreamPlan(rows, order, dict.fromkeys(wide, tuple(range(lanes)))))
        spans = threaded_ms(scenario, number)
        times.append((add_up(time for time, _ in spans), add_up(time * used for time, used in spans)))
    return _planned(scenario, plans, times)


def _streams(algorithm: str) -> Callable[[Scenario], Pipeline]:
    """A policy whose streams run on lanes, or on the GPU as they are."""

    def make(scenario: Scenario) -> Pipeline:
        plans: list[Plan] = []
        for model in scenario.models:
            plan = cast(StreamPlan, find(algorithm).solve(model.problem, 1).plan)
            plans.append(plan if scenario.gpu else _on_lanes(model, plan, scenario.lanes))
        return _evaluated(scenario, plans)

    return make


def _hios_lp(scenario: Scenario) -> Pipeline:
    lanes, problems = scenario.lanes, [model.problem for model in scenario.models]
    if not scenario.gpu:
        problems = [_one_by_one(problem.on(lanes)) for problem in problems]
    return _evaluated(scenario, [find("hios-lp").solve(problem, lanes).plan for problem in problems])


def _pos(*, strict: bool, each_on_a_lane: bool = False) -> Callable[[Scenario], Pipeline]:
    """POS-like: one round takes a task of every model; strict rounds wait for all of them.

    POS's four strategies of execution and its search by reinforcement learning are missing: stages are those of IOS.
    Rounds follow one another over all lanes, or every lane has rounds of its own, as in `one-per-lane`.
    """

    def make(scenario: Scenario) -> Pipeline:
        combined = tuple((number, 0) for number in range(len(scenario.models)))
        stages = _lane_stages(scenario) if each_on_a_lane else _ios_stages(scenario)
        union = side_by_side(stages, scenario.file.top.s)
        return _pipeline(scenario, [combined], [union], strict=strict, each_on_a_lane=each_on_a_lane)

    return make


#: Blocks of a combined block by default: the least H of the paper (section VI-E); where an idle lane starts the next
#: combined block anyway, a larger one only has tasks wait for each other.
_NEIGHBORS, _ALONE = 2, 1


def _top(scenario: Scenario) -> Pipeline:
    combined = combined_blocks(scenario, scenario.file.top.most or _NEIGHBORS)
    return TopPipelines(scenario, shared=False).of(combined)


def _top_open(scenario: Scenario) -> Pipeline:
    combined = combined_blocks(scenario, scenario.file.top.most or _ALONE)
    return TopPipelines(scenario, shared=True).of(combined)


#: While at most so many combined blocks could run, each takes all lanes, one after another: together they take little
#: longer than beside each other on a lane each, and the first of them ends much sooner.
_CROWD = 3
#: With the shortest task first, one that has waited for a block so many times as long as the longest task takes on a
#: lane goes before all others.
_PATIENCE = 2.0


def _shortest_first(scenario: Scenario) -> Pipeline:
    """Shortest remaining processing time, block by block: a lane continues the task that has the least time left."""
    pipeline = _top_open(scenario)
    left = []
    for model in scenario.plain.models:
        times = [add_up(model.problem.time[v] for v in block) for block in model.blocks]
        left.append(tuple(add_up(times[block:]) / 1e3 for block in range(len(times))))
    stated_ms = scenario.file.top.max_wait_ms
    max_wait_s = _PATIENCE * max(own[0] for own in left) if stated_ms is None else stated_ms / 1e3
    return dataclasses.replace(pipeline, left_s=tuple(left), crowd=_CROWD, max_wait_s=max_wait_s)


POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("sequential", "one task at a time, one operator after another on one lane", _sequential),
        Policy("one-per-lane", "every lane takes the next task as a whole", _one_per_lane, lanes_only=True),
        Policy("threads", "one task at a time, every operator on all lanes where it may", _threads, lanes_only=True),
        Policy("ios", "one task at a time in stages of IOS, whose groups run on the lanes", _ios),
        Policy("nimble", "one task at a time on streams of Nimble", _streams("nimble")),
        Policy("opara", "one task at a time on streams of Opara", _streams("opara")),
        Policy("hios-lp", "one task at a time over the lanes by HIOS-LP", _hios_lp),
        Policy(
            "pos-strict",
            "rounds with a task of every model, which wait for all (POS-like)",
            _pos(strict=True),
            strict=True,
        ),
        Policy("pos-relaxed", "rounds with a task of every model that has one", _pos(strict=False)),
        Policy(
            "pos-strict-per-lane",
            "every lane takes the next strict round as a whole",
            _pos(strict=True, each_on_a_lane=True),
            lanes_only=True,
            strict=True,
        ),
        Policy(
            "pos-relaxed-per-lane",
            "every lane takes the next relaxed round as a whole",
            _pos(strict=False, each_on_a_lane=True),
            lanes_only=True,
        ),
        Policy("top", "a pipeline of combined blocks, one at a time (TOP)", _top),
        Policy("top-open", "the same, but an idle lane starts the next", _top_open, lanes_only=True),
        Policy(
            "shortest-first",
            "a lane takes the next block of the task with least time left",
            _shortest_first,
            lanes_only=True,
        ),
    )
}
LANES_ONLY = tuple(name for name, own in POLICIES.items() if own.lanes_only)


def _learned(scenario: Scenario, *, static: bool = False) -> Pipeline:
    """What a trained launcher decides first, or the static decision beside it."""
    from hios.serving.launcher.environment import Decisions
    from hios.serving.launcher.online_launcher import OnlineLauncher, launcher_of

    launcher = launcher_of(scenario)
    decisions = Decisions(scenario, launcher.settings)
    first = launcher.static if static else OnlineLauncher(scenario, launcher, decisions).first()
    return decisions.pipeline(first)


#: Policies of a launcher that hios train wrote, which the scenario names (``top.weights``).
LEARNED, LEARNED_STATIC = "learned", "learned-static"
LEARNED_POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy(LEARNED, "combined blocks and intervals by a trained launcher, which decides anew (TOP)", _learned),
        Policy(LEARNED_STATIC, "the best fixed ones of its training", functools.partial(_learned, static=True)),
    )
}


def pipeline_of(scenario: Scenario, policy: str) -> Pipeline:
    """The pipeline that a policy makes of a scenario.

    Raises:
        HiosError: there is no such policy, or there are no times of it for the scenario's device.
    """
    every = {**POLICIES, **LEARNED_POLICIES}
    if policy not in every:
        raise HiosError(
            f"policy: found {policy}{suggestion(policy, [*every, AUTO])}; allowed: {', '.join([*every, AUTO])}"
        )
    if scenario.gpu and every[policy].lanes_only:
        raise HiosError(
            f"{scenario.source}: policy {policy} runs on lanes, and the costs are those of a GPU; allowed: "
            f"{', '.join(known for known in POLICIES if known not in LANES_ONLY)}"
        )
    return every[policy].build(scenario)


def policies_of(scenario: Scenario) -> list[str]:
    """Names of the policies that a scenario can be compared under: those of a launcher only where it names one."""
    return [*POLICIES, *(LEARNED_POLICIES if scenario.file.top.weights else ())]


def launchers_of(policy: str, launcher: str) -> list[str]:
    """The launchers that a policy can be compared under; ``auto`` stands for all; a trained launcher has no other."""
    if policy in LEARNED_POLICIES:
        return [LEARNED]
    return list(LAUNCHERS) if launcher == AUTO else [launcher]


def launched(scenario: Scenario, pipeline: Pipeline, launcher: str) -> tuple[Pipeline, list[QueueRules]]:
    """The pipeline of a policy with the queues of a scenario, from which a launcher takes the tasks."""
    if pipeline.intervals_s is not None:
        return pipeline, queue_rules(scenario, pipeline.intervals_s)
    if launcher == "deadline":
        pipeline = dataclasses.replace(pipeline, in_flight=pipeline.at_once)
    return pipeline, queue_rules(scenario, launcher_intervals_s(scenario, launcher))


def launcher_intervals_s(scenario: Scenario, launcher: str) -> list[float]:
    """Seconds between two ticks of every model's launcher; 0: tasks leave the queue as soon as there is room.

    ``open`` and ``deadline`` have none; ``fixed``: the scenario's intervals, or those of the rates; ``water-filling``:
    see `even_intervals_s`, by the least device time of the models' tasks.
    """
    if launcher in ("open", "deadline"):
        return [0.0] * len(scenario.models)
    if launcher == "water-filling":
        return even_intervals_s(scenario, [least_work_s(model, gpu=scenario.gpu) for model in scenario.models])
    return [
        model.settings.interval_s or (min(1.0, 1 / model.rate) if model.rate > 0 else 0.0) for model in scenario.models
    ]


def combined_blocks(scenario: Scenario, most: int = 1) -> list[tuple[SubBlock, ...]]:
    """The combined blocks that the scenario states, then every other block alone.

    Where it states none, blocks of a model that follow each other are combined: they work on different tasks of the
    model at once, ``most`` blocks a combined block, and each run feeds the next one. The paper learns combined blocks,
    and states no others.

    Raises:
        HiosError: a combined block has too many sub-blocks.
    """
    stated = []
    for position, entry in enumerate(scenario.file.top.combined):
        members = sorted((scenario.number[label], block) for label, blocks in entry.items() for block in blocks)
        _require_few(members, f"{scenario.source}: top.combined[{position}]")
        stated.append(tuple(members))
    held = {member for members in stated for member in members}
    rows = [[(number, block) for block in range(len(model.blocks))] for number, model in enumerate(scenario.models)]
    if not stated:
        return [tuple(row[first : first + most]) for row in rows for first in range(0, len(row), most)]
    return stated + [(member,) for row in rows for member in row if member not in held]


def _lane_stages(scenario: Scenario) -> list[tuple[Stage, ...]]:
    """Stages of whole models, one operator after another on one lane."""
    return [((tuple(model.problem.order),),) for model in scenario.models]


def _ios_stages(scenario: Scenario) -> list[tuple[Stage, ...]]:
    """Stages of whole models, without combined blocks."""
    by_model = [block_stages(scenario.plain, number) for number in range(len(scenario.models))]
    return [tuple(itertools.chain(*blocks)) for blocks in by_model]


def _whole_tasks(
    scenario: Scenario, stages: Sequence[Sequence[Stage]], *, lanes: int | None = None, each_on_a_lane: bool = False
) -> Pipeline:
    """A pipeline in which every task is a single run."""
    combined = [((number, 0),) for number in range(len(stages))]
    alone = [side_by_side([own], scenario.file.top.s) for own in stages]
    return _pipeline(scenario, combined, alone, lanes=lanes, each_on_a_lane=each_on_a_lane)


def _pipeline(
    scenario: Scenario,
    combined: Sequence[tuple[SubBlock, ...]],
    stages: Sequence[tuple[UnionStage, ...]],
    *,
    lanes: int | None = None,
    strict: bool = False,
    each_on_a_lane: bool = False,
) -> Pipeline:
    """Models of one block each, with the times of all sets of sub-blocks on as many lanes as runs have."""
    lanes = scenario.lanes if lanes is None else lanes
    device, widths = Device(scenario, shared=each_on_a_lane), [1 if each_on_a_lane else lanes]
    rows = []
    for members, own in zip(combined, stages, strict=True):
        _require_few(members, f"{scenario.source}: models")
        rows.append(run_times(device, members, own, widths, lanes))
    return Pipeline(
        lanes,
        (1,) * len(scenario.models),
        tuple(combined),
        tuple(times for times, _ in rows),
        tuple(busy for _, busy in rows),
        "one" if each_on_a_lane else "all",
        strict,
        several=each_on_a_lane,
        stages=tuple(stages),
    )


def _evaluated(scenario: Scenario, plans: Sequence[Plan]) -> Pipeline:
    """Whole tasks, one at a time, each for the latency of its model's plan."""
    times = []
    for number, (model, plan) in enumerate(zip(scenario.models, plans, strict=True)):
        problem = model.problem.on(len(plan.devices))
        if not scenario.gpu:
            # The factor of the model's operators, by which `_planned` multiplies the latency, is not one of hand-overs.
            hand_over_ms = scenario.file.overheads.hand_over_ms / scenario.factor(number)
            problem = _with_hand_overs(_one_by_one(problem), hand_over_ms)
        latency = latency_ms(evaluate(problem, plan))
        times.append((latency, latency if scenario.gpu else add_up(problem.time)))
    return _planned(scenario, plans, times)


def _one_by_one(problem: Problem) -> Problem:
    """The problem on lanes, each of which runs its operators one after another, whatever stages were measured."""
    made = copy.copy(problem)
    made.alpha, made.demand, made.measured, made.measured_merges = 1.0, [], {}, {}
    return made


def _with_hand_overs(problem: Problem, hand_over_ms: float) -> Problem:
    """The problem in which a value that changes lanes takes so much longer, as its reader waits for a flag."""
    if not hand_over_ms:
        return problem
    made = copy.copy(problem)
    made.predecessors, made.successors = (
        [[(other, transfer + hand_over_ms) for other, transfer in row] for row in rows]
        for rows in (problem.predecessors, problem.successors)
    )
    return made


def _planned(scenario: Scenario, plans: Sequence[Plan], times: Sequence[tuple[float, float]]) -> Pipeline:
    """Whole tasks, one at a time, with the milliseconds that each takes and keeps lanes busy."""
    overheads, lanes = scenario.file.overheads, scenario.lanes
    over = overheads.task_ms + overheads.run_ms
    idle = (0.0,) * lanes
    factors = [scenario.factor(number) for number in range(len(times))]
    return Pipeline(
        lanes,
        (1,) * len(times),
        tuple(((number, 0),) for number in range(len(times))),
        tuple(
            (idle, (*idle[1:], (time * factor + over) / 1e3)) for (time, _), factor in zip(times, factors, strict=True)
        ),
        tuple((idle, (*idle[1:], busy * factor / 1e3)) for (_, busy), factor in zip(times, factors, strict=True)),
        "all",
        plans=tuple(plans),
    )


def _on_lanes(model: ServedModel, plan: StreamPlan, lanes: int) -> StreamPlan:
    """A plan of streams on lanes: the longest stream first, each on the lane that is least loaded.

    Streams of one lane run one after another, in the order in which the plan launches operators.
    """
    (streams,) = plan.devices
    time, loads = model.problem.time, [0.0] * lanes
    lane_of: dict[int, int] = {}
    for stream in sorted(streams, key=lambda row: -add_up(time[v] for v in row)):
        lane = min(range(lanes), key=loads.__getitem__)
        loads[lane] += add_up(time[v] for v in stream)
        lane_of.update(dict.fromkeys(stream, lane))
    launch = plan.launch or tuple(model.problem.order)
    rows = tuple((tuple(v for v in launch if lane_of[v] == lane),) for lane in range(lanes))
    return StreamPlan(rows, launch)


def _require_few(members: Sequence[SubBlock], where: str) -> None:
    if len(members) > MOST_SUB_BLOCKS:
        raise HiosError(f"{where}: found {len(members)} in one combined block; allowed: at most {MOST_SUB_BLOCKS}")
