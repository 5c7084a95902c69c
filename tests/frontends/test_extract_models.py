"""The networks of models/: their graphs have the structure that the papers count, and compute what eager computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import networks as benchmark
from benchmarks.networks import KIND
from hios import Edge, Graph, HiosError
from hios.core.blocks import found_blocks
from hios.frontends.export import build_model, initialize
from hios.kernels import compile_operator
from hios.schedulers.ios import search_space
from hios.study.random_graphs import watts_strogatz
from models.randwire import RandWire
from tests.external_data import data_folder
from tests.frontends.small_networks import SMALL, Network, extracted, network


@dataclass(frozen=True)
class Published:
    """What the papers print (LIOS table IV, IOS tables 1 and 2, TOP table II), or what follows from the figures."""

    edges: tuple[int, int]  # all, and without those that lead from one operator to another twice
    kinds: dict[str, int]
    blocks: list[int]  # operators of each block

    @property
    def operators(self) -> int:
        """How many there are."""
        return sum(self.blocks)


def _nasnet(repeats: int) -> list[int]:
    cells = [18, *[16] * (repeats - 1)]
    return [1, 18, 21, *cells, 19, *cells, 19, *cells, 1, 1]


PUBLISHED = {
    "ios_sample": Published((4, 4), {"conv": 4, "concat or add": 1}, [5]),
    "squeezenet": Published(
        (65, 65), {"conv": 30, "pool": 4, "concat or add": 16}, [2, 6, 5, 6, 1, 5, 6, 5, 6, 1, 5, 2]
    ),
    "inception_v3": Published(
        (153, 153), {"conv": 94, "pool": 14, "concat or add": 11}, [7, 9, 9, 9, 6, 12, 12, 12, 12, 8, 11, 11, 1]
    ),
    "googlenet": Published(
        (106, 106), {"conv": 57, "pool": 14, "concat or add": 9}, [5, 8, 8, 1, 8, 8, 8, 8, 8, 1, 8, 8, 1]
    ),
    "resnet34": Published((85, 85), {"conv": 36, "pool": 2, "concat or add": 16, "other": 16}, [2, 12, 17, 25, 14]),
    "resnet50": Published((102, 102), {"conv": 53, "pool": 2, "concat or add": 16, "other": 16}, [2, 16, 21, 31, 17]),
    "randwire": Published(
        (260, 260),
        {"conv": 2, "relu-sepconv": 112, "pool": 1, "concat or add": 4, "other": 1},
        [1, 17, 33, 33, 33, 3],
    ),
    "nasnet_mobile": Published(
        (426, 422),
        {"conv": 1, "relu-sepconv": 160, "relu-conv": 35, "pool": 53, "concat or add": 28, "other": 1},
        _nasnet(4),
    ),
    "nasnet_large": Published(
        (576, 572),
        {"conv": 1, "relu-sepconv": 220, "relu-conv": 47, "pool": 71, "concat or add": 34, "other": 1},
        _nasnet(6),
    ),
}
#: Wired operator by operator in benchmarks/, from which tests of algorithms have the published numbers.
BENCHMARKS: dict[str, Callable[[], Graph]] = {
    "squeezenet": benchmark.squeezenet,
    "inception_v3": benchmark.inception_v3,
    "googlenet": benchmark.googlenet,
    "resnet50": lambda: benchmark.resnet50(pooled=True),
    "nasnet_large": benchmark.nasnet_large,
}
#: Transitions of IOS, without pruning and with r = 3 and s = 8 (IOS table 1, recomputed over all blocks).
TRANSITIONS = {"squeezenet": (284, 260), "inception_v3": (27742, 25022), "nasnet_large": (5284405, 4494507)}
#: `make test` leaves all out but the smallest two.
_SLOW = PUBLISHED.keys() - {"squeezenet", "ios_sample"}


def _marked(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow if name in _SLOW else ()) for name in names]


@pytest.fixture(scope="module", params=_marked(PUBLISHED))
def name(request: pytest.FixtureRequest) -> str:
    """A network; the tests of one run before those of the next, so that one is in memory at a time."""
    return str(request.param)


@pytest.fixture(scope="module")
def default_network(name: str) -> Network:
    """The network as its file builds it by default: the papers' image size, batch 1."""
    return extracted(*build_model(name, {}, seed=0))


def _check(graph: Graph, published: Published) -> None:
    assert len(graph.operators) == published.operators
    assert (len(graph.edges), len({(edge.source, edge.target) for edge in graph.edges})) == published.edges
    assert Counter(KIND[operator.type] for operator in graph.operators) == published.kinds
    assert [len(block) for block in graph.blocks] == published.blocks


def _require_equal(network: Network, scores: Callable[[Tensor], Tensor] = torch.clone) -> None:
    """The graph gives what eager PyTorch gives, and that is neither nothing nor huge: 1e-4 means something."""
    expected, output = (scores(*outputs) for outputs in (network.eager(), network.run()))
    assert 0.1 < expected.std() < 10
    torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-4)


def test_published_counts(name: str, default_network: Network) -> None:
    """Operators, edges, operators by kind and operators of each block are the published."""
    _check(default_network.graph, PUBLISHED[name])


def test_graph_equals_eager(default_network: Network) -> None:
    """At the papers' image size the graph, run operator by operator, gives what eager PyTorch gives."""
    _require_equal(default_network)


@pytest.mark.parametrize("name", _marked(BENCHMARKS), indirect=True)
def test_wired_as_the_benchmark(name: str, default_network: Network) -> None:
    """The graph is that of benchmarks/, up to names: each operator has the same neighbors, theirs, and so on."""
    assert _refined(default_network.graph) == _refined(BENCHMARKS[name]())


def _refined(graph: Graph) -> Counter[int]:
    """Operators by kind, block and neighbors, refined until no more of them differ (Weisfeiler and Leman)."""
    block_of = {operator: number for number, block in enumerate(graph.blocks) for operator in block}
    labels = {operator.id: hash((KIND[operator.type], block_of[operator.id])) for operator in graph.operators}
    sources: dict[str, list[str]] = {operator: [] for operator in labels}
    targets: dict[str, list[str]] = {operator: [] for operator in labels}
    for edge in graph.edges:
        sources[edge.target].append(edge.source)
        targets[edge.source].append(edge.target)
    different = 0
    while different < (different := len(set(labels.values()))):
        labels = {
            operator: hash(
                (
                    label,
                    tuple(sorted(labels[source] for source in sources[operator])),
                    tuple(sorted(labels[target] for target in targets[operator])),
                )
            )
            for operator, label in labels.items()
        }
    return Counter(labels.values())


@pytest.mark.parametrize("name", _marked(TRANSITIONS), indirect=True)
def test_transitions_of_ios(name: str, default_network: Network) -> None:
    """IOS searches as many transitions in the extracted graph as the authors' program does."""
    pruned = search_space(default_network.graph, r=3, s=8).transitions
    assert (search_space(default_network.graph).transitions, pruned) == TRANSITIONS[name]


#: What hios counts of calls that torch's counter leaves out: by shape of the arguments and of the result.
_aten = torch.ops.aten
_ELEMENTWISE = [_aten.relu, _aten.relu_, _aten.add, _aten.add_, _aten.mul, _aten.mul_, _aten.div, _aten.div_]
_COUNTED: dict[Any, Callable[..., int]] = {
    **{function: lambda *_, out_shape, **__: out_shape.numel() for function in _ELEMENTWISE},
    _aten.max_pool2d_with_indices: lambda x, size, *_, out_shape, **__: out_shape[0].numel() * size[0] * size[1],
    _aten.avg_pool2d: lambda x, size, *_, out_shape, **__: out_shape.numel() * size[0] * size[1],
    _aten.mean: lambda x, *_, out_shape, **__: x.numel(),
}


def test_flops_equal_torch_counter(default_network: Network) -> None:
    """Each operator has the operations that torch counts in it, and all convolutions together those of the module."""
    values = {("input", default_network.graph.inputs[0].name, 0): default_network.inputs[0]}
    convolutions = 0
    for number in default_network.graph.order:
        operator = default_network.graph.operators[number]
        compiled = compile_operator(operator, default_network.tensors)
        with FlopCounterMode(display=False, custom_mapping=_COUNTED) as counter, torch.no_grad():
            values["operator", operator.id, 0] = compiled.run(*[values[value] for value in compiled.externals])
        assert operator.flops == counter.get_total_flops()
        convolutions += counter.get_flop_counts()["Global"].get(_aten.convolution, 0)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        default_network.module(*default_network.inputs)
    assert convolutions == counter.get_total_flops() > 1e8


#: Networks whose code other ones have too, with fewer or more layers.
_TWINS = {"nasnet_large", "resnet34"}
#: Operators of classifiers: of most there are three.
_CLASSIFIERS = {"ios_sample": [], "squeezenet": ["reshape", "softmax"]}


@pytest.mark.parametrize("name", _marked(name for name in PUBLISHED if name not in _TWINS), indirect=True)
def test_small_images_with_a_classifier(name: str, default_network: Network) -> None:
    """A batch of small images has a graph of the same structure, which equals eager too.

    With the classifier it ends in the operators of that, one after another.
    """
    added = _CLASSIFIERS.get(name, ["reshape", "linear", "softmax"])
    small = network(name, SMALL[name], batch_size=4, classifier=bool(added))
    types = [operator.type for operator in small.graph.operators]
    assert types == [operator.type for operator in default_network.graph.operators] + added
    first = len(types) - len(added)
    _check(_beginning(small.graph, first), PUBLISHED[name])
    tail = [operator.id for operator in small.graph.operators[first - 1 :]]
    assert [(edge.source, edge.target) for edge in small.graph.edges if edge.target in tail[1:]] == [*pairwise(tail)]
    _require_equal(small, torch.log if added else torch.clone)
    if added:
        torch.testing.assert_close(small.run()[0].sum(1), torch.ones(4))


def _beginning(graph: Graph, count: int) -> Graph:
    """The first operators of a graph."""
    operators = graph.operators[:count]
    ids = {operator.id for operator in operators}
    blocks = [tuple(operator for operator in block if operator in ids) for block in graph.blocks]
    edges = tuple(edge for edge in graph.edges if edge.target in ids)
    return Graph(graph.name, operators, edges, blocks=tuple(block for block in blocks if block))


@pytest.mark.parametrize("name", _marked(["inception_v3"]), indirect=True)
def test_inception_is_folded(default_network: Network) -> None:
    """Every convolution holds its batch norm and bias: three arguments, then at most a ReLU."""
    for operator in default_network.graph.operators:
        functions = [call.function for call in operator.calls]
        assert "relax.nn.batch_norm" not in functions
        if operator.type.startswith("conv2d"):
            assert functions == ["relax.nn.conv2d", "relax.nn.relu"]
            assert [argument.kinds for argument in operator.calls[0].arguments[1:]] == [["weight"], ["weight"]]


@pytest.mark.parametrize("name", _marked(["randwire"]), indirect=True)
def test_randwire_stages_are_not_cut(default_network: Network) -> None:
    """No node of a stage lies on all ways through it, so that cut vertices alone give the blocks, too."""
    assert found_blocks(default_network.graph) == default_network.graph.blocks


@pytest.mark.slow
def test_randwire_of_the_benchmark() -> None:
    """On the published wirings RandWire is the graph of the IOS benchmark, and its largest stage as hard to search."""
    folder = data_folder("randwire")
    wirings = [_wiring((folder / file).read_text(encoding="utf-8")) for file in benchmark.RANDWIRE_FILES]
    module, inputs = RandWire(wirings, channels=8, classifier=False).eval(), (torch.randn(1, 3, 32, 32),)
    initialize(module, inputs, seed=0)
    network = extracted(module, inputs)
    _require_equal(network)
    assert _refined(network.graph) == _refined(_without_lone_sums(benchmark.randwire(folder)))
    assert search_space(network.graph, 3).transitions == 1170663
    assert search_space(network.graph, 3, r=3, s=8).transitions == 774186


def _wiring(text: str) -> list[list[int]]:
    nodes, _, *edges = text.splitlines()
    pairs = [tuple(map(int, edge.split())) for edge in edges if edge]
    return [[source for source, target in pairs if target == node] for node in range(int(nodes))]


def _without_lone_sums(graph: Graph) -> Graph:
    """The benchmark sums the last nodes of a stage also where there is only one; a network has nothing to sum."""
    into = Counter(edge.target for edge in graph.edges)
    lone = {operator.id for operator in graph.operators if operator.type == "add" and into[operator.id] == 1}
    source = {edge.target: edge.source for edge in graph.edges if edge.target in lone}
    return Graph(
        graph.name,
        tuple(operator for operator in graph.operators if operator.id not in lone),
        tuple(
            Edge(source.get(edge.source, edge.source), edge.target) for edge in graph.edges if edge.target not in lone
        ),
        blocks=tuple(tuple(operator for operator in block if operator not in lone) for block in graph.blocks),
    )


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_watts_strogatz(p: float) -> None:
    """The wiring keeps its number of edges, depends on the seed alone, and leads upwards; unmoved, it is the ring."""
    wiring = watts_strogatz(12, 4, p, seed=1)
    assert wiring == watts_strogatz(12, 4, p, seed=1)
    assert sum(map(len, wiring)) == 24
    assert all(source < node for node, row in enumerate(wiring) for source in row)
    ring = [[s for s in range(node) if min(node - s, s - node + 12) <= 2] for node in range(12)]
    assert (wiring == ring) == (p == 0.0)
    assert p == 0.0 or wiring != watts_strogatz(12, 4, p, seed=2)


@pytest.mark.parametrize("k", [3, 16, -2])
def test_neighbors_that_no_ring_has_are_refused(k: int) -> None:
    """An odd or negative k, or one not below the 16 nodes of the first stage, is refused in one line."""
    with pytest.raises(HiosError, match=f"k is {k}; allowed: even numbers from 0 to below 16"):
        build_model("randwire", {"image_size": 32, "channels": 8, "k": k}, 0)


@pytest.mark.slow
def test_googlenet_with_normalization() -> None:
    """With local response normalization GoogLeNet computes something else, and the graph the same as eager."""
    plain, inputs = build_model("googlenet", {"image_size": 64, "lrn": False}, seed=0)
    normalized = extracted(*build_model("googlenet", {"image_size": 64, "lrn": True}, seed=0))
    assert len(normalized.graph.operators) > PUBLISHED["googlenet"].operators
    _require_equal(normalized)
    with torch.inference_mode():
        assert not torch.equal(normalized.eager()[0], plain.eval()(*inputs))
