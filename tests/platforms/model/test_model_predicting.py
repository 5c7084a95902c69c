"""Graphs and descriptions to costs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import hios
from hios import Costs, Edge, Graph, Operator, Problem, schedule
from hios.errors import PlatformError, UnsupportedError
from hios.platforms.model.descriptions import gpu, link
from hios.platforms.model.devices import costs as costs_of
from hios.platforms.model.devices import predicted_costs
from hios.platforms.model.kernel_work import VIEWS, kernels
from hios.platforms.model.roofline import DEFAULT_EFFICIENCY, predict
from tests.platforms.model.gpu_graphs import convolution, one_operator
from tests.refusals import refused

A40 = gpu("a40")
NVLINK = link("nvlink", A40)

_POOL = {"pool_size": [3, 3], "strides": [1, 1], "padding": [1, 1, 1, 1], "dilation": [1, 1]}
#: Every Relax operator that the ten networks of models/ come to, beside convolutions: inputs, output, attributes.
FUNCTIONS: dict[str, tuple[list[list[int]], list[int], dict[str, Any]]] = {
    **{
        f"relax.{name}": ([[1, 8, 4, 4], [1, 8, 4, 4]], [1, 8, 4, 4], {})
        for name in ("add", "multiply", "divide", "power")
    },
    **{
        f"relax.{name}": ([[1, 8, 4, 4]], [1, 8, 4, 4], {})
        for name in ("nn.relu", "nn.gelu", "rsqrt", "tanh", "astype")
    },
    "relax.matmul": ([[1, 12, 16, 8], [1, 12, 8, 16]], [1, 12, 16, 16], {}),
    "relax.nn.softmax": ([[1, 12, 16, 16]], [1, 12, 16, 16], {"axis": -1}),
    "relax.nn.layer_norm": ([[1, 16, 64], [64], [64]], [1, 16, 64], {"axes": [-1]}),
    "relax.mean": ([[1, 16, 64]], [1, 16, 1], {"axis": [-1], "keepdims": True}),
    "relax.concat": ([[1, 8, 4, 4], [1, 4, 4, 4]], [1, 12, 4, 4], {"axis": 1}),
    "relax.take": ([[100, 64], [1, 16]], [1, 16, 64], {"axis": 0}),
    "relax.nn.max_pool2d": ([[1, 8, 4, 4]], [1, 8, 4, 4], _POOL),
    "relax.nn.avg_pool2d": ([[1, 8, 4, 4]], [1, 8, 4, 4], _POOL),
    "relax.nn.adaptive_avg_pool2d": ([[1, 8, 4, 4]], [1, 8, 1, 1], {"output_size": [1, 1]}),
    "relax.reshape": ([[1, 16, 64]], [1, 16, 8, 8], {}),
    "relax.permute_dims": ([[1, 16, 8, 8]], [1, 8, 16, 8], {"axes": [0, 2, 1, 3]}),
    "relax.broadcast_to": ([[1, 1, 64]], [1, 16, 64], {}),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_takes_time_but_views(function: str) -> None:
    """Finite and positive; 0 for what gives another view only."""
    inputs, output, attributes = FUNCTIONS[function]
    cost = predicted_costs(one_operator(function, inputs, output, attributes=attributes), A40, NVLINK, 1).operators["v"]
    if function in VIEWS:
        assert (cost.time_ms, cost.utilization) == (0.0, None)
    else:
        assert 0 < cost.time_ms < math.inf
        assert cost.utilization is not None
        assert 0 < cost.utilization <= 1


def test_operator_is_its_kernels_and_launches() -> None:
    """t(v) adds the kernels' times and a pause for each; u(v) is their mean by time."""
    graph = convolution(channels=256, filters=256, pixels=28, window=3)
    cost = predicted_costs(graph, A40, NVLINK, 1).operators["v"]
    (kernel,) = kernels(graph)["v"]
    prediction = predict(kernel, A40, DEFAULT_EFFICIENCY)
    assert cost.time_ms == pytest.approx((prediction.us + DEFAULT_EFFICIENCY.launch_us) / 1e3)
    assert cost.utilization == pytest.approx(prediction.utilization)
    assert cost.resources is not None
    assert cost.resources.threads == prediction.resources.threads


def _pair(size: int | None) -> Graph:
    operators = tuple(Operator(name, "task", flops=1e6, bytes=1000) for name in "ab")
    return Graph("pair", operators, (Edge("a", "b", size), Edge("a", "b", 10)))


def test_costs_say_that_they_are_predicted() -> None:
    """Platform, transfers by bytes, the contention model, and no measured stage; schedules pass the word on."""
    costs = predicted_costs(_pair(10**6), A40, NVLINK, 2)
    assert costs.platform is not None
    assert (costs.platform.name, costs.platform.predicted) == ("model", True)
    assert (costs.platform.gpu, costs.platform.link, costs.platform.devices) == ("a40", "nvlink", 2)
    assert isinstance(costs.transfers, tuple)
    (transfer,) = costs.transfers
    assert transfer.time_ms == NVLINK.time_ms(10**6)
    assert costs.stages == ()
    assert costs.contention is not None
    assert (costs.contention.kind, costs.contention.alpha) == ("blend", 0.5)
    words = "predicted for 2 x NVIDIA A40, link nvlink; nothing was measured"
    assert Costs.of(costs).predicted_for == words
    assert schedule(Problem(_pair(10**6), Costs.of(costs)), "hios-lp", 2).notes["costs"] == words


def test_profile_predicts() -> None:
    """`hios.profile` on objects, with the GPU and the link by name."""
    graph = convolution(window=3)
    costs = hios.profile(graph, platform="model", options={"gpu": "a40", "link": "nvlink"}, devices=2)
    assert costs.operators == predicted_costs(graph, A40, NVLINK, 2).operators
    assert (costs.graph, costs.graph_fingerprint) == (graph.name, graph.fingerprint)
    assert costs.platform is not None
    assert (costs.platform.gpu, costs.platform.link, costs.platform.devices) == ("a40", "nvlink", 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"options": {"gpu": 5}}, "platform model: option gpu: found int; required: text, a name or a path"),
        (
            {"options": {"gpu": "a40", "link": Path("nvlink.yaml")}},
            "platform model: option link: found PosixPath; required: text, a name or a path",
        ),
        ({"options": {}}, "--gpu: missing; required with platform model: one of "),
        ({"options": {"gpus": "a40"}}, "platform model: found --gpus; allowed: with the options --gpu, --link"),
        (
            {"options": {"gpu": "a40"}, "virtual": True},
            "platform model: found --virtual; allowed: without it, as its devices share nothing",
        ),
    ],
)
def test_profile_refuses_settings(settings: dict[str, Any], message: str) -> None:
    """Options of a wrong type, missing or unknown, and virtual devices, in one line."""
    with refused(message, kind=PlatformError):
        hios.profile(convolution(), platform="model", **settings)


@pytest.mark.parametrize("devices", [0, 1025])
def test_numbers_of_devices_are_checked(devices: int) -> None:
    """As many as a schedule can state."""
    with pytest.raises(PlatformError, match=f"^platform model: devices: found {devices}; allowed: 1 to 1024"):
        predicted_costs(_pair(1), A40, NVLINK, devices)


def test_edges_need_bytes() -> None:
    """A transfer of unknown size cannot be predicted."""
    with pytest.raises(UnsupportedError, match="edge a -> b: states no bytes; required for predictions"):
        predicted_costs(_pair(None), A40, NVLINK, 2)


def test_resources_on_request() -> None:
    """With contention "resources" operators have demands and there are overheads; nothing takes longer in sequence."""
    operators = tuple(Operator(name, "conv", flops=2_000_000, bytes=100_000) for name in ("u", "v", "w"))
    graph = Graph("three", operators, (Edge("u", "v", 50_000),))
    blend, shared = (
        hios.profile(graph, platform="model", options={"gpu": "v100-sxm2", "contention": kind})
        for kind in ("blend", "resources")
    )
    assert blend == hios.profile(graph, platform="model", options={"gpu": "v100-sxm2"})
    assert (blend.overheads, blend.operators["u"].demand) == (None, None)
    assert shared.contention is not None
    assert (shared.contention.kind, shared.platform and shared.platform.contention) == ("resources", "resources")
    demand = shared.operators["u"].demand
    assert demand is not None
    assert 0 < min(demand.slots, demand.compute, demand.memory) <= max(demand.slots, demand.compute, demand.memory) <= 1
    sequential = [schedule(Problem(graph, costs), "sequential").latency_ms for costs in (blend, shared)]
    assert sequential[0] == pytest.approx(sequential[1])
    streams = schedule(Problem(graph, shared), "lios")
    assert hios.violations(Problem(graph, shared), streams) == []
    assert streams.latency_ms < sequential[1]


@pytest.mark.parametrize("contention", ["blend", "resources"])
def test_launches_on_request(contention: str) -> None:
    """Launches on streams take longer than those of a CUDA graph, which is the default; costs say so."""
    graph = Graph("two", tuple(Operator(name, "conv", flops=2_000_000, bytes=100_000) for name in ("u", "v")), ())
    default, captured, streams = (
        hios.profile(graph, platform="model", options={"gpu": "v100-sxm2", "contention": contention, **launches})
        for launches in ({}, {"launches": "graph"}, {"launches": "streams"})
    )
    assert default == captured
    assert [costs.platform and costs.platform.launches for costs in (captured, streams)] == [None, "streams"]
    latency = [schedule(Problem(graph, costs), "sequential").latency_ms for costs in (captured, streams)]
    assert latency[1] - latency[0] == pytest.approx(2 * (0.9 - 0.5) / 1e3)
    # As costs.json tells them, they are predicted again.
    assert streams.platform is not None
    assert costs_of(graph, streams.platform).operators == streams.operators


@pytest.mark.parametrize(
    ("option", "given", "allowed"),
    [("launches", "host", "graph, streams"), ("contention", "fluid", "blend, resources")],
)
def test_unknown_kinds(option: str, given: str, allowed: str) -> None:
    """The kinds that there are, are named."""
    with pytest.raises(PlatformError, match=f"^--{option}: found {given}; allowed: {allowed}$"):
        hios.profile(convolution(64, 8), platform="model", options={"gpu": "a40", option: given})
