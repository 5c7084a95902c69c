"""Positions in a picture: every block of a graph is a frame, with boxes in columns; frames stand in rows on the page.

A value is one line from its operator, through every column that it passes, to all who take it; in a column that it
passes it has a place of its own, so that no line runs behind an operator. Values from and to other frames enter at
the left side and leave at the right side. A block that is wider than the page is cut into several frames.

Frames are read as text is: from left to right, row by row. A value runs to the next frame of its row directly, and to
any other through the gutters: down or up beside its frame, along a lane between two rows, and down or up beside the
frame that takes it; to a row further away also along the left margin. Each value has its own track everywhere, so that
lines of different values only cross.

Columns, order within columns and heights are those of layered drawings (Sugiyama, Tagawa, Toda, 1981), small and our
own because no library fits. ELK (elkjs) and Graphviz were tried on Inception-v3 and NASNet: both draw the blocks in one
band, four to eight times as wide as a page, because they do not wrap graphs whose blocks are frames; both draw a line
for every edge, where one for every value is enough. ELK would also add 1.6 MB of JavaScript to every page, and Graphviz
is a program to be installed. igraph is under the GPL, and grandalf has not been maintained for years.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_ROUNDS = 24
#: Vertices times rounds of ordering, at most: a large block is ordered in fewer rounds, to stay within seconds.
_EFFORT = 60_000
_STRAIGHTENING_ROUNDS = 12


def assign_columns(order: Iterable[int], predecessors: Mapping[int, Iterable[int]], limit: int) -> dict[int, int]:
    """The first column for every vertex that is right of its predecessors and has room.

    Vertices are in topological order, at most ``limit`` a column; predecessors that are not in ``order`` do not count.

    Without the limit it is the longest path to the vertex.
    """
    column: dict[int, int] = {}
    filled: Counter[int] = Counter()
    following: dict[int, int] = {}  # of a full column, one to look at next
    for vertex in order:
        place = max((column[source] + 1 for source in predecessors[vertex] if source in column), default=0)
        passed = []
        while filled[place] >= limit:
            passed.append(place)
            place = following.get(place, place + 1)
        following.update(dict.fromkeys(passed, place))
        column[vertex] = place
        filled[place] += 1
    return column


def order_columns(columns: Sequence[Sequence[int]], links: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The vertices of every column from top to bottom, so that few links cross (barycenter heuristic).

    Links are pairs of vertices of neighboring columns, the left one first; the order of the columns is tried first.
    """
    left, right = _neighbors(links)
    best = current = [list(column) for column in columns]
    fewest = _crossings(best, right)
    rounds = min(_ROUNDS, max(2, _EFFORT // (sum(map(len, columns)) or 1)))
    for turn in range(rounds):
        if fewest == 0:
            break
        current = [list(column) for column in current]
        forward = turn % 2 == 0
        side = left if forward else right
        steps = range(1, len(current)) if forward else range(len(current) - 2, -1, -1)
        for step in steps:
            fixed = current[step - 1 if forward else step + 1]
            current[step] = _by_barycenter(current[step], {v: place for place, v in enumerate(fixed)}, side)
        crossings = _crossings(current, right)
        if crossings < fewest:
            best, fewest = current, crossings
    return best


def place_vertically(
    columns: Sequence[Sequence[int]],
    links: Sequence[tuple[int, int]],
    separation: Mapping[tuple[int, int], float],
    weights: Mapping[int, float],
) -> dict[int, float]:
    """Centers of the vertices, downwards from about 0, so that links are short and straight.

    ``separation`` is the smallest distance of the centers of two vertices that stand one above the other, ``weights``
    how much each vertex insists on being level with its neighbors.
    """
    left, right = _neighbors(links)
    offsets: dict[int, float] = {}
    for column in columns:
        offset = 0.0
        for place, vertex in enumerate(column):
            offset += separation[column[place - 1], vertex] if place else 0.0
            offsets[vertex] = offset
    center = {v: offsets[v] - offsets[column[-1]] / 2 for column in columns for v in column}
    for turn in range(_STRAIGHTENING_ROUNDS):
        forward = turn % 2 == 0
        for column in columns if forward else reversed(columns):
            wanted = []
            for vertex in column:
                near = left.get(vertex, []) if forward else right.get(vertex, [])
                near = near or right.get(vertex, []) + left.get(vertex, [])
                level = sum(center[other] for other in near) / len(near) if near else center[vertex]
                wanted.append(level - offsets[vertex])
            for vertex, shift in zip(column, _rising(wanted, [weights[v] for v in column]), strict=True):
                center[vertex] = offsets[vertex] + shift
    return center


def _neighbors(links: Sequence[tuple[int, int]]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    left: dict[int, list[int]] = {}
    right: dict[int, list[int]] = {}
    for source, target in links:
        left.setdefault(target, []).append(source)
        right.setdefault(source, []).append(target)
    return left, right


def _by_barycenter(column: Sequence[int], place: Mapping[int, int], side: Mapping[int, list[int]]) -> list[int]:
    """A column sorted by the mean place of its neighbors; a vertex without one stays after its upper neighbor."""
    keys: list[tuple[float, int]] = []
    mean = -1.0
    for number, vertex in enumerate(column):
        if near := side.get(vertex):
            mean = sum(place[other] for other in near) / len(near)
        keys.append((mean, number))
    return [column[number] for _, number in sorted(keys)]


def _crossings(columns: Sequence[Sequence[int]], right: Mapping[int, list[int]]) -> int:
    """Pairs of links that cross."""
    total = 0
    for column, following in pairwise(columns):
        place = {vertex: number for number, vertex in enumerate(following)}
        seen: list[int] = []
        for vertex in column:
            ends = sorted(place[target] for target in right.get(vertex, ()))
            total += sum(len(seen) - bisect_left(seen, end + 1) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def _rising(wanted: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The rising sequence nearest to what is wanted, by weighted squares (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for value, weight in zip(wanted, weights, strict=True):
        mean, total, members = value, weight, 1
        while pools and pools[-1][0] > mean:
            before, its, count = pools.pop()
            mean = (mean * total + before * its) / (total + its)
            total, members = total + its, members + count
        pools.append((mean, total, members))
    return [mean for mean, _, members in pools for _ in range(members)]


Point = tuple[float, float]

#: Operators above one another, at most.
_TALLEST = 32
#: Size of a box in pixels: as high as this, or higher for the lines that end at it, and as wide as its label.
BOX_HEIGHT = 17.0
WIDEST_LABEL = 104.0
_NARROWEST_LABEL = 20.0
_PADDING = 9.0
_PORT_STEP = 3.5
_MOST_STEPS = 24
_LINE_HEIGHT = 3.0
_BETWEEN = 5.0
_SIDE = 9.0
_TOP = 19.0
_BOTTOM = 8.0
_NARROWEST_FRAME = 44.0
_GAP, _GAP_PER_LINK, _WIDEST_GAP = 14.0, 1.3, 72.0
_LINE_WEIGHT = 6.0
_TALLEST_LINES = 800.0


@dataclass(frozen=True, slots=True)
class Box:
    """Where an operator is drawn: left upper corner and size in pixels."""

    x: float
    y: float
    width: float
    height: float


def box_width(label_width: float) -> float:
    """Pixels that the box of an operator is wide, by those of its label."""
    return max(_NARROWEST_LABEL, label_width) + _PADDING


@dataclass(slots=True)
class Frame:
    """A block, or a part of one that is too wide for the page; lengths in pixels from the frame's corner.

    ``lines`` by edge run within the frame, from the operator or the left side to the operator or the right side;
    ``entries`` and ``exits`` by operator are how far down the sides its value comes in and goes out.
    """

    block: int
    part: int
    width: float = 0.0
    height: float = 0.0
    boxes: dict[int, Box] = field(default_factory=dict)
    lines: dict[int, list[Point]] = field(default_factory=dict)
    entries: dict[int, float] = field(default_factory=dict)
    exits: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class GraphWiring:
    """A graph by numbers: operators in graph order, edges as pairs of operators, operators in topological order."""

    order: Sequence[int]
    edges: Sequence[tuple[int, int]]
    into: Sequence[Sequence[int]]
    out_of: Sequence[Sequence[int]]


def frames(wiring: GraphWiring, blocks: Sequence[Sequence[int]], widths: Sequence[float], widest: float) -> list[Frame]:
    """The frames of all blocks in reading order; a block that needs more than the widest is cut, one column never."""
    drawn = []
    for number, block in enumerate(blocks):
        predecessors = {v: [wiring.edges[edge][0] for edge in wiring.into[v]] for v in block}
        column = assign_columns(block, predecessors, _TALLEST)
        rows: list[list[int]] = [[] for _ in range(max(column.values()) + 1)]
        for operator in block:
            rows[column[operator]].append(operator)
        for part, columns in enumerate(_cut(rows, widths, widest)):
            drawn.append(_FrameColumns(wiring, columns, widths).frame(number, part))
    return drawn


def _cut(columns: list[list[int]], widths: Sequence[float], widest: float) -> Iterator[list[list[int]]]:
    """Runs of columns that fit into a frame, of about equal width."""
    needs = [max(widths[v] for v in column) + _GAP + _GAP_PER_LINK * len(column) for column in columns]
    runs = max(1, -(-int(sum(needs)) // int(widest)))
    share = max(widest * 0.6, sum(needs) / runs)
    begin, width = 0, 0.0
    for place, need in enumerate(needs):
        if place > begin and (width + need > widest or width >= share):
            yield columns[begin:place]
            begin, width = place, 0.0
        width += need
    yield columns[begin:]


def crisp(length: float) -> float:
    """The middle of a pixel: a level line there is drawn sharp."""
    return math.floor(length) + 0.5


class _FrameColumns:
    """Columns of operators on their way to a frame.

    Vertices are operators and, from ``len(wiring.order)`` on, the places where values pass. Column 0 is the left
    side of the frame, the last one the right side.
    """

    def __init__(self, wiring: GraphWiring, columns: Sequence[Sequence[int]], widths: Sequence[float]) -> None:
        self._wiring = wiring
        self._widths = widths
        self._columns: list[list[int]] = [[], *(list(column) for column in columns), []]
        self._home = {v: number for number, column in enumerate(self._columns) for v in column}
        #: By value (the operator that makes it): its vertices from column to column.
        self._trail: dict[int, list[int]] = {}
        self._links: list[tuple[int, int]] = []
        self._height = {v: self._box_height(v) for v in self._home}
        self._connect()

    def _box_height(self, operator: int) -> float:
        takes = min(len(self._wiring.into[operator]), _MOST_STEPS)
        return max(BOX_HEIGHT, _PORT_STEP * (takes - 1) + 8.0)

    def _connect(self) -> None:
        """Lead every value from column to column as far as it is needed."""
        wiring, right_side = self._wiring, len(self._columns) - 1
        place = {operator: number for number, operator in enumerate(wiring.order)}
        inside = list(self._home)
        values = {wiring.edges[edge][0] for operator in inside for edge in wiring.into[operator]} | set(inside)
        key: dict[int, int] = {}
        for value in sorted(values, key=place.__getitem__):
            targets = [wiring.edges[edge][1] for edge in wiring.out_of[value]]
            reach = [self._home[t] - 1 for t in targets if t in self._home]
            if value in self._home and len(reach) < len(targets):
                reach.append(right_side)
            if not reach:
                continue
            begin = self._home.get(value, 0)
            trail = [value] if value in self._home else []
            for column in range(begin + len(trail), max(reach) + 1):
                vertex = len(wiring.order) + len(self._height)
                self._height[vertex] = _LINE_HEIGHT
                key[vertex] = place[value]
                self._columns[column].append(vertex)
                trail.append(vertex)
            self._trail[value] = trail
            self._links += pairwise(trail)
            self._links += [(trail[self._home[t] - 1 - begin], t) for t in targets if t in self._home]
        for vertices in self._columns:
            vertices.sort(key=lambda vertex: key.get(vertex, place.get(vertex, 0)))

    def frame(self, block: int, part: int) -> Frame:
        """The frame with everything in its place."""
        columns = order_columns(self._columns, self._links)
        apart = {
            (upper, lower): self._apart(upper, lower, len(column))
            for column in columns
            for upper, lower in pairwise(column)
        }
        weights = {v: 1.0 if v in self._home else _LINE_WEIGHT for v in self._height}
        center = place_vertically(columns, self._links, apart, weights)
        top = min(center[v] - self._height[v] / 2 for v in center) - _TOP
        center = {v: crisp(y - top) for v, y in center.items()}
        left, right = self._sides(columns)
        frame = Frame(block, part, width=max(_NARROWEST_FRAME, math.ceil(right[-1])))
        right[-1] = left[-1] = frame.width
        frame.height = math.ceil(max(center[v] + self._height[v] / 2 for v in center) + _BOTTOM)
        for operator, column in self._home.items():
            height = self._height[operator]
            frame.boxes[operator] = Box(
                left[column], center[operator] - height / 2, right[column] - left[column], height
            )
        for value, trail in self._trail.items():
            if value not in self._home:
                frame.entries[value] = center[trail[0]]
            elif any(self._wiring.edges[edge][1] not in self._home for edge in self._wiring.out_of[value]):
                frame.exits[value] = center[trail[-1]]
        frame.lines = self._lines(center, left, right)
        return frame

    def _apart(self, upper: int, lower: int, members: int) -> float:
        """Distance of the centers of two neighbors in a column; many lines without operators between stand closer."""
        need = (self._height[upper] + self._height[lower]) / 2 + _BETWEEN
        if upper in self._home or lower in self._home:
            return need
        return min(need, _TALLEST_LINES / members)

    def _sides(self, columns: Sequence[Sequence[int]]) -> tuple[list[float], list[float]]:
        """Left and right side of every column."""
        spans = {v: number for number, column in enumerate(columns) for v in column}
        crossing = [0] * len(columns)
        for source, _ in self._links:
            crossing[spans[source]] += 1
        left, right = [0.0], [0.0]
        for number, column in enumerate(columns[1:], start=1):
            outer = number in (1, len(columns) - 1)
            gap = min(_WIDEST_GAP, (_SIDE if outer else _GAP) + _GAP_PER_LINK * crossing[number - 1])
            left.append(right[-1] + gap)
            right.append(left[-1] + max((self._widths[v] for v in column if v in self._home), default=0.0))
        return left, right

    def _lines(
        self, center: Mapping[int, float], left: Sequence[float], right: Sequence[float]
    ) -> dict[int, list[Point]]:
        """By edge: from the right side of its operator, or of the frame's left border, to where it ends."""
        wiring = self._wiring
        lines: dict[int, list[Point]] = {}
        for value, trail in self._trail.items():
            begin = self._home.get(value, 0)
            for edge in wiring.out_of[value]:
                target = wiring.edges[edge][1]
                if target not in self._home and value not in self._home:
                    continue
                passed = trail[: self._home[target] - begin] if target in self._home else trail
                points = [(right[begin], center[passed[0]])]
                for number, vertex in enumerate(passed[1:], start=begin + 1):
                    points += [(left[number], center[vertex]), (right[number], center[vertex])]
                lines[edge] = points
        for operator, column in self._home.items():
            taken = sorted(wiring.into[operator], key=lambda edge: (lines[edge][-1][1], edge))
            step = min(_PORT_STEP, (self._height[operator] - 8.0) / max(len(taken) - 1, 1))
            for place, edge in enumerate(taken):
                level = center[operator] + step * (place - (len(taken) - 1) / 2)
                lines[edge] = [*lines[edge], (left[column], level)]
        return lines


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

    ``routes`` are corners of a line between two frames by value and numbers of the frames that it leaves and enters;
    without an entry it runs straight on.
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
