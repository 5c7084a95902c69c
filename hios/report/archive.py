"""An archive of results: a zip file with all that its page was made from and a hash of every file; the page from it."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from glob import escape
from html.parser import HTMLParser
from pathlib import Path

import msgspec

from hios import __version__
from hios.errors import ArtifactError
from hios.files import artifacts, read_limits
from hios.files.artifacts import replacing, require_writable
from hios.files.versions import checkout
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
from hios.machine import description
from hios.report import write_report
from hios.report.results import ORIGIN, Provenance, papers_page, read_configuration
from hios.report.tables import View

#: Patterns of files in a folder of results, beside those of the networks on the page.
_RESULTS = (
    "config.yaml",
    "versions.json",
    "tables/*.csv",
    "tables/*.tex",
    "figures/*.*",
    "study/**/*.json",
    "study/archives/*.zip",
    "benchmarks/**/*.tsv",
)
#: Of every network. Weights and programs are left out: they are large, and follow from model and seed.
_NETWORK = (
    "graph.json",
    "partition.json",
    "costs.json",
    "run.json",
    "predicted.json",
    "auto.json",
    "schedules/*.json",
    "distributed/run.json",
)
#: Zip files have no other date, so that equal results make equal archives but for the list of files.
_DATE = (1980, 1, 1, 0, 0, 0)
_READABLE = 0o100644 << 16


def write_archive(page: Path, output: Path) -> ArchiveFile:
    """Write an archive of the folder that a page lies in, with all that it was made from; what ``archive.json`` holds.

    It holds the page with its networks (graph, costs, run, schedules), sessions, figures, tables, configuration,
    versions and times of the steps; a description of this machine; and SHA-256 hashes of all, in ``archive.json`` and
    as ``sha256sum`` reads them.

    Raises:
        ArtifactError: the page does not say how it was made, a file is not there or not in the page's folder, or the
            archive cannot be written.
    """
    require_writable(output)
    origin = read_origin(page)
    root = page.resolve().parent
    archived = ArchivedPage(
        path=page.name,
        origin=origin,
        directories=tuple(_inside(folder, root, page) for folder in origin.directories),
        config=None if origin.config is None else _inside(origin.config, root, page),
        figures=None if origin.figures is None else _inside(origin.figures, root, page),
        serving=None if origin.serving is None else _inside(origin.serving, root, page),
    )
    contents = {name: (root / name).read_bytes() for name in sorted(_chosen(root, archived))}
    manifest = ArchiveFile(
        made_at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        hios=__version__,
        machine=_machine(),
        page=archived,
        files={name: ArchivedFile(len(data), hashlib.sha256(data).hexdigest()) for name, data in contents.items()},
        code=checkout(),
    )
    listed = _as_written(manifest)
    with replacing(output) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, data in {MANIFEST: listed, SUMS: sums(manifest.files, listed), **contents}.items():
            info = zipfile.ZipInfo(name, _DATE)
            info.external_attr = _READABLE
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return manifest


def _as_written(manifest: ArchiveFile) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / MANIFEST
        artifacts.write(path, "archive", manifest)
        return path.read_bytes()


def read_origin(page: Path) -> PageOrigin:
    """How a page was made, as it says itself.

    Raises:
        ArtifactError: it cannot be read, or does not say so.
    """
    try:
        text = read_limits.read_text(page)
    except (OSError, UnicodeDecodeError) as error:
        raise ArtifactError(f"{page}: cannot be read: {getattr(error, 'strerror', 'it is not UTF-8')}") from None
    parser = _Origin()
    parser.feed(text.partition("</head>")[0])
    try:
        return msgspec.json.decode(parser.content, type=PageOrigin)
    except msgspec.MsgspecError:
        raise ArtifactError(
            f"{page}: it does not say how it was made; required: a page by `hios report` of this version"
        ) from None


class _Origin(HTMLParser):
    """Finds what a page says of how it was made."""

    content = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "meta" and given.get("name") == ORIGIN:
            self.content = given.get("content") or ""


def _inside(path: str, root: Path, page: Path) -> str:
    """A file or folder that a page was made from, relative to the page's folder."""
    if "\0" in path or not (place := Path(path).resolve()).exists():
        raise ArtifactError(f"{page}: made from {path}, which is not there; run hios archive where hios report was run")
    if not place.is_relative_to(root) or place == root:
        raise ArtifactError(f"{page}: made from {path}; allowed in an archive: what lies in folders beside the page")
    return place.relative_to(root).as_posix()


def _chosen(root: Path, page: ArchivedPage) -> set[str]:
    """The files that belong to an archive."""
    patterns = [*_RESULTS, *(f"{escape(folder)}/{name}" for folder in page.directories for name in _NETWORK)]
    if page.serving is not None:
        patterns += [f"{escape(page.serving)}/**/*.json", f"{escape(page.serving)}/**/*.yaml"]
    named = {page.path, *([page.config] if page.config is not None else [])}
    if page.figures is not None:
        named.add(papers_page(page.path).name)
        patterns.append(f"{escape(page.figures)}/*.*")
    matched = (file.relative_to(root).as_posix() for pattern in patterns for file in root.glob(pattern))
    return {name for name in (*named, *matched) if (root / name).is_file() and not (root / name).is_symlink()}


def _machine() -> MachineDescription:
    return MachineDescription(
        processor=description.processor() or "unknown",
        cores=max(1, len(description.usable_cores())),
        memory_gb=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        system=platform.platform(),
        python=platform.python_version(),
    )


def write_archived_page(archive: Path, output: Path, tables: Path, papers_part: Callable[..., View]) -> ArchiveFile:
    """Recreate the page of an archive and its tables; the same version of hios writes the same bytes.

    Links on the page lead to files beside it: those of the archive, where it is unpacked. Returns ``archive.json``.
    `hios.study.page_part.papers_part` says what the page shows of its figures.

    Raises:
        ArtifactError: the archive is damaged, is not what it lists, or is none; or an output cannot be written.
    """
    with unpacked(archive) as (folder, manifest):
        page = manifest.page
        configuration = "" if page.config is None else read_configuration(folder / page.config)
        papers = None
        if page.figures is not None:
            papers = papers_part(folder / page.figures, folder / page.path, shown=page.origin.shown, root=folder)
        write_report(
            [folder / directory for directory in page.directories],
            output,
            tables,
            page.origin.schedules,
            Provenance(page.origin, configuration),
            papers,
            None if page.serving is None else folder / page.serving,
            page.origin.served,
        )
    return manifest
