"""archive.json: the contents of an archive of results, and how its page was made; reading of such an archive."""

from __future__ import annotations

import contextlib
import hashlib
import re
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated

from msgspec import Meta

from hios.errors import ArtifactError
from hios.files import artifacts, read_limits
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
    served: tuple[Annotated[_InsidePath, doc("File of a result in that folder.")], ...] = ()
    """The results that it shows; if empty, all."""


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


#: What an archive has beside the files that it lists.
MANIFEST, SUMS = "archive.json", "SHA256SUMS"
#: More than any study has; a file made to fill the disk is refused before anything of it is unpacked.
_MOST_FILES, _MOST_BYTES, _MOST_BYTES_OF_A_FILE, _MOST_BYTES_OF_A_LIST = 20_000, 4_000_000_000, 500_000_000, 20_000_000
#: Characters of a path: no system takes longer ones, and to look at each folder above a file would take long.
_LONGEST_NAME = 4096
#: How many times smaller a zip file may be than its files; results shrink to a tenth or so.
_MOST_GROWTH = 100
_REQUIRED = "a zip file by `hios archive`"
_DRIVE = re.compile(r"[A-Za-z]:")


def sums(files: Mapping[str, ArchivedFile], manifest: bytes) -> bytes:
    """The list of hashes as ``sha256sum --check`` reads it; that of ``archive.json`` comes first."""
    hashes = {MANIFEST: hashlib.sha256(manifest).hexdigest(), **{name: file.sha256 for name, file in files.items()}}
    return "".join(f"{digest}  {name}\n" for name, digest in hashes.items()).encode()


@contextlib.contextmanager
def unpacked(archive: Path) -> Iterator[tuple[Path, ArchiveFile]]:
    """The files of an archive in a folder that is deleted in the end, and what ``archive.json`` holds.

    Nothing is unpacked outside of the folder, and no more than the archive lists; each file has to have the hash that
    is listed.

    Raises:
        ArtifactError: the archive is damaged, is not what it lists, or is none.
    """
    with tempfile.TemporaryDirectory(prefix="hios-archive-") as name:
        folder = Path(name).resolve()
        try:
            with read_limits.opened_zip(archive, archive, _MOST_GROWTH, _REQUIRED) as opened:
                manifest = _unpack(opened, folder, archive)
            yield folder, manifest
        except ArtifactError as error:  # what people know is the archive, not where it was unpacked
            raise ArtifactError(str(error).replace(f"{folder}/", f"{archive}: ")) from None
        except OSError as error:
            if error.filename is not None:
                raise
            raise ArtifactError(f"{archive}: cannot be unpacked in {folder.parent}: {error.strerror}") from None


def _unpack(opened: zipfile.ZipFile, folder: Path, archive: Path) -> ArchiveFile:
    entries = _entries(opened, archive)
    for name in (MANIFEST, SUMS):
        if name not in entries:
            raise ArtifactError(f"{archive}: found no {name}; required: {_REQUIRED}")
    listed = _contents(opened, entries[MANIFEST])
    _write(folder, MANIFEST, listed, archive)
    manifest = artifacts.load(folder / MANIFEST, ArchiveFile)
    if _contents(opened, entries[SUMS]) != sums(manifest.files, listed):
        raise ArtifactError(f"{archive}: {SUMS}: not the hashes of {MANIFEST}; {_CHANGED}")
    for name in sorted(entries.keys() ^ {MANIFEST, SUMS, *manifest.files}):
        what = f"found {name}, which {MANIFEST} does not list" if name in entries else f"found no {name}"
        raise ArtifactError(f"{archive}: {what}; {_CHANGED}")
    for name, expected in manifest.files.items():
        if (size := entries[name].file_size) != expected.bytes:
            found = f"{name}: found {size} bytes; {MANIFEST} lists {expected.bytes}"
            raise ArtifactError(f"{archive}: {found}; {_CHANGED}")
        data = _contents(opened, entries[name])
        if hashlib.sha256(data).hexdigest() != expected.sha256:
            raise ArtifactError(f"{archive}: {name}: its SHA-256 is not that of {MANIFEST}; {_CHANGED}")
        _write(folder, name, data, archive)
    return manifest


def _write(folder: Path, name: str, data: bytes, archive: Path) -> None:
    """Write a file of an archive into a folder.

    Raises:
        ArtifactError: the system refuses it, such as for its name.
    """
    place = folder / name
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    except OSError as error:
        raise ArtifactError(f"{archive}: {name}: cannot be unpacked in {folder.parent}: {error.strerror}") from None


_CHANGED = "the archive was changed or damaged: make it again, or get another copy"


def _entries(opened: zipfile.ZipFile, archive: Path) -> Mapping[str, zipfile.ZipInfo]:
    """The files of a zip file by name, each a plain file below its root, none larger than any result is.

    Raises:
        ArtifactError: some are not.
    """
    entries: dict[str, zipfile.ZipInfo] = {}
    infos = opened.infolist()
    if len(infos) > _MOST_FILES:
        raise ArtifactError(f"{archive}: found {len(infos)} files; allowed: at most {_MOST_FILES}")
    for info in infos:
        name, kind = info.filename, stat.S_IFMT(info.external_attr >> 16)
        parts = name.split("/")
        if len(name) > _LONGEST_NAME:
            raise ArtifactError(f"{archive}: found a path of {len(name)} characters; allowed: at most {_LONGEST_NAME}")
        if "\\" in name or "\0" in name or _DRIVE.match(name) or not all(parts) or {".", ".."} & set(parts):
            raise ArtifactError(f"{archive}: found the path {name!r}; allowed: names of files below the archive's root")
        if kind not in (0, stat.S_IFREG) or info.is_dir():
            raise ArtifactError(f"{archive}: {name}: found no plain file; allowed: plain files, no links and folders")
        if name in entries:
            raise ArtifactError(f"{archive}: found {name} twice; allowed: once")
        if info.file_size > (most := _MOST_BYTES_OF_A_LIST if name in (MANIFEST, SUMS) else _MOST_BYTES_OF_A_FILE):
            raise ArtifactError(f"{archive}: {name}: found {info.file_size} bytes; allowed: at most {most}")
        entries[name] = info
    for name in entries:
        for folder in map(str, PurePosixPath(name).parents):
            if folder in entries:
                raise ArtifactError(f"{archive}: found {folder} as a file and, in {name}, as a folder; allowed: one")
    if (total := sum(info.file_size for info in infos)) > _MOST_BYTES:
        raise ArtifactError(f"{archive}: found {total} bytes in all; allowed: at most {_MOST_BYTES}")
    return entries


def _contents(opened: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """What a file holds, and no more than the zip file says that it does."""
    with opened.open(entry) as stream:
        return stream.read(entry.file_size + 1)  # without a limit it would inflate whatever is there; to the checksum
