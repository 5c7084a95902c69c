"""The papers' networks as graphs without weights or shapes, for benchmarks and for checks of algorithms.

They are the networks of the IOS benchmark (its tables 1 and 2, LIOS table IV), operator by operator, with ResNet-50
(TOP table II) and GoogLeNet (Opara section 5). An operator is one scheduling unit: a convolution holds its batch norm
and activation, ``relu-sepconv`` is ReLU, depthwise and pointwise convolution, ``relu-conv2d`` ReLU and convolution. A
sum or concatenation of the values that an operator takes is folded into the operator, except where it is a node of
its own. Edges from the input of the network are not edges of the graph, and neither is a fully connected classifier
an operator. Blocks are those that IOS schedules one by one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from hios import Costs, Edge, Graph, Operator, Problem
from hios.study.random_graphs import watts_strogatz

#: The image: reading it is not an edge.
_INPUT = ""
#: Stages of RandWire by file, in order: nodes, neighbors, rewiring probability and number of Watts and Strogatz.
RANDWIRE_FILES = ("ws-16-4-0.75-2.txt", "ws-32-4-0.75-3.txt", "ws-32-4-0.75-4.txt", "ws-32-4-0.75-5.txt")
#: Seed of the first stage where there are no files; it is one that gives the 260 edges.
_RANDWIRE_SEED = 310


class _NetworkBuilder:
    """A graph under construction, block by block."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._operators: list[Operator] = []
        self._edges: list[Edge] = []
        self._blocks: list[list[str]] = []
        self._count: Counter[str] = Counter()

    def block(self) -> None:
        """Begin the next block."""
        self._blocks.append([])

    def add(self, kind: str, *inputs: str) -> str:
        """Append an operator that takes the given values, one edge for each; its id stands for its value."""
        self._count[kind] += 1
        operator = f"{kind}_{self._count[kind]}"
        self._operators.append(Operator(operator, kind))
        self._edges.extend(Edge(source, operator) for source in inputs if source != _INPUT)
        self._blocks[-1].append(operator)
        return operator

    def chain(self, value: str, *kinds: str) -> str:
        """Append operators one after another."""
        for kind in kinds:
            value = self.add(kind, value)
        return value

    def graph(self) -> Graph:
        return Graph(
            self._name, tuple(self._operators), tuple(self._edges), blocks=tuple(tuple(block) for block in self._blocks)
        )


def inception_v3() -> Graph:
    """Inception-v3 (Szegedy et al., arXiv:1512.00567): 119 operators, 153 edges; blocks A A A, B, C C C C, D, E E."""
    net = _NetworkBuilder("inception_v3")
    conv, most, mean = "conv2d-relu", "max_pool2d", "avg_pool2d"
    net.block()
    x = net.chain(_INPUT, conv, conv, conv, most, conv, conv, most)
    for _ in range(3):  # A
        x = _inception(net, x, (conv,), (conv, conv), (conv, conv, conv), (mean, conv))
    x = _inception(net, x, (conv,), (conv, conv, conv), (most,))  # B
    for _ in range(4):  # C
        x = _inception(net, x, (conv,), (conv,) * 3, (conv,) * 5, (mean, conv))
    x = _inception(net, x, (conv, conv), (conv,) * 4, (most,))  # D
    for _ in range(2):  # E: 1x3 and 3x1 convolutions of the same value, twice
        net.block()
        one = net.add(conv, x)
        short = net.add(conv, x)
        shorts = (net.add(conv, short), net.add(conv, short))
        long = net.chain(x, conv, conv)
        longs = (net.add(conv, long), net.add(conv, long))
        x = net.add("concat", one, *shorts, *longs, net.chain(x, mean, conv))
    net.block()
    net.add("adaptive_avg_pool2d", x)
    return net.graph()


def _inception(net: _NetworkBuilder, x: str, *branches: tuple[str, ...]) -> str:
    """A block of branches that are chains, concatenated."""
    net.block()
    return net.add("concat", *[net.chain(x, *branch) for branch in branches])


def googlenet() -> Graph:
    """GoogLeNet (Szegedy et al., arXiv:1409.4842) without local response normalization: 80 operators, 106 edges."""
    net = _NetworkBuilder("googlenet")
    conv, most = "conv2d-relu", "max_pool2d"
    net.block()
    x = net.chain(_INPUT, conv, most, conv, conv, most)
    for modules, pool in ((2, most), (5, most), (2, "adaptive_avg_pool2d")):
        for _ in range(modules):
            x = _inception(net, x, (conv,), (conv, conv), (conv, conv), (most, conv))
        net.block()
        x = net.add(pool, x)
    return net.graph()


def squeezenet() -> Graph:
    """SqueezeNet with complex bypass (Iandola et al., arXiv:1602.07360, figure 2 right): 50 operators, 65 edges."""
    net = _NetworkBuilder("squeezenet")
    net.block()
    x = net.chain(_INPUT, "conv2d-relu", "max_pool2d")
    for number in range(8):
        net.block()
        squeezed = net.add("conv2d-relu", x)
        expanded = net.add("concat", net.add("conv2d-relu", squeezed), net.add("conv2d-relu", squeezed))
        # Every other module has more channels than its input, which a convolution must widen.
        x = net.add("add", expanded, net.add("conv2d", x) if number % 2 == 0 else x)
        if number in (2, 6):
            net.block()
            x = net.add("max_pool2d", x)
    net.block()
    net.chain(x, "conv2d-relu", "adaptive_avg_pool2d")
    return net.graph()


def resnet50(*, pooled: bool = False) -> Graph:
    """ResNet-50 (He et al., arXiv:1512.03385): 86 operators, 101 edges, addition and ReLU apart.

    TOP counts 87 in 5 blocks: the global pool too, which ``pooled`` adds to the last block.
    """
    net = _NetworkBuilder("resnet50")
    net.block()
    x = net.chain(_INPUT, "conv2d-relu", "max_pool2d")
    for bottlenecks in (3, 4, 6, 3):
        net.block()
        for number in range(bottlenecks):
            skip = net.add("conv2d", x) if number == 0 else x
            x = net.chain(x, "conv2d-relu", "conv2d-relu", "conv2d")
            x = net.add("relu", net.add("add", x, skip))
    if pooled:
        net.add("adaptive_avg_pool2d", x)
    return net.graph()


def randwire(folder: Path | None = None) -> Graph:
    """RandWire (Xie et al., arXiv:1904.01569), regular regime: 120 operators, 260 edges.

    Four stages of 16 and three times 32 nodes; nodes without a predecessor read the value of the stage before, nodes
    without a successor are summed by an operator of their own. Nodes are listed depth first, as the IOS benchmark
    does: algorithms that go through the operators in order depend on it.

    ``folder`` has the files ``RANDWIRE_FILES``, the benchmark's wiring: nodes, edges, then an edge "source target" a
    line. Without one, the wiring is that of models/randwire.py, which has as many nodes and edges.
    """
    net = _NetworkBuilder("randwire")
    net.block()
    x = net.add("conv2d", _INPUT)
    for number, name in enumerate(RANDWIRE_FILES):
        nodes, edges = _drawn_stage(number) if folder is None else _stage_of(folder / name)
        net.block()
        x = _random_stage(net, x, nodes, edges)
    net.block()
    net.chain(x, "relu", "conv2d", "adaptive_avg_pool2d")
    return net.graph()


def _stage_of(file: Path) -> tuple[int, list[tuple[int, int]]]:
    nodes, _, *pairs = file.read_text(encoding="utf-8").splitlines()
    return int(nodes), [(int(s), int(t)) for s, t in (pair.split() for pair in pairs if pair)]


def _drawn_stage(number: int) -> tuple[int, list[tuple[int, int]]]:
    nodes = 32 if number else 16
    wiring = watts_strogatz(nodes, 4, 0.75, _RANDWIRE_SEED + number)
    return nodes, sorted((source, target) for target, row in enumerate(wiring) for source in row)


def _random_stage(net: _NetworkBuilder, x: str, nodes: int, edges: list[tuple[int, int]]) -> str:
    sources: list[list[int]] = [[s for s, t in edges if t == node] for node in range(nodes)]
    targets: list[list[int]] = [[t for s, t in edges if s == node] for node in range(nodes)]
    waiting = [len(row) for row in sources]
    ready = [node for node in range(nodes) if not sources[node]]
    values: dict[int, str] = {}
    while ready:
        node = ready.pop()
        values[node] = net.add("relu-sepconv", *([values[source] for source in sources[node]] or [x]))
        for target in targets[node]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return net.add("add", *[values[node] for node in range(nodes) if not targets[node]])


def nasnet_large() -> Graph:
    """NASNet-A large, 6 @ 4032 (Zoph et al., arXiv:1707.07012, figure 4): 374 operators, 576 edges (572 distinct).

    As the IOS benchmark has it. What that leaves out or changes of the paper's network: a normal cell does not
    concatenate its left input; the first combination of the cell after a reduction takes the right input twice;
    a reduction concatenates both parts of its second combination beside their sum; the cell after a reduction takes as
    left input the one but last cell before the reduction; stem 1 concatenates its second combination twice.
    """
    net = _NetworkBuilder("nasnet_large")
    net.block()
    first = net.add("conv2d", _INPUT)
    stem0 = _stem0(net, first)
    before, x = stem0, _stem1(net, stem0, first)
    for repeat in range(3):
        if repeat > 0:
            # Inputs of the cell after it: the reduction and, not as in the paper, the reduction's left input.
            x = _reduction_cell(net, before, x)
        before, x = x, _normal_cell(net, before, x, halved=True)
        for _ in range(5):
            before, x = x, _normal_cell(net, before, x)
    for kind in ("relu", "adaptive_avg_pool2d"):
        net.block()
        x = net.add(kind, x)
    return net.graph()


def _separable(net: _NetworkBuilder, x: str) -> str:
    """Separable convolutions of NASNet are applied twice."""
    return net.chain(x, "relu-sepconv", "relu-sepconv")


def _normal_cell(net: _NetworkBuilder, left: str, right: str, *, halved: bool = False) -> str:
    """Normal cell; ``halved``: the left input has twice the size, two strided convolutions halve it."""
    net.block()
    if halved:
        left = net.add("concat", net.add("relu-conv2d", left), net.add("relu-conv2d", left))
    else:
        left = net.add("relu-conv2d", left)
    right = net.add("relu-conv2d", right)
    first = (_separable(net, right), _separable(net, right if halved else left))
    second = (_separable(net, left), _separable(net, left))
    third = (net.add("avg_pool2d", right), left)
    fourth = (net.add("avg_pool2d", left), net.add("avg_pool2d", left))
    fifth = (_separable(net, right), right)
    return net.add("concat", *([left] if halved else []), *first, *second, *third, *fourth, *fifth)


def _reduction_cell(net: _NetworkBuilder, left: str, right: str) -> str:
    net.block()
    left = net.add("relu-conv2d", left)
    right = net.add("relu-conv2d", right)
    _, second, parts = _reduction(net, right, left)
    return net.add("concat", *parts[:4], second, *parts[4:])


def _stem0(net: _NetworkBuilder, x: str) -> str:
    net.block()
    first, second, parts = _reduction(net, net.add("relu-conv2d", x), x)
    return net.add("concat", second, *parts[2:5], first, *parts[5:])


def _stem1(net: _NetworkBuilder, left: str, right: str) -> str:
    net.block()
    left = net.add("relu-conv2d", left)
    right = net.add("concat", net.add("relu-conv2d", right), net.add("relu-conv2d", right))
    _, second, parts = _reduction(net, left, right)
    return net.add("concat", second, *parts[2:5], second, *parts[5:])


def _reduction(net: _NetworkBuilder, a: str, b: str) -> tuple[str, str, list[str]]:
    """The combinations of a reduction, of values ``a`` and ``b``.

    Returns:
        The sum of the first combination, the sum of the second, and the values to concatenate apart from these: two
        of the second, two of the third, one of the fourth (the other is a sum) and two of the fifth combination.
    """
    first = net.add("add", _separable(net, a), _separable(net, b))
    second = [net.add("max_pool2d", a), _separable(net, b)]
    total = net.add("add", *second)
    third = [net.add("avg_pool2d", a), _separable(net, b)]
    fourth = net.add("avg_pool2d", first)
    fifth = [_separable(net, first), net.add("max_pool2d", a)]
    return first, total, [*second, *third, fourth, *fifth]


def benchmark() -> list[Graph]:
    """The networks of IOS's benchmark, which LIOS uses too; RandWire with a wiring of our own."""
    return [inception_v3(), randwire(), nasnet_large(), squeezenet()]


def worked_example(
    name: str, edges: str, times: Mapping[str, float], transfer_ms: float, contention: str = "blend"
) -> Problem:
    """The example of a paper: edges such as "v1 v2, v1 v3", times of operators, and one time of all transfers."""
    pairs = [(source, target) for source, target in map(str.split, edges.split(", "))]
    operators = tuple(Operator(operator, "conv") for operator in times)
    graph = Graph(name, operators, tuple(Edge(source, target) for source, target in pairs))
    time_ms = {operator: float(time) for operator, time in times.items()}
    return Problem(graph, Costs(time_ms, dict.fromkeys(pairs, float(transfer_ms)), contention=contention))


def synthetic_costs(graph: Graph, *, seed: int = 0, p: float = 0.8) -> Costs:
    """Random costs as in the simulation of HIOS (section V-A).

    t(v) uniform in 0.1 to 4 ms, utilization uniform in 0.6 to 1, t(u,v) = max(0.1 ms, p * t(u)); alpha 0.5.
    """
    draw = random.Random(seed)
    times = {operator.id: draw.uniform(0.1, 4.0) for operator in graph.operators}
    return Costs(
        times,
        {(edge.source, edge.target): max(0.1, p * times[edge.source]) for edge in graph.edges},
        {operator.id: draw.uniform(0.6, 1.0) for operator in graph.operators},
        graph=graph.name,
    )
