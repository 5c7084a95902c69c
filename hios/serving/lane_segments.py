"""Segments of lanes: operators of a block that a lane runs between two hand-overs, in the fastest runtime for them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from hios.core.graph import Graph
from hios.files.json_cache import cache_folder
from hios.kernels import CompiledOperator
from hios.kernels.compiled_operator import External
from hios.platforms.cpu.segment_runtimes import BUDGET_S, PACKED, Converter, Segment, fastest
from hios.platforms.segments import Boundary
from hios.platforms.workloads import load_weights
from hios.serving.lane_program import LaneProgram, LaneStep
from hios.workers.worker import Worker

#: The segment of a model that some steps are, by its operators and the values that are used outside it.
Key = tuple[tuple[str, ...], tuple[External, ...]]


def runs_of(steps: Sequence[LaneStep]) -> list[list[LaneStep]]:
    """Steps of a lane by segment: it waits for other lanes at its first step only, and passes on at its last only."""
    runs: list[list[LaneStep]] = []
    for step in steps:
        if runs and not step.waits and not runs[-1][-1].departures and step.part == runs[-1][-1].part:
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs


def key_of(run: Sequence[LaneStep], program: LaneProgram, operators: Mapping[str, CompiledOperator]) -> Key:
    """What identifies the segment that some steps of a program are."""
    names = {step.operator for step in run}
    used = {placed.value for step in run for placed in step.stores}
    used |= {handover.value for step in run for handover in step.departures}
    for step in program.steps:
        if step.part == run[0].part and step.operator not in names:
            used.update(operators[step.operator].externals)
    made = (value for step in run for value in operators[step.operator].outputs)
    return tuple(step.operator for step in run), tuple(value for value in made if value in used)


def chosen(
    worker: Worker,
    graph: Graph,
    weights: str,
    operators: Mapping[str, CompiledOperator],
    values: Mapping[External, Tensor],
    keys: Collection[Key],
) -> dict[Key, CompiledOperator]:
    """Segments as single operators, where a runtime is faster than the operators one after another.

    ``values`` are all of one inference. No conversion starts after `BUDGET_S`; the longest segments come first.
    """
    deadline = time.monotonic() + BUDGET_S
    kinds, folder = ("finite",), cache_folder() / "segments"
    converter = Converter(worker, load_weights(weights, graph), folder, deadline, kinds)
    recorded: dict[Key, Segment] = {}
    for names, made in keys:
        own = [operators[name] for name in names]
        inside = {value for operator in own for value in operator.outputs}
        read = dict.fromkeys(value for operator in own for value in operator.externals if value not in inside)
        segment = Segment(
            [graph.operators[graph.index[name]] for name in names],
            own,
            Boundary(tuple(read), made),
            [values[value] for value in read],
            [values[value] for value in made],
        )
        recorded[names, made] = segment
    found = {}
    for key, segment in sorted(recorded.items(), key=lambda item: -len(item[1].operators)):
        known_ms, _, sessions = converter.compared(segment)
        runtime = fastest(known_ms)
        if runtime != PACKED:
            found[key] = _operator(segment, sessions[runtime])
    return found


def _operator(segment: Segment, session: Any) -> CompiledOperator:
    """A segment in a runtime; each run overwrites the outputs of the one before."""
    inputs, outputs = (
        [torch.empty(value.shape, dtype=value.dtype) for value in own] for own in (segment.inputs, segment.outputs)
    )
    compute = session.bound(inputs, outputs)

    def run(*values: Tensor) -> Any:
        for own, value in zip(inputs, values, strict=True):
            own.copy_(value)
        compute()
        return outputs if len(outputs) > 1 else outputs[0]

    boundary = segment.boundary
    return CompiledOperator(segment.operators[0].id, boundary.inputs, boundary.outputs, run)
