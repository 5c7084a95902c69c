"""Inputs other than the example, on which every way to run a model has to compute what the model does.

Runtimes may agree on one example and answer differently to other values of the same shape. So the outputs of every way
are compared on a set of inputs that is made from the example: other numbers, signs and sizes, zeros, masks with empty
and with full rows, whole numbers at their limits, and NaN and infinities.

Whole numbers that the example shows to be flags (both 0 and 1), or that the model refuses to have beyond their range,
such as indices, stay below the ``below`` of graph.json, the largest of the example. Others go to the limits of their
dtype.

Runtimes answer with some numbers to indices outside of a table, where the model raises. So the range of indices that
the model takes is found; calls with indices outside of it, or with other flags than 0 and 1, run the model itself.
"""

from __future__ import annotations

import bisect
import contextlib
import functools
import io
import math
import operator
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from hios.errors import HiosError, first_line
from hios.files import option_defaults
from hios.frontends.model_declarations import Declarations
from hios.frontends.tolerances import beyond

#: The factor of larger and of smaller numbers.
_FACTOR = 1000.0
#: The largest number compared where the example shows nothing but 1: sums of some thousands of such fit 32 bits.
_MODEST = 2**15 - 1
#: A number that is negative in 32 bits.
_BEYOND = 2**31 + 5
#: One of so many numbers is NaN or infinite, where some are.
_ONE_OF = 64


class OtherInputs(NamedTuple):
    """Inputs of one kind, which follows on "for inputs with", and what the model computes; empty if it raises."""

    kind: str
    tensors: list[Tensor]
    expected: list[Tensor]

    @property
    def is_finite(self) -> bool:
        """Whether all numbers among them are finite."""
        return _finite(self.tensors)


#: The least and the largest whole number that an input may have in the chosen way; None for all, and for other inputs.
Limits = tuple[int, int] | None
_Model = Callable[[list[Tensor]], list[Tensor]]
Rounding = Callable[[Sequence[Tensor], Sequence[Tensor]], float]


def varied(
    example: Sequence[Tensor], model: _Model, sizes: Collection[int] = (), *, divides: bool = True
) -> list[InputVariations]:
    """The inputs of the example, with their limits; ``sizes`` are those of the model's tensors.

    The largest index that it takes is mostly one less than a size, and otherwise at least half of what is found.
    """
    generator = torch.Generator().manual_seed(0)
    below = Declarations().for_inputs(example).below
    inputs = [InputVariations(value, limit, generator, divides) for value, limit in zip(example, below, strict=True)]
    sizes = {*sizes, *(size for value in example for size in value.shape)}
    for place, own in enumerate(inputs):

        def computed(value: Tensor, place: int = place) -> list[Tensor]:
            return _computed(model, [*example[:place], value, *example[place + 1 :]])

        if own.is_integer:
            own.limits = own.found_limits(computed, sizes)
    together = [
        torch.full_like(value, own.limits[1]) if own.limits else own.drawn()
        for value, own in zip(example, inputs, strict=True)
    ]
    if any(own.limits for own in inputs) and not _computed(model, together):  # such as an index that is a sum of two
        for own in inputs:
            own.limits = own.limits and own.in_example
    return inputs


def _computed(model: _Model, tensors: list[Tensor]) -> list[Tensor]:
    """What the model computes; empty if it raises, of which modules of torch.fx print a traceback of their own."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            outputs = model(tensors)
    except Exception:  # whatever a model raises that does not take such numbers
        return []
    sys.stderr.write(printed.getvalue())
    return outputs


def other_inputs(inputs: Sequence[InputVariations], model: _Model) -> Iterator[OtherInputs]:
    """Inputs made from the example, the same ones every time, except what is too large for the model.

    That is finite numbers from which the model computes NaN or infinities. What it refuses is left out if no input has
    real numbers, as calls check whole ones.
    """
    for kind, (concerns, make) in _KINDS.items():
        if not any(map(concerns, inputs)):
            continue
        made = OtherInputs(kind, [make(own) for own in inputs], [])
        expected = _computed(model, made.tensors)
        if (_finite(expected) or not made.is_finite) if expected else any(own.is_real for own in inputs):
            yield made._replace(expected=expected)


def outside(tensors: Sequence[Tensor], limits: Sequence[Limits]) -> str:
    """Which input has whole numbers outside of its limits, in words; empty if none."""
    for place, (value, own) in enumerate(zip(tensors, limits, strict=False)):
        if own is not None and value.numel():
            least, most = (end.item() for end in torch.aminmax(value))
            if least < own[0] or most > own[1]:
                return (
                    f"input {place} has whole numbers from {least} to {most}, the example allows {own[0]} to {own[1]}"
                )
    return ""


#: By how much outputs differ where the model has none.
NO_ERROR = -1.0


class Difference(NamedTuple):
    """By how much outputs differ from the model's, in units of their size; the kind of inputs, if not the example."""

    off: float
    kind: str = ""

    def __str__(self) -> str:
        if self.off == NO_ERROR:
            return f"numbers in place of its error for inputs with {self.kind}"
        return f"{self.off:.3g} of their size{self.kind and f' for inputs with {self.kind}'}"


@dataclass
class InputsComparison:
    """Compares ways to run a model with the model, on other inputs than the example.

    ``rounding`` is asked about inputs for which outputs differ by more than the tolerance: the largest difference that
    rounding explains, infinite if it makes the model's own outputs meaningless. ``strict`` requires equal outputs for
    NaN and infinities too; otherwise `with_special` has what ways do with them, by label. ``sizes`` are those of the
    model's tensors, ``divides`` says whether it may divide whole numbers.
    """

    example: Sequence[Tensor]
    model: _Model
    tolerance: float
    rounding: Rounding
    strict: bool = False
    sizes: Collection[int] = ()
    divides: Callable[[], bool] = lambda: True
    #: Whole numbers that ways may get, for each input, once a way was compared.
    limits: tuple[Limits, ...] = field(default=(), init=False)
    #: Ways whose outputs are equal; and how those of a way differ for inputs with NaN or infinities, None if not.
    right: set[str] = field(default_factory=set, init=False)
    with_special: dict[str, Difference | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._explained: dict[str, float] = {}

    @functools.cached_property
    def inputs(self) -> list[OtherInputs]:
        """All that is compared."""
        inputs = varied(self.example, self.model, self.sizes, divides=self.divides())
        self.limits = tuple(own.limits for own in inputs)
        return list(other_inputs(inputs, self.model))

    def difference(
        self, way: str, run: Callable[[list[Tensor]], list[Tensor]], *, answers: bool = False
    ) -> Difference | None:
        """How a way differs from the model where it must not; None if its outputs are equal for all inputs.

        It does not run on inputs that the model refuses if it is known to answer these (``answers``), as it might end
        the process instead.

        Raises:
            HiosError: it fails on inputs that the model takes.
        """
        self.with_special.pop(way, None)
        for inputs in self.inputs:
            refused = not inputs.expected
            try:
                outputs = [] if refused and answers else run(inputs.tensors)
                off = NO_ERROR if refused else self._off(inputs, outputs)
            except Exception as error:  # runtimes raise many types
                if refused:
                    continue
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


def are_flags(value: Tensor) -> bool:
    """Whether whole numbers are flags: booleans, or integers among which are 0 and 1, and no others.

    So are tables of nothing but 1 in 32 or 64 bits, the mask of sentences without padding. Other inputs of nothing but
    0 or 1, such as a black image or a first step, may be anything.
    """
    if value.dtype is torch.bool:
        return True
    if value.is_floating_point() or value.is_complex() or not value.numel():
        return False
    least, most = (end.item() for end in torch.aminmax(value))
    if least == most == 1:
        return value.ndim > 1 and value.dtype in {torch.int32, torch.int64}
    return (least, most) == (0, 1)


class InputVariations:
    """An input of the example: what it holds, and others like it.

    ``limits`` are the whole numbers that a way may get; None if these are all of their dtype.
    """

    def __init__(self, value: Tensor, below: int | None, generator: torch.Generator, divides: bool) -> None:
        self._value, self._generator, self._divides = value, generator, divides
        self.limits: Limits = None
        real, ordered = value.is_floating_point() or value.is_complex(), value.numel() > 0 and not value.is_complex()
        self._least, self._most = (value.min().item(), value.max().item()) if ordered else (0, 0)
        if real:
            of_two = self._least < self._most and bool(((value == self._least) | (value == self._most)).all())
        #: Whether it holds booleans, flags, or two numbers such as 0 and minus infinity.
        self.is_mask = of_two and value.numel() > 2 if real else are_flags(value)
        self._is_ones = self.is_mask and not real and value.dtype is not torch.bool and self._least == self._most
        self.is_real = real and not self.is_mask
        if not real:
            self._least, self._most = min(self._least, 0), 1 if value.dtype is torch.bool else (below or 1) - 1
        #: Whether it holds numbers of an integer dtype, flags among them.
        self.is_integer = not real and value.dtype is not torch.bool

    @property
    def in_example(self) -> tuple[int, int]:
        """The least and the largest number of the example, or 0."""
        return int(self._least), int(self._most)

    @property
    def all_numbers(self) -> tuple[int, int]:
        """The limits of the dtype; of 32 and 64 bits without the least, whose division by -1 ends the process."""
        found = torch.iinfo(self._value.dtype)
        return found.min + (self._value.dtype.is_signed and found.bits >= 32), found.max

    def found_limits(self, computed: Callable[[Tensor], list[Tensor]], sizes: Collection[int]) -> Limits:
        """None if the model takes all; otherwise those of the example, and larger ones up to a size or a power of 2.

        What the model takes beyond flags is left to the model: no way is compared with it there. A table of nothing but
        1 holds numbers up to `_MODEST` if the model computes numbers from these, and others from 2 than from 1.
        """
        if self._is_ones:
            self.limits = (0, _MODEST)
            ones, twos = (computed(torch.full_like(self._value, number)) for number in (1, 2))
            outputs = computed(self.at_ends())
            if outputs and _finite(outputs) and difference(twos, ones, option_defaults.TOLERANCE) is not None:
                self.is_mask = False
                return self.limits
            self.limits = None
        if computed(self.at_ends()):
            return (0, 1) if self.is_mask else None
        least, most = self.in_example
        larger = {size - 1 for size in sizes} | {2**bits - 1 for bits in range(torch.iinfo(self._value.dtype).bits)}
        ends = [most, *sorted(end for end in larger if most < end <= self.all_numbers[1])]
        refused = bisect.bisect_left(ends, True, lo=1, key=lambda end: not computed(torch.full_like(self._value, end)))
        return least, ends[refused - 1]

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole numbers, such as indices that the example shows to be 0 and 1 only."""
        return self.is_integer and (not self.is_mask or self.limits not in (None, (0, 1)))

    @property
    def is_free(self) -> bool:
        """Whether it holds whole numbers of which the model takes all."""
        return self.is_whole and self.limits is None

    def drawn(self, factor: float = 1.0) -> Tensor:
        """Random numbers of the size of the example's, times a factor, of which others take the sign at most."""
        shape = self._value.shape
        if self.is_real:
            finite = self._value[torch.isfinite(self._value)]
            mean, deviation = (finite.mean(), finite.std(correction=0)) if finite.numel() else (0.0, 1.0)
            numbers = torch.randn(shape, generator=self._generator, dtype=self._value.dtype)
            return (mean + numbers * (deviation if deviation > 0 else 1.0)) * factor
        if self.is_mask:
            places = torch.randint(0, 2, shape, generator=self._generator)
            return torch.tensor((self._least, self._most), dtype=self._value.dtype)[places]
        least, end = int(self._least), int(self._most) + 1
        drawn = torch.randint(least, end, shape, generator=self._generator).to(self._value.dtype)
        return -drawn if factor < 0 and self.is_free and drawn.dtype.is_signed else drawn

    def zeros(self) -> Tensor:
        """Nothing but zeros."""
        return torch.zeros_like(self._value)

    def with_row(self, full: bool) -> Tensor:
        """Random numbers; masks with every other row, the first one included, empty or full."""
        drawn = self.drawn()
        if self.is_mask and drawn.ndim and drawn.numel():
            drawn.reshape(-1, drawn.shape[-1])[::2] = self._most if full else self._least
        return drawn

    def at_limits(self) -> Tensor:
        """Whole numbers at both ends of what the model takes; others are random."""
        return self.at_ends() if self.is_whole else self.drawn()

    def at_ends(self) -> Tensor:
        """Numbers at both ends of what the model takes, and 1, each about as often as others, in random order."""
        least, most = self.limits or self.all_numbers
        within = (least + 1, most - 1) if most > least else ()
        # In 32 bits, these are 0, negative, and the same as the largest; squares of the others but the third are the
        # same small numbers there.
        cut_off = (max(least, -(2**32)), min(most, _BEYOND), max(least, most - 2**32))
        values = torch.tensor((most, least, most // 3, *cut_off, *within, min(most, 1)), dtype=self._value.dtype)
        places = torch.randperm(self._value.numel(), generator=self._generator) % len(values)
        made = values[places]
        if self.limits is None and not self._divides:  # in one half, as it hides the others from minima
            half = made[made.numel() // 2 :]
            half[half == least] = torch.iinfo(made.dtype).min
        return made.reshape(self._value.shape)

    def with_some(self, *values: float) -> Tensor:
        """Random numbers, some of which, the first one included, are replaced by the given ones."""
        drawn = self.drawn()
        if self.is_real and drawn.numel():
            places = range(0, drawn.numel(), _ONE_OF)
            drawn.view(-1)[list(places)] = torch.tensor([values[n % len(values)] for n in range(len(places))]).to(drawn)
        return drawn


_reals, _masks = operator.attrgetter("is_real"), operator.attrgetter("is_mask")
#: What is made of every input, by kind, and the inputs without which a kind is the same as another.
_KINDS: dict[str, tuple[Callable[[InputVariations], bool], Callable[[InputVariations], Tensor]]] = {
    "other numbers": (lambda own: True, InputVariations.drawn),
    "the other sign": (lambda own: own.is_real or own.is_free, lambda own: own.drawn(-1.0)),
    "1000 times larger numbers": (_reals, lambda own: own.drawn(_FACTOR)),
    "1000 times smaller numbers": (_reals, lambda own: own.drawn(1 / _FACTOR)),
    "nothing but zeros": (lambda own: True, InputVariations.zeros),
    "empty rows in masks": (_masks, lambda own: own.with_row(full=False)),
    "full rows in masks": (_masks, lambda own: own.with_row(full=True)),
    "whole numbers at their limits": (lambda own: own.is_whole, InputVariations.at_limits),
    "NaN": (_reals, lambda own: own.with_some(math.nan)),
    "infinities": (_reals, lambda own: own.with_some(math.inf, -math.inf)),
}
