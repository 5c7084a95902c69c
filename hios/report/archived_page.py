"""The page of an archive, made again from what the archive holds."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hios.formats.archive_file import ArchiveFile
from hios.report import write_report
from hios.report.environment import Provenance, read_configuration
from hios.report.paper_figures import PaperFigures, read_figures
from hios.study.archive_reader import unpacked


def is_archive(path: Path) -> bool:
    """Whether a path is that of a file, not of a folder of results."""
    return path.is_file()


def write_archived_page(archive: Path, output: Path, tables: Path) -> ArchiveFile:
    """Recreate the page of an archive and its tables; the same version of hios writes the same bytes.

    Links on the page lead to files beside it: those of the archive, where it is unpacked.

    Args:
        archive: as `hios archive` writes it.
        output: the HTML page.
        tables: folder for the tables as CSV and LaTeX.

    Returns:
        What ``archive.json`` holds.

    Raises:
        ArtifactError: the archive is damaged, is not what it lists, or is none; or an output cannot be written.
    """
    with unpacked(archive) as (folder, manifest):
        page = manifest.page
        origin = msgspec.json.encode(page.origin).decode()
        configuration = "" if page.config is None else read_configuration(folder / page.config)
        write_report(
            [folder / directory for directory in page.directories],
            output,
            tables,
            page.origin.schedules,
            Provenance(page.origin.command, configuration, origin),
            _figures(folder, manifest),
            None if page.serving is None else folder / page.serving,
        )
    return manifest


def _figures(folder: Path, manifest: ArchiveFile) -> PaperFigures | None:
    page = manifest.page
    if page.figures is None:
        return None
    return read_figures(folder / page.figures, folder / page.path, shown=page.origin.shown, root=folder)
