"""published.yaml: what the papers and their authors report, figure by figure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from hios.formats.base import OrAbsent, Record, Share, Text, doc

_Number = Annotated[float, doc("A number, in the unit of the entry.")]


class Source(Record, frozen=True):
    """Where a number is stated."""

    kind: Literal["paper", "readme", "program", "issue"]
    """The paper; the README of the authors' repository; their released program; or a thread of users there."""
    place: Text
    """Section, table or figure; part of the README; thread."""


class PublishedNumber(Record, frozen=True):
    """One statement: a value, a range, or a value for each of several cases."""

    what: Text
    """What the number is."""
    unit: Text
    """Unit; ratio for a quotient, % for a share."""
    value: OrAbsent[_Number] = None
    least: OrAbsent[float] = None
    """Lower end of a range; absent where only the upper end is stated."""
    most: OrAbsent[float] = None
    """Upper end of a range; absent where only the lower end is stated."""
    cases: OrAbsent[Annotated[dict[Text, _Number], Meta(min_length=1)]] = None
    """Values by case, in their order."""
    neutral: OrAbsent[float] = None
    """Value that means no effect, such as 1 for a speedup; it decides which direction a number points in."""
    source: OrAbsent[Source] = None
    hardware: OrAbsent[Text] = None
    """What it was measured on, if not what the figure says."""
    tolerance: OrAbsent[Share] = None
    """Relative difference that counts as agreement, if not the figure's."""
    note: OrAbsent[Text] = None
    """Remarks for the reader."""


class PublishedFigure(Record, frozen=True):
    """What is published of one figure or table."""

    hardware: Text
    """What it was measured on; simulation or exact if nothing was measured."""
    source: Source
    tolerance: Share
    """Relative difference that counts as agreement; it was set before anything was compared."""
    numbers: dict[Text, PublishedNumber]
    """Statements by a short name; empty if a figure has no published number."""


class PublishedFile(Record, frozen=True):
    """All published numbers, by figure: the id in the registry, or PAPER_text for numbers that are only in the text."""

    figures: Annotated[dict[Text, PublishedFigure], Meta(min_length=1)]
    """Figures and tables by id."""
