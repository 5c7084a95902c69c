"""Positions of everything in the picture of a graph, which ``graph_svg`` draws; short names for boxes and bars.

Operators are named without what most names have, without what the names of their block begin with, and cut to fit.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

from hios.core.blocks import found_blocks, in_order
from hios.core.graph import Graph
from hios.core.schedule import Placement
from hios.report.graph_boxes import WIDEST_LABEL, Frame, GraphWiring, Hop, Plan, box_width, frames, plan

#: Device and stream.
Lane = tuple[int, int]


def lanes_of(row: Placement) -> list[Lane]:
    """The lanes of an operator: one of each of its devices, first that which keeps its value."""
    return [(device, row.stream) for device in row.held_devices]


def lanes(used: Iterable[Lane], devices: int) -> list[Lane]:
    """Lanes from top to bottom; a device that got no operator keeps an empty lane, so that it shows."""
    lanes_used = set(used)
    busy = {device for device, _ in lanes_used}
    idle = {(device, 0) for device in range(devices) if device not in busy} if lanes_used else set()
    return sorted(lanes_used | idle)


def lane_names(shown: Sequence[Lane]) -> list[str]:
    """A name for every lane; streams are named where a device has several."""
    devices = [device for device, _ in shown]
    return [
        f"device {device}" if devices.count(device) == 1 else f"device {device}, stream {stream}"
        for device, stream in shown
    ]


def short_names(operators: Sequence[str]) -> dict[str, str]:
    """Operators without those parts of their dotted names that most names have and that tell none of them apart."""
    parts = {operator: operator.split(".") for operator in operators}
    count = Counter(part for split in parts.values() for part in set(split))
    for part in [part for part in sorted(count) if 2 * count[part] > len(parts)]:
        without = {operator: [piece for piece in split if piece != part] for operator, split in parts.items()}
        if all(without.values()) and len({tuple(split) for split in without.values()}) == len(without):
            parts = without
    return {operator: ".".join(split) for operator, split in parts.items()}


def shortened(name: str, columns: int, cut: str) -> str:
    """The name in at most so many columns: whole, cut in its middle, or little more than the number at its end."""
    if len(name) <= columns:
        return name
    digits = re.search(r"\d*$", name)
    number = digits.group() if digits else ""
    if len(number) > columns or (columns < 3 and len(number) < len(name) - 1):
        return ""
    if len(number) > columns - 2:
        return f"{name[: columns - len(number)]}{number}"
    tail = max((columns - 1) // 2, len(number))
    return f"{name[: columns - 1 - tail]}{cut}{name[len(name) - tail :]}"


FONT_SIZE = 10.0
_GREEK = "αβγδεζηθικλμνξοπρστυφχψω"
#: What margins and gutters take of the width of a page, about.
_SIDES = 60.0
#: Width over height of a page, as of most screens and of paper laid across.
_SHAPE = 1.5
_NARROWEST_PAGE = 1180.0
_SHARES = (0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3)
#: Frames of a graph for which several widths are tried.
_MOST_TRIED = 200
#: Advance widths in em of DejaVu Sans, which is wider than the other fonts that a reader may have.
_EM = {
    character: width
    for characters, width in (
        ("ijlIJ", 0.28),
        ("f-.,:;/|'!·", 0.35),
        ("rt()[] ", 0.4),
        ("_szc", 0.53),
        ("aekovxy", 0.61),
        ("w", 0.82),
        ("mMW@%", 0.98),
    )
    for character in characters
}
_EM_UPPER, _EM_IDEOGRAPH, _EM_OTHER = 0.75, 1.0, 0.64
_FIRST_IDEOGRAPH = "\u2e80"


@dataclass(frozen=True, slots=True)
class PictureBlock:
    """A block of the graph.

    ``prefix`` is what the dotted ids of its operators begin with; ``kind`` is a letter that blocks of equal structure
    share, empty for one that no other equals, and ``alike`` are those blocks, itself among them.
    """

    operators: tuple[int, ...]
    prefix: str
    kind: str
    alike: int


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything in its place.

    Blocks and their frames are in reading order; ``stated`` says whether the graph states them, else they were found.
    """

    graph: Graph
    blocks: tuple[PictureBlock, ...]
    stated: bool
    labels: list[str]
    frames: list[Frame]
    plan: Plan


def lay_out(graph: Graph, widest: float = 1900.0) -> Picture:
    """Find a place for everything.

    A graph without blocks is cut where all paths meet. ``widest`` is the width of the page in pixels, at most; a wide
    operator, or many values beside frames, may need more.

    Raises:
        ArtifactError: the blocks cannot be read one after another.
    """
    members = _members(graph)
    names, prefixes = _names(graph, members)
    labels = [_fitting(name, WIDEST_LABEL) for name in names]
    widths = [box_width(text_width(label)) for label in labels]
    wiring = _wiring(graph)
    drawn = frames(wiring, members, widths, widest - _SIDES)
    home = {operator: number for number, frame in enumerate(drawn) for operator in frame.boxes}
    hops: list[Hop] = [
        (source, home[source], home[target]) for source, target in wiring.edges if home[source] != home[target]
    ]
    kinds = _kinds(graph, wiring, members)
    alike = Counter(kind for kind in kinds if kind)
    return Picture(
        graph,
        tuple(
            PictureBlock(tuple(block), prefix, kind, alike.get(kind, 1))
            for block, prefix, kind in zip(members, prefixes, kinds, strict=True)
        ),
        bool(graph.blocks),
        labels,
        drawn,
        _best_plan(drawn, hops, widest),
    )


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """Pixels that a text needs, rather too many."""
    return size * sum(_EM.get(character) or _em(character) for character in text)


def _em(character: str) -> float:
    if character >= _FIRST_IDEOGRAPH:
        return _EM_IDEOGRAPH
    return _EM_UPPER if character.isupper() else _EM_OTHER


def _fitting(name: str, width: float) -> str:
    columns = len(name)
    label = name
    while columns > 3 and text_width(label) > width:
        columns -= 1
        label = shortened(name, columns, "…") or "…"
    return label


def _members(graph: Graph) -> list[list[int]]:
    """Operators by block in reading order; those outside of blocks are blocks too, a run of them one."""
    if not graph.blocks:
        return [[graph.index[operator] for operator in block] for block in found_blocks(graph)]
    blocks = []
    for stated, run in groupby(in_order(graph), key=lambda entry: entry[1]):
        parts = [block for block, _ in run]
        blocks += parts if stated else [[operator for part in parts for operator in part]]
    return blocks


def _wiring(graph: Graph) -> GraphWiring:
    edges = [(graph.index[edge.source], graph.index[edge.target]) for edge in graph.edges]
    into: list[list[int]] = [[] for _ in graph.operators]
    out_of: list[list[int]] = [[] for _ in graph.operators]
    for number, (source, target) in enumerate(edges):
        out_of[source].append(number)
        into[target].append(number)
    return GraphWiring(graph.order, edges, into, out_of)


def _names(graph: Graph, members: Sequence[Sequence[int]]) -> tuple[list[str], list[str]]:
    """A short name for every operator, and by block what its dotted ids begin with."""
    ids = [operator.id for operator in graph.operators]
    short = short_names(ids)
    names = [short[operator] for operator in ids]
    prefixes = []
    for block in members:
        prefixes.append(_shared([ids[operator] for operator in block]))
        shared = _shared([names[operator] for operator in block])
        without = [names[operator].removeprefix(f"{shared}.") for operator in block]
        if shared and len(set(without)) == len(block):
            for operator, name in zip(block, without, strict=True):
                names[operator] = name
    return names, prefixes


def _shared(names: Sequence[str]) -> str:
    """What all dotted ones of some names begin with, less their last part; empty if fewer than two are dotted."""
    dotted = [name.split(".")[:-1] for name in names if "." in name]
    if len(dotted) < 2:
        return ""
    same = takewhile(lambda parts: len(set(parts)) == 1, zip(*dotted, strict=False))
    return ".".join(parts[0] for parts in same)


def _kinds(graph: Graph, wiring: GraphWiring, members: Sequence[Sequence[int]]) -> list[str]:
    """A letter for every block that equals another in the types of its operators and in its edges."""
    structures = [_structure(graph, wiring, block) for block in members]
    count = Counter(structures)
    letters: dict[object, str] = {}
    for structure in structures:
        if count[structure] > 1 and structure not in letters:
            letters[structure] = _letters(len(letters))
    return [letters.get(structure, "") for structure in structures]


def _structure(graph: Graph, wiring: GraphWiring, block: Sequence[int]) -> object:
    """Types and incoming edges, with operators numbered by place in the block and values from outside by first use."""
    number = {operator: place for place, operator in enumerate(block)}
    rows = []
    for operator in block:
        sources = []
        for edge in wiring.into[operator]:
            source = wiring.edges[edge][0]
            sources.append(number.setdefault(source, len(number)))
        rows.append((graph.operators[operator].type, tuple(sorted(sources))))
    return tuple(rows)


def _letters(number: int) -> str:
    """Greek, which modules are not named by: alpha to omega, then two letters and so on."""
    text = ""
    while number >= 0:
        text = _GREEK[number % len(_GREEK)] + text
        number = number // len(_GREEK) - 1
    return text


def _best_plan(drawn: Sequence[Frame], hops: Sequence[Hop], widest: float) -> Plan:
    """The plan of the smallest page among several widths; a page that is far from common shapes counts as larger."""
    ideal = math.sqrt(_SHAPE * sum((frame.width + 22) * (frame.height + 20) for frame in drawn))
    middle = max(_NARROWEST_PAGE, min(widest, ideal))
    tried = _SHARES if len(drawn) <= _MOST_TRIED else (1.0,)
    widths = {min(widest, max(_NARROWEST_PAGE, middle * share)) for share in tried}

    def loss(plan: Plan) -> tuple[bool, float]:
        shape = plan.width / plan.height / _SHAPE
        # what passes beside frames comes on top of the width that was asked for
        return plan.width > widest, plan.width * plan.height * math.sqrt(max(shape, 1 / shape))

    return min((plan(drawn, hops, width) for width in sorted(widths)), key=loss)
