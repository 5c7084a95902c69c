"""ID.json of a figure: its table, what is published, and how the two compare."""

from __future__ import annotations

from typing import Annotated, Literal

from hios.formats.base import FormatVersion, NonNegative, OrAbsent, Record, Share, Text, doc

_Cell = Annotated[bool | int | float | str | None, doc("A cell; null where there is no value.")]


class ComparedNumber(Record, frozen=True):
    """A published statement, and what was found here."""

    key: Text
    """Key in published.yaml."""
    what: Text
    """What the number is."""
    unit: Text
    """Unit; ratio for a quotient, % for a share."""
    published: Text
    """The statement in words."""
    hardware: Text
    """What it was measured on."""
    source: Text
    """Where it is stated."""
    tolerance: Share
    """Relative difference that counts as agreement."""
    verdict: Literal["agrees", "same direction", "differs", "not on this machine"]
    """Verdict, computed from the numbers."""
    found: str = ""
    """What was found here, in words; empty if hios cannot produce it."""
    by: str = ""
    """How it was found; empty if it was not."""


class FigureOrigin(Record, frozen=True):
    """How the files of a figure were made."""

    drawing_s: NonNegative
    """Time to draw the figure, without the start of Python, seconds."""
    session_s: NonNegative
    """Time of its sessions, seconds: processor time of simulations, profiling and timed runs of networks."""
    code: OrAbsent[Text] = None
    """Commit of the checkout that drew it; absent outside of a checkout."""


class FigureFile(Record, frozen=True):
    """A figure or table of a paper."""

    id: Text
    """Paper and number, such as hios_fig9."""
    paper: Text
    """The paper in words."""
    number: Text
    """Its number in the paper."""
    title: Text
    """What it shows."""
    caption: Text
    """What is varied, what is plotted, and what the marks mean."""
    needs: tuple[Text, ...]
    """Sessions that it needs."""
    state: Literal["drawn", "needs a GPU", "not drawn"]
    """Whether the rows were found here."""
    missing: str
    """Why it is not drawn; empty if it is."""
    command: str
    """Command that would produce its data; empty if the pipeline does."""
    reason: str
    """Why numbers differ, in one sentence; empty if there is nothing to explain."""
    columns: tuple[Text, ...]
    """Columns of the table."""
    rows: tuple[dict[str, _Cell], ...]
    """The table."""
    comparisons: tuple[ComparedNumber, ...]
    """Every published statement."""
    data: tuple[Text, ...]
    """Files that it was drawn from."""
    finding: str = ""
    """What was found here, in one sentence; empty where the comparisons say it."""
    origin: OrAbsent[FigureOrigin] = None
    format_version: FormatVersion = 1
