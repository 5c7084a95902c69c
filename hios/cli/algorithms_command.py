"""``hios algorithms``: the registry in words."""

from __future__ import annotations

import shutil

import click

from hios.report.algorithm_listing import described, listing

#: Width of text that goes to a pipe or a file, and the largest width of text to be read.
_PIPED_COLUMNS = 100
_READABLE_COLUMNS = 120


@click.command("algorithms", short_help="List the algorithms, or explain one.")
@click.argument("name", required=False)
def command(name: str | None) -> None:
    """List the algorithms (name, what they do, paper), or explain the one called NAME with all its parameters."""
    from hios.schedulers.plugins import find, load_all

    width = min(shutil.get_terminal_size((_PIPED_COLUMNS, 24)).columns, _READABLE_COLUMNS)
    click.echo(listing(width, load_all()) if name is None else described(find(name), width))
