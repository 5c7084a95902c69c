"""Stages of combined blocks: those of IOS side by side, or chosen by GPG for all sub-blocks together (TOP)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from hios.problem import Problem, Stage
from hios.schedulers.gpg import chooser
from hios.schedulers.policy.combining import ModelBlock, combined_problem
from hios.schedulers.policy.passes import Passes
from hios.serving.pipeline import SubBlock, UnionStage
from hios.serving.scenario import Scenario
from hios.serving.stage_times import Device, block_stages, side_by_side


class CombinedStages(Protocol):
    """Finds the stages of a combined block."""

    def of(self, members: Sequence[SubBlock]) -> tuple[UnionStage, ...]:
        """Stages one after another, with the groups of all sub-blocks."""


def combined_stages(scenario: Scenario) -> CombinedStages:
    """The method that the scenario states (``top.stages``)."""
    return _GpgStages(scenario) if scenario.file.top.stages == "gpg" else _IosStages(scenario)


class _IosStages:
    """The first stages of all sub-blocks beside each other, then the second ones, and so on."""

    def __init__(self, scenario: Scenario) -> None:
        settings = scenario.file.top
        self._by_block = [
            block_stages(scenario.plain, number, settings.r, settings.s) for number in range(len(scenario.models))
        ]

    def of(self, members: Sequence[SubBlock]) -> tuple[UnionStage, ...]:
        """Stages one after another, with the groups of all sub-blocks."""
        return side_by_side([self._by_block[model][block] for model, block in members])


class _GpgStages:
    """Algorithm 2 of TOP over the union of the sub-blocks, with the times of stages on the scenario's device.

    As the algorithm gpg: where its stages take no less time than the operators one after another, these are taken.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._device = scenario.plain, Device(scenario.plain)
        # Times of stages are the device's, so contention of costs.json counts there, and may differ between models.
        self._problems = [
            Problem(model.problem.graph, dataclasses.replace(model.costs, contention="none"))
            for model in scenario.models
        ]

    def of(self, members: Sequence[SubBlock]) -> tuple[UnionStage, ...]:
        """Stages one after another, with the groups of all sub-blocks."""
        settings, models = self._scenario.file.top, self._scenario.models
        operators = [models[model].blocks[block] for model, block in members]
        problem = combined_problem(
            [
                ModelBlock(models[model].label, self._problems[model], own)
                for (model, _), own in zip(members, operators, strict=True)
            ]
        )
        # Operators of the union by number: place of the sub-block, and number in the model.
        home = [(place, v) for place, own in enumerate(operators) for v in own]

        def stage_ms(stage: Stage) -> float:
            groups = [(members[home[group[0]][0]][0], tuple(home[v][1] for v in group)) for group in stage]
            return self._device.stage_ms(groups, self._scenario.lanes)

        policy = str(self._scenario.folder / settings.stage_policy) if settings.stage_policy else ""
        starts, action = chooser(problem, settings.r, settings.s, policy)
        passes = Passes(stage_ms, action, self._scenario.file.seed)
        stages = [stage for start in starts for stage in passes.run(start, settings.stage_passes)[0]]
        alone: list[Stage] = [((v,),) for v in problem.order]
        chosen = stages if sum(map(stage_ms, stages)) < sum(map(stage_ms, alone)) else alone
        return tuple(
            tuple((home[group[0]][0], tuple(home[v][1] for v in group)) for group in stage) for stage in chosen
        )
