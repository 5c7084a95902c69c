"""Whether results of this machine agree with published ones: computed from the numbers, never written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from hios.study.published import Published

#: A result of this machine: one number, the lowest and the highest, or one for each case.
Found = float | tuple[float, float] | Mapping[str, float]


class Verdict(Enum):
    """How a number found here compares with the published one."""

    AGREES = "agrees"
    DIRECTION = "same direction"
    DIFFERS = "differs"
    ELSEWHERE = "not on this machine"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A published statement and the result of this machine.

    Attributes:
        published: the statement.
        found: the result here, one number or several; None where this machine has none.
        by: what computed it, such as hios or the released program.
    """

    published: Published
    found: Found | None = None
    by: str = "hios"

    @property
    def verdict(self) -> Verdict:
        """Computed from the two."""
        return Verdict.ELSEWHERE if self.found is None else verdict(self.published, self.found)

    @property
    def found_text(self) -> str:
        """The result in words; empty if there is none."""
        if self.found is None:
            return ""
        if isinstance(self.found, Mapping):
            return ", ".join(f"{case}: {number:.4g}" for case, number in self.found.items())
        if isinstance(self.found, tuple):
            return f"{self.found[0]:.4g} to {self.found[1]:.4g}"
        return f"{self.found:.4g}"


def verdict(published: Published, found: Found) -> Verdict:
    """How numbers compare with a published statement.

    They agree where every number is within the tolerance: relative to the value, or to the ends of the range. They
    point in the same direction where they are on the same side of what no effect would be and, with several cases,
    change from the first to the last as the published ones do. Cases that were not found here do not count. What has to
    be exact, by a tolerance of 0, agrees or differs.
    """
    pairs = list(_pairs(published, found))
    if not pairs:
        return Verdict.ELSEWHERE
    if all(_within(number, least, most, published.tolerance) for number, least, most in pairs):
        return Verdict.AGREES
    if published.tolerance == 0:
        return Verdict.DIFFERS
    return Verdict.DIRECTION if _same_direction(published, found, pairs) else Verdict.DIFFERS


def _pairs(published: Published, found: Found) -> Iterable[tuple[float, float | None, float | None]]:
    """Every number found, with the least and the most that is published for it."""
    if published.cases:
        if not isinstance(found, Mapping):
            raise TypeError(f"{published.key}: found one number; allowed: one for each case")
        shared = [case for case in published.cases if case in found]
        return [(found[case], published.cases[case], published.cases[case]) for case in shared]
    if isinstance(found, Mapping):
        numbers: Iterable[float] = found.values()
    else:
        numbers = found if isinstance(found, tuple) else (found,)
    ends = (published.value, published.value) if published.value is not None else (published.least, published.most)
    return [(number, *ends) for number in numbers]


def _within(number: float, least: float | None, most: float | None, tolerance: float) -> bool:
    above = least is None or number >= least - tolerance * abs(least)
    below = most is None or number <= most + tolerance * abs(most)
    return above and below


def _same_direction(published: Published, found: Found, pairs: list[tuple[float, float | None, float | None]]) -> bool:
    sides = True
    if published.neutral is not None:
        stated = [number - published.neutral for number in published.numbers.values()]
        sides = len({number > 0 for number in stated}) == 1 and all(
            (number > published.neutral) == (stated[0] > 0) for number, _, _ in pairs
        )
    if published.cases and isinstance(found, Mapping):
        shared = [case for case in published.cases if case in found]
        if len(shared) > 1:
            change = published.cases[shared[-1]] - published.cases[shared[0]]
            return sides and (found[shared[-1]] - found[shared[0]]) * change > 0
    return sides and published.neutral is not None
