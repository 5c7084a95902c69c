"""A picture as SVG, and its words: how it is read, what it counts, and what shows on frames and at the pointer."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from hios.charts.theme import FONT, GRID, GROUND, INK, ON_TYPE, OUTLINE, SOFT, TINT, Style, style_of
from hios.core.graph import Operator
from hios.report.graph_boxes import Box, Frame, Point
from hios.report.graph_layout import FONT_SIZE, Picture, text_width

#: Blocks, or runs of equal ones, whose sizes are listed.
_MOST_SIZES = 60


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count} {noun}{'s' * (count != 1)}"


def words(picture: Picture) -> dict[str, str]:
    """What a page says of the picture: ``size``, ``block_sizes`` and ``reading_order``."""
    return {
        "size": size(picture),
        "block_sizes": block_sizes(picture),
        "reading_order": reading_order(picture),
    }


def size(picture: Picture) -> str:
    """How large the graph is, in words."""
    graph = picture.graph
    operators, edges = counted(len(graph.operators), "operator"), counted(len(graph.edges), "edge")
    return f"{operators}, {edges}, {counted(len(picture.blocks), 'block')}"


def reading_order(picture: Picture) -> str:
    """How to read the picture, in words."""
    sentences = [
        "Read frames from left to right, row by row; in a frame, values run from left to right, and an operator "
        "stands in the first column where all it takes is there."
    ]
    if far_edges(picture):
        sentences.append("Violet lines pass over a block.")
    if not picture.stated:
        sentences.append("The graph states no blocks: frames end where all paths meet.")
    if any(block.kind for block in picture.blocks):
        sentences.append("Blocks with the same Greek letter have the same types and edges.")
    return " ".join(sentences)


def far_edges(picture: Picture) -> set[int]:
    """Edges that do not stay in their block or end in the next one, by position in the graph."""
    index = picture.graph.index
    home = {v: number for number, block in enumerate(picture.blocks) for v in block.operators}
    return {
        position
        for position, edge in enumerate(picture.graph.edges)
        if home[index[edge.target]] - home[index[edge.source]] not in (0, 1)
    }


def block_sizes(picture: Picture) -> str:
    """Operators of every block in order, blocks of equal structure in a row counted."""
    parts = []
    for _, run in groupby(enumerate(picture.blocks), key=lambda entry: entry[1].kind or entry[0]):
        blocks = [block for _, block in run]
        size = len(blocks[0].operators)
        text = f"{len(blocks)} × {size}" if len(blocks) > 1 else f"{size}"  # noqa: RUF001  a multiplication sign
        parts.append(f"{blocks[0].kind} {text}".lstrip())
    shown = parts if len(parts) <= _MOST_SIZES else [*parts[:_MOST_SIZES], "…"]
    return " | ".join(shown)


def type_counts(types: Iterable[str]) -> list[tuple[str, Style, int]]:
    """The entries of a legend: every operator type with its look and how often it occurs, the most frequent first."""
    return [(name, style_of(name), count) for name, count in Counter(types).most_common()]


def operator_tooltip(operator: Operator) -> str:
    """What the pointer shows of an operator: id, type, and its outputs, GFLOP and MB where the graph states them."""
    lines = [operator.id, operator.type]
    if operator.shapes is not None and (outputs := operator.shapes.outputs):
        lines.append("output " + ", ".join("×".join(map(str, shape)) or "one number" for shape in outputs))  # noqa: RUF001
    work = []
    if operator.flops is not None:
        work.append(f"{operator.flops / 1e9:.3g} GFLOP")
    elif operator.calls:
        work.append("FLOPs unknown")
    if operator.bytes is not None:
        work.append(f"{operator.bytes / 1e6:.3g} MB read and written")
    return "\n".join([*lines, *([", ".join(work)] if work else [])])


def heading(picture: Picture, frame: Frame) -> tuple[str, str]:
    """Number and letter of a frame's block; as much as fits of what its names begin with and of its size."""
    block = picture.blocks[frame.block]
    number = f"{frame.block + 1} {block.kind}".rstrip()
    size = f"{len(block.operators)} operators" if len(block.operators) > 1 else ""
    both = " · ".join(text for text in (block.prefix, size) if text)
    rest = ["continued"] if frame.part else [both, block.prefix, size]
    room = frame.width - 14 - 1.15 * text_width(f"{number}  ")
    return number, next((text for text in rest if text_width(text) <= room), "")


def frame_tooltip(picture: Picture, frame: Frame) -> str:
    """What the pointer shows of a frame."""
    block = picture.blocks[frame.block]
    lines = [f"block {frame.block + 1} of {len(picture.blocks)}: {counted(len(block.operators), 'operator')}"]
    if block.kind:
        lines.append(f"{block.kind}: {block.alike} blocks with the same types and edges")
    if block.prefix:
        lines.append(f"dotted names begin with {block.prefix}")
    if frame.part:
        lines.append(f"part {frame.part + 1} of the block")
    return "\n".join(lines)


#: Lines within a block and to the next one, and those that pass over blocks.
_LINE, _FAR_LINE = "#747e89", "#9482c4"
_SPACE = "\u2002"  # a wide one, which XML keeps
_CORNER = 5.0
_LEFT, _NARROWEST_HEADER = 10.0, 620.0
_HEADER_SIZE, _LEGEND_LINE, _TEXT_LINE, _SWATCH = 11, 19.0, 16.0, 16.0
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def svg(picture: Picture) -> str:
    """The drawing alone, for a page in HTML that says the rest."""
    return "\n".join(_document(picture, picture.plan.width, picture.plan.height, "", _drawing(picture)))


def svg_file(picture: Picture) -> str:
    """The drawing with title, legend and reading order, as a file of its own."""
    width = max(picture.plan.width, _NARROWEST_HEADER)
    header, height = _header(picture, width)
    body = [*header, f'<g transform="translate(0 {_number(height)})">', *_drawing(picture), "</g>"]
    namespace = ' xmlns="http://www.w3.org/2000/svg"'
    return "\n".join(_document(picture, width, height + picture.plan.height, namespace, body)) + "\n"


def _document(picture: Picture, width: float, height: float, namespace: str, body: Iterable[str]) -> Iterator[str]:
    label = f"Graph of {picture.graph.name} by blocks: {size(picture)}; operators by block: {block_sizes(picture)}"
    yield (
        f'<svg{namespace} class="graph" role="img" aria-label="{_text(label)}" width="{_number(width)}" '
        f'height="{_number(height)}" viewBox="0 0 {_number(width)} {_number(height)}" '
        f'font-family="{FONT}" font-size="{_number(FONT_SIZE)}" fill="{INK}">'
    )
    if namespace:
        yield f'<rect width="{_number(width)}" height="{_number(height)}" fill="{GROUND}"/>'
    yield from body
    yield "</svg>"


def _drawing(picture: Picture) -> Iterator[str]:
    yield f'<g fill="{TINT}" stroke="{GRID}">'
    for frame, place in zip(picture.frames, picture.plan.places, strict=True):
        yield (
            f'<rect class="block" data-block="{frame.block}" x="{_number(place.x)}" y="{_number(place.y)}" '
            f'width="{_number(frame.width)}" height="{_number(frame.height)}" rx="4">'
            f"<title>{_text(frame_tooltip(picture, frame))}</title></rect>"
        )
    yield "</g>"
    near, far = _edges(picture)
    yield f'<g fill="none" stroke="{_FAR_LINE}">'
    yield from far
    yield f'</g>\n<g fill="none" stroke="{_LINE}">'
    yield from near
    yield f'</g>\n<g fill="{SOFT}">'
    for frame, place in zip(picture.frames, picture.plan.places, strict=True):
        number, rest = heading(picture, frame)
        yield (
            f'<text class="heading" x="{_number(place.x + 7)}" y="{_number(place.y + 12.5)}">'
            f'<tspan font-weight="600" fill="{INK}">{_text(number)}</tspan>'
            f"{_text(f' {_SPACE}{rest}' if rest else '')}</text>"
        )
    yield f'</g>\n<g text-anchor="middle" fill="{ON_TYPE}">'
    for frame, place in zip(picture.frames, picture.plan.places, strict=True):
        for operator, box in sorted(frame.boxes.items()):
            moved = Box(box.x + place.x, box.y + place.y, box.width, box.height)
            yield _operator(picture, operator, moved)
    yield "</g>"


def _operator(picture: Picture, number: int, box: Box) -> str:
    operator = picture.graph.operators[number]
    middle, base = _number(box.x + box.width / 2), _number(box.y + box.height / 2 + 3.5)
    return (
        f'<g class="operator" data-operator="{number}"><title>{_text(operator_tooltip(operator))}</title>'
        f'{_box(box, style_of(operator.type))}<text x="{middle}" y="{base}">{_text(picture.labels[number])}</text></g>'
    )


def _edges(picture: Picture) -> tuple[list[str], list[str]]:
    """Lines within a block and to the next one, and the others."""
    index = picture.graph.index
    home = {operator: number for number, frame in enumerate(picture.frames) for operator in frame.boxes}
    passing = far_edges(picture)
    near: list[str] = []
    far: list[str] = []
    for number, edge in enumerate(picture.graph.edges):
        source, target = index[edge.source], index[edge.target]
        first, last = home[source], home[target]
        path = _path(picture, number, source, (first, last))
        line = f'<path class="edge" data-from="{source}" data-to="{target}" d="{path}"/>'
        (far if number in passing else near).append(line)
    return near, far


def _path(picture: Picture, edge: int, source: int, ends: tuple[int, int]) -> str:
    """The way of an edge: through its frame, between the frames, and through the other frame."""
    parts = []
    for number in dict.fromkeys(ends):
        place = picture.plan.places[number]
        parts.append([(x + place.x, y + place.y) for x, y in picture.frames[number].lines[edge]])
    start = f"M{_point(parts[0][0])}"
    route = picture.plan.routes.get((source, *ends))
    if route is None:
        return start + _curves([point for part in parts for point in part])
    return start + _curves(parts[0]) + _turns([parts[0][-1], *route, parts[1][0]]) + _curves(parts[1])


def _curves(points: Sequence[Point]) -> str:
    """Through the points from left to right: level, or in a curve that is level at both ends."""
    steps = []
    for (x, y), (to_x, to_y) in pairwise(points):
        middle = (x + to_x) / 2
        if abs(y - to_y) > 0.05:
            steps.append(f"C{_point((middle, y))} {_point((middle, to_y))} {_point((to_x, to_y))}")
        elif to_x > x:
            steps.append(f"H{_number(to_x)}")
    return "".join(steps)


def _turns(points: Sequence[Point]) -> str:
    """Along corners, which are rounded."""
    steps = []
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        steps.append(f"L{_point(_towards(corner, before))}Q{_point(corner)} {_point(_towards(corner, after))}")
    return "".join(steps) + f"L{_point(points[-1])}"


def _towards(corner: Point, other: Point) -> Point:
    """The point where a rounding begins: on the way from a corner to another, at most half way."""
    length = abs(other[0] - corner[0]) + abs(other[1] - corner[1])
    share = min(_CORNER / length, 0.5) if length else 0.0
    return corner[0] + share * (other[0] - corner[0]), corner[1] + share * (other[1] - corner[1])


def _hatching(box: Box) -> str:
    """Diagonal strokes within a box."""
    strokes = []
    for start in range(4, int(box.width + box.height), 7):
        low, high = max(0.0, start - box.width), min(float(start), box.height)
        begin, end = (box.x + start - low, box.y + low), (box.x + start - high, box.y + high)
        strokes.append(f"M{_point(begin)}L{_point(end)}")
    return "".join(strokes)


def _header(picture: Picture, width: float) -> tuple[list[str], float]:
    """Title, legend and reading order, and the height that they take."""
    y = 24.0
    parts = [
        f'<text x="{_number(_LEFT)}" y="{_number(y)}" font-size="15"><tspan font-weight="600">'
        f'{_text(picture.graph.name)}</tspan><tspan fill="{SOFT}" font-size="12"> '
        f"{_SPACE}{_text(size(picture))}</tspan></text>"
    ]
    x, y = _LEFT, y + _LEGEND_LINE
    for name, style, count in type_counts(operator.type for operator in picture.graph.operators):
        label = f"{name} {count}"
        need = _SWATCH + text_width(label, _HEADER_SIZE) + 20
        if x + need > width and x > _LEFT:
            x, y = _LEFT, y + _LEGEND_LINE
        parts += [_box(Box(x, y - 9, _SWATCH, 11), style), _line(x + _SWATCH + 6, y, label, INK)]
        x += need
    y += 3
    for text in (f"Operators by block: {block_sizes(picture)}", reading_order(picture)):
        for line in _wrapped(text, width - 2 * _LEFT, _HEADER_SIZE):
            y += _TEXT_LINE
            parts.append(_line(_LEFT, y, line, SOFT))
    return parts, y + 6


def _line(x: float, y: float, text: str, color: str) -> str:
    return f'<text x="{_number(x)}" y="{_number(y)}" font-size="{_HEADER_SIZE}" fill="{color}">{_text(text)}</text>'


def _box(box: Box, style: Style) -> str:
    """A rectangle in the look of a type."""
    x, y, width, height = map(_number, (box.x, box.y, box.width, box.height))
    hatching = (
        f'<path d="{_hatching(box)}" stroke="{ON_TYPE}" stroke-opacity=".4" stroke-width=".7"/>'
        if style.hatched
        else ""
    )
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="2.5" fill="{style.color}" stroke="{OUTLINE}" '
        f'stroke-width=".6"/>{hatching}'
    )


def _wrapped(text: str, width: float, size: float) -> list[str]:
    lines: list[str] = []
    for word in text.split(" "):
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _text(text: str) -> str:
    """Escaped; what XML cannot hold is replaced."""
    return html.escape(_ILLEGAL.sub("\ufffd", text))


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _point(point: Point) -> str:
    return f"{_number(point[0])} {_number(point[1])}"
