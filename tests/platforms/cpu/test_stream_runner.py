"""Streams that fail, hang or lose a device."""

from __future__ import annotations

import dataclasses
import os

import pytest

from hios import Graph, HiosError
from hios.core.schedule import StreamPlan
from hios.platforms.cpu import worker as device
from hios.platforms.program import ArenaPlan, StreamProgram
from tests.frontends.small_networks import Files
from tests.runtime import faults

#: Seconds until a device gives up; less where it is to do so, though enough for operators that only are slow.
WAIT_S, HANGING_S = 300.0, 10.0
#: As above, where there is nothing that could come.
SHORT_WAIT_S = 6.0


def _by_kind(graph: Graph) -> StreamPlan:
    """3x3 convolutions of fire modules on stream 1, everything else on stream 0."""
    small = [number for number in graph.order if graph.operators[number].id.endswith("expand3x3")]
    return StreamPlan(
        ((tuple(number for number in graph.order if number not in small), tuple(small)),), tuple(graph.order)
    )


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("fail", r"^device 0: operator fire4\.expand3x3, stream 1: no such kernel$"),
        ("hang", r"^device 0: operator fire4\.expand3x3, stream 1, did not finish within 10 s$"),
        ("die", r"^device 0 died with exit status 3 \(run\); the run was ended$"),
    ],
)
def test_spoilt_operators_are_named(files: Files, graph: Graph, how: str, message: str) -> None:
    """An operator that fails or hangs ends the run with device, stream and operator, one that dies with its device."""
    wait_s = HANGING_S if how == "hang" else WAIT_S
    with faults.loaded(files, graph, _by_kind(graph), wait_s) as (pool, (program,)):
        pool.call(0, faults.spoil, operator="fire4.expand3x3", how=how)
        pool.call(0, device.prepare, name="spoilt", program=program)
        with pytest.raises(HiosError, match=message):
            pool.call(0, device.run, name="spoilt", epoch=1)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores, as it needs two devices")
def test_values_that_never_arrive_are_named(files: Files, graph: Graph) -> None:
    """A device whose input never comes says which operator should have made it, and for which stream."""
    first, *others = graph.order
    plan = StreamPlan((((first,),), (tuple(others[1:]), (others[0],))), tuple(graph.order))
    message = r"^device 1: waited 6 s for the output of operator conv1, stream 1$"
    with faults.loaded(files, graph, plan, SHORT_WAIT_S) as (pool, (_, program)):
        alone = dataclasses.replace(program, devices=(1,))
        pool.call(1, device.prepare, name="alone", program=alone)
        with pytest.raises(HiosError, match=message):
            pool.call(1, device.run, name="alone", epoch=1)


def test_order_of_launch_is_the_order_of_ranks(graph: Graph) -> None:
    """An operator's rank is its place among the rows, and a value is waited for once a stream."""
    plan = _by_kind(graph)
    (program,) = ArenaPlan(graph, 1).program(plan)
    assert isinstance(program, StreamProgram)
    main, small = program.streams
    order = {graph.operators[number].id: rank for rank, number in enumerate(graph.order)}
    assert {step.operator: step.rank for step in (*main, *small)} == order
    for steps in (main, small):
        needs = [value for step in steps for value in step.needs]
        assert len(needs) == len(set(needs)) == 8  # one of each fire module: its squeezed value, its other half
        assert not {value[1] for value in needs} & {step.operator for step in steps}
