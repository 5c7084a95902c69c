"""A marker in shared memory of what the process that drives the GPUs is doing; it survives that process."""

from __future__ import annotations

from collections.abc import Sequence

from hios.graph import Graph

# Of a 64-bit flag, from the lowest: operator plus one, stage plus one or number of a competitor, stream, device. No
# operator means that the host waits for a device.
_OPERATOR, _STAGE, _STREAM, _DEVICE = 22, 20, 12, 9
_STAGE_AT, _STREAM_AT, _DEVICE_AT = _OPERATOR, _OPERATOR + _STAGE, _OPERATOR + _STAGE + _STREAM


def launching(device: int, operator: int, stage: int | None, stream: int) -> int:
    """The marker of an operator, by its index in the graph, that is about to be launched; above 0."""
    return operator + 1 | (0 if stage is None else stage + 1) << _STAGE_AT | stream << _STREAM_AT | _device(device)


def waiting(device: int, competitor: int) -> int:
    """The marker of a device that has all launches of a competitor, by its index, while the host waits; above 0."""
    return competitor + 1 << _STAGE_AT | _device(device)


def text(graph: Graph, names: Sequence[str], marker: int) -> str:
    """A marker in words; empty for 0.

    Args:
        graph: whose operators are launched.
        names: of the competitors.
        marker: the marker.
    """
    if not marker:
        return ""
    operator, stage = marker % (1 << _OPERATOR) - 1, (marker >> _STAGE_AT) % (1 << _STAGE) - 1
    device, stream = marker >> _DEVICE_AT, (marker >> _STREAM_AT) % (1 << _STREAM)
    if operator < 0:
        return everything(device, names[stage])
    return place(device, graph.operators[operator].id, None if stage < 0 else stage, stream)


def place(device: int, operators: str, stage: int | None, stream: int) -> str:
    """The position of operators, in words."""
    return f"device {device}, operator {operators}, {f'stream {stream}' if stage is None else f'stage {stage}'}"


def everything(device: int, name: str) -> str:
    """A device that has all launches of a competitor, in words."""
    return f"device {device}, which runs all of {name}"


def _device(device: int) -> int:
    return min(device, (1 << _DEVICE) - 1) << _DEVICE_AT
