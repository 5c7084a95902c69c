"""Cutting the programs of a plan into segments: where they begin and end, and what crosses their borders."""

from __future__ import annotations

import pytest

from hios import Edge, Graph, Operator
from hios.core.graph import Call, Shapes, TensorSpec, Value
from hios.core.schedule import Plan, StagedPlan, StreamPlan
from hios.platforms.program import ArenaPlan, StepProgram
from hios.platforms.segments import boundary, segmented


def _graph(**reads: str) -> Graph:
    """Operators of one letter, which read those named; the last one makes the output, and the first reads x."""
    operators = [
        Operator(
            name,
            "add",
            (Call("relax.add", tuple(Value(operator=other) for other in others) or (Value(input="x"),)),),
            Shapes(((2,),) * len(others), ((2,),)),
            "float32",
        )
        for name, others in reads.items()
    ]
    edges = tuple(Edge(other, name, 8) for name, others in reads.items() for other in others)
    output = (Value(operator=list(reads)[-1]),)
    return Graph("letters", tuple(operators), edges, (TensorSpec("x", (2,), "float32"),), output)


FORK = _graph(a="", b="a", c="a", d="bc")
CHAINS = _graph(a="", b="a", c="", d="c", e="", f="e", g="bdf")


def _staged(*devices: tuple[int, ...]) -> StagedPlan:
    return StagedPlan(tuple(tuple(((operator,),) for operator in row) for row in devices))


def _text(graph: Graph, plan: Plan, concurrent: bool = False) -> list[str]:
    """Segments by device, such as ``ab>c a`` : waits after >, its operators, what it passes on after <."""
    made = []
    for program in segmented(ArenaPlan(graph, 2).program(plan), graph, concurrent=concurrent):
        assert isinstance(program, StepProgram)
        steps = []
        for step in program.steps:
            names = "".join(name for group in step.groups for name in group)
            waits = "".join(handover.value[1] for handover in step.arrivals)
            leaves = "".join(handover.value[1] for handover in step.departures)
            alone = "" if step.places else "!"
            steps.append(f"{waits}>{names}{alone}>{leaves}")
        made.append(" ".join(steps))
    return made


@pytest.mark.parametrize(
    ("graph", "plan", "expected"),
    [
        (FORK, _staged((0, 1, 2, 3)), [">abcd>"]),
        (FORK, _staged((0, 1, 3), (2,)), [">a>a >b> c>d>", "a>c>c"]),
        # passed on together, as the same operator waits for both
        (CHAINS, _staged((0, 1, 6), (2, 3, 4, 5)), [">ab> df>g>", ">cdef>df"]),
        # passed on together, though what is made first belongs to another segment
        (_graph(a="", e="", b="e", c="b", d="ac"), _staged((0, 2, 3), (1, 4)), [">a> e>bc>ac", ">e>e ac>d>"]),
        # not together, as the first one is of use earlier
        (_graph(a="", b="a", c="", d="ac", e="bd"), _staged((2, 3, 4), (0, 1)), [">c> a>d> b>e>", ">a>a >b>b"]),
        # streams of one device run in launch order
        (FORK, StreamPlan((((0, 1, 3), (2,)),), (0, 2, 1, 3)), [">acbd>"]),
        (FORK, StreamPlan((((0, 1), (3,)), ((2,),)), (0, 1, 2, 3)), [">a>a >b> c>d>", "a>c>c"]),
        # an operator on two devices is a step of its own
        (FORK, StreamPlan(((((0, 1, 2, 3)),), ((1,),)), (0, 1, 2, 3), {1: (0, 1)}), [">a> >b!> >cd>", ">b!>"]),
        (FORK, StagedPlan(((((0,),), ((1,), (2,)), ((3,),)),)), [">abcd>"]),
    ],
)
def test_where_segments_begin_and_end(graph: Graph, plan: Plan, expected: list[str]) -> None:
    """They wait before their first operator only, and pass on after their last."""
    assert _text(graph, plan) == expected


def test_streams_of_several_cores_stay() -> None:
    """Devices that run operators side by side are not cut there."""
    groups = StagedPlan(((((0,),), ((1,), (2,)), ((3,),)),))
    assert _text(FORK, groups, concurrent=True) == [">a> >bc!> >d>"]
    programs = ArenaPlan(FORK, 1).program(StreamPlan((((0, 1, 3), (2,)),), (0, 1, 2, 3)))
    assert segmented(programs, FORK, concurrent=True) == programs


def test_what_crosses_the_border() -> None:
    """Only values used outside are outputs: those handed over, those of the network, and those of later segments."""
    first, second = segmented(ArenaPlan(CHAINS, 2).program(_staged((0, 1, 6), (2, 3, 4, 5))), CHAINS)
    assert isinstance(first, StepProgram)
    assert isinstance(second, StepProgram)
    borders = [boundary(step, CHAINS) for step in (*first.steps, *second.steps)]
    assert [[name for _, name, _ in own.inputs] for own in borders] == [["x"], ["b", "d", "f"], ["x"]]
    assert [[name for _, name, _ in own.outputs] for own in borders] == [["b"], ["g"], ["d", "f"]]
