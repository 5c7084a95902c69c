"""A marker in shared memory of the operator a device is running; it survives the death of the worker."""

from __future__ import annotations

from hios.graph import Graph

# Of a 64-bit flag: the lowest bits are the operator, then the stage, each plus one, then the stream.
_OPERATOR_BITS, _STAGE_BITS = 24, 20


def marker(operator: int, stage: int | None, stream: int) -> int:
    """A position as a number above 0: operator index in the graph, stage (None in stream schedules), stream."""
    return operator + 1 | (0 if stage is None else stage + 1) << _OPERATOR_BITS | stream << _OPERATOR_BITS + _STAGE_BITS


def text(graph: Graph, marker: int) -> str:
    """A marker in words; empty for 0, when no operator has started."""
    if not marker:
        return ""
    operator = marker % (1 << _OPERATOR_BITS) - 1
    stage = (marker >> _OPERATOR_BITS) % (1 << _STAGE_BITS) - 1
    stream = marker >> _OPERATOR_BITS + _STAGE_BITS
    return f"operator {graph.operators[operator].id}, {f'stream {stream}' if stage < 0 else f'stage {stage}'}"
