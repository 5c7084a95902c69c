"""Pipelines of combined blocks (TOP): times and stages of a combined block are computed once, whoever asks for it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hios.serving.combined_stages import combined_stages
from hios.serving.pipeline import Pipeline, SubBlock, UnionStage
from hios.serving.scenario import Scenario
from hios.serving.stage_times import Device, restricted

#: Times of a combined block, or how long it keeps lanes busy: by the sub-blocks that are present, by lanes less 1.
_Rows = tuple[tuple[float, ...], ...]


def run_times(
    device: Device, members: Sequence[SubBlock], stages: Sequence[UnionStage], widths: Iterable[int], lanes: int
) -> tuple[_Rows, _Rows]:
    """Seconds that runs of a combined block take, and those that they keep lanes busy.

    Args:
        device: on which it runs.
        members: its sub-blocks.
        stages: of all of them.
        widths: numbers of lanes that runs may have.
        lanes: of the pipeline.

    Returns:
        By the sub-blocks that are present, by the number of lanes less 1; 0 for numbers that runs do not have.
    """
    owners = [model for model, _ in members]
    times, busy = [], []
    for present in range(1 << len(members)):
        firsts = sum(block == 0 and present >> place & 1 for place, (_, block) in enumerate(members))
        kept = restricted(stages, present)
        by_width = {width: device.run_s(owners, firsts, kept, width) for width in widths}
        row = [by_width.get(width, (0.0, 0.0)) for width in range(1, lanes + 1)]
        times.append(tuple(time for time, _ in row))
        busy.append(tuple(used for _, used in row))
    return tuple(times), tuple(busy)


@dataclass(frozen=True)
class _CombinedBlock:
    """Stages and times of a combined block."""

    stages: tuple[UnionStage, ...]
    times_s: _Rows
    busy_s: _Rows


class TopPipelines:
    """The pipelines of a scenario, one for each way to combine its blocks.

    Args:
        scenario: models, lanes, and settings of the pipeline.
        shared: whether an idle lane starts the next combined block (``top-open``).
    """

    def __init__(self, scenario: Scenario, *, shared: bool) -> None:
        self._scenario, self._shared = scenario, shared
        self._device = Device(scenario, shared=shared)
        self._stages = combined_stages(scenario)
        self._block = functools.cache(self._combined)  # the stage_dict of Algorithm 1

    def of(self, combined: Sequence[tuple[SubBlock, ...]]) -> Pipeline:
        """The pipeline of these combined blocks, which hold every block once."""
        lanes, settings = self._scenario.lanes, self._scenario.file.top
        blocks = [self._block(members) for members in combined]
        longest = max(block.times_s[-1][-1] for block in blocks)
        return Pipeline(
            lanes,
            tuple(len(model.blocks) for model in self._scenario.models),
            tuple(combined),
            tuple(block.times_s for block in blocks),
            tuple(block.busy_s for block in blocks),
            "shared" if self._shared else "all",
            slots=settings.slots,
            max_wait_s=2 * longest if settings.max_wait_ms is None else settings.max_wait_ms / 1e3,
            stages=tuple(block.stages for block in blocks),
        )

    def _combined(self, members: tuple[SubBlock, ...]) -> _CombinedBlock:
        stages = self._stages.of(members)
        lanes = self._scenario.lanes
        widths = range(1, lanes + 1) if self._shared else [lanes]
        return _CombinedBlock(stages, *run_times(self._device, members, stages, widths, lanes))
