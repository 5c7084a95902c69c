"""Segments: what a device runs between two hand-overs, as one step of its program.

A segment waits for values of other devices before its first operator only, and passes values on after its last one
only. A value is passed on no earlier than it is of use: not before the last one for which the same step of the other
device waits too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hios.core.graph import Graph, Operator
from hios.kernels.compiled_operator import External, externals
from hios.platforms.program import DeviceProgram, Handover, ProgramStep, StepProgram, StreamProgram


@dataclass(frozen=True, slots=True)
class Boundary:
    """The values that a segment reads from outside it, and those of its values that are used outside it."""

    inputs: tuple[External, ...]
    outputs: tuple[External, ...]


def segmented(programs: Sequence[DeviceProgram], graph: Graph, *, concurrent: bool = False) -> list[DeviceProgram]:
    """The programs of all devices of a plan with their steps joined into segments.

    Operators that take several devices or are merged remain steps of their own. Streams and groups of a device are run
    one after another, in launch order; if ``concurrent``, as on devices of several cores, they remain what they are.
    """
    rows = {
        number: list(program.steps if isinstance(program, StepProgram) else _in_launch_order(program))
        for number, program in enumerate(programs)
        if isinstance(program, StepProgram) or not concurrent
    }
    if len(rows) == len(programs):
        _delay(rows)
    made = list(programs)
    for number, steps in rows.items():
        own = programs[number]
        made[number] = StepProgram(own.device, own.devices, _joined(steps, own.device, graph, concurrent))
    return made


def boundary(step: ProgramStep, graph: Graph) -> Boundary:
    """What crosses the border of a segment."""
    operators = members(step, graph)
    own = {operator.id for operator in operators}
    read = (value for operator in operators for value in externals(operator))
    made = [*(handover.value for handover in step.departures), *(value for value, _ in step.results), *step.kept]
    return Boundary(
        tuple(dict.fromkeys(value for value in read if value[0] == "input" or value[1] not in own)),
        tuple(dict.fromkeys(value for value in made if value[1] in own)),
    )


def members(step: ProgramStep, graph: Graph) -> list[Operator]:
    """The operators of a step, in the order in which one stream would run them."""
    return [graph.operators[graph.index[name]] for group in step.groups for name in group]


def _in_launch_order(program: StreamProgram) -> list[ProgramStep]:
    """The operators of all streams of a device as steps; launch orders of devices never make them wait in a circle."""
    handovers = {handover.value: handover for handover in program.arrivals}
    numbered = [(step, stream) for stream, own in enumerate(program.streams) for step in own]
    steps = []
    for step, stream in sorted(numbered, key=lambda pair: pair[0].rank):
        arrivals = [handovers.pop(value) for value in step.needs if value in handovers]
        made = ((step.operator,),), (program.device,), None, tuple(arrivals), step.departures, step.results
        steps.append(ProgramStep(*made, places=((stream, None),)))
    return steps


def _delay(rows: dict[int, list[ProgramStep]]) -> None:
    """Move what is passed on to the last step that makes something for which the same steps of others wait too."""
    made_at = {
        handover.value: (number, place)
        for number, steps in rows.items()
        for place, step in enumerate(steps)
        for handover in step.departures
    }
    latest: dict[External, int] = {}
    for steps in rows.values():
        for step in steps:
            last: dict[int, int] = {}
            for handover in step.arrivals:
                number, place = made_at[handover.value]
                last[number] = max(place, last.get(number, 0))
            for handover in step.arrivals:
                until = last[made_at[handover.value][0]]
                latest[handover.value] = min(until, latest.get(handover.value, until))
    for steps in rows.values():
        leaving: dict[int, list[Handover]] = {place: [] for place in range(len(steps))}
        for place, step in enumerate(steps):
            for handover in step.departures:
                leaving[latest.get(handover.value, place)].append(handover)
        steps[:] = [replace(step, departures=tuple(leaving[place])) for place, step in enumerate(steps)]


def _joined(steps: Sequence[ProgramStep], device: int, graph: Graph, concurrent: bool) -> tuple[ProgramStep, ...]:
    """Runs of steps as segments, each with what later steps of the device read of it."""
    runs: list[list[ProgramStep]] = []
    is_open = False
    for step in steps:
        alone = _is_alone(step, device, concurrent)
        if is_open and not alone and not step.arrivals:
            runs[-1].append(step)
        else:
            runs.append([step])
        is_open = not alone and not step.departures
    joined = [own[0] if _is_alone(own[0], device, concurrent) else _segment(own) for own in runs]
    used = [
        {value for operator in members(step, graph) for value in externals(operator)}
        | {handover.value for handover in step.departures}
        for step in joined
    ]
    for place, step in enumerate(joined):
        if step.places:
            own = {("operator", operator.id) for operator in members(step, graph)}
            later = set().union(*used[place + 1 :])
            joined[place] = replace(step, kept=tuple(sorted(value for value in later if value[:2] in own)))
    return tuple(joined)


def _is_alone(step: ProgramStep, device: int, concurrent: bool) -> bool:
    return step.merged or step.devices != (device,) or bool(step.free) or (concurrent and len(step.groups) > 1)


def _segment(steps: Sequence[ProgramStep]) -> ProgramStep:
    """Several steps as one, whose operators run one after another."""
    places = [
        place
        for step in steps
        for place in step.places or [(stream, step.stage) for stream, group in enumerate(step.groups) for _ in group]
    ]
    return ProgramStep(
        (tuple(name for step in steps for group in step.groups for name in group),),
        steps[0].devices,
        steps[0].stage,
        steps[0].arrivals,
        steps[-1].departures,
        tuple(result for step in steps for result in step.results),
        places=tuple(places),
    )
