"""Convolutions alone on two cores (HIOS, figures 1 and 2; Opara, figure 3): at once, one after another, handed over."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import TYPE_CHECKING, get_args

import msgspec

from hios import platforms
from hios.core.graph import Edge, Graph, Operator, TensorSpec
from hios.files.artifacts import Json
from hios.files.versions import versions
from hios.formats.study import ConvolutionsFile, ConvolutionSize, Pair, PairKind
from hios.workers.arena import memory_file

if TYPE_CHECKING:
    from hios.platforms.cpu.measuring import CpuTimer

#: Height and width of the filters of HIOS, figure 1.
KERNEL = 5
#: Two devices, each a core: what the papers ask of one GPU and of two is asked of these.
_CORES = 2
_FLOAT_BYTES = 4
#: Untimed rounds before the timed ones.
_WARMUP = 1
#: Hand-overs in a round.
_HAND_OVERS = 5


def measure(sizes: Sequence[int], *, channels: int, repeats: int) -> ConvolutionsFile:
    """Measure convolutions and ReLUs on images of several sizes.

    Every round measures a size in all ways, right after each other, so that their quotients are free of the machine's
    drift. Inputs are written right before they are read, as an operator before would.

    ``sizes`` are height and width of images in pixels, ``channels`` those of images and outputs.

    Raises:
        PlatformError: fewer than two cores can be used.
    """
    began, measured_at = time.monotonic(), datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    description = platforms.describe("cpu", _CORES)
    graph = convolution_graph(sizes, channels)
    rows, pairs = [], []
    with memory_file(graph.to_bytes()) as path:
        timer: CpuTimer = platforms.measuring("cpu").timer(graph, path, description, (_CORES,))  # type: ignore[assignment]
        with timer:
            for size in sizes:
                timer.load(dict.fromkeys((_name("conv", size), _name("relu", size)), 1))
                rows.append(_of_size(timer, size, channels, repeats))
                if size == middle(sizes):
                    pairs = _pairs(timer, size, repeats)
    return ConvolutionsFile(
        platform=description,
        versions=versions(),
        measured_at=measured_at,
        kernel=KERNEL,
        channels=channels,
        repeats=repeats,
        sizes=tuple(rows),
        pairs=tuple(pairs),
        seconds=time.monotonic() - began,
    )


def middle(sizes: Sequence[int]) -> int:
    """The size at which pairs are measured."""
    return sorted(sizes)[len(sizes) // 2]


def convolution_graph(sizes: Sequence[int], channels: int) -> Graph:
    """For every size a ReLU, and a convolution on its output that keeps size and channels."""
    shapes = {size: (1, channels, size, size) for size in sizes}
    filters = (channels, channels, KERNEL, KERNEL)
    return Graph(
        "convolutions",
        tuple(_operator(kind, size, shape) for size, shape in shapes.items() for kind in get_args(PairKind)),
        tuple(Edge(_name("relu", size), _name("conv", size), _bytes(size, channels)) for size in sizes),
        inputs=tuple(TensorSpec(f"image-{size}", shape, "float32") for size, shape in shapes.items()),
        weights=tuple(TensorSpec(f"filters-{size}", filters, "float32") for size in sizes),
    )


def _operator(kind: str, size: int, shape: tuple[int, ...]) -> Operator:
    details: Json = {
        "conv": {
            "function": "relax.nn.conv2d",
            "arguments": [{"operator": _name("relu", size)}, {"weight": f"filters-{size}"}],
            "attributes": {
                "strides": [1, 1],
                "padding": [KERNEL // 2] * 4,
                "dilation": [1, 1],
                "groups": 1,
                "data_layout": "NCHW",
                "kernel_layout": "OIHW",
            },
        },
        "relu": {"function": "relax.nn.relu", "arguments": [{"input": f"image-{size}"}], "attributes": {}},
    }[kind]
    entry = {
        "id": _name(kind, size),
        "type": {"conv": "conv2d", "relu": "relu"}[kind],
        "calls": [details],
        "shapes": {"inputs": [list(shape)], "outputs": [list(shape)]},
        "dtype": "float32",
    }
    return msgspec.convert(entry, Operator)


def _name(kind: str, size: int) -> str:
    return f"{kind}-{size}"


def _bytes(size: int, channels: int) -> int:
    return _FLOAT_BYTES * channels * size * size


def _of_size(timer: CpuTimer, size: int, channels: int, repeats: int) -> ConvolutionSize:
    name, nbytes = _name("conv", size), _bytes(size, channels)
    samples: dict[str, list[float]] = {way: [] for way in ("alone", "both cores", "at once", "hand-over")}
    for turn in range(_WARMUP + repeats):
        (((both_cores, alone),),) = timer.time_wide(_CORES, [name], 1, 0)
        at_once = max(timer.at_once({device: [name] for device in range(_CORES)}, alone).values())
        hand_over = statistics.median(timer.time_transfers([nbytes], _HAND_OVERS, turn)[nbytes])
        if turn >= _WARMUP:
            for own, value in zip(samples.values(), (alone, both_cores, at_once, hand_over), strict=True):
                own.append(value)
    alone, both_cores, at_once, hand_over = map(statistics.median, samples.values())
    return ConvolutionSize(size, alone, both_cores, at_once, hand_over, nbytes)


def _pairs(timer: CpuTimer, size: int, repeats: int) -> list[Pair]:
    """Every kind beside every kind."""
    kinds: tuple[PairKind, ...] = get_args(PairKind)
    pairs = []
    for first, second in product(kinds, repeat=2):
        samples = []
        for _ in range(_WARMUP + repeats):
            networks: Mapping[int, list[str]] = {0: [_name(first, size)], 1: [_name(second, size)]}
            alone = timer.at_once({0: networks[0]}, 0.0)[0]
            samples.append((alone, timer.at_once(networks, alone)[0]))
        alone, beside = (statistics.median(column) for column in zip(*samples[_WARMUP:], strict=True))
        pairs.append(Pair((first, second), size, alone, beside))
    return pairs
