"""When two outputs count as equal: one rule, with a unit for each kind of comparison.

A value is equal to the one expected if |actual - expected| <= tolerance * unit. NaN equals NaN, infinities equal
themselves, and nothing else is equal to a value that is not finite. The unit depends on what is known of the outputs:

- `compared`: 1 + |expected| for every value. For networks that `hios export` gave outputs of a size at which a fixed
  number means something, run twice at the same precision.
- `scaled`: the largest value of an output, at least 1. For runs in TF32, whose rounding shows in small values too.
- `beyond`: 1 + |expected| after dividing by the largest value, however small. For models of users, whose outputs may
  be millions or millionths.
- `difference`: how much the values of an output vary. For extraction, where probabilities of a thousand classes differ
  by far less than a fixed number would notice.

The default tolerance of a run is `hios.files.option_defaults.TOLERANCE`; those of other units are here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hios.files import option_defaults

#: Of `difference`, by the precision of the output; others, such as integers, must be the same.
TOLERANCE_BY_DTYPE = {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float32: 1e-4, torch.float64: 1e-8}
#: Of `scaled`: what timed runs in TF32 are allowed.
TF32_TOLERANCE = 2e-2
#: Share of the size of the values that is added to how much they vary: close numbers are still rounded by their size.
_SIZE_SHARE = 0.1
#: How many times its rounding error two right ways to compute a model may be apart: each rounds in places of its own,
#: and the error is known from one of them only. And the share of the largest value up to which that is believed: a
#: model that rounding changes by more shows nothing of whether it is computed right.
_ROUNDINGS, _MOST_ROUNDING = 4, 1e-2
#: Bytes of a number from which on the given tolerance is used.
_FULL_BYTES = 4


def compared(actual: Tensor, expected: Tensor, tolerance: float) -> tuple[float, bool]:
    """Largest absolute difference of an output, and whether every value is within the tolerance.

    A value that is not a number on one side only differs infinitely; values expected that are not finite must be the
    same. The tolerance is absolute plus relative.
    """
    ours, theirs = _real(actual).double(), _real(expected).double()
    same, off = _apart(ours, theirs)
    within = same | (off <= tolerance * (1 + theirs.abs())) & torch.isfinite(theirs)
    return (off.max().item() if off.numel() else 0.0), bool(within.all())


def scaled(actual: Tensor, expected: Tensor, tolerance: float) -> tuple[float, bool]:
    """Largest absolute difference of an output, and whether every value is within the tolerance.

    As `compared`, but the tolerance is a share of the largest finite value of the output, or of 1 where that is less:
    rounding of the sums behind an output shows in its small values too.
    """
    actual, expected = _real(actual), _real(expected)
    if not expected.is_floating_point():
        return compared(actual, expected, tolerance)
    size = max(1.0, _size(expected))
    off, within = compared(actual / size, expected / size, tolerance)
    return off * size, within


@dataclass(frozen=True, slots=True)
class ReducedPrecision:
    """A lower precision of timed runs, and how their outputs are compared.

    ``compare`` gives the largest absolute difference, and whether all values are within the tolerance.
    """

    name: str
    tolerance: float
    compare: Callable[[Tensor, Tensor, float], tuple[float, bool]]


#: How outputs of runs in TF32 are compared.
TF32 = ReducedPrecision("TF32", TF32_TOLERANCE, scaled)


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """How outputs of a run are compared with the expected ones; ``unit`` is that of the tolerance, in words."""

    tolerance: float
    compare: Callable[[Tensor, Tensor, float], tuple[float, bool]]
    unit: str

    @classmethod
    def of(cls, tolerance: float, reduced: ReducedPrecision | None) -> OutputCheck:
        """That of runs in full precision, or in a reduced one, which may have a larger tolerance."""
        if reduced is None:
            return cls(tolerance, compared, "absolute plus relative")
        return cls(max(tolerance, reduced.tolerance), reduced.compare, f"of its largest value, in {reduced.name}")

    def difference(self, output: Tensor, expected: Tensor) -> tuple[float, bool]:
        """Largest absolute difference, and whether every value is within the tolerance."""
        return self.compare(output, expected, self.tolerance)

    def wrong(self, number: int, off: float) -> str:
        """In words, that an output differs by more than is allowed."""
        allowed = f"{self.tolerance:g} {self.unit}"
        return f"output {number} differs from the reference by up to {off:.3g}; allowed: {allowed}"


def beyond(actual: Sequence[Tensor], expected: Sequence[Tensor], tolerance: float) -> float | None:
    """The largest difference from a model's outputs, if one is beyond the tolerance; None if all are within.

    Each output is measured in units of its largest magnitude. For 16-bit numbers, rounding alone exceeds a tolerance
    for 32 bits, so they are allowed what `difference` allows. Integers must be equal. Shapes and dtypes are those of
    the model's outputs, and the tolerance is absolute plus relative.
    """
    largest, right = 0.0, True
    for ours, theirs in zip(map(_real, actual), map(_real, expected), strict=True):
        size = _size(theirs) or 1.0
        off, within = compared(ours.double() / size, theirs.double() / size, _allowed(theirs.dtype, tolerance))
        if within and _is_whole(theirs) and not torch.equal(ours, theirs):
            off, within = max(off, 1.0), False  # beyond 53 bits, which numbers in float64 have
        largest, right = max(largest, off), right and within
    return None if right else largest


def allows_rounding(tolerance: float) -> bool:
    """Whether what rounding explains is allowed beyond a tolerance: one below the default is meant as it is."""
    return tolerance >= option_defaults.TOLERANCE


def explained(errors: Sequence[float], outputs: Sequence[Tensor]) -> list[float]:
    """The difference of each float32 output that its rounding error (`hios.frontends.extraction_check`) explains."""
    return [
        min(_ROUNDINGS * error, _MOST_ROUNDING * _size(output)) for error, output in zip(errors, outputs, strict=True)
    ]


def explained_share(errors: Sequence[float], outputs: Sequence[Tensor]) -> float:
    """The largest difference that rounding explains, in the unit of `beyond`: the largest value of its output."""
    shares = zip(explained(errors, outputs), outputs, strict=True)
    return max((difference / (_size(output) or 1.0) for difference, output in shares), default=0.0)


def meaningless(errors: Sequence[float], outputs: Sequence[Tensor]) -> bool:
    """Whether rounding changes an output so much that it shows nothing of whether a model is computed right."""
    pairs = zip(errors, outputs, strict=True)
    return any(_ROUNDINGS * error > _MOST_ROUNDING * _size(output) for error, output in pairs)


def nan_in_words(output: Tensor) -> str:
    """How many values of an output are NaN, in words; empty if none is.

    NaN equals NaN here, so a comparison says nothing of these values.
    """
    count = int(torch.isnan(output).sum())
    return f"{count} of {output.numel()} values" if count else ""


def difference(actual: Tensor, expected: Tensor) -> tuple[float, float]:
    """Largest difference, and the largest allowed one, which depends on how much the values vary.

    Values that are not finite must be equal; otherwise the difference is infinite.
    """
    actual, expected = _real(actual), _real(expected)
    _, off = _apart(actual.double(), expected.double())
    finite = torch.isfinite(expected)
    if off[~finite].any():
        return float("inf"), 0.0
    values = expected[finite].double()
    if values.numel() == 0:
        return 0.0, 0.0
    spread = values.std(correction=0) + _SIZE_SHARE * values.abs().max()
    return off[finite].max().item(), TOLERANCE_BY_DTYPE.get(expected.dtype, 0.0) * spread.item()


def _real(values: Tensor) -> Tensor:
    """Complex numbers as pairs of real ones; others as they are."""
    return torch.view_as_real(values.resolve_conj()) if values.is_complex() else values


def _apart(ours: Tensor, theirs: Tensor) -> tuple[Tensor, Tensor]:
    """Which values are equal (NaN to NaN), and the distance of all, infinite if only one is a number."""
    same = (ours == theirs) | (torch.isnan(ours) & torch.isnan(theirs))
    return same, torch.where(same, 0.0, (ours - theirs).abs().nan_to_num(nan=torch.inf, posinf=torch.inf))


def _size(output: Tensor) -> float:
    """Largest magnitude of finite numbers; 1 for integers, 0 if there are none."""
    if not output.is_floating_point():
        return 1.0
    finite = output[torch.isfinite(output)].double().abs()
    return finite.max().item() if finite.numel() else 0.0


def _is_whole(output: Tensor) -> bool:
    return not (output.is_floating_point() or output.is_complex())


def _allowed(dtype: torch.dtype, tolerance: float) -> float:
    if not dtype.is_floating_point:
        return 0.0
    return tolerance if dtype.itemsize >= _FULL_BYTES else max(tolerance, TOLERANCE_BY_DTYPE.get(dtype, 0.0))
