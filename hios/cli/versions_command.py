"""``hios versions``: what results depend on."""

from __future__ import annotations

from pathlib import Path

import click

from hios.cli.options import output_option


@click.command("versions")
@output_option("versions.json")
def command(output: Path) -> None:
    """Write the versions of the software that results depend on, as JSON."""
    from hios.versions import write

    write(output)
