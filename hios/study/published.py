"""The published numbers, from published.yaml beside this module."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hios import artifacts
from hios.errors import ArtifactError
from hios.formats.published_file import PublishedFigure, PublishedFile, PublishedNumber, Source
from hios.yaml_file import plain, read_yaml

_FILE = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True, slots=True)
class Published:
    """One published statement with all that its entry and its figure say.

    Attributes:
        key: ``FIGURE.NAME``.
        what: what the number is.
        unit: ms, s, min, %, ratio, or what is counted.
        value: the value; None where it is a range or several.
        least: lower end of a range.
        most: upper end of a range.
        cases: values by case, in the order of the file.
        neutral: what no effect would be; None where there is no such value.
        hardware: what it was measured on.
        source: where it is stated.
        tolerance: relative difference that counts as agreement.
        note: what a reader has to know about it.
    """

    key: str
    what: str
    unit: str
    value: float | None
    least: float | None
    most: float | None
    cases: Mapping[str, float]
    neutral: float | None
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
    """What is published of a figure or table, by the names of the file; empty where nothing is.

    Args:
        figure: id of the registry, or ``PAPER_text``.
    """
    return dict(all_published().get(figure, {}))


def number(key: str, case: str = "value") -> float:
    """A published number.

    Args:
        key: ``FIGURE.NAME``.
        case: which of several; ``least`` or ``most`` of a range.

    Raises:
        KeyError: there is none of this key or case.
    """
    figure, _, name = key.partition(".")
    return all_published()[figure][name].numbers[case]


@functools.cache
def all_published() -> Mapping[str, Mapping[str, Published]]:
    """All published statements by figure and name."""
    return read(_FILE)


def read(path: Path) -> dict[str, dict[str, Published]]:
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
    return Published(
        key=f"{figure}.{name}",
        what=entry.what,
        unit=entry.unit,
        value=entry.value,
        least=entry.least,
        most=entry.most,
        cases=dict(entry.cases or {}),
        neutral=entry.neutral,
        hardware=entry.hardware or group.hardware,
        source=entry.source or group.source,
        tolerance=group.tolerance if entry.tolerance is None else entry.tolerance,
        note=entry.note or "",
    )
