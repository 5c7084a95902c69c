"""A picture as SVG."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from hios.charts.theme import FONT, GRID, GROUND, INK, ON_TYPE, OUTLINE, SOFT, TINT, Style, style_of
from hios.report.graph_boxes import Box, Point
from hios.report.graph_captions import (
    block_sizes,
    far_edges,
    frame_tooltip,
    heading,
    operator_tooltip,
    reading_order,
    size,
    type_counts,
)
from hios.report.graph_layout import FONT_SIZE, Picture, text_width

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
