"""``hios report``: runs as a page and tables."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from hios.cli.options import PATH, output_option
from hios.machine import usable_cores

#: The most processes that draw: the pipeline makes its report on the login node of a cluster.
_PROCESSES = 4


@click.command("report")
@click.argument("directories", type=PATH, nargs=-1, required=True)
@output_option("report.html")
@click.option("--tables", type=PATH, required=True, help="Folder for the tables as CSV and LaTeX.")
@click.option(
    "--schedule",
    "schedules",
    multiple=True,
    help="With predicted costs: label of a schedule to show, schedules/LABEL.json; default: all. May be given more "
    "than once.",
)
@click.option("--config", type=PATH, help="Resolved configuration of the pipeline, which the page then shows.")
@click.option("--figures", type=PATH, help="Folder of the papers' figures (`hios figures ID --output`) to show.")
@click.option("--serving", type=PATH, help="Folder of serving results, as the pipeline writes them, to show.")
def command(
    directories: tuple[Path, ...],
    output: Path,
    tables: Path,
    schedules: tuple[str, ...],
    config: Path | None,
    figures: Path | None,
    serving: Path | None,
) -> None:
    """Write one page and tables about the runs in DIRECTORIES (graph.json, costs.json, run.json each).

    Where costs are predicted (platform model), the page is about the schedules in schedules/ instead. Given a single
    archive (`hios archive`) instead of DIRECTORIES, the command recreates the page that the archive holds.
    """
    if len(directories) == 1 and directories[0].is_file():
        if schedules or (config, figures, serving) != (None, None, None):
            raise click.UsageError(
                f"{directories[0]}: found other options; allowed with an archive: --output, --tables"
            )
        from hios.report.results_archive import write_archived_page

        write_archived_page(directories[0], output, tables)
        click.echo(f"{output}: the page of {directories[0]}")
        return
    from hios.config_options import options
    from hios.report import write_report
    from hios.report.environment import Provenance, read_configuration
    from hios.report.results_archive import origin_text

    given = {"schedule": schedules, "config": config, "figures": figures, "serving": serving}
    places = shlex.join(map(str, directories))
    words = f"hios report {places} {options({'output': output, 'tables': tables, **given})}"
    origin = origin_text(words, directories, schedules=schedules, config=config, figures=figures, serving=serving)
    provenance = Provenance(words, "" if config is None else read_configuration(config), origin)
    processes = min(len(usable_cores()), _PROCESSES)
    write_report(directories, output, tables, schedules, provenance, figures, serving, processes)
    click.echo(f"{output}: report of {len(directories)} model(s)")
