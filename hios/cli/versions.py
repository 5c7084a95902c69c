"""``hios versions``: what results depend on."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hios.cli.options import output_option


@click.command("versions")
@output_option("versions.json")
def command(output: Path) -> None:
    """Write the versions of the software that results depend on, as JSON."""
    from hios.artifacts import replacing
    from hios.platforms.cpu.platform import versions as found

    with replacing(output) as temporary:
        temporary.write_text(json.dumps(found(), indent=1) + "\n", encoding="utf-8")
