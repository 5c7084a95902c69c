"""Archives of results made by hand: consistent in themselves, with names that no folder can hold."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from hios.errors import ArtifactError
from hios.files import artifacts
from hios.formats.archive import (
    MANIFEST,
    SUMS,
    ArchivedFile,
    ArchivedPage,
    ArchiveFile,
    MachineDescription,
    PageOrigin,
    sums,
    unpacked,
)


def _archive(folder: Path, files: Mapping[str, bytes]) -> Path:
    """An archive that lists what it holds."""
    manifest = ArchiveFile(
        made_at="2026-11-01T12:00:00Z",
        hios="1",
        machine=MachineDescription("Processor", 2, 8.0, "Linux", "3.13"),
        page=ArchivedPage("report.html", PageOrigin("hios report net", ("net",)), ("net",)),
        files={name: ArchivedFile(len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()},
    )
    artifacts.write(folder / MANIFEST, "archive", manifest)
    listed = (folder / MANIFEST).read_bytes()
    path = folder / "archive.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {MANIFEST: listed, SUMS: sums(manifest.files, listed), **files}.items():
            archive.writestr(name, data)
    return path


def test_files_are_unpacked(tmp_path: Path) -> None:
    """Each in its folder, until the context ends."""
    files = {"a/b/c": b"1", "a/b.c": b"2", "a/d": b"", "ab": b"3"}
    with unpacked(_archive(tmp_path, files)) as (folder, _):
        assert {name: (folder / name).read_bytes() for name in files} == files
    assert not folder.exists()


@pytest.mark.parametrize(
    ("names", "inside", "below"),
    [
        (("a", "a/b"), "a", "a/b"),
        (("a/b/c/d", "a/b"), "a/b", "a/b/c/d"),
        (("archive.json/a",), "archive.json", "archive.json/a"),
    ],
)
def test_a_file_is_no_folder(tmp_path: Path, names: tuple[str, ...], inside: str, below: str) -> None:
    """A name that is also a folder of another one is refused with both, whichever is listed first."""
    archive = _archive(tmp_path, dict.fromkeys(names, b""))
    with pytest.raises(ArtifactError) as caught, unpacked(archive):
        pass
    assert str(caught.value) == f"{archive}: found {inside} as a file and, in {below}, as a folder; allowed: one"


@pytest.mark.parametrize("name", ["x" * 300, f"{'x' * 300}/y"])
def test_names_that_the_system_refuses(tmp_path: Path, name: str) -> None:
    """The line names archive and file, not the folder that is gone by then."""
    archive = _archive(tmp_path, {name: b""})
    with pytest.raises(ArtifactError) as caught, unpacked(archive):
        pass
    assert str(caught.value).startswith(f"{archive}: {name}: cannot be unpacked in ")
    assert "hios-archive-" not in str(caught.value)
