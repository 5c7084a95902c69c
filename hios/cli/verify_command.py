"""``hios verify``: whether the artifacts of a results folder hold what they state."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import click

from hios.cli.options import PATH


@click.command("verify")
@click.argument("folder", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def command(folder: Path, as_json: bool) -> None:
    """Check every artifact in FOLDER against its schema, and all of them against each other.

    Schedules are checked against graph and costs; stated latencies and lower bounds are recomputed, and so are the
    ratios, intervals and drift in run.json, the rows of tables/latency.csv, tables and verdicts of the papers' figures,
    and counts in results of serving. Measurements have to name the machine and the software that they were made with.
    All problems are listed; the exit status is 1 if there is one.
    """
    from hios.verify import verify

    checked = verify(folder)
    count = sum(len(entry.problems) for entry in checked)
    if as_json:
        files = [dataclasses.asdict(entry) for entry in checked]
        click.echo(json.dumps({"folder": str(folder), "problems": count, "files": files}, indent=1))
    else:
        width = max(len(entry.path) for entry in checked)
        for entry in checked:
            verdict = "ok" if not entry.problems else f"{len(entry.problems)} problem{'s'[: len(entry.problems) > 1]}"
            click.echo(f"{entry.path:<{width}}  {entry.kind:<8}  {verdict}")
            for problem in entry.problems:
                click.echo(f"    {problem}")
        click.echo(f"{len(checked)} file{'s'[: len(checked) != 1]}, {count or 'no'} problem{'' if count == 1 else 's'}")
    if count:
        sys.exit(1)
