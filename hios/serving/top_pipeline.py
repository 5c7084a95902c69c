"""Pipelines of combined blocks (TOP): their stages, by IOS or by GPG, and times, each computed once."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hios.core.problem import Group, Problem, Stage
from hios.core.sums import add_up
from hios.schedulers.gpg import chooser
from hios.schedulers.policy.endings import ModelBlock, Passes, combined_problem
from hios.serving.pipeline import Pipeline, SubBlock, UnionStage
from hios.serving.scenario import Scenario
from hios.serving.stage_times import Device, block_stages, on_all_lanes, restricted, side_by_side

if TYPE_CHECKING:
    from hios.schedulers.policy.training import StageTime

#: Times of a combined block, or how long it keeps lanes busy: by the sub-blocks that are present, by lanes less 1.
_Rows = tuple[tuple[float, ...], ...]
#: A run takes more lanes if that leaves at most this share of its time. Else a task that arrives meanwhile gets a lane
#: at once, which is worth more. Groups run beside each other if they take at most this share of the time of threads.
_WORTH = 0.8


def run_times(
    device: Device, members: Sequence[SubBlock], stages: Sequence[UnionStage], widths: Iterable[int], lanes: int
) -> tuple[_Rows, _Rows]:
    """Seconds that runs of a combined block take, and those that they keep lanes busy.

    By the sub-blocks that are present, by the number of lanes less 1, up to those of the pipeline; 0 for numbers of
    lanes (``widths``) that runs do not have.
    """
    times, busy = [], []
    for present in range(1 << len(members)):
        kept = restricted(stages, present)
        by_width = {width: device.run_s(members, present, kept, width) for width in widths}
        row = [by_width.get(width, (0.0, 0.0)) for width in range(1, lanes + 1)]
        times.append(tuple(time for time, _ in row))
        busy.append(tuple(used for _, used in row))
    return tuple(times), tuple(busy)


def threaded_times(
    device: Device, members: Sequence[SubBlock], stages: Sequence[UnionStage]
) -> tuple[list[float], list[float]]:
    """The same of runs on all lanes with a thread on each inside operators, by the sub-blocks that are present."""
    rows = [
        device.threaded_run_s(members, present, restricted(stages, present)) for present in range(1 << len(members))
    ]
    return [time for time, _ in rows], [busy for _, busy in rows]


def can_thread(scenario: Scenario) -> bool:
    """Whether the costs of all models have times of operators on all lanes, with a thread on each."""
    if scenario.gpu or scenario.lanes == 1:
        return False
    return all(on_all_lanes(model, scenario.lanes) for model in scenario.models)


@dataclass(frozen=True)
class _CombinedBlock:
    """Stages and times of a combined block.

    Attributes:
        planned_s: how long it takes with all sub-blocks on all lanes, as a server plans: without measured constants.
        widest: the most lanes that a run takes, by the sub-blocks that are present.
        threaded: whether a run on all lanes has a thread on each inside its operators, by the same.
    """

    stages: tuple[UnionStage, ...]
    times_s: _Rows
    busy_s: _Rows
    planned_s: float
    widest: tuple[int, ...]
    threaded: tuple[bool, ...]


class TopPipelines:
    """The pipelines of a scenario, one for each way to combine its blocks.

    ``shared``: an idle lane starts the next combined block (``top-open``).
    """

    def __init__(self, scenario: Scenario, *, shared: bool) -> None:
        self._device = Device(scenario, shared=shared)
        #: With the paper's barrier, all lanes work on groups of operators, as published.
        self._threads = shared and scenario.file.top.threads and can_thread(scenario)
        self._stages = combined_stages(scenario)
        self._block = functools.cache(self._combined)  # the stage_dict of Algorithm 1

    def of(self, combined: Sequence[tuple[SubBlock, ...]]) -> Pipeline:
        """The pipeline of these combined blocks, which hold every block once."""
        scenario = self._device.scenario
        settings = scenario.file.top
        blocks = [self._block(members) for members in combined]
        longest = max(block.planned_s for block in blocks)
        return Pipeline(
            scenario.lanes,
            tuple(len(model.blocks) for model in scenario.models),
            tuple(combined),
            tuple(block.times_s for block in blocks),
            tuple(block.busy_s for block in blocks),
            "shared" if self._device.shared else "all",
            slots=settings.slots,
            max_wait_s=2 * longest if settings.max_wait_ms is None else settings.max_wait_ms / 1e3,
            stages=tuple(block.stages for block in blocks),
            widest=tuple(block.widest for block in blocks),
            threaded=tuple(block.threaded for block in blocks) if self._threads else (),
        )

    def _combined(self, members: tuple[SubBlock, ...]) -> _CombinedBlock:
        stages, scenario, shared = self._stages(members), self._device.scenario, self._device.shared
        lanes = scenario.lanes
        widths = range(1, lanes + 1) if shared else [lanes]
        times_s, busy_s = run_times(self._device, members, stages, widths, lanes)
        plain, planned = self._device, times_s
        if scenario.planned is not None:
            plain = Device(scenario.plain, shared=shared)
            planned, _ = run_times(plain, members, stages, widths, lanes)
        threaded = (False,) * len(planned)
        if self._threads:
            expected, _ = threaded_times(plain, members, stages)
            # Costs do not tell what it takes to hand values over from lane to lane.
            threaded = tuple(row[-1] > _WORTH * time for time, row in zip(expected, planned, strict=True))
            planned = _with_last(planned, expected, threaded)
            times, busy = threaded_times(self._device, members, stages)
            times_s, busy_s = _with_last(times_s, times, threaded), _with_last(busy_s, busy, threaded)
        widest = tuple(_worth(row) if shared else lanes for row in planned)
        return _CombinedBlock(stages, times_s, busy_s, planned[-1][-1], widest, threaded)


def _with_last(rows: _Rows, values: Sequence[float], chosen: Sequence[bool]) -> _Rows:
    """The rows with another last number where it is chosen."""
    return tuple((*row[:-1], value) if taken else row for row, value, taken in zip(rows, values, chosen, strict=True))


def _worth(times_s: Sequence[float]) -> int:
    """The most lanes that a run takes if it shares them, by its times: the last has to shorten it noticeably."""
    worth = 1
    for lanes in range(2, len(times_s) + 1):
        if times_s[lanes - 1] <= _WORTH * times_s[worth - 1]:
            worth = lanes
    return worth


#: Finds the stages of a combined block, one after another, with the groups of all sub-blocks.
CombinedStages = Callable[[Sequence[SubBlock]], tuple[UnionStage, ...]]


def combined_stages(scenario: Scenario) -> CombinedStages:
    """The method that the scenario states (``top.stages``)."""
    if scenario.file.top.stages == "gpg":
        return functools.partial(_gpg_stages, Device(scenario.plain), _without_contention(scenario))
    by_model = [block_stages(scenario.plain, number) for number in range(len(scenario.models))]
    # The first stages of all sub-blocks beside each other, then the second ones, with at most s groups in each.
    return lambda members: side_by_side([by_model[model][block] for model, block in members], scenario.file.top.s)


def _gpg_stages(device: Device, problems: Sequence[Problem], members: Sequence[SubBlock]) -> tuple[UnionStage, ...]:
    """Algorithm 2 of TOP over the union of the sub-blocks, with the times of stages on the scenario's device.

    As the algorithm gpg: where its stages take no less time than the operators one after another, these are taken.
    """
    scenario = device.scenario
    settings, models = scenario.file.top, scenario.models
    operators = [models[model].blocks[block] for model, block in members]
    problem = combined_problem(
        [
            ModelBlock(models[model].label, problems[model], own)
            for (model, _), own in zip(members, operators, strict=True)
        ]
    )
    # Operators of the union by number: place of the sub-block, and number in the model.
    home = [(place, v) for place, own in enumerate(operators) for v in own]

    def stage_ms(stage: Stage) -> float:
        groups = [(members[home[group[0]][0]][0], tuple(home[v][1] for v in group)) for group in stage]
        return device.stage_ms(groups, scenario.lanes)

    policy = str(scenario.folder / settings.stage_policy) if settings.stage_policy else ""
    starts, action = chooser(problem, settings.r, settings.s, policy)
    passes = Passes(stage_ms, action, scenario.file.seed)
    stages = [stage for start in starts for stage in passes.run(start, settings.stage_passes)[0]]
    alone: list[Stage] = [((v,),) for v in problem.order]
    chosen = stages if add_up(map(stage_ms, stages)) < add_up(map(stage_ms, alone)) else alone
    return tuple(tuple((home[group[0]][0], tuple(home[v][1] for v in group)) for group in stage) for stage in chosen)


def _without_contention(scenario: Scenario) -> list[Problem]:
    """The models for GPG: times of stages are the device's.

    So contention of costs.json counts there, if at all, and may differ between models.
    """
    return [
        Problem(model.problem.graph, dataclasses.replace(model.costs, contention="none")) for model in scenario.models
    ]


def stages_to_learn(scenario: Scenario) -> tuple[dict[str, Problem], StageTime | None]:
    """What a policy of GPG for a scenario is trained on (`hios.schedulers.policy.training.train`).

    The models by label; and how long stages take where that is not what the models say: on lanes, as long as in
    combined blocks with ``top: {stages: gpg}``.
    """
    labels = [model.label for model in scenario.models]
    if scenario.gpu:
        return {model.label: model.problem for model in scenario.models}, None
    device, number = Device(scenario.plain), {label: place for place, label in enumerate(labels)}

    def stage_ms(groups: Sequence[tuple[str, Group]]) -> float:
        return device.stage_ms([(number[label], group) for label, group in groups], scenario.lanes)

    return dict(zip(labels, _without_contention(scenario), strict=True)), stage_ms
