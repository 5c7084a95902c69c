"""The picture of a graph."""

from __future__ import annotations

import itertools
import random
import re
import xml.etree.ElementTree as ET
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from benchmarks.networks import googlenet, inception_v3, nasnet_large, randwire, resnet50, squeezenet
from hios import Edge, Graph, HiosError, Operator
from hios.charts.theme import style_of
from hios.report.graph_boxes import Box, assign_columns, order_columns, place_vertically
from hios.report.graph_layout import Picture, lay_out, text_width
from hios.report.graph_svg import block_sizes, far_edges, operator_tooltip, reading_order, svg, svg_file
from tests.cli.commands import refused, succeed
from tests.external_data import data_folder
from tests.operators import operator_from
from tests.report.browser import needs_chromium, opened
from tests.workers.processes import eventually

SVG = "{http://www.w3.org/2000/svg}"


def layered(operators: int, edges: int, seed: int) -> Graph:
    """A random graph without blocks, with parallel edges now and then."""
    draw = random.Random(seed)
    pairs = [sorted(draw.sample(range(operators), 2)) for _ in range(edges)]
    return Graph(
        "random",
        tuple(Operator(f"v{v}", f"type{v % 18}") for v in range(operators)),
        tuple(Edge(f"v{a}", f"v{b}") for a, b in pairs),
    )


def made(*edges: str, types: str = "", blocks: tuple[tuple[str, ...], ...] = ()) -> Graph:
    """A graph of edges such as ab, and of operators without edges that ``types`` names."""
    names = sorted({name for edge in edges for name in edge} | set(types))
    return Graph("made", tuple(Operator(v, v) for v in names), tuple(Edge(*edge) for edge in edges), blocks=blocks)


GRAPHS = {
    graph.name: graph
    for graph in (
        inception_v3(),
        squeezenet(),
        nasnet_large(),
        resnet50(pooled=True),
        googlenet(),
        layered(300, 700, 1),
    )
}
GRAPHS |= {
    "one operator": made(types="a"),
    "apart": made("ab", "cd", types="xyz"),
    "parallel": made("ab", "ab", "ab", "bc", "ac"),
    "backwards over rows": made("ab", "bc", "ac", blocks=(("b",), ("c",), ("a",))),
    "part of it in blocks": made("ab", "bc", "cd", "ad", blocks=(("b", "c"),)),
    "long names": Graph("long", (Operator("n" * 300, "t" * 90), Operator("m." * 200 + "x", "u")), ()),
}


@pytest.fixture(scope="module", params=sorted(GRAPHS))
def picture(request: pytest.FixtureRequest) -> Picture:
    """The picture of each graph."""
    return lay_out(GRAPHS[request.param])


def boxes(picture: Picture) -> dict[int, Box]:
    """Boxes of all operators on the page."""
    return {
        operator: Box(box.x + place.x, box.y + place.y, box.width, box.height)
        for frame, place in zip(picture.frames, picture.plan.places, strict=True)
        for operator, box in frame.boxes.items()
    }


def borders(picture: Picture) -> list[Box]:
    """Borders of the frames on the page."""
    return [
        Box(place.x, place.y, frame.width, frame.height)
        for frame, place in zip(picture.frames, picture.plan.places, strict=True)
    ]


def apart(one: Box, other: Box) -> bool:
    """Whether two boxes do not touch."""
    return (
        one.x + one.width < other.x
        or other.x + other.width < one.x
        or one.y + one.height < other.y
        or other.y + other.height < one.y
    )


def document(picture: Picture) -> ET.Element:
    """The file, parsed."""
    return ET.fromstring(svg_file(picture))  # noqa: S314


def edges(picture: Picture) -> list[ET.Element]:
    """The lines of the file."""
    return [path for path in document(picture).iter(f"{SVG}path") if path.get("class") == "edge"]


def anchors(path: str) -> list[tuple[float, float]]:
    """Points where the pieces of a path end, with the corners of rounded turns."""
    points: list[tuple[float, float]] = []
    for command, numbers in re.findall(r"([MLHCQ])([^MLHCQ]*)", path):
        values = [float(number) for number in numbers.split()]
        if command == "H":
            points.append((values[0], points[-1][1]))
        else:
            skip = {"C": 4}.get(command, 0)
            points += list(zip(values[skip::2], values[skip + 1 :: 2], strict=True))
    return points


def test_every_operator_and_edge_is_drawn_once(picture: Picture) -> None:
    """Operators and edges of the file are those of the graph, parallel edges each."""
    root, index = document(picture), picture.graph.index
    drawn = [int(group.attrib["data-operator"]) for group in root.iter(f"{SVG}g") if "data-operator" in group.attrib]
    assert sorted(drawn) == list(range(len(index)))
    assert Counter((int(p.attrib["data-from"]), int(p.attrib["data-to"])) for p in edges(picture)) == Counter(
        (index[edge.source], index[edge.target]) for edge in picture.graph.edges
    )


def test_operators_do_not_overlap_and_stay_in_their_frames(picture: Picture) -> None:
    """Boxes keep off each other and off the border of their frame, frames off each other, all on the page."""
    frames = borders(picture)
    assert all(apart(one, other) for one, other in itertools.combinations(frames, 2))
    for frame in picture.frames:
        assert all(apart(one, other) for one, other in itertools.combinations(frame.boxes.values(), 2))
        for box in frame.boxes.values():
            assert box.x > 0 < box.y - 12  # below the title
            assert box.x + box.width < frame.width
            assert box.y + box.height < frame.height
    for box in frames:
        assert box.x > 0 < box.y
        assert (box.x + box.width <= picture.plan.width) & (box.y + box.height <= picture.plan.height)


def test_blocks_are_read_in_order(picture: Picture) -> None:
    """Frames follow one another from left to right and row by row, each with the operators of its block."""
    places = [(place.row, place.position) for place in picture.plan.places]
    assert places == sorted(set(places))
    assert [(frame.block, frame.part) for frame in picture.frames] == sorted(
        (frame.block, frame.part) for frame in picture.frames
    )
    for one, other in itertools.pairwise(zip(borders(picture), picture.plan.places, strict=True)):
        if one[1].row == other[1].row:
            assert one[0].x + one[0].width < other[0].x
        else:
            assert one[0].y + one[0].height < other[0].y
    for number, block in enumerate(picture.blocks):
        inside = [operator for frame in picture.frames if frame.block == number for operator in frame.boxes]
        assert sorted(inside) == sorted(block.operators)


def test_values_run_from_left_to_right_within_a_frame(picture: Picture) -> None:
    """In a frame every operator is right of those whose values it takes, in columns."""
    for frame in picture.frames:
        for edge in picture.graph.edges:
            source, target = (frame.boxes.get(picture.graph.index[end]) for end in (edge.source, edge.target))
            if source and target:
                assert source.x + source.width < target.x


def test_lines_join_their_operators(picture: Picture) -> None:
    """A line begins at the right side of its source and ends at the left side of its target."""
    drawn = boxes(picture)
    for path in edges(picture):
        source, target = drawn[int(path.attrib["data-from"])], drawn[int(path.attrib["data-to"])]
        points = anchors(path.attrib["d"])
        assert points[0][0] == pytest.approx(source.x + source.width, abs=0.11)
        assert source.y < points[0][1] < source.y + source.height
        assert points[-1][0] == pytest.approx(target.x, abs=0.11)
        assert target.y < points[-1][1] < target.y + target.height


def test_no_line_runs_behind_an_operator(picture: Picture) -> None:
    """Curves stay between columns and level or upright pieces pass no box but those at the ends."""
    drawn = boxes(picture)
    for path in edges(picture):
        ends = {int(path.attrib["data-from"]), int(path.attrib["data-to"])}
        others = [box for operator, box in drawn.items() if operator not in ends]
        for (x, y), (to_x, to_y) in itertools.pairwise(anchors(path.attrib["d"])):
            # the whole rectangle that a curve lies in, less the rounding of its ends
            spanned = Box(min(x, to_x) + 0.2, min(y, to_y), abs(to_x - x) - 0.4, abs(to_y - y))
            assert all(apart(spanned, box) for box in others if spanned.width > 0 or x == to_x)


def test_lines_of_different_values_only_cross(picture: Picture) -> None:
    """Level and upright pieces of different values never lie on one another."""
    level: dict[float, list[tuple[float, float, str]]] = {}
    upright: dict[float, list[tuple[float, float, str]]] = {}
    for path in edges(picture):
        for (x, y), (to_x, to_y) in itertools.pairwise(anchors(path.attrib["d"])):
            if y == to_y:
                level.setdefault(y, []).append((min(x, to_x), max(x, to_x), path.attrib["data-from"]))
            elif x == to_x:
                upright.setdefault(x, []).append((min(y, to_y), max(y, to_y), path.attrib["data-from"]))
    for pieces in [*level.values(), *upright.values()]:
        reach, owner = float("-inf"), ""
        for begin, end, value in sorted(pieces):
            assert value == owner or begin >= reach
            reach, owner = max((reach, owner), (end, value))


def test_parallel_edges_end_apart() -> None:
    """An operator that takes a value three times has three lines with ends of their own."""
    picture = lay_out(made("ab", "ab", "ab"))
    ends = [points[-1] for points in picture.frames[0].lines.values()]
    assert len(set(ends)) == 3


def test_page_is_the_same_each_time() -> None:
    """The same graph gives the same file."""
    graph = layered(150, 400, 2)
    assert svg_file(lay_out(graph)) == svg_file(lay_out(graph))


def test_colors_are_those_of_the_types() -> None:
    """Boxes and legend have the look of the types, the most frequent type first."""
    graph = layered(36, 40, 3)
    root = document(lay_out(graph))
    for group in root.iter(f"{SVG}g"):
        if group.get("class") == "operator":
            style = style_of(graph.operators[int(group.attrib["data-operator"])].type)
            box = group.find(f"{SVG}rect")
            assert box is not None
            assert box.get("fill") == style.color
            assert (group.find(f"{SVG}path") is not None) == style.hatched
    legend = [e.get("fill") for e in root.findall(f"{SVG}rect")[1:]]  # the first is the page
    types = Counter(operator.type for operator in graph.operators)
    assert legend == [style_of(name).color for name, _ in types.most_common()]
    hatched = {style_of(name).hatched for name in types}
    assert hatched == {True, False}


def test_hostile_names_stay_text() -> None:
    """Markup, quotes and control characters in names are shown and do nothing."""
    names = ('<script>alert("1")</script>', "a&b'\"", "x\x00\x1b\ud7ff\uffff", "]]>", "</title></svg>")
    graph = Graph("<g>&", tuple(Operator(name, f"type {name}") for name in names), (Edge(names[0], names[1]),))
    picture = lay_out(graph)
    root = document(picture)
    assert not list(root.iter(f"{SVG}script"))
    titles = [group[0].text for group in root.iter(f"{SVG}g") if group.get("class") == "operator"]
    assert titles[0] == f"{names[0]}\ntype {names[0]}"
    assert titles[2] == "x\ufffd\ufffd\ud7ff\ufffd\ntype x\ufffd\ufffd\ud7ff\ufffd"
    assert "<script" not in svg(picture)


def test_pictures_are_described() -> None:
    """For readers who do not see it a picture says what it shows: name, size and blocks of the graph."""
    graph = layered(20, 30, 1)
    label = document(lay_out(graph)).get("aria-label")
    assert label is not None
    assert label.startswith(f"Graph of {graph.name} by blocks: 20 operators, ")


def test_tooltip_says_what_the_graph_states() -> None:
    """Id and type always; output, GFLOP and MB where the graph has them."""
    details = {"shapes": {"inputs": [], "outputs": [[1, 64, 54, 54], []]}, "flops": 1_394_703_552, "bytes": 6_130_496}
    assert operator_tooltip(operator_from("stem.conv", "conv2d", details)) == (
        "stem.conv\nconv2d\noutput 1×64×54×54, one number\n1.39 GFLOP, 6.13 MB read and written"  # noqa: RUF001
    )
    assert operator_tooltip(Operator("a", "conv")) == "a\nconv"
    opaque = {"calls": [{"function": "aten.erfc.default", "arguments": [], "attributes": {}}], "bytes": 2_000_000}
    assert operator_tooltip(operator_from("a", "erfc", opaque)) == "a\nerfc\nFLOPs unknown, 2 MB read and written"


@pytest.mark.parametrize(
    ("graph", "sizes"),
    [
        (inception_v3(), "7 | α 3 × 9 | 6 | β 4 × 12 | 8 | γ 2 × 11 | 1"),  # noqa: RUF001
        (
            nasnet_large(),
            "1 | 18 | 21 | α 18 | β 5 × 16 | γ 19 | α 18 | β 5 × 16 | γ 19 | α 18 | β 5 × 16 | 1 | 1",  # noqa: RUF001
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Graph) else "",
)
def test_equal_blocks_are_recognized(graph: Graph, sizes: str) -> None:
    """Modules and cells of one kind have one letter."""
    assert block_sizes(lay_out(graph)) == sizes


def test_random_blocks_are_not_equal() -> None:
    """Stages of RandWire have the same size, but each is wired at random: no letters."""
    assert block_sizes(lay_out(randwire(data_folder("randwire")))) == "1 | 17 | 33 | 33 | 33 | 3"


def test_blocks_of_other_types_or_edges_are_not_equal() -> None:
    """Neither the same edges with another type, nor the same types with another edge, make blocks equal."""
    kinds = ["ccr", "ccs", "ccr"]
    for edges in ([(0, 1), (1, 2)], [(0, 1), (0, 2)]):
        operators = [Operator(f"{b}{i}", kind) for b, block in enumerate(kinds) for i, kind in enumerate(block)]
        pairs = [(b, *edge) for b in (0, 1) for edge in ((0, 1), (1, 2))] + [(2, *edge) for edge in edges]
        graph = Graph(
            "kinds",
            tuple(operators),
            tuple(Edge(f"{b}{i}", f"{b}{j}") for b, i, j in pairs),
            blocks=tuple(tuple(f"{b}{i}" for i in range(3)) for b in range(3)),
        )
        same = edges == [(0, 1), (1, 2)]
        assert [block.kind for block in lay_out(graph).blocks] == (["α", "", "α"] if same else ["", "", ""])  # noqa: RUF001


def test_names_leave_out_what_their_block_shares() -> None:
    """The frame names the beginning that its operators share, and the boxes the rest."""
    names = ("net.a.left", "net.a.right", "net.a.sum", "net.b.left", "net.b.right", "concat")
    edges = [(0, 2), (1, 2), (2, 3), (2, 4), (3, 5), (4, 5)]
    graph = Graph("net", tuple(Operator(n, "conv") for n in names), tuple(Edge(names[a], names[b]) for a, b in edges))
    picture = lay_out(graph)
    assert [block.prefix for block in picture.blocks] == ["net.a", "net.b"]
    assert picture.labels == ["left", "right", "sum", "left", "right", "concat"]


def test_labels_fit_their_boxes(picture: Picture) -> None:
    """No label is wider than its box."""
    for operator, box in boxes(picture).items():
        assert text_width(picture.labels[operator]) <= box.width


def test_wide_blocks_are_cut() -> None:
    """A block that is wider than the page continues in further frames, and the page keeps its width."""
    names = [f"v{v}" for v in range(100)]
    chain = Graph("chain", tuple(Operator(n, "t") for n in names), tuple(map(Edge, names, names[1:])))
    picture = lay_out(chain, widest=900)
    assert len(picture.blocks) == 1
    assert [frame.part for frame in picture.frames] == list(range(len(picture.frames)))
    assert len(picture.frames) > 3
    assert picture.plan.width <= 960


def test_lines_over_blocks_are_told_apart() -> None:
    """Only values that pass over a block count as far, and only then the words speak of violet lines."""
    graph = made("ab", "bc", "cd", "ac", blocks=(("a",), ("b",), ("c", "d")))
    picture = lay_out(graph)
    assert far_edges(picture) == {3}
    assert "Violet" in reading_order(picture)
    near = lay_out(made("ab", "bc", "cd", "ac", blocks=(("a", "b"), ("c", "d"))))
    assert far_edges(near) == set()
    assert "Violet" not in reading_order(near)


@pytest.mark.slow
def test_ten_thousand_operators_are_drawn() -> None:
    """Large graphs without structure end up on a page of bounded width."""
    draw = random.Random(0)
    pairs = [(v, min(v + draw.randint(1, 20), 9999)) for v in range(9999) for _ in range(2)]
    graph = Graph(
        "large", tuple(Operator(f"v{v}", "t") for v in range(10000)), tuple(Edge(f"v{a}", f"v{b}") for a, b in pairs)
    )
    picture = lay_out(graph)
    assert sum(len(frame.boxes) for frame in picture.frames) == 10000
    assert picture.plan.width < 4000


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_columns_follow_edges_and_have_room(limit: int) -> None:
    """Every vertex is right of its predecessors, and no column holds more than the limit."""
    graph = layered(60, 100, 4)
    predecessors: dict[int, list[int]] = {v: [] for v in range(60)}
    for edge in graph.edges:
        predecessors[graph.index[edge.target]].append(graph.index[edge.source])
    column = assign_columns(graph.order, predecessors, limit)
    assert all(column[source] < column[v] for v, sources in predecessors.items() for source in sources)
    assert max(Counter(column.values()).values()) <= limit


def test_columns_without_limit_are_longest_paths() -> None:
    """An operator stands in the first column where all it takes is there."""
    assert assign_columns([0, 1, 2, 3], {0: [], 1: [0], 2: [0, 1], 3: [0]}, 9) == {0: 0, 1: 1, 2: 2, 3: 1}


def test_crossings_are_removed() -> None:
    """Two vertices that cross over change places."""
    assert order_columns([[0, 1], [2, 3]], [(0, 3), (1, 2)]) in ([[0, 1], [3, 2]], [[1, 0], [2, 3]])


def test_vertices_are_level_and_apart() -> None:
    """A chain is straight, and vertices of a column keep their distance."""
    columns, links = [[0], [1, 2], [3]], [(0, 1), (0, 2), (1, 3), (2, 3)]
    center = place_vertically(columns, links, {(1, 2): 30.0}, dict.fromkeys(range(4), 1.0))
    assert center[2] - center[1] == pytest.approx(30)
    assert center[0] == pytest.approx(center[3]) == pytest.approx((center[1] + center[2]) / 2)


run = partial(succeed, "draw")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A graph.json."""
    squeezenet().write(tmp_path / "graph.json")
    return tmp_path / "graph.json"


def test_command_writes_an_svg_beside_the_graph(file: Path) -> None:
    """Without --output the picture is graph.svg beside graph.json, and the command says what it drew."""
    place = file.with_name("graph.svg")
    said = run(file).output
    assert re.fullmatch(rf"{re.escape(str(place))}: 50 operators, 65 edges, 12 blocks; \d+ x \d+ pixels\n", said)
    assert ET.parse(place).getroot().tag == f"{SVG}svg"  # noqa: S314


@pytest.mark.parametrize("name", ["graph.png", "graph", "graph.svg.gz"])
def test_other_formats_are_refused(file: Path, name: str) -> None:
    """What is neither .svg nor .html is refused in one line, and nothing is written."""
    message = refused("draw", file, "--output", file.with_name(name))
    assert re.fullmatch(r".*: found the suffix .*; allowed: \.svg, \.html", message)
    assert [path.name for path in file.parent.iterdir()] == ["graph.json"]


def test_graph_is_not_overwritten(tmp_path: Path) -> None:
    """A graph that is called .svg is not replaced by its picture."""
    squeezenet().write(tmp_path / "graph.svg")
    refused("draw", tmp_path / "graph.svg")
    assert Graph.read(tmp_path / "graph.svg").name == "squeezenet"


def test_contradicting_blocks_are_refused() -> None:
    """Blocks that wait for each other have no reading order."""
    with pytest.raises(HiosError, match="blocks"):
        lay_out(made("ab", "bc", blocks=(("a", "c"), ("b",))))


def test_page_loads_nothing(file: Path) -> None:
    """The page names nothing to be loaded."""
    place = file.with_name("page.html")
    run(file, "--output", place)
    text = place.read_text(encoding="utf-8")
    assert not re.search(r"https?:|url\(|@import|<link|\bsrc=|plotly", text, re.IGNORECASE)


@needs_chromium
def test_page_zooms_pans_and_follows_lines(file: Path) -> None:
    """In the page the wheel and the buttons zoom, a drag moves, and an operator stands out with its lines."""
    place = file.with_name("page.html")
    run(file, "--output", place)
    with opened(place) as visit:
        graph = visit.tab.locator("svg.graph")

        def view() -> list[float]:
            return [float(number) for number in graph.get_attribute("viewBox").split()]

        first = view()
        visit.tab.mouse.move(640, 500)
        visit.tab.mouse.wheel(0, -600)
        assert eventually(lambda: view()[2] < first[2])
        nearer = view()
        visit.tab.mouse.down()
        visit.tab.mouse.move(560, 450)
        visit.tab.mouse.up()
        moved = view()
        assert moved[0] > nearer[0]
        assert moved[2:] == nearer[2:]
        visit.tab.click("[data-view=width]")
        assert view() == first
        visit.tab.locator("[data-operator='2'] text").hover()
        visit.expect(visit.tab.locator(".edge.taken")).to_have_count(1)
        visit.expect(visit.tab.locator(".edge.made")).to_have_count(2)
        visit.expect(visit.tab.locator(".operator.here")).to_have_count(4)
        visit.tab.mouse.move(5, 5)
        visit.expect(visit.tab.locator(".edge.made")).to_have_count(0)
        assert visit.errors == []


@needs_chromium
def test_texts_stay_in_their_boxes_in_a_browser(file: Path) -> None:
    """The browser's own font fits: no label sticks out of its box, no heading out of its frame."""
    place = file.with_name("graph.svg")
    nasnet_large().write(file)
    run(file)
    labels = """[...document.querySelectorAll('.operator')].filter(group => {
        const text = group.querySelector('text').getBoundingClientRect();
        const box = group.querySelector('rect').getBoundingClientRect();
        return text.left < box.left || text.right > box.right;
    }).length"""
    headings = """[...document.querySelectorAll('.heading')].map((text, number) => {
        const box = document.querySelectorAll('.block')[number].getBoundingClientRect();
        return box.right - text.getBoundingClientRect().right;
    })"""
    with opened(place) as visit:
        assert visit.tab.evaluate("document.querySelectorAll('.operator').length") == 374
        assert visit.tab.evaluate(labels) == 0
        room = visit.tab.evaluate(headings)
        assert len(room) == 25
        assert min(room) > 0
        assert visit.requests == [place.as_uri()]
