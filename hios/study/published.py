"""The published numbers, from published.yaml beside this module, and whether results of this machine agree with them.

Verdicts are computed from the numbers, never written by hand.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec

from hios.errors import ArtifactError
from hios.files import artifacts
from hios.files.yaml_file import plain, read_yaml
from hios.formats.study import PublishedFigure, PublishedFile, PublishedNumber, Source

#: Share of a published effect that a number may be away from it at most.
_SHARE = 0.25
_FILE = Path(__file__).with_suffix(".yaml")

#: What comparisons with predictions are by, before the name of the GPU.
PREDICTED = "predicted for"
#: A result of this machine: one number, the lowest and the highest, or one for each case.
Found = float | tuple[float, float] | Mapping[str, float]


class Published(PublishedNumber, frozen=True, kw_only=True):
    """One published statement with all that its entry and its figure say; nothing but its numbers may be absent."""

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
            return f"up to {self.value:g}" if self.largest else f"{self.value:g}"
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


def published_input(network: str) -> tuple[int, ...]:
    """Shape of one input of a network in the papers; empty for other networks."""
    return _read(_FILE).inputs.get(network, ())


def has_published_inputs(label: str, shape: Sequence[int], *, larger: bool = False) -> bool:
    """Whether a network takes what it is given in the papers, with ``larger`` also larger square images.

    ``NAME-bN`` is one that takes N inputs at once, ``NAME-SIZE`` one with images of a size.
    """
    name, batch = re.fullmatch(r"(.+?)(?:-b([0-9]+)|-[0-9]+)?", label).groups("1")  # type: ignore[union-attr]
    own = published_input(name)
    is_larger = larger and len(own) == len(shape) - 1 == 3 and shape[2] == shape[3] >= own[1]
    return list(shape) == [int(batch), *(shape[1:] if is_larger else own)]


@functools.cache
def all_published() -> Mapping[str, Mapping[str, Published]]:
    """All published statements by figure and name."""
    return read_published(_FILE)


@functools.cache
def _read(path: Path) -> PublishedFile:
    return artifacts.parsed(plain(read_yaml(path), str(path), ()), PublishedFile, str(path))


def read_published(path: Path) -> dict[str, dict[str, Published]]:
    """The statements of a file.

    Raises:
        ArtifactError: the file breaks its schema, or a statement is not one of a value, a range and cases.
        HiosError: the file holds what JSON does not know, such as a date.
    """
    return {
        figure: {name: _statement(path, figure, name, entry, group) for name, entry in group.numbers.items()}
        for figure, group in _read(path).figures.items()
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
    CONSTRUCTED = "agrees by construction"
    DIRECTION = "same direction"
    DIFFERS = "differs"
    ELSEWHERE = "not on this machine"
    UNCOMPARED = "not compared"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A published statement and the result of this machine.

    ``found`` is one number or several, None where this machine has none; ``by`` names what computed it, such as hios or
    the released program; ``comparable`` says whether hios has a comparison, on this machine or on another; ``lacking``
    says why a published case has nothing to be compared with.
    """

    published: Published
    found: Found | None = None
    by: str = "hios"
    comparable: bool = True
    lacking: str = ""

    @property
    def verdict(self) -> Verdict:
        """Computed from the two."""
        if not self.comparable:
            return Verdict.UNCOMPARED
        return Verdict.ELSEWHERE if self.found is None else verdict(self.published, self.found)

    @property
    def absent(self) -> tuple[str, ...]:
        """The published cases that the result lacks, on which there is no verdict."""
        found, why = self.found if isinstance(self.found, Mapping) else {}, f" ({self.lacking})" if self.lacking else ""
        return tuple(f"{case}{why}" for case in self.published.cases if found and case not in found)

    @property
    def found_text(self) -> str:
        """The result in words; empty if there is none."""
        if self.found is None:
            return ""
        if isinstance(self.found, Mapping):
            return ", ".join(f"{case}: {number:.4g}" for case, number in self.found.items())
        if isinstance(self.found, tuple):
            return " to ".join(dict.fromkeys(f"{end:.4g}" for end in self.found))
        return f"{self.found:.4g}"


def comparisons(figure: str, numbers: Mapping[str, Found | None], by: str = "hios") -> list[Comparison]:
    """Statements of a figure beside what was found of them, by the name of the statement.

    Of a result by case, a statement with cases takes those it has, in its order; another takes the least and the most.
    """
    return [
        Comparison(entry, _as_stated(entry, numbers[name]), by)
        for name, entry in published(figure).items()
        if name in numbers
    ]


def _as_stated(entry: Published, found: Found | None) -> Found | None:
    if not isinstance(found, Mapping):
        return found
    if entry.cases:
        return {case: found[case] for case in entry.cases if case in found} or None
    return (min(found.values()), max(found.values())) if found else None


def verdict(published: Published, found: Found) -> Verdict:
    """How numbers compare with a published statement.

    They agree where every number is within the tolerance, and on the same side of what no effect would be. The
    tolerance is relative to the value, or to the ends of the range, but at most a quarter of the effect: 10 % of a
    speedup of 2 is 0.2, while a speedup of 1.2 may be 0.05 away. Cases that were not found here do not count.

    Otherwise a bound is broken, as is "up to" by more, and what has to be exact, by a tolerance of 0, is missed: it
    differs. Other numbers point in the same direction where each is on the same side of no effect as the published one
    and, with several cases, they change from the first to the last as the published ones do. Networks as cases have no
    order: there the side alone tells, and without a side there is no direction.
    """
    pairs = list(_pairs(published, found))
    if not pairs:
        return Verdict.ELSEWHERE
    on_side = all(_on_side(published.neutral, *pair) for pair in pairs)
    if on_side and all(_within(published, *pair) for pair in pairs):
        return Verdict.CONSTRUCTED if published.by_construction else Verdict.AGREES
    is_bound = published.value is None and not published.cases and None in (published.least, published.most)
    is_beyond = published.largest and any(not _within(published, number, None, most) for number, _, most in pairs)
    if is_bound or is_beyond or published.tolerance == 0 or not on_side:
        return Verdict.DIFFERS
    return Verdict.DIRECTION if _has_direction(published, pairs) else Verdict.DIFFERS


#: A number found here, with the least and the most that is published for it.
_Pair = tuple[float, float | None, float | None]


def _pairs(published: Published, found: Found) -> Iterable[_Pair]:
    if published.cases:
        if not isinstance(found, Mapping):
            raise TypeError(f"{published.key}: found one number; allowed: one for each case")
        return [(found[case], stated, stated) for case, stated in published.cases.items() if case in found]
    if isinstance(found, Mapping):
        numbers: Iterable[float] = found.values()
    else:
        numbers = found if isinstance(found, tuple) else (found,)
    if published.largest:
        numbers = [max(numbers)]
    ends = (published.value, published.value) if published.value is not None else (published.least, published.most)
    return [(number, *ends) for number in numbers]


def _on_side(neutral: float | None, number: float, *ends: float | None) -> bool:
    """Whether a number is on the side of no effect that the published ones are on; where that is not known, it is."""
    if neutral is None:
        return True
    return all((number - neutral) * (end - neutral) > 0 for end in ends if end is not None)


def _within(published: Published, number: float, least: float | None, most: float | None) -> bool:
    above = least is None or number >= least - _margin(published, least)
    return above and (most is None or number <= most + _margin(published, most))


def _margin(published: Published, end: float) -> float:
    """How far a number may be from a published one."""
    effect = abs(end if published.neutral is None else end - published.neutral)
    return min(published.tolerance * abs(end), _SHARE * effect)


def _has_direction(published: Published, pairs: list[_Pair]) -> bool:
    """Whether numbers on the right side change as the published cases do, or state a direction by that side alone."""
    (first, before, _), (last, after, _) = pairs[0], pairs[-1]
    ordered = not all(map(published_input, published.cases))
    if published.cases and ordered and len(pairs) > 1 and before is not None and after is not None:
        return (last - first) * (after - before) > 0
    return published.neutral is not None
