"""The words of a picture: how it is read, what it counts, and what stands on frames and shows at the pointer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import groupby

from hios.charts.theme import Style, style_of
from hios.graph import Operator
from hios.report.graph_boxes import Frame
from hios.report.graph_layout import Picture, text_width

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
