"""ID.json of a figure: its table, what is published, and how the two compare."""

from __future__ import annotations

from typing import Annotated, Literal

from hios.formats.base import FormatVersion, NonNegative, OrAbsent, Record, Share, Text, doc

_Cell = Annotated[bool | int | float | str | None, doc("A cell; null where there is no value.")]


class ComparedNumber(Record, frozen=True):
    """A published statement, and what was found here."""

    key: Annotated[Text, doc("Key in published.yaml.")]
    what: Annotated[Text, doc("What the number is.")]
    unit: Annotated[Text, doc("Unit; ratio for a quotient, % for a share.")]
    published: Annotated[Text, doc("The statement in words.")]
    hardware: Annotated[Text, doc("What it was measured on.")]
    source: Annotated[Text, doc("Where it is stated.")]
    tolerance: Annotated[Share, doc("Relative difference that counts as agreement.")]
    verdict: Annotated[
        Literal["agrees", "same direction", "differs", "not on this machine"],
        doc("Verdict, computed from the numbers."),
    ]
    found: Annotated[str, doc("What was found here, in words; empty if hios cannot produce it.")] = ""
    by: Annotated[str, doc("How it was found; empty if it was not.")] = ""


class FigureOrigin(Record, frozen=True):
    """How the files of a figure were made."""

    drawing_s: Annotated[NonNegative, doc("Time to draw the figure, without the start of Python, seconds.")]
    session_s: Annotated[
        NonNegative,
        doc("Time of its sessions, seconds: processor time of simulations, profiling and timed runs of networks."),
    ]
    code: OrAbsent[Annotated[Text, doc("Commit of the checkout that drew it; absent outside of a checkout.")]] = None


class FigureFile(Record, frozen=True):
    """A figure or table of a paper."""

    id: Annotated[Text, doc("Paper and number, such as hios_fig9.")]
    paper: Annotated[Text, doc("The paper in words.")]
    number: Annotated[Text, doc("Its number in the paper.")]
    title: Annotated[Text, doc("What it shows.")]
    caption: Annotated[Text, doc("What is varied, what is plotted, and what the marks mean.")]
    needs: Annotated[tuple[Text, ...], doc("Sessions that it needs.")]
    state: Annotated[Literal["drawn", "needs a GPU", "not drawn"], doc("Whether the rows were found here.")]
    missing: Annotated[str, doc("Why it is not drawn; empty if it is.")]
    command: Annotated[str, doc("Command that would produce its data; empty if the pipeline does.")]
    reason: Annotated[str, doc("Why numbers differ, in one sentence; empty if there is nothing to explain.")]
    columns: Annotated[tuple[Text, ...], doc("Columns of the table.")]
    rows: Annotated[tuple[dict[str, _Cell], ...], doc("The table.")]
    comparisons: Annotated[tuple[ComparedNumber, ...], doc("Every published statement.")]
    data: Annotated[tuple[Text, ...], doc("Files that it was drawn from.")]
    finding: Annotated[str, doc("What was found here, in one sentence; empty where the comparisons say it.")] = ""
    origin: OrAbsent[FigureOrigin] = None
    format_version: FormatVersion = 1
