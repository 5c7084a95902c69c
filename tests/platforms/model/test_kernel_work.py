"""The kernels of operators: dimensions, operations and bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from hios import Graph, Operator
from hios.errors import UnsupportedError
from hios.platforms.model.kernel_work import MatrixProduct, Streaming, kernels
from tests.frontends.small_networks import Model, extracted
from tests.platforms.model.gpu_graphs import convolution, one_operator


def _rows(look_up: Callable[[Tensor, int, Tensor], Tensor]) -> Model:
    """Some of a thousand rows of a table of weights."""
    table = nn.Parameter(torch.zeros(1000, 16))
    return Model(lambda model, indices: look_up(model.table, 0, indices), table=table)


def test_convolution_is_a_product_of_matrices() -> None:
    """Rows are pixels, columns output channels, and sums go over input channels and window."""
    (kernel,) = kernels(convolution(channels=32, filters=48, pixels=10, window=3))["v"]
    moved = 4 * (32 * 100 + 48 * 32 * 9 + 48 * 100)
    assert kernel == MatrixProduct(1, 100, 48, 32 * 9, moved, (3, 3), True, "float32")
    assert kernel.flops == 2 * 100 * 48 * 32 * 9


def test_strided_and_grouped_convolutions_are_not_dense() -> None:
    """Winograd's algorithm is for stride 1, dilation 1 and one group."""
    for changes in ({"strides": [2, 2]}, {"dilation": [2, 2]}, {"groups": 2}):
        graph = convolution(window=3, **changes)
        (kernel,) = kernels(graph)["v"]
        assert isinstance(kernel, MatrixProduct)
        assert not kernel.dense


def test_grouped_convolution_is_a_product_for_each_group() -> None:
    """Groups are a batch of smaller products."""
    (kernel,) = kernels(convolution(channels=64, filters=32, pixels=8, groups=4))["v"]
    assert isinstance(kernel, MatrixProduct)
    assert (kernel.batch, kernel.m, kernel.n, kernel.k) == (4, 64, 8, 16)


def test_depthwise_convolution_streams() -> None:
    """A filter a channel: no sums over channels, so a thread for each pixel."""
    (kernel,) = kernels(convolution(channels=64, filters=64, pixels=8, window=3, groups=64))["v"]
    assert kernel == Streaming(64 * 64, 2 * 64 * 64 * 9, 4 * (2 * 64 * 64 + 64 * 9))


def test_activation_joins_the_kernel_before_it() -> None:
    """ReLU is applied by cuDNN where it writes the convolution; nothing more is read or launched."""
    alone = kernels(one_operator("relax.matmul", [[8, 16], [16, 4]], [8, 4]))["v"]
    assert kernels(one_operator("relax.matmul", [[8, 16], [16, 4]], [8, 4], then="relax.nn.relu"))["v"] == alone


def test_relu_separable_convolution() -> None:
    """ReLU, depthwise and pointwise convolution are three kernels, with shapes that the graph does not state."""
    attributes = {"strides": [1, 1], "padding": [1] * 4, "dilation": [1, 1], "groups": 8}
    pointwise = {"strides": [1, 1], "padding": [0] * 4, "dilation": [1, 1], "groups": 1}
    graph = Graph.from_json(
        {
            "name": "sepconv",
            "operators": [
                {
                    "id": "v",
                    "type": "relu-sepconv",
                    "calls": [
                        {"function": "relax.nn.relu", "arguments": [{"input": "x"}]},
                        {
                            "function": "relax.nn.conv2d",
                            "arguments": [{"call": 0}, {"weight": "depthwise"}],
                            "attributes": {**attributes, "strides": [2, 2]},
                        },
                        {
                            "function": "relax.nn.conv2d",
                            "arguments": [{"call": 1}, {"weight": "pointwise"}],
                            "attributes": pointwise,
                        },
                    ],
                    "shapes": {"inputs": [[1, 8, 12, 12]], "outputs": [[1, 24, 6, 6]]},
                    "dtype": "float32",
                }
            ],
            "edges": [],
            "inputs": [{"name": "x", "shape": [1, 8, 12, 12], "dtype": "float32"}],
            "weights": [
                {"name": "depthwise", "shape": [8, 1, 3, 3], "dtype": "float32"},
                {"name": "pointwise", "shape": [24, 8, 1, 1], "dtype": "float32"},
            ],
        }
    )
    relu, depthwise, last = kernels(graph)["v"]
    assert relu == Streaming(8 * 144, 8 * 144, 4 * 2 * 8 * 144)
    assert depthwise == Streaming(8 * 36, 2 * 8 * 36 * 9, 4 * (8 * 144 + 8 * 9 + 8 * 36))
    assert isinstance(last, MatrixProduct)
    assert (last.m, last.n, last.k) == (36, 24, 8)


def test_views_launch_nothing() -> None:
    """Another view of a value costs nothing."""
    assert kernels(one_operator("relax.reshape", [[4, 6]], [24]))["v"] == ()


def test_lookup_reads_what_it_looks_up() -> None:
    """Of a table, the rows that are asked for."""
    (kernel,) = kernels(one_operator("relax.take", [[30000, 64], [10]], [10, 64]))["v"]
    assert kernel == Streaming(640, 0, 4 * 2 * 640 + 4 * 10)


@pytest.mark.parametrize(
    ("table", "indices"),
    [
        (nn.Embedding(30522, 768), torch.arange(8)),
        (_rows(torch.index_select), torch.tensor([3, 1], dtype=torch.int32)),
        (_rows(lambda table, _, rows: table[rows]), torch.tensor([[3], [1]])),
        (nn.Embedding(4, 16), torch.zeros(3, 5, dtype=torch.int64)),
    ],
)
def test_extracted_lookup_reads_what_graph_json_says(table: nn.Module, indices: Tensor) -> None:
    """Embeddings and indexing, which PyTorch runs, read the rows and the indices, not the whole table."""
    graph = extracted(table, (indices,)).graph
    (operator,) = graph.operators
    (kernel,) = kernels(graph)[operator.id]
    assert isinstance(kernel, Streaming)
    assert (kernel.bytes, kernel.operations) == (operator.bytes, 0)
    weight = next(table.parameters())
    assert kernel.bytes == min(weight.nbytes, 4 * kernel.elements) + 4 * kernel.elements + indices.nbytes


@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrent_layers_multiply_in_every_step(batch_first: bool) -> None:
    """Each step is a product of matrices with all weights, as it needs the one before it."""
    x = torch.randn(3, 5, 4) if batch_first else torch.randn(5, 3, 4)
    graph = extracted(nn.LSTM(4, 8, batch_first=batch_first), (x,)).graph
    (operator,) = (operator for operator in graph.operators if operator.type == "lstm")
    made = kernels(graph)[operator.id]
    assert len(made) == 5
    (step,) = set(made)
    assert isinstance(step, MatrixProduct)
    assert (step.m, 5 * step.flops) == (3, operator.flops)
    assert step.bytes >= 4 * 4 * 8 * (4 + 8)


def test_operator_without_calls_is_one_kernel() -> None:
    """Graphs by hand state operations and bytes."""
    graph = Graph("hand", (Operator("v", "task", flops=1000, bytes=800),), ())
    assert kernels(graph)["v"] == (Streaming(100, 1000, 800),)


def test_unknown_work_is_refused() -> None:
    """An operator that states nothing of its work cannot be predicted."""
    with pytest.raises(UnsupportedError, match=r"^graph: operator v: states neither calls .* required for predictions"):
        kernels(Graph("hand", (Operator("v", "task"),), ()))


def test_products_of_other_types_are_refused() -> None:
    """Descriptions state no rate for float64."""
    graph = one_operator("relax.matmul", [[8, 16], [16, 4]], [8, 4], dtype="float64")
    with pytest.raises(UnsupportedError, match=r"operator v: dtype: found float64; allowed .* float32, float16, bfl"):
        kernels(graph)
