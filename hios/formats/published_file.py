"""published.yaml: what the papers and their authors report, figure by figure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from hios.formats.base import OrAbsent, Record, Share, Text, doc

_Number = Annotated[float, doc("A number, in the unit of the entry.")]


class Source(Record, frozen=True):
    """Where a number is stated."""

    kind: Annotated[
        Literal["paper", "readme", "program", "issue"],
        doc("The paper; the README of the authors' repository; their released program; or a thread of users there."),
    ]
    place: Annotated[Text, doc("Section, table or figure; part of the README; thread.")]


class PublishedNumber(Record, frozen=True):
    """One statement: a value, a range, or a value for each of several cases."""

    what: Annotated[Text, doc("What the number is.")]
    unit: Annotated[Text, doc("Unit; ratio for a quotient, % for a share.")]
    value: OrAbsent[_Number] = None
    least: OrAbsent[Annotated[float, doc("Lower end of a range; absent where only the upper end is stated.")]] = None
    most: OrAbsent[Annotated[float, doc("Upper end of a range; absent where only the lower end is stated.")]] = None
    cases: OrAbsent[Annotated[dict[Text, _Number], Meta(min_length=1), doc("Values by case, in their order.")]] = None
    neutral: OrAbsent[
        Annotated[
            float,
            doc("Value that means no effect, such as 1 for a speedup; it decides which direction a number points in."),
        ]
    ] = None
    source: OrAbsent[Source] = None
    hardware: OrAbsent[Annotated[Text, doc("What it was measured on, if not what the figure says.")]] = None
    tolerance: OrAbsent[Annotated[Share, doc("Relative difference that counts as agreement, if not the figure's.")]] = (
        None
    )
    note: OrAbsent[Annotated[Text, doc("Remarks for the reader.")]] = None


class PublishedFigure(Record, frozen=True):
    """What is published of one figure or table."""

    hardware: Annotated[Text, doc("What it was measured on; simulation or exact if nothing was measured.")]
    source: Source
    tolerance: Annotated[
        Share, doc("Relative difference that counts as agreement; it was set before anything was compared.")
    ]
    numbers: Annotated[
        dict[Text, PublishedNumber], doc("Statements by a short name; empty if a figure has no published number.")
    ]


class PublishedFile(Record, frozen=True):
    """All published numbers, by figure: the id in the registry, or PAPER_text for numbers that are only in the text."""

    figures: Annotated[dict[Text, PublishedFigure], Meta(min_length=1), doc("Figures and tables by id.")]
