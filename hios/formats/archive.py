"""archive.json: the contents of an archive of results, and how its page was made."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hios.files.base import END, Count, FormatVersion, NonNegative, OrAbsent, Positive, Record, Text, Timestamp, doc

#: A path below the archive's root: not absolute, without . and .. among its parts, without what only Windows knows.
_InsidePath = Annotated[str, Meta(pattern=rf"^(?!/)(?!(.*/)?\.\.?(/|$))[^\\:\x00-\x1f]+{END}", max_length=400)]


class PageOrigin(Record, frozen=True):
    """How a page was made, as the page itself says."""

    command: Text
    """The command, as for a shell."""
    directories: Annotated[tuple[Annotated[Text, doc("Folder of a network.")], ...], Meta(min_length=1)]
    """What the page is about."""
    schedules: tuple[Annotated[Text, doc("Label of a schedule.")], ...] = ()
    """Labels of the predicted schedules that the page shows; if empty, all."""
    config: OrAbsent[Text] = None
    """File of the configuration that it shows."""
    figures: OrAbsent[Text] = None
    """Folder of the papers' figures that it shows."""
    shown: tuple[Annotated[Text, doc("Id of a figure.")], ...] = ()
    """Ids of the figures that had been drawn by then."""
    serving: OrAbsent[Text] = None
    """Folder of the serving results that it shows."""


class ArchivedPage(Record, frozen=True):
    """The page of an archive, and where in the archive its parts are."""

    path: _InsidePath
    """The page."""
    origin: PageOrigin
    directories: Annotated[tuple[Annotated[_InsidePath, doc("Folder of a network.")], ...], Meta(min_length=1)]
    """Networks, in order."""
    config: OrAbsent[_InsidePath] = None
    """The configuration."""
    figures: OrAbsent[_InsidePath] = None
    """Folder of the papers' figures."""
    serving: OrAbsent[_InsidePath] = None
    """Folder of serving results."""


class ArchivedFile(Record, frozen=True):
    """A file of an archive."""

    bytes: Count
    """Its size."""
    sha256: Annotated[str, Meta(pattern=rf"^[0-9a-f]{{64}}{END}")]
    """SHA-256 of its contents."""


class MachineDescription(Record, frozen=True):
    """A machine and its system."""

    processor: Text
    """Model name of the processor."""
    cores: Positive
    """Logical CPUs that may be used."""
    memory_gb: NonNegative
    """Main memory in units of 10^9 bytes; 0 where unknown."""
    system: Text
    """Operating system, kernel and architecture."""
    python: Text
    """Version of Python."""


class ArchiveFile(Record, frozen=True):
    """An archive of results: its contents, and how to recreate its page."""

    made_at: Timestamp
    """Date and time by ISO 8601, UTC."""
    hios: Text
    """Version of hios that made the archive."""
    machine: MachineDescription
    """The machine that made it; run.json and costs.json name those that measured."""
    page: ArchivedPage
    files: Annotated[dict[Annotated[_InsidePath, doc("Path within the archive.")], ArchivedFile], Meta(min_length=1)]
    """All files but archive.json itself and SHA256SUMS, by path."""
    code: OrAbsent[Text] = None
    """Commit of the checkout; absent outside of a checkout."""
    format_version: FormatVersion = 1
