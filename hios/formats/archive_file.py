"""archive.json: the contents of an archive of results, and how its page was made."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hios.formats.base import END, Count, FormatVersion, NonNegative, OrAbsent, Positive, Record, Text, Timestamp, doc

#: A path below the archive's root: not absolute, without . and .. among its parts, without what only Windows knows.
_InsidePath = Annotated[str, Meta(pattern=rf"^(?!/)(?!(.*/)?\.\.?(/|$))[^\\:\x00-\x1f]+{END}", max_length=400)]


class PageOrigin(Record, frozen=True):
    """How a page was made, as the page itself says."""

    command: Annotated[Text, doc("The command, as for a shell.")]
    directories: Annotated[
        tuple[Annotated[Text, doc("Folder of a network.")], ...], Meta(min_length=1), doc("What the page is about.")
    ]
    schedules: Annotated[
        tuple[Annotated[Text, doc("Label of a schedule.")], ...],
        doc("Labels of the predicted schedules that the page shows; if empty, all."),
    ] = ()
    config: OrAbsent[Annotated[Text, doc("File of the configuration that it shows.")]] = None
    figures: OrAbsent[Annotated[Text, doc("Folder of the papers' figures that it shows.")]] = None
    shown: Annotated[
        tuple[Annotated[Text, doc("Id of a figure.")], ...], doc("Ids of the figures that had been drawn by then.")
    ] = ()
    serving: OrAbsent[Annotated[Text, doc("Folder of the serving results that it shows.")]] = None


class ArchivedPage(Record, frozen=True):
    """The page of an archive, and where in the archive its parts are."""

    path: Annotated[_InsidePath, doc("The page.")]
    origin: PageOrigin
    directories: Annotated[
        tuple[Annotated[_InsidePath, doc("Folder of a network.")], ...], Meta(min_length=1), doc("Networks, in order.")
    ]
    config: OrAbsent[Annotated[_InsidePath, doc("The configuration.")]] = None
    figures: OrAbsent[Annotated[_InsidePath, doc("Folder of the papers' figures.")]] = None
    serving: OrAbsent[Annotated[_InsidePath, doc("Folder of serving results.")]] = None


class ArchivedFile(Record, frozen=True):
    """A file of an archive."""

    bytes: Annotated[Count, doc("Its size.")]
    sha256: Annotated[str, Meta(pattern=rf"^[0-9a-f]{{64}}{END}"), doc("SHA-256 of its contents.")]


class MachineDescription(Record, frozen=True):
    """A machine and its system."""

    processor: Annotated[Text, doc("Model name of the processor.")]
    cores: Annotated[Positive, doc("Logical CPUs that may be used.")]
    memory_gb: Annotated[NonNegative, doc("Main memory in units of 10^9 bytes; 0 where unknown.")]
    system: Annotated[Text, doc("Operating system, kernel and architecture.")]
    python: Annotated[Text, doc("Version of Python.")]


class ArchiveFile(Record, frozen=True):
    """An archive of results: its contents, and how to recreate its page."""

    made_at: Annotated[Timestamp, doc("Date and time by ISO 8601, UTC.")]
    hios: Annotated[Text, doc("Version of hios that made the archive.")]
    machine: Annotated[
        MachineDescription, doc("The machine that made it; run.json and costs.json name those that measured.")
    ]
    page: ArchivedPage
    files: Annotated[
        dict[Annotated[_InsidePath, doc("Path within the archive.")], ArchivedFile],
        Meta(min_length=1),
        doc("All files but archive.json itself and SHA256SUMS, by path."),
    ]
    code: OrAbsent[Annotated[Text, doc("Commit of the checkout; absent outside of a checkout.")]] = None
    format_version: FormatVersion = 1
