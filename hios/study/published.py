"""The published numbers, from published.yaml beside this module, and whether results of this machine agree with them.

Verdicts are computed from the numbers, never written by hand.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

from hios.errors import ArtifactError
from hios.files import artifacts
from hios.files.yaml_file import plain, read_yaml
from hios.formats.study import PublishedFigure, PublishedFile, PublishedNumber, Source

_FILE = Path(__file__).with_suffix(".yaml")

#: A result of this machine: one number, the lowest and the highest, or one for each case.
Found = float | tuple[float, float] | Mapping[str, float]


class Published(PublishedNumber, frozen=True, kw_only=True):
    """One published statement with all that its entry and its figure say; nothing but its numbers may be absent.

    Attributes:
        key: ``FIGURE.NAME``.
        cases: values by case, in the order of the file; empty where there is one value or a range.
    """

    key: str
    cases: dict[str, float]
    hardware: str
    source: Source
    tolerance: float
    note: str

    @property
    def text(self) -> str:
        """The number in words, without its unit."""
        if self.value is not None:
            return f"{self.value:g}"
        if self.cases:
            return ", ".join(f"{case}: {number:g}" for case, number in self.cases.items())
        if self.least is None:
            return f"at most {self.most:g}"
        return f"at least {self.least:g}" if self.most is None else f"{self.least:g} to {self.most:g}"

    @property
    def numbers(self) -> dict[str, float]:
        """All numbers that it states, by case; the ends of a range are least and most."""
        ends = {"value": self.value, "least": self.least, "most": self.most}
        return dict(self.cases) or {name: number for name, number in ends.items() if number is not None}


def published(figure: str) -> dict[str, Published]:
    """What is published of a figure or of ``PAPER_text``, by the names of the file; empty where nothing is."""
    return dict(all_published().get(figure, {}))


def number(key: str, case: str = "value") -> float:
    """A published number, by ``FIGURE.NAME`` and case; the ends of a range are ``least`` and ``most``.

    Raises:
        KeyError: there is none of this key or case.
    """
    figure, _, name = key.partition(".")
    return all_published()[figure][name].numbers[case]


@functools.cache
def all_published() -> Mapping[str, Mapping[str, Published]]:
    """All published statements by figure and name."""
    return read_published(_FILE)


def read_published(path: Path) -> dict[str, dict[str, Published]]:
    """The statements of a file.

    Raises:
        ArtifactError: the file breaks its schema, or a statement is not one of a value, a range and cases.
        HiosError: the file holds what JSON does not know, such as a date.
    """
    file = artifacts.parsed(plain(read_yaml(path), str(path), ()), PublishedFile, str(path))
    return {
        figure: {name: _statement(path, figure, name, entry, group) for name, entry in group.numbers.items()}
        for figure, group in file.figures.items()
    }


def _statement(path: Path, figure: str, name: str, entry: PublishedNumber, group: PublishedFigure) -> Published:
    forms = [entry.value is not None, entry.least is not None or entry.most is not None, entry.cases is not None]
    if sum(forms) != 1:
        raise ArtifactError(
            f"{path}: figures.{figure}.numbers.{name}: found {sum(forms)} of value, least or most, and cases; allowed: "
            "one of them"
        )
    stated = {
        "key": f"{figure}.{name}",
        "cases": dict(entry.cases or {}),
        "hardware": entry.hardware or group.hardware,
        "source": entry.source or group.source,
        "tolerance": group.tolerance if entry.tolerance is None else entry.tolerance,
        "note": entry.note or "",
    }
    return Published(**{**msgspec.structs.asdict(entry), **stated})


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
