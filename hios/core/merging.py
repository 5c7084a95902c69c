"""Operator merge: which convolutions can run as one, and with which kernel (IOS, section 3).

Convolutions that read the same value are merged by stacking their filters; smaller kernels are padded with zeros to
the elementwise largest. The paper leaves the condition out under which that is correct: with kernel K and padding P
of the merged convolution, k and p of one that is merged, P - floor((K - k) / 2) = p has to hold on each axis.
Everything is computed from graph.json; operators without calls and shapes cannot be merged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hios.core.graph import Graph, Operator, Value

#: (height, width).
Pair = tuple[int, int]

#: What can be merged, for messages.
MERGEABLE = "convolutions on the same value with equal stride, activation and output size"

#: Calls that may follow the convolution inside its operator: they take one element at a time, so they may as well
#: run on the outputs of several convolutions at once.
ACTIVATIONS = frozenset({"relax.nn.relu", "relax.nn.silu", "relax.sigmoid", "relax.tanh"})


@dataclass(frozen=True, slots=True)
class Convolution:
    """What determines whether an operator can be merged with others.

    ``value`` is what it reads (operator or input, its name, which of its outputs), ``image`` and ``output`` are sizes
    before and after, ``activation`` the functions that follow, in order. Padding is symmetric.
    """

    value: tuple[str, str, int]
    image: Pair
    output: Pair
    stride: Pair
    activation: tuple[str, ...]
    dtype: str
    kernel: Pair
    padding: Pair

    @property
    def family(self) -> tuple[Any, ...]:
        """What all convolutions of a merge have in common."""
        return (self.value, self.image, self.output, self.stride, self.activation, self.dtype)

    def growth(self, kernel: Pair) -> float:
        """The ratio of operations with the kernel padded to ``kernel``."""
        return (kernel[0] * kernel[1]) / (self.kernel[0] * self.kernel[1])


@dataclass(frozen=True, slots=True)
class MergedKernel:
    """Kernel K and padding P of a merged convolution."""

    kernel: Pair
    padding: Pair


def convolutions(graph: Graph) -> list[Convolution | None]:
    """For every operator by position what merging needs to know, or None if it cannot be merged.

    Kept are operators of one plain convolution (two-dimensional, dilation 1, groups 1, symmetric padding, weights
    from the weights file) that nothing but elementwise activations follow.
    """
    shapes = {weight.name: weight.shape for weight in graph.weights}
    return [_convolution(operator, shapes) for operator in graph.operators]


def _convolution(operator: Operator, weights: Mapping[str, Sequence[int]]) -> Convolution | None:
    calls, shapes = operator.calls, operator.shapes
    if not calls or calls[0].function != "relax.nn.conv2d" or shapes is None or operator.dtype is None:
        return None
    if not calls[0].arguments:  # a file may hold anything
        return None
    read, *tensors = calls[0].arguments
    attributes = calls[0].attributes
    image, output = ([shape for shape in side if len(shape) == 4] for side in (shapes.inputs, shapes.outputs))
    kernel = weights.get(tensors[0].weight or "", ()) if tensors else ()
    plain = (
        all(tensor.weight is not None for tensor in tensors)
        and all(
            call.function in ACTIVATIONS and call.arguments == (Value(call=number),)
            for number, call in enumerate(calls[1:])
        )
        and _is_plain(attributes)
    )
    if (value := read.external) is None or not plain or not image or not output or len(kernel) != 4 or 0 in kernel:
        return None
    return Convolution(
        value,
        image=_pair(image[0][2:]),
        output=_pair(output[0][2:]),
        stride=_pair(attributes["strides"]),
        activation=tuple(call.function for call in calls[1:]),
        dtype=operator.dtype,
        kernel=_pair(kernel[2:]),
        padding=_pair(attributes["padding"]),
    )


def _pair(numbers: Sequence[int]) -> Pair:
    return (numbers[0], numbers[1])


def _is_plain(attributes: Mapping[str, Any]) -> bool:
    padding, strides, dilation = (attributes.get(name, ()) for name in ("padding", "strides", "dilation"))
    return (
        _are_sizes(padding, 4)
        and padding[:2] == padding[2:]
        and _are_sizes(strides, 2)
        and (dilation == () or (_are_sizes(dilation, 2) and set(dilation) == {1}))
        and attributes.get("groups", 1) == 1
        and attributes.get("data_layout", "NCHW") == "NCHW"
        and attributes.get("kernel_layout", "OIHW") == "OIHW"
    )


def _are_sizes(value: Any, count: int) -> bool:
    """Whether a value is so many whole numbers; a file may hold anything."""
    return isinstance(value, list | tuple) and len(value) == count and all(type(number) is int for number in value)


def merged_kernel(members: Sequence[Convolution | None]) -> MergedKernel | None:
    """Kernel and padding of the convolution that replaces all members; None if there is none.

    Its output has their size, since on each axis one of them has its kernel and padding already.

    Args:
        members: at least two, in any order; None for an operator that is not a plain convolution.
    """
    known = [member for member in members if member is not None]
    if len(known) < len(members) or len(known) < 2 or any(m.family != known[0].family for m in known):
        return None
    kernel = (max(member.kernel[0] for member in known), max(member.kernel[1] for member in known))
    paddings = {_padding(member, kernel) for member in known}
    return MergedKernel(kernel, paddings.pop()) if len(paddings) == 1 else None


def least_growth(members: Sequence[Convolution | None]) -> dict[int, float]:
    """By position, the least growth of a convolution in any merge that contains it; without convolutions in no merge.

    The kernel K of a merge has a height and a width of its family, and all its members have the same padding for K.
    So for every such K the members of equal padding are considered together.
    """
    growths: dict[int, float] = {}
    for family in _families(members):
        for positions, kernel in _largest_merges(family):
            for position in positions:
                growth = family[position].growth(kernel)
                growths[position] = min(growths.get(position, growth), growth)
    return growths


def merge_candidates(members: Sequence[Convolution | None]) -> list[frozenset[int]]:
    """Merges worth measuring, by position: for each kernel, all convolutions that fit together, and all pairs."""
    candidates: dict[frozenset[int], None] = {}
    for family in _families(members):
        merges = [frozenset(positions) for positions, _ in _largest_merges(family)]
        pairs = [
            frozenset(pair)
            for pair in combinations(sorted(family), 2)
            if merged_kernel([family[position] for position in pair]) is not None
        ]
        candidates |= dict.fromkeys((*sorted(merges, key=lambda merge: (-len(merge), sorted(merge))), *pairs))
    return list(candidates)


def _families(members: Sequence[Convolution | None]) -> list[dict[int, Convolution]]:
    """Convolutions that have in common what those of a merge have, by position."""
    families: dict[tuple[Any, ...], dict[int, Convolution]] = defaultdict(dict)
    for position, member in enumerate(members):
        if member is not None:
            families[member.family][position] = member
    return list(families.values())


def _largest_merges(family: Mapping[int, Convolution]) -> Iterator[tuple[list[int], Pair]]:
    """For every kernel that a merge of the family can have, the most members that fit together, with the kernel."""
    heights, widths = ({member.kernel[axis] for member in family.values()} for axis in (0, 1))
    for kernel in ((height, width) for height in heights for width in widths):
        for positions in _of_equal_padding(family, kernel):
            merged = merged_kernel([family[position] for position in positions])
            if merged is not None:
                yield positions, merged.kernel


def _of_equal_padding(family: Mapping[int, Convolution], kernel: Pair) -> list[list[int]]:
    """Members whose kernel fits into ``kernel``, by the padding that they need for it."""
    by_padding: dict[Pair, list[int]] = defaultdict(list)
    for position, member in family.items():
        if member.kernel[0] <= kernel[0] and member.kernel[1] <= kernel[1]:
            by_padding[_padding(member, kernel)].append(position)
    return list(by_padding.values())


def _padding(member: Convolution, kernel: Pair) -> Pair:
    """Padding P that preserves a convolution when its kernel is padded to K: P = p + floor((K - k) / 2)."""
    height, width = (
        p + (largest - own) // 2 for p, largest, own in zip(member.padding, kernel, member.kernel, strict=True)
    )
    return height, width
