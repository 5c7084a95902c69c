"""The archive of another machine's run, packed without drawing a page."""

from __future__ import annotations

import html
from pathlib import Path

from hios.report.archive import origin_text, write_archive
from hios.report.results import ORIGIN


def pack(results: Path, output: Path) -> Path:
    """An archive of the networks in a folder, whose page is no more than what says how it was made."""
    networks = sorted(run.parent for run in results.glob("*/run.json"))
    origin = html.escape(origin_text("hios report", networks))
    page = results / "report.html"
    page.write_text(f'<html><head><meta name="{ORIGIN}" content="{origin}"></head></html>')
    output.parent.mkdir(parents=True, exist_ok=True)
    write_archive(page, output)
    return output
