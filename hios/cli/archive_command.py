"""``hios archive``: a page with everything that it was made from, as one file."""

from __future__ import annotations

from pathlib import Path

import click

from hios.cli.options import PATH, output_option


@click.command("archive")
@click.argument("page", type=PATH)
@output_option("archive.zip")
def command(page: Path, output: Path) -> None:
    """Pack PAGE (report.html) and the results that it was made from into an archive.

    The archive holds the page, graphs, costs, schedules and runs of its networks, sessions and figures of the papers,
    tables, configuration, versions, a description of this machine, and the SHA-256 hash of every file, but no weights.
    `hios report ARCHIVE` recreates the page.
    """
    from hios.report.results_archive import write_archive

    manifest = write_archive(page, output)
    total = sum(file.bytes for file in manifest.files.values())
    click.echo(
        f"{output}: {len(manifest.files)} files of {total / 1e6:.1f} MB, {output.stat().st_size / 1e6:.1f} MB packed"
    )
