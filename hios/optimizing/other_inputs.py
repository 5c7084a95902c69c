"""Inputs other than the example, on which every way to run a model has to compute what the model does.

Runtimes may agree on one example and answer differently to other values of the same shape. So the outputs of every way
are compared on a set of inputs that is made from the example: other numbers, signs and sizes, zeros, masks with empty
and with full rows, whole numbers at their limits, and NaN and infinities.

Whole numbers that the example shows to be flags (0 and 1), or that the model refuses to have beyond their range, such
as indices, stay below the ``below`` of graph.json, the largest of the example. Others go to the limits of their dtype.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from hios.errors import HiosError, first_line
from hios.frontends.model_declarations import Declarations
from hios.frontends.tolerances import beyond

#: The factor of larger and of smaller numbers.
_FACTOR = 1000.0
#: One of so many numbers is NaN or infinite, where some are.
_ONE_OF = 64


class OtherInputs(NamedTuple):
    """Inputs of one kind, which follows on "for inputs with", and what the model computes from them."""

    kind: str
    tensors: list[Tensor]
    expected: list[Tensor]

    @property
    def is_finite(self) -> bool:
        """Whether all numbers among them are finite."""
        return _finite(self.tensors)


def other_inputs(example: Sequence[Tensor], model: Callable[[list[Tensor]], list[Tensor]]) -> Iterator[OtherInputs]:
    """Inputs made from the example, the same ones every time, except what the model refuses or is too large for it.

    That is finite numbers from which the model computes NaN or infinities.
    """

    def computed(tensors: list[Tensor]) -> list[Tensor]:
        try:
            return model(tensors)
        except Exception:  # whatever a model raises that does not take such numbers
            return []

    generator = torch.Generator().manual_seed(0)
    limits = Declarations().for_inputs(example).below
    inputs = [_Input(value, below, generator) for value, below in zip(example, limits, strict=True)]
    for place, own in enumerate(inputs):
        if own.is_whole:
            own.is_free = True
            own.is_free = bool(computed([own.at_limits() if own is other else example[place] for other in inputs]))
    for kind, (concerns, make) in _KINDS.items():
        if not any(map(concerns, inputs)):
            continue
        made = OtherInputs(kind, [make(own) for own in inputs], [])
        expected = computed(made.tensors)
        if expected and (_finite(expected) or not made.is_finite):
            yield made._replace(expected=expected)


class Difference(NamedTuple):
    """By how much outputs differ from the model's, in units of their size; the kind of inputs, if not the example."""

    off: float
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.off:.3g} of their size{self.kind and f' for inputs with {self.kind}'}"


@dataclass
class InputsComparison:
    """Compares ways to run a model with the model, on other inputs than the example.

    ``rounding`` is asked about inputs for which outputs differ by more than the tolerance: the largest difference that
    rounding explains, infinite if it makes the model's own outputs meaningless. ``strict`` requires equal outputs for
    NaN and infinities too; otherwise `with_special` has what ways do with them, by label.
    """

    example: Sequence[Tensor]
    model: Callable[[list[Tensor]], list[Tensor]]
    tolerance: float
    rounding: Callable[[Sequence[Tensor], Sequence[Tensor]], float]
    strict: bool = False
    #: Ways whose outputs are equal; and how those of a way differ for inputs with NaN or infinities, None if not.
    right: set[str] = field(default_factory=set, init=False)
    with_special: dict[str, Difference | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._explained: dict[str, float] = {}

    @functools.cached_property
    def inputs(self) -> list[OtherInputs]:
        """All that is compared."""
        return list(other_inputs(self.example, self.model))

    def difference(self, way: str, run: Callable[[list[Tensor]], list[Tensor]]) -> Difference | None:
        """How a way differs from the model where it must not; None if its outputs are equal for all inputs.

        Raises:
            HiosError: it fails on inputs that the model takes.
        """
        self.with_special.pop(way, None)
        for inputs in self.inputs:
            try:
                off = self._off(inputs, run(inputs.tensors))
            except Exception as error:  # runtimes raise many types
                raise HiosError(f"for inputs with {inputs.kind}: {first_line(error)}") from error
            differs = None if off is None else Difference(off, inputs.kind)
            if differs is not None and (self.strict or inputs.is_finite):
                return differs
            if not inputs.is_finite:
                self.with_special[way] = self.with_special.get(way) or differs
        self.right.add(way)
        return None

    def _off(self, inputs: OtherInputs, outputs: Sequence[Tensor]) -> float | None:
        off = difference(outputs, inputs.expected, self.tolerance)
        if off is None or not inputs.is_finite:
            return off
        if inputs.kind not in self._explained:
            self._explained[inputs.kind] = self.rounding(inputs.tensors, inputs.expected)
        return off if off > self._explained[inputs.kind] else None


def difference(outputs: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> float | None:
    """By how much outputs differ from the model's, in units of their size; None if they are equal."""
    kinds = [[(value.shape, value.dtype) for value in given] for given in (outputs, expected)]
    return beyond(outputs, expected, tolerance) if kinds[0] == kinds[1] else math.inf


def _finite(tensors: Sequence[Tensor]) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in tensors)


class _Input:
    """An input of the example: what it holds, and others like it.

    ``is_free`` says that the model takes whole numbers up to the limits of their dtype.
    """

    def __init__(self, value: Tensor, below: int | None, generator: torch.Generator) -> None:
        self._value, self._generator, self.is_free = value, generator, False
        real, ordered = value.is_floating_point() or value.is_complex(), value.numel() > 0 and not value.is_complex()
        self._least, self._most = (value.min().item(), value.max().item()) if ordered else (0, 0)
        if real:
            of_two = self._least < self._most and bool(((value == self._least) | (value == self._most)).all())
        #: Whether it holds booleans, flags, or two numbers such as 0 and minus infinity.
        self.is_mask = of_two and value.numel() > 2 if real else 0 <= self._least <= self._most <= 1
        self.is_real, self.is_whole = real and not self.is_mask, not real and not self.is_mask
        if not real:
            self._least, self._most = min(self._least, 0), 1 if value.dtype is torch.bool else (below or 1) - 1

    def drawn(self, factor: float = 1.0) -> Tensor:
        """Random numbers of the size of the example's, times a factor, of which others take the sign at most."""
        shape = self._value.shape
        if self.is_real:
            finite = self._value[torch.isfinite(self._value)]
            mean, deviation = (finite.mean(), finite.std(correction=0)) if finite.numel() else (0.0, 1.0)
            numbers = torch.randn(shape, generator=self._generator, dtype=self._value.dtype)
            return (mean + numbers * (deviation if deviation > 0 else 1.0)) * factor
        if self.is_mask:
            return self._chosen(self._least, self._most)
        least, end = int(self._least), int(self._most) + 1
        drawn = torch.randint(least, end, shape, generator=self._generator).to(self._value.dtype)
        return -drawn if factor < 0 and self.is_free and drawn.dtype.is_signed else drawn

    def _chosen(self, *values: float) -> Tensor:
        """Some of these values, at random."""
        places = torch.randint(0, len(values), self._value.shape, generator=self._generator)
        return torch.tensor(values, dtype=self._value.dtype)[places]

    def zeros(self) -> Tensor:
        """Nothing but zeros."""
        return torch.zeros_like(self._value)

    def with_row(self, full: bool) -> Tensor:
        """Random numbers; masks with every other row, the first one included, empty or full."""
        drawn = self.drawn()
        if self.is_mask and drawn.ndim:
            drawn.reshape(-1, drawn.shape[-1])[::2] = self._most if full else self._least
        return drawn

    def at_limits(self) -> Tensor:
        """Whole numbers at both ends of their range, or of their dtype if the model takes these; others are random."""
        if not self.is_whole:
            return self.drawn()
        limits = torch.iinfo(self._value.dtype)
        least, most = (limits.min, limits.max) if self.is_free else (self._least, self._most)
        return self._chosen(least, most, (least + most) // 2, *((least + 1, most - 1) if most > least else ()))

    def with_some(self, *values: float) -> Tensor:
        """Random numbers, some of which, the first one included, are replaced by the given ones."""
        drawn = self.drawn()
        if self.is_real and drawn.numel():
            places = range(0, drawn.numel(), _ONE_OF)
            drawn.view(-1)[list(places)] = torch.tensor([values[n % len(values)] for n in range(len(places))]).to(drawn)
        return drawn


def _reals(own: _Input) -> bool:
    return own.is_real


def _masks(own: _Input) -> bool:
    return own.is_mask


#: What is made of every input, by kind, and the inputs without which a kind is the same as another.
_KINDS: dict[str, tuple[Callable[[_Input], bool], Callable[[_Input], Tensor]]] = {
    "other numbers": (lambda own: True, _Input.drawn),
    "the other sign": (lambda own: own.is_real or own.is_free, lambda own: own.drawn(-1.0)),
    "1000 times larger numbers": (_reals, lambda own: own.drawn(_FACTOR)),
    "1000 times smaller numbers": (_reals, lambda own: own.drawn(1 / _FACTOR)),
    "nothing but zeros": (lambda own: True, _Input.zeros),
    "empty rows in masks": (_masks, lambda own: own.with_row(full=False)),
    "full rows in masks": (_masks, lambda own: own.with_row(full=True)),
    "whole numbers at their limits": (lambda own: own.is_whole, _Input.at_limits),
    "NaN": (_reals, lambda own: own.with_some(math.nan)),
    "infinities": (_reals, lambda own: own.with_some(math.inf, -math.inf)),
}
