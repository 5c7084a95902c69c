"""Where the frames of a picture stand, and the lines between them.

Frames are read as text is: from left to right, row by row. A value runs to the next frame of its row directly, and to
any other through the gutters: down or up beside its frame, along a lane between two rows, and down or up beside the
frame that takes it; to a row further away also along the left margin. Each value has its own track everywhere, so that
lines of different values only cross.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hios.report.graph_boxes import Frame, Point, crisp

_GUTTER, _TRACK, _MOST_TRACKS = 22.0, 5.0, 40
_LANE, _ROW_GAP = 5.0, 14.0
#: Lanes that need more stand closer: graphs of many thousand operators stay on a page.
_WIDEST_LANES = 400.0
_MARGIN = 10.0

#: A value on its way from one frame to another.
Hop = tuple[int, int, int]


@dataclass(slots=True)
class FramePlace:
    """Row and position in the row of a frame, and its left upper corner in pixels."""

    row: int
    position: int
    x: float = 0.0
    y: float = 0.0


@dataclass(slots=True)
class Plan:
    """The whole page; lengths in pixels.

    Attributes:
        places: of the frames.
        width: of the page.
        height: of the page.
        routes: corners of a line between two frames by value, number of the frame it leaves and of the one it
            enters; without an entry it runs straight on.
    """

    places: list[FramePlace]
    width: float = 0.0
    height: float = 0.0
    routes: dict[Hop, list[Point]] = field(default_factory=dict)


def plan(frames: Sequence[Frame], hops: Iterable[Hop], widest: float) -> Plan:
    """Put frames, in reading order, on a page no wider than asked or than one of them, and lead values between them."""
    return _Planner(frames, sorted(set(hops)), widest).plan()


class _Planner:
    def __init__(self, frames: Sequence[Frame], hops: Sequence[Hop], widest: float) -> None:
        self._frames = frames
        self._plan = Plan(_rows(frames, widest))
        places = self._plan.places
        self._routed = [
            hop
            for hop in hops
            if (places[hop[1]].row, places[hop[1]].position + 1) != (places[hop[2]].row, places[hop[2]].position)
        ]
        self._rows: list[list[int]] = [[] for _ in range(places[-1].row + 1)]
        for number, place in enumerate(places):
            self._rows[place.row].append(number)

    def plan(self) -> Plan:
        """Columns first, then rows: how far apart rows are depends on how many values run between them."""
        plan, places = self._plan, self._plan.places
        margin = _Lanes()
        for hop in self._routed:
            if (zones := self._zones(hop))[0] != zones[1]:
                margin.ask(hop[0], *sorted(map(float, zones)))
        left = _MARGIN + margin.assign()
        tracks = self._tracks(left)
        between = [_Lanes() for _ in range(len(self._rows) + 1)]
        for hop in self._routed:
            value, source, target = hop
            first, last = self._zones(hop)
            out, into = tracks[value, source, "out"], tracks[value, target, "in"]
            for zone, ends in ((first, (out, left if first != last else into)), (last, (left, into))):
                between[zone].ask(value, *sorted(ends))
        base = self._stack([lanes.assign() for lanes in between])
        for hop in self._routed:
            value, source, target = hop
            first, last = self._zones(hop)
            out, into = tracks[value, source, "out"], tracks[value, target, "in"]
            start = places[source].y + self._frames[source].exits[value]
            end = places[target].y + self._frames[target].entries[value]
            down = crisp(base[first] + between[first].offset(value))
            corners = [(out, start), (out, down)]
            if first != last:
                side = crisp(left - _LANE - margin.offset(value))
                again = crisp(base[last] + between[last].offset(value))
                corners += [(side, down), (side, again), (into, again)]
            else:
                corners += [(into, down)]
            plan.routes[hop] = [*corners, (into, end)]
        return plan

    def _zones(self, hop: Hop) -> tuple[int, int]:
        """The spaces that a value runs along, after its frame and before the other; space i is above row i."""
        a, b = self._plan.places[hop[1]].row, self._plan.places[hop[2]].row
        if a == b:
            return a, a
        return (a + 1, b) if b > a else (a, b + 1)

    def _tracks(self, left: float) -> dict[tuple[int, int, str], float]:
        """Place the frames from left to right; the x of every value's way out of and into a frame."""
        wanted: dict[tuple[int, int], dict[tuple[int, int, str], None]] = {}
        places = self._plan.places
        for value, source, target in self._routed:
            out, into = places[source], places[target]
            for gutter, key in (
                ((out.row, out.position + 1), (value, source, "out")),
                ((into.row, into.position), (value, target, "in")),
            ):
                wanted.setdefault(gutter, {})[key] = None
        tracks = {}
        for row, members in enumerate(self._rows):
            x = left
            for position in range(len(members) + 1):
                keys = wanted.get((row, position), {})
                width = _GUTTER + _TRACK * min(len(keys), _MOST_TRACKS)
                if position in (0, len(members)) and not keys:
                    width = _MARGIN
                # ways in stand nearer to the frame at the right
                for number, key in enumerate(sorted(keys, key=lambda key: (key[2] == "in", key)), start=1):
                    tracks[key] = crisp(x + width * number / (len(keys) + 1))
                x += width
                if position < len(members):
                    places[members[position]].x = x
                    x += self._frames[members[position]].width
            self._plan.width = max(self._plan.width, x)
        return tracks

    def _stack(self, rooms: Sequence[float]) -> list[float]:
        """Place the rows from top to bottom; the y of the first lane above every row and below the last."""
        base, y = [], 0.0
        for row, room in enumerate(rooms):
            base.append(y + _ROW_GAP / 2)
            y += room + _ROW_GAP
            if row < len(self._rows):
                tallest = max(self._frames[number].height for number in self._rows[row])
                for number in self._rows[row]:
                    self._plan.places[number].y = round(y + (tallest - self._frames[number].height) / 2)
                y += tallest
        self._plan.height = y
        return base


def _rows(frames: Sequence[Frame], widest: float) -> list[FramePlace]:
    places, row, position, x = [], 0, 0, 0.0
    for frame in frames:
        if position and x + frame.width > widest - 2 * _MARGIN:
            row, position, x = row + 1, 0, 0.0
        places.append(FramePlace(row, position))
        x += frame.width + _GUTTER
        position += 1
    return places


class _Lanes:
    """Parallel lanes: a value has one for all of its way there, and values on one lane do not meet."""

    def __init__(self) -> None:
        self._spans: dict[int, tuple[float, float]] = {}
        self._lane: dict[int, int] = {}
        self._step = _LANE

    def ask(self, value: int, begin: float, end: float) -> None:
        """The value runs from begin to end, among other ways perhaps."""
        before = self._spans.get(value, (begin, end))
        self._spans[value] = min(begin, before[0]), max(end, before[1])

    def assign(self) -> float:
        """Give every value a lane, by the beginning of its way (left-edge algorithm); the room that all lanes take."""
        ends: list[tuple[float, int]] = []
        free: list[int] = []
        lanes = 0
        for value, (begin, end) in sorted(self._spans.items(), key=lambda item: (item[1], item[0])):
            while ends and ends[0][0] < begin:
                heapq.heappush(free, heapq.heappop(ends)[1])
            if not free:
                heapq.heappush(free, lanes)
                lanes += 1
            self._lane[value] = heapq.heappop(free)
            heapq.heappush(ends, (end, self._lane[value]))
        self._step = min(_LANE, _WIDEST_LANES / max(lanes, 1))
        return self._step * lanes

    def offset(self, value: int) -> float:
        """How far the value's lane is from the first."""
        return self._step * self._lane[value]
