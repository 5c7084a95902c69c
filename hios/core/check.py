"""An independent check of a schedule: recomputed from its rows, without any of the evaluator's code.

A faulty algorithm or evaluator must not check itself, so this module reads only the placements, the graph and the
costs, and computes the cost of a stage with its own code.
"""

from __future__ import annotations

import math
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from hios.core.problem import Problem
from hios.core.schedule import Placement, Schedule
from hios.errors import ScheduleError

#: Relative and absolute slack (milliseconds) for rounding in floating point.
SLACK = 1e-9


def violations(problem: Problem, schedule: Schedule) -> list[str]:
    """All violations of a schedule, one line each; empty for a valid one.

    Checked: every operator placed once, precedence with transfer times, outputs of a stage available only when
    the whole stage has finished, stages not shorter than they cost and not overlapping on a device, one
    operator at a time on a stream, operators on several devices as long as the costs say for so many and alone on all
    of them, only what can be merged is, and runs at the same time, stages that do not wait for each other in a circle,
    launch order compatible with precedence, latency equal to the last finish.

    Args:
        problem: graph and costs.
        schedule: of that graph.

    Notes:
        No code of the evaluator is used but `hios.core.merging`, which decides whether operators can be merged.

    Examples:
        >>> import hios
        >>> from dataclasses import replace
        >>> graph = hios.Graph("pair", (hios.Operator("a", "conv"), hios.Operator("b", "conv")), (hios.Edge("a", "b"),))
        >>> problem = hios.Problem(graph, hios.Costs({"a": 1.0, "b": 2.0}, {("a", "b"): 0.5}))
        >>> schedule = hios.schedule(problem, "sequential")
        >>> hios.violations(problem, schedule)
        []
        >>> hios.violations(problem, replace(schedule, latency_ms=2.0))[0]
        'latency_ms is 2.0 but the last operator finishes at 3.0'
    """
    try:
        schedule.plan(problem.graph)
    except ScheduleError as error:
        return [str(error)]
    if impossible := _impossible_numbers(schedule):
        return impossible
    problem = problem.on(schedule.devices)
    row_of = {row.operator: row for row in schedule.placements}
    end = max(row.finish_ms for row in schedule.placements)
    slack = SLACK * max(1.0, end)
    problems = [
        f"operator {row.operator} finishes ({row.finish_ms}) before it starts ({row.start_ms})"
        for row in schedule.placements
        if row.finish_ms < row.start_ms
    ]
    if abs(schedule.latency_ms - end) > slack:
        problems.append(f"latency_ms is {schedule.latency_ms} but the last operator finishes at {end}")
    if schedule.lower_bound_ms > schedule.latency_ms + slack:
        problems.append(f"latency_ms {schedule.latency_ms} is below lower_bound_ms {schedule.lower_bound_ms}")
    staged = schedule.placements[0].stage is not None
    if staged and schedule.staged_lower_bound_ms > schedule.latency_ms + slack:
        problems.append(
            f"latency_ms {schedule.latency_ms} is below staged_lower_bound_ms {schedule.staged_lower_bound_ms}"
        )
    problems += _launch_order(problem, schedule)
    if staged:
        problems += _deadlock(problem, schedule)
        problems += _stages(problem, schedule, slack)
    else:
        problems += _streams(problem, schedule, slack)
    problems += _precedence(problem, schedule, row_of, slack)
    return problems


def _impossible_numbers(schedule: Schedule) -> list[str]:
    """Numbers that comparisons would not catch: NaN is neither above nor below anything.

    A finish before 0 is left to the comparison with the start.
    """
    wrong = [
        f"{name}: found {value}; allowed: a finite number of at least 0"
        for name in ("latency_ms", "lower_bound_ms", "staged_lower_bound_ms", "scheduling_time_s")
        if not 0 <= (value := getattr(schedule, name)) < math.inf
    ]
    return wrong + [
        f"operator {row.operator}: found device {row.device}, {row.start_ms} to {row.finish_ms} ms; "
        "allowed: finite times and devices of at least 0"
        for row in schedule.placements
        if row.device < 0 or not (0 <= row.start_ms < math.inf and math.isfinite(row.finish_ms))
    ]


def _launch_order(problem: Problem, schedule: Schedule) -> list[str]:
    """The order of the rows respects precedence and the order of stages on every device.

    In a schedule of streams, whose rows are the order of each stream too, that rules deadlocks out.
    """
    place = {row.operator: number for number, row in enumerate(schedule.placements)}
    last: dict[int, Placement] = {}
    problems = []
    for row in schedule.placements:
        if row.stage is not None:
            before = last.get(row.device)
            if before is not None and before.stage is not None and before.stage > row.stage:
                problems.append(f"operator {row.operator} of stage {row.stage} is launched after stage {before.stage}")
            last[row.device] = row
    return problems + [
        f"operator {problem.ids[target]} is launched before its predecessor {problem.ids[source]}"
        for source in range(len(problem))
        for target, _ in problem.successors[source]
        if place[problem.ids[target]] < place[problem.ids[source]]
    ]


def _deadlock(problem: Problem, schedule: Schedule) -> list[str]:
    """Stages wait as a whole: for the stage before on their device, and for every stage whose values they use."""
    stage_of = {row.operator: (row.device, row.stage or 0) for row in schedule.placements}
    waits: dict[tuple[int, int], set[tuple[int, int]]] = {stage: set() for stage in stage_of.values()}
    for before, after in pairwise(sorted(waits)):
        if before[0] == after[0]:
            waits[after].add(before)
    for source in range(len(problem)):
        for target, _ in problem.successors[source]:
            producer, consumer = stage_of[problem.ids[source]], stage_of[problem.ids[target]]
            if producer != consumer:
                waits[consumer].add(producer)
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        circle = ", ".join(f"stage {stage} of device {device}" for device, stage in error.args[1][1:])
        return [f"{circle} wait for each other"]
    return []


def _precedence(problem: Problem, schedule: Schedule, row_of: dict[str, Placement], slack: float) -> list[str]:
    stage_end: dict[tuple[int, int | None], float] = defaultdict(float)
    stage_start: dict[tuple[int, int | None], float] = defaultdict(lambda: float("inf"))
    for row in schedule.placements:
        key = (row.device, row.stage)
        stage_end[key] = max(stage_end[key], row.finish_ms)
        stage_start[key] = min(stage_start[key], row.start_ms)
    problems = []
    for source in range(len(problem)):
        for target, transfer in problem.successors[source]:
            producer, consumer = row_of[problem.ids[source]], row_of[problem.ids[target]]
            same_stage = producer.stage is not None and (producer.device, producer.stage) == (
                consumer.device,
                consumer.stage,
            )
            if same_stage or producer.stage is None:
                available, needed = producer.finish_ms, consumer.start_ms
            else:
                available = stage_end[producer.device, producer.stage]
                needed = stage_start[consumer.device, consumer.stage]
            if same_stage and producer.stream != consumer.stream:
                problems.append(
                    f"operators {producer.operator} and {consumer.operator} depend on each other inside one stage"
                )
            if producer.device != consumer.device:
                available += transfer
            elif producer.stage is None and producer.stream != consumer.stream:
                available += problem.sync_ms
            if needed < available - slack:
                problems.append(
                    f"operator {consumer.operator} starts at {needed} ms, before its input from {producer.operator} "
                    f"is there at {available} ms"
                )
    return problems


def _stages(problem: Problem, schedule: Schedule, slack: float) -> list[str]:
    number = problem.graph.index
    members: dict[tuple[int, int], dict[int, list[Placement]]] = defaultdict(lambda: defaultdict(list))
    for row in schedule.placements:
        if row.stage is not None:
            members[row.device, row.stage][row.stream].append(row)
    problems = []
    last: dict[int, tuple[float, int]] = {}
    for (device, stage), groups in sorted(members.items()):
        rows = [row for group in groups.values() for row in group]
        start, finish = min(row.start_ms for row in rows), max(row.finish_ms for row in rows)
        names = {row.operator for row in rows}
        if any(names == set(merge) for merge in schedule.merges):
            cost = _merge_cost(problem, [number[name] for name in names])
        else:
            cost = _stage_cost(problem, [[number[row.operator] for row in group] for group in groups.values()])
        if finish - start < cost - slack:
            problems.append(f"stage {stage} of device {device} lasts {finish - start} ms but costs {cost} ms")
        if device in last and start < last[device][0] - slack:
            problems.append(f"stages {last[device][1]} and {stage} of device {device} overlap")
        last[device] = (finish, stage)
        for group in groups.values():
            problems += _one_after_another(group, slack, device)
            problems += _shares(problem, group, start, finish, slack)
    return problems


def _stage_cost(problem: Problem, groups: list[list[int]]) -> float:
    """t(S), computed independently of the evaluator."""
    sums = [sum(problem.time[operator] for operator in group) for group in groups]
    if len(groups) == 1:
        return sums[0]
    measured = problem.measured.get(frozenset(tuple(group) for group in groups))
    if measured is not None:
        return measured
    barriers = problem.barrier_ms * (len(groups) - 1)
    if problem.demand:
        return barriers + _sharing_ms(problem, groups)
    if problem.alpha is None:
        return barriers + max(sums)
    busy = sum(problem.time[operator] * problem.utilization[operator] for group in groups for operator in group)
    return barriers + problem.alpha * sum(sums) + (1 - problem.alpha) * max(busy, *sums)


def _sharing_ms(problem: Problem, groups: list[list[int]]) -> float:
    """How long groups take that share the resources of a device, computed independently of the evaluator."""
    place = {operator: number for number, operator in enumerate(problem.graph.order)}
    waiting = [group[::-1] for group in groups]
    running: dict[int, tuple[float, int, float]] = {}  # by group: start, operator, milliseconds left of it
    clock = 0.0
    while any(waiting) or running:
        for number, group in enumerate(waiting):
            if number not in running and group:
                operator = group.pop()
                running[number] = (clock, operator, problem.time[operator])
        order = sorted(running, key=lambda number: (running[number][0], place[running[number][1]]))
        speed = dict(zip(order, _speeds(problem, [running[number][1] for number in order]), strict=True))
        ends = [left / speed[number] for number, (_, _, left) in running.items() if left and speed[number]]
        step = min(ends) if all(left for _, _, left in running.values()) else 0.0
        clock += step
        running = {
            number: (start, operator, left - step * speed[number])
            for number, (start, operator, left) in running.items()
            if left - step * speed[number] > SLACK * SLACK * problem.time[operator]
        }
    return clock


def _speeds(problem: Problem, running: list[int]) -> list[float]:
    """Rates of operators that share the resources of a device, in launch order, computed independently."""
    taken = 0.0
    slots = []
    for operator in running:
        slots.append(max(0.0, min(problem.demand[operator][0], 1.0 - taken)))
        taken += slots[-1]
    running_share = [share / problem.demand[operator][0] for share, operator in zip(slots, running, strict=True)]
    speeds = list(running_share)
    for resource in (1, 2):
        wants = [
            share * problem.demand[operator][resource] for share, operator in zip(running_share, running, strict=True)
        ]
        level = 1.0 / len(wants)
        while (modest := [want for want in wants if want <= level]) and len(modest) < len(wants):
            higher = (1.0 - sum(modest)) / (len(wants) - len(modest))
            if higher <= level:
                break
            level = higher
        if len(modest) < len(wants):
            speeds = [
                min(speed, min(want, level) / problem.demand[operator][resource])
                for speed, want, operator in zip(speeds, wants, running, strict=True)
            ]
    return speeds


def _merge_cost(problem: Problem, operators: list[int]) -> float:
    """Time of a merged stage, computed independently; whether the stage can be merged is checked with the rows."""
    measured = problem.measured_merges.get(frozenset(operators))
    if measured is not None:
        return measured
    kernels = [member.kernel for operator in operators if (member := problem.convolutions[operator]) is not None]
    area = max(height for height, _ in kernels) * max(width for _, width in kernels)
    launch = problem.launch_ms
    padded = [
        problem.time[operator] * area / (height * width)
        for operator, (height, width) in zip(operators, kernels, strict=True)
    ]
    alone = [
        max(0.0, time - launch * (area / (height * width) - 1))
        for time, (height, width) in zip(padded, kernels, strict=True)
    ]
    if problem.alpha is None:
        return max(alone)
    busy = [
        launch + sum(time * used[operator] for operator, time in zip(operators, padded, strict=True))
        for used in (zip(*problem.demand, strict=True) if problem.demand else [problem.utilization])
    ]
    return max(*busy, *alone)


def _shares(problem: Problem, group: list[Placement], start: float, finish: float, slack: float) -> list[str]:
    """The operators of a group divide the span of their stage in proportion to their times."""
    times = [problem.time[problem.graph.index[row.operator]] for row in group]
    total = sum(times)
    problems = []
    for row, time in zip(group, times, strict=True):
        share = (finish - start) * (time / total if total > 0 else 1 / len(group))
        if abs((row.finish_ms - row.start_ms) - share) > slack * 10:
            problems.append(
                f"operator {row.operator} lasts {row.finish_ms - row.start_ms} ms; its share of its stage is {share} ms"
            )
    return problems


def _streams(problem: Problem, schedule: Schedule, slack: float) -> list[str]:
    streams: dict[tuple[int, int], list[Placement]] = defaultdict(list)
    merged, problems = _merged_streams(problem, schedule, slack)
    for row in schedule.placements:
        if row.operator in merged and row.operator != merged[row.operator]:
            continue  # it runs together with the one that stands for its merge
        for device in row.held_devices:
            streams[device, row.stream].append(row)
        if row.operator in merged:
            continue
        alone = _alone(problem, row)
        if alone is None:
            problems.append(
                f"operator {row.operator} takes {len(row.devices)} devices, for which the costs have no time (wide_ms)"
            )
            continue
        if row.finish_ms - row.start_ms < alone - slack:
            problems.append(f"operator {row.operator} lasts {row.finish_ms - row.start_ms} ms but costs {alone} ms")
    for (device, _), rows in streams.items():
        problems += _one_after_another(rows, slack, device)
    return problems + _capacity(problem, schedule, slack, merged)


def _merged_streams(problem: Problem, schedule: Schedule, slack: float) -> tuple[dict[str, str], list[str]]:
    """Operators that run merged, each with the one that stands for its merge, and what is wrong with merges."""
    rows = {row.operator: row for row in schedule.placements}
    stands_for: dict[str, str] = {}
    problems = []
    for merge in schedule.merges:
        first = rows[merge[0]]
        for operator in merge:
            row = rows[operator]
            stands_for[operator] = merge[0]
            if abs(row.start_ms - first.start_ms) > slack or abs(row.finish_ms - first.finish_ms) > slack:
                problems.append(
                    f"operator {operator} runs from {row.start_ms} to {row.finish_ms} ms but is merged with "
                    f"{merge[0]}, which runs from {first.start_ms} to {first.finish_ms} ms"
                )
        numbers = [problem.graph.index[operator] for operator in merge]
        width = len(first.devices) or 1
        if width == 1:
            cost: float | None = _merge_cost(problem, numbers)
        else:
            cost = problem.merge_wide_ms.get(frozenset(numbers), {}).get(width)
        names = ", ".join(merge)
        if cost is None:
            problems.append(
                f"operators {names} run merged on {width} devices, for which the costs have no time (wide_ms)"
            )
        elif first.finish_ms - first.start_ms < cost - slack:
            problems.append(f"operators {names} last {first.finish_ms - first.start_ms} ms merged but cost {cost} ms")
    return stands_for, problems


def _alone(problem: Problem, row: Placement) -> float | None:
    """Cost of an operator that is alone on the devices of its row; None if the costs do not state it."""
    number = problem.graph.index[row.operator]
    return problem.wide_ms.get(number, {}).get(len(row.devices)) if row.devices else problem.time[number]


def _one_after_another(rows: list[Placement], slack: float, device: int) -> list[str]:
    return [
        f"operators {before.operator} and {after.operator} overlap on stream {after.stream} of device {device}"
        for before, after in pairwise(rows)
        if after.start_ms < before.finish_ms - slack
    ]


def _capacity(problem: Problem, schedule: Schedule, slack: float, merged: dict[str, str]) -> list[str]:
    """Replay the running sets of every device: each operator must have had the time its rate needs.

    Merged operators have their devices alone, each as one stream, so they are left out.
    """
    if problem.alpha is None:
        return []
    number = problem.graph.index
    problems = []
    for device in range(schedule.devices):
        rows = [row for row in schedule.placements if device in row.held_devices and row.operator not in merged]
        if problem.demand:
            rows.sort(key=lambda row: row.start_ms)  # stable: of those that start together, the first row is first
        moments = sorted({moment for row in rows for moment in (row.start_ms, row.finish_ms)})
        progress = dict.fromkeys((row.operator for row in rows), 0.0)
        for begin, end in pairwise(moments):
            running = [row.operator for row in rows if row.start_ms <= begin and row.finish_ms >= end]
            if not running:
                continue
            if problem.demand:
                for operator, speed in zip(running, _speeds(problem, [number[name] for name in running]), strict=True):
                    progress[operator] += (end - begin) * speed
                continue
            demand = sum(problem.utilization[number[operator]] for operator in running)
            slowdown = problem.alpha * len(running) + (1 - problem.alpha) * max(demand, 1.0)
            for operator in running:
                progress[operator] += (end - begin) / slowdown
        needed_of = {row.operator: _alone(problem, row) for row in rows}
        for operator, done in progress.items():
            needed = needed_of[operator]
            if needed is not None and done < needed - slack * 10:
                problems.append(
                    f"operator {operator} makes {done} ms of progress on device {device} but needs {needed} ms"
                )
    return problems
