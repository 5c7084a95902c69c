"""One schedule as text: what it says about itself, and a Gantt chart that fits the terminal."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import textwrap
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import groupby
from typing import TextIO

from hios.charts.theme import TYPE_COLORS, style_of
from hios.core.graph import Graph
from hios.core.schedule import Placement, Schedule, merged_rows
from hios.errors import ArtifactError, HiosError
from hios.report.graph_layout import Lane, lanes, lanes_of, short_names, shortened
from hios.report.graph_svg import counted

#: Digits that times are shown with.
_DIGITS = 4
_MOST_DECIMALS = 9
#: Below this share the latency is the lower bound but for rounding.
_ROUNDING = 1e-9
#: Below this share one decimal of a percentage would be 0.0.
_SMALL = 0.0005


def summary(schedule: Schedule) -> list[tuple[str, str]]:
    """Name and text of every fact about a schedule as a whole, in the order to be read."""
    bound, staged = schedule.lower_bound_ms, schedule.staged_lower_bound_ms
    facts = [
        ("Graph", schedule.graph or "without a name"),
        ("Operators", str(len(schedule.placements))),
        ("Algorithm", schedule.algorithm),
        ("Parameters", ", ".join(f"{name} {value}" for name, value in schedule.parameters.items()) or "none"),
        ("Devices", str(schedule.devices)),
        ("Latency", f"{ms(schedule.latency_ms)}, predicted by the cost model"),
        ("Lower bound", f"{ms(bound)}; {gap_in_words(schedule.latency_ms, bound, '')}"),
    ]
    if staged:
        gap = gap_in_words(schedule.latency_ms, staged, "staged ")
        facts.append(("Staged bound", f"{ms(staged)} for staged schedules; {gap}"))
    facts += [
        *([("Cuts", cuts_in_words(schedule.cuts))] if schedule.cuts else []),
        *([("Several devices", text)] if (text := widths_in_words(schedule)) else []),
        ("Scheduling time", ms(1000 * schedule.scheduling_time_s)),
    ]
    facts += [(f"Note on {topic}", text) for topic, text in schedule.notes.items()]
    if schedule.merges:
        facts.append(("Merged", "; ".join(" + ".join(merge) for merge in schedule.merges)))
    return facts


def operator_types(schedule: Schedule, graph: Graph) -> dict[str, str]:
    """Type of every operator of a schedule; an `ArtifactError` if it is of another graph."""
    for position, row in enumerate(schedule.placements):
        if row.operator not in graph.index:
            raise ArtifactError(
                f"{schedule.source}: placements[{position}].operator: found {row.operator}, which is not an operator "
                f"of {graph.source}; give the graph that the schedule was made for"
            )
    return {row.operator: graph.operators[graph.index[row.operator]].type for row in schedule.placements}


def type_shares(schedule: Schedule, types: Mapping[str, str]) -> dict[str, float]:
    """Milliseconds that the operators of each type take together; empty where types are not known."""
    shares: dict[str, float] = defaultdict(float)
    for row, *_ in merged_rows(schedule.placements):
        if row.operator in types:
            shares[types[row.operator]] += row.finish_ms - row.start_ms
    return shares


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """What a schedule makes of one device; ``stages`` is None in stream schedules."""

    device: int
    operators: int
    streams: int
    stages: int | None
    idle_share: float

    def __str__(self) -> str:
        if not self.operators:
            return "no operator"
        parts = [counted(self.operators, "operator")]
        if self.stages is not None:
            parts.append(f"in {counted(self.stages, 'stage')}")
        else:
            parts.append(f"on {counted(self.streams, 'stream')}")
        return f"{' '.join(parts)}, idle {100 * self.idle_share:.1f} % of the latency"


def device_uses(schedule: Schedule) -> list[DeviceUse]:
    """The use of every device; a device is idle while none of its streams runs an operator."""
    rows: list[list[Placement]] = [[] for _ in range(schedule.devices)]
    for row in schedule.placements:
        for device in row.held_devices:
            if device < schedule.devices:
                rows[device].append(row)
    return [
        DeviceUse(
            device=device,
            operators=len(placed),
            streams=len({row.stream for row in placed}),
            stages=None if any(row.stage is None for row in placed) else len({row.stage for row in placed}),
            idle_share=1 - _busy_ms(placed) / schedule.latency_ms if schedule.latency_ms > 0 else 0.0,
        )
        for device, placed in enumerate(rows)
    ]


def ms(time_ms: float) -> str:
    """A time in milliseconds with four digits."""
    decimals = _DIGITS - 1 - math.floor(math.log10(time_ms)) if 0 < time_ms < math.inf else 0
    return f"{time_ms:.{min(max(decimals, 0), _MOST_DECIMALS)}f} ms"


def widths_in_words(schedule: Schedule) -> str:
    """How many operators take how many devices at once; empty where each takes one."""
    counts = Counter(len(row.devices) for row in schedule.placements if row.devices)
    return ", ".join(f"{counted(count, 'operator')} on {width} at once" for width, count in sorted(counts.items()))


def cuts_in_words(cuts: int) -> str:
    """What it means for a schedule that its search cut the graph; ``cuts`` is more than 0."""
    return f"{cuts}; the best schedule with no stage across a cut, a larger states may find a better one"


def gap_in_words(latency: float, bound: float, kind: str) -> str:
    """How far a latency is above a bound; ``kind`` (such as ``"staged "``) says which schedules the bound is for."""
    if bound <= 0:
        return "gap unknown"
    gap = latency / bound - 1
    if gap < -_ROUNDING:  # of a schedule of streams over the bound for staged ones
        return f"{-100 * gap:.1f} % above the latency"
    if gap <= _ROUNDING:
        return f"gap 0 % (no {kind}schedule is faster)"
    return f"gap {100 * gap:.{1 if gap >= _SMALL else 4}f} % (latency above bound)"


def _busy_ms(rows: list[Placement]) -> float:
    """Length of the union of the spans."""
    busy, end = 0.0, 0.0
    for start, finish in sorted((row.start_ms, row.finish_ms) for row in rows):
        busy += max(finish - max(start, end), 0.0)
        end = max(end, finish)
    return busy


#: Columns that a chart needs at least beside the names of its lanes.
LEAST_WIDTH = 40
MOST_WIDTH = 1000
MOST_PARTS = 100
#: Width of text that goes to a pipe or a file.
PIPED_WIDTH = 100

#: Without --parts the chart takes about so many lines, unless a single part takes more.
_LINES = 60
#: Columns that a label is given where labels decide on the number of parts.
_LABEL_COLUMNS = 8
#: Between the words of a legend.
_GAP = "   "
#: Colors of neighbors where types are not known.
_IN_TURN = (TYPE_COLORS[0], TYPE_COLORS[5])
#: Columns between two times on the axis, at least.
_TICK_COLUMNS = 10
#: A schedule that ends before this has no time axis: nothing takes so little, and steps of it would not be numbers.
_NO_TIME_MS = 1e-12


@dataclass(frozen=True, slots=True)
class Symbols:
    """What bars are drawn with."""

    stage: str
    operator: str
    running: str
    idle: str
    several: str
    cut: str
    tick: str
    wide: str


UNICODE = Symbols(stage="┃", operator="│", running="─", idle="·", several="▒", cut="…", tick="╷", wide="═")
ASCII = Symbols(stage="[", operator="|", running="=", idle=".", several="#", cut="~", tick="'", wide="+")


@dataclass(frozen=True, slots=True)
class Look:
    """How to draw: columns of the terminal, pieces of the time axis (None: as labels need), symbols, color."""

    width: int
    parts: int | None = None
    symbols: Symbols = UNICODE
    color: bool = False


def look(stream: TextIO, *, width: int | None = None, parts: int | None = None, plain: bool = False) -> Look:
    """How to draw on a stream: as wide as its terminal, in color on a terminal only, with what it can print.

    ``parts``, the pieces of the time axis, are as many as labels need if None; ``plain`` is ASCII only.

    $COLUMNS overrides the width of the terminal, $NO_COLOR and TERM=dumb turn color off.

    Raises:
        HiosError: width or parts are not allowed.
    """
    if width is None:
        width = max(shutil.get_terminal_size((PIPED_WIDTH, 24)).columns, LEAST_WIDTH)
    for name, value, least, most in (("width", width, LEAST_WIDTH, MOST_WIDTH), ("parts", parts, 1, MOST_PARTS)):
        if value is not None and not least <= value <= most:
            raise HiosError(f"--{name}: found {value}; allowed: {least} to {most}")
    try:
        "".join(astuple(UNICODE)).encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        plain = True
    color = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Look(width, parts, ASCII if plain else UNICODE, color)


def draw(schedule: Schedule, look: Look, types: Mapping[str, str]) -> str:
    """The schedule as text, lines no longer than the width.

    Placements may break the rules of a schedule, they are drawn as they are. Without types of operators, stages, or the
    operators of a stream, have two colors in turn.
    """
    facts = [(name.lower(), text) for name, text in summary(schedule)]
    facts += [(f"device {use.device}", str(use)) for use in device_uses(schedule)]
    text = "\n".join([*_table(facts, look.width), "", *_Chart(schedule, look, types).lines()])
    return text.encode("ascii", "replace").decode() if look.symbols is ASCII else text


def _table(facts: Sequence[tuple[str, str]], width: int) -> list[str]:
    indent = min(max(len(name) for name, _ in facts) + 2, width // 2)
    lines = []
    for name, text in facts:
        head = f"{shortened(_printable(name), indent - 1, ASCII.cut):<{indent}}"
        lines += textwrap.wrap(_printable(text), width, initial_indent=head, subsequent_indent=" " * indent) or [
            head.rstrip()
        ]
    return lines


def _printable(text: str) -> str:
    """Names and notes come from files: what would move the cursor is shown as a question mark."""
    return "".join(character if character.isprintable() else "?" for character in text)


@dataclass(slots=True)
class _LaneText:
    """A lane in columns: a character and a color each; idle columns have no color."""

    text: list[str]
    colors: list[str | None]


class _Chart:
    def __init__(self, schedule: Schedule, look: Look, types: Mapping[str, str]) -> None:
        self._look = look
        self._symbols = look.symbols
        self._placed: dict[Lane, list[Placement]] = defaultdict(list)
        groups = merged_rows(schedule.placements)
        for row, *_ in groups:
            for lane in lanes_of(row):
                self._placed[lane].append(row)
        self._lanes = lanes(self._placed, schedule.devices)
        self._names = _lane_names(self._lanes)
        self._first_lanes = {min(lane for lane in self._lanes if lane[0] == device) for device, _ in self._lanes}
        self._indent = max(map(len, self._names)) + 1
        self._columns = max(look.width - self._indent, 1)
        end_ms = max((row.finish_ms for row in schedule.placements), default=0.0)
        self._end_ms = end_ms if end_ms > _NO_TIME_MS else 0.0
        names = short_names([row.operator for row in schedule.placements])
        #: By operator, of those that run merged by the first.
        self._labels = {group[0].operator: " + ".join(names[row.operator] for row in group) for group in groups}
        self._parts = look.parts or self._wanted_parts()
        self._total = self._parts * self._columns
        self._marks: set[str] = set()
        self._types = types
        self._shares = type_shares(schedule, types)

    def lines(self) -> list[str]:
        """The parts of the time axis one below the other, and what the symbols mean.

        A part leaves out lanes that are idle throughout it, but for the first of each device.
        """
        axis = self._axis()
        rows = [self._row(self._placed.get(lane, [])) for lane in self._lanes]
        lines = []
        for part in range(self._parts):
            first, last = part * self._columns, (part + 1) * self._columns
            lines.append((" " * self._indent + axis[first:last]).rstrip())
            for lane, name, row in zip(self._lanes, self._names, rows, strict=True):
                if lane in self._first_lanes or any(row.colors[first:last]):
                    lines.append(f"{name:<{self._indent}}" + self._painted(row, first, last))
            lines.append("")
        return [*lines, *self._legend()]

    def _wanted_parts(self) -> int:
        """So many that half of the operators can be labeled, within the number of lines."""
        shares = [
            (min(len(self._labels[row.operator]), _LABEL_COLUMNS) + 1) * self._end_ms / (row.finish_ms - row.start_ms)
            for rows in self._placed.values()
            for row in rows
            if row.finish_ms > row.start_ms
        ]
        wanted = math.ceil(min(statistics.median(shares) / self._columns, _LINES)) if shares else 1
        return next((parts for parts in range(wanted, 1, -1) if self._lines_of(parts) <= _LINES), 1)

    def _lines_of(self, parts: int) -> int:
        """How many lines so many parts take."""
        lines = (2 + len(self._first_lanes)) * parts
        for lane in set(self._lanes) - self._first_lanes:
            busy: set[int] = set()
            for row in self._placed[lane]:
                first, last = (int(min(time / self._end_ms, 1.0) * parts) for time in (row.start_ms, row.finish_ms))
                busy.update(range(first, min(last, parts - 1) + 1))
            lines += len(busy)
        return lines

    def _column(self, time_ms: float) -> int:
        return round(min(time_ms / self._end_ms, 1.0) * self._total) if self._end_ms > 0 else 0

    def _axis(self) -> str:
        """Times at round numbers, each after a tick at its column."""
        text = [" "] * self._total
        if self._end_ms > 0:
            step = _round_up(self._end_ms / self._total * _TICK_COLUMNS)
            decimals = max(0, -math.floor(math.log10(step) + 1e-9))
            for number in range(int(self._end_ms / step * (1 + 1e-9)) + 1):
                label = f"{self._symbols.tick}{number * step:.{decimals}f}{' ms' if number == 0 else ''}"
                column = self._column(number * step)
                if column % self._columns + len(label) > self._columns:
                    label = label[: int(column < self._total)]
                text[column : column + len(label)] = label
        return "".join(text)

    def _row(self, placed: Sequence[Placement]) -> _LaneText:
        row = _LaneText([self._symbols.idle] * self._total, [None] * self._total)
        begun: Counter[int] = Counter()
        stage: int | None = None
        for number, placement in enumerate(sorted(placed, key=lambda row: (row.start_ms, row.finish_ms))):
            first = min(self._column(placement.start_ms), self._total - 1)
            last = max(self._column(placement.finish_ms), first + 1)
            begun[first] += 1
            new_stage = placement.stage is not None and (number == 0 or placement.stage != stage)
            stage = placement.stage
            mark = self._symbols.stage if new_stage else self._symbols.operator
            row.text[first] = mark if begun[first] == 1 else self._symbols.several
            running = self._symbols.wide if placement.devices else self._symbols.running
            row.text[first + 1 : last] = running * (last - first - 1)
            row.colors[first:last] = [self._color(placement, number)] * (last - first)
            self._write_label(row.text, _printable(self._labels[placement.operator]), first + 1, last)
            self._marks.update((row.text[first], running))
        if None in row.colors:
            self._marks.add(self._symbols.idle)
        return row

    def _write_label(self, text: list[str], label: str, first: int, last: int) -> None:
        """The label in columns first to last - 1, again in every part that they reach into."""
        while first < last:
            end = min(last, (first // self._columns + 1) * self._columns)
            shown = shortened(label, end - first, self._symbols.cut)
            text[first : first + len(shown)] = shown
            first = end

    def _color(self, placement: Placement, number: int) -> str:
        if placement.operator in self._types:
            return style_of(self._types[placement.operator]).color
        return _IN_TURN[(number if placement.stage is None else placement.stage) % len(_IN_TURN)]

    def _painted(self, row: _LaneText, first: int, last: int) -> str:
        text = "".join(row.text[first:last])
        if not self._look.color:
            return text
        painted, place = "", 0
        for color, columns in groupby(row.colors[first:last]):
            count = len(list(columns))
            piece = text[place : place + count]
            painted += piece if color is None else _on(color, piece)
            place += count
        return painted

    def _legend(self) -> list[str]:
        """The meaning of those marks that occur."""
        symbols = self._symbols
        meanings = [
            (symbols.stage, "a stage begins"),
            (symbols.operator, "an operator begins"),
            (symbols.several, "several operators in a column"),
            (symbols.wide, "an operator on several devices at once, on each"),
            (symbols.idle, "idle"),
        ]
        words = [f"{symbol} {meaning}" for symbol, meaning in meanings if symbol in self._marks]
        if any(" s" in name for name in self._names):
            words.append("s0, s1: streams (or groups of a stage)")
        lines = _in_lines([(len(word), word) for word in words], self._look.width)
        if self._look.color:
            names = sorted(self._shares, key=lambda name: (-self._shares[name], name))
            shown = [(style_of(name).color, f" {_printable(name)} ") for name in names]
            lines += _in_lines([(len(name), _on(color, name)) for color, name in shown], self._look.width)
        return lines


def _in_lines(words: Sequence[tuple[int, str]], width: int) -> list[str]:
    """Words in lines of a width, each given with the columns that it takes."""
    lines: list[str] = []
    left = 0
    for columns, word in words:
        if len(_GAP) + columns <= left:
            lines[-1] += _GAP + word
            left -= len(_GAP) + columns
        else:
            lines.append(word)
            left = width - columns
    return lines


def _lane_names(shown: Sequence[Lane]) -> list[str]:
    """Names short enough for a terminal: the device, and the stream where the device has several."""
    count = Counter(device for device, _ in shown)
    width = max(len(str(device)) for device in count)
    names = []
    before = -1
    for device, stream in shown:
        name = f"device {device:>{width}}" if device != before else " " * (len("device ") + width)
        names.append(name if count[device] == 1 else f"{name} s{stream}")
        before = device
    return names


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, ..."""
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * factor for factor in (1, 2, 5, 10) if size * factor >= value * (1 - 1e-9))


def _on(color: str, text: str) -> str:
    """Black text on the nearest of the 216 colors that terminals share."""
    red, green, blue = (round(int(color[place : place + 2], 16) / 255 * 5) for place in (1, 3, 5))
    return f"\x1b[38;5;16;48;5;{16 + 36 * red + 6 * green + blue}m{text}\x1b[0m"
