"""The documentation as a web site: ``make docs`` builds it in docs/_build, without network, and fails on any warning.

Pages are the Markdown files of this folder, as they are. Links from them to files outside this folder, such as
``../models``, work where the repository is browsed; on the site they become plain text with the path.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import hios
from hios.report.archive import write_archived_page
from hios.study.page_part import papers_part

project = "hios"
author = "The hios developers"
project_copyright = "The hios developers, Apache-2.0"
version = release = hios.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

#: Headings get the anchors that GitHub gives them, so that a link works in both places.
myst_heading_anchors = 4
#: docs/reproducing.md leaves a level out where it lists the published numbers of each figure.
suppress_warnings = ["myst.header"]
#: Indented blocks are commands and tables as a terminal prints them.
highlight_language = "none"
#: Commands stand in plain text too, where -- stays --.
smartquotes = False
default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
#: Types that are not public are named, not linked; what is public has to be there.
nitpick_ignore_regex = [("py:.*", r"(?!hios\.\w+$).*")]

html_theme = "furo"
html_title = f"hios {release}"
html_show_sphinx = False

_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]+)\]\((?P<path>\.\./[^)\s]*)\)")


def _as_text(link: re.Match[str]) -> str:
    """A link to a file outside this folder as text that names the file."""
    text, path = link["text"], link["path"].removeprefix("../")
    return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"


def _without_links_outside(app: Sphinx, page: str, source: list[str]) -> None:
    source[0] = _LINK.sub(_as_text, source[0])


def _gallery(app: Sphinx) -> None:
    """The page of each archive in gallery/, made again, beside the page that links to it."""
    for archive in sorted((Path(app.srcdir) / "gallery").glob("*.zip")):
        folder = Path(app.outdir) / "gallery" / archive.stem
        folder.mkdir(parents=True, exist_ok=True)
        write_archived_page(archive, folder / "report.html", folder / "tables", papers_part)


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("builder-inited", _gallery)
    app.connect("source-read", _without_links_outside)
