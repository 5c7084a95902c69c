"""Commands on what the stages wrote.

``hios show`` and ``hios draw`` draw a schedule and a graph; ``hios report`` writes a page and tables about runs, and
``hios archive`` packs the page with everything that it was made from. ``hios figures`` lists, explains or draws figures
and tables of the papers, ``hios algorithms`` the registry in words. ``hios verify`` checks a results folder; ``hios
versions`` states what results depend on.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
import shutil
import sys
from pathlib import Path

import click

from hios.cli.options import PATH, check_outputs, output_option
from hios.core.graph import Graph
from hios.core.schedule import Schedule
from hios.errors import ArtifactError, HiosError
from hios.files import artifacts, versions
from hios.machine.description import usable_cores
from hios.report.algorithm_listing import described, listing
from hios.schedulers.plugins import find, load_all
from hios.study import registry


@click.command("show")
@click.argument("schedule", type=PATH)
@click.option("--graph", type=PATH, help="graph.json, to color the bars by operator type.")
@click.option(
    "--html", type=PATH, help="Write an HTML page instead: one file that opens offline, with zoom and details on hover."
)
@click.option("--width", type=int, help="Width of the drawing in columns; default: that of the terminal.")
@click.option(
    "--parts", type=int, help="Number of rows that the time axis is split into; default: as many as the labels need."
)
@click.option("--ascii", "plain", is_flag=True, help="Draw with ASCII characters only.")
def show_command(
    schedule: Path, graph: Path | None, html: Path | None, width: int | None, parts: int | None, plain: bool
) -> None:
    """Draw SCHEDULE: a row for each stream of a device, a bar for each operator."""
    from hios.report import write_schedule
    from hios.report.terminal import draw, look, operator_types

    check_outputs([schedule, graph], [html])
    try:
        shown = Schedule.read(schedule)
    except ArtifactError as error:
        if schedule.is_file() and artifacts.kind_in(artifacts.read_json(schedule)) == "graph":
            raise HiosError(f"{error}, as hios schedule writes it; hios draw {schedule} draws the graph") from error
        raise
    shown.check_table()
    end = max(row.finish_ms for row in shown.placements)
    if not math.isclose(end, shown.latency_ms, rel_tol=1e-6, abs_tol=1e-9):
        raise HiosError(f"{schedule}: latency_ms: found {shown.latency_ms:g}; allowed: {end:g}, the last finish_ms")
    types = {} if graph is None else operator_types(shown, Graph.read(graph))
    if html is None:
        click.echo(draw(shown, look(sys.stdout, width=width, parts=parts, plain=plain), types))
    else:
        write_schedule(shown, html, types)
        click.echo(f"{html}: {len(shown.placements)} operators on {shown.devices} device(s)")


@click.command("draw")
@click.argument("graph", type=PATH)
@click.option("--output", type=PATH, help="Picture to write, .svg or .html; default: GRAPH with the suffix .svg.")
def draw_command(graph: Path, output: Path | None) -> None:
    """Draw GRAPH block by block, colored by operator type.

    An .html page can be zoomed, and highlights the edges of an operator.
    """
    from hios.report import write_picture

    network = Graph.read(graph)
    place = graph.with_suffix(".svg") if output is None else output
    check_outputs([graph], [place])
    click.echo(f"{place}: {write_picture(network, place)}")


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
@click.option("--figure", "shown", multiple=True, help="ID of a figure to show; default: all that the folder holds.")
@click.option("--serving", type=PATH, help="Folder of serving results, as the pipeline writes them, to show.")
@click.option(
    "--served",
    multiple=True,
    help="File of a result to show, within that folder: SCENARIO/simulated/POLICY-LOAD.json; default: all.",
)
def report_command(
    directories: tuple[Path, ...],
    output: Path,
    tables: Path,
    schedules: tuple[str, ...],
    config: Path | None,
    figures: Path | None,
    shown: tuple[str, ...],
    serving: Path | None,
    served: tuple[str, ...],
) -> None:
    """Write one page and tables about the runs in DIRECTORIES (graph.json, costs.json, run.json each).

    Where costs are predicted (platform model), the page is about the schedules in schedules/ instead. Given a single
    archive (`hios archive`) instead of DIRECTORIES, the command recreates the page that the archive holds.
    """
    if len(directories) == 1 and directories[0].is_file():
        if schedules or shown or served or (config, figures, serving) != (None, None, None):
            raise click.UsageError(
                f"{directories[0]}: found other options; allowed with an archive: --output, --tables"
            )
        from hios.report.archive import write_archived_page
        from hios.study.page_part import papers_part

        check_outputs(directories, [output])
        write_archived_page(directories[0], output, tables, papers_part)
        click.echo(f"{output}: the page of {directories[0]}")
        return
    from hios.formats.archive import PageOrigin
    from hios.pipeline.config import options
    from hios.report import write_report
    from hios.report.results import Provenance, read_configuration

    files = (directory / name for directory in directories for name in ("graph.json", "costs.json", "run.json"))
    check_outputs([config, *files], [output])
    if (shown and figures is None) or (served and serving is None):
        raise click.UsageError("--figure, --served: found without their folder; allowed: with --figures, --serving")
    given = {"schedule": schedules, "config": config, "figures": figures, "figure": shown}
    given |= {"serving": serving, "served": served}
    places = shlex.join(map(str, directories))
    words = f"hios report {places} {options({'output': output, 'tables': tables, **given})}"
    papers = None
    if figures is not None:
        from hios.study.page_part import drawn_in, papers_part

        shown = shown or tuple(drawn_in(figures))
        papers = papers_part(figures, output, shown=shown)
    origin = PageOrigin(
        command=words,
        directories=tuple(map(str, directories)),
        schedules=schedules,
        config=None if config is None else str(config),
        figures=None if figures is None else str(figures),
        shown=shown,
        serving=None if serving is None else str(serving),
        served=served,
    )
    provenance = Provenance(origin, "" if config is None else read_configuration(config))
    processes = min(len(usable_cores()), _PROCESSES)
    write_report(directories, output, tables, schedules, provenance, papers, serving, served, processes)
    click.echo(f"{output}: report of {len(directories)} model(s)")


@click.command("figures", short_help="List the figures of the papers, or draw one.")
@click.argument("name", metavar="[ID]", required=False)
@click.argument("files", type=PATH, nargs=-1)
@click.option("--output", type=PATH, help="Folder to draw ID in, as ID.csv, .tex, .svg, .pdf and .json.")
@click.option(
    "--results", type=PATH, default="results", show_default=True, help="Results folder, for the state of each figure."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--page", is_flag=True, help="Write papers.html in the results folder, with all figures that are drawn there."
)
def figures_command(
    name: str | None, files: tuple[Path, ...], output: Path | None, results: Path, as_json: bool, page: bool
) -> None:
    """List the figures and tables of the papers: what each needs, how long it takes to draw, and its state.

    With ID, explain one, its published numbers included. With --output, draw it from FILES of its sessions; the
    pipeline does that with `snakemake ID`, and `snakemake figures` draws all and writes their page.
    """
    from hios.study.figure_listing import contents, explained, listing

    if page:
        if name is not None or output is not None or as_json:
            raise click.UsageError("--page: found with ID or other options; allowed: with --results alone")
        from hios.report import write_papers
        from hios.study.page_part import papers_part

        written = write_papers(results / "report.html", papers_part(results / "figures", results / "report.html"))
        click.echo(f"The page of the figures is {written.resolve()}")
        return
    if name is None:
        if output is not None:
            raise click.UsageError("--output: found without ID; allowed: with the ID of a figure")
        chosen = registry.figures()
        entries = [contents(figure, results) for figure in chosen]
        click.echo(json.dumps(entries, indent=1) if as_json else listing(chosen, results))
        return
    figure = registry.figure(name)
    if output is None:
        click.echo(json.dumps(contents(figure, results), indent=1) if as_json else explained(figure, results))
        return
    from hios.study.figure_data import FigureData
    from hios.study.figure_files import write_figure

    record = write_figure(figure, FigureData.read(files), output)
    click.echo(f"{output / figure.id}.svg: {record.number}, {len(record.rows)} rows, {record.state}")


@click.command("archive")
@click.argument("page", type=PATH)
@output_option("archive.zip")
def archive_command(page: Path, output: Path) -> None:
    """Pack PAGE (report.html) and the results that it was made from into an archive.

    The archive holds the page, graphs, costs, schedules and runs of its networks, sessions and figures of the papers,
    tables, configuration, versions, a description of this machine, and the SHA-256 hash of every file, but no weights.
    `hios report ARCHIVE` recreates the page.
    """
    from hios.report.archive import write_archive

    check_outputs([page], [output])
    manifest = write_archive(page, output)
    total = sum(file.bytes for file in manifest.files.values())
    click.echo(
        f"{output}: {len(manifest.files)} files of {total / 1e6:.1f} MB, {output.stat().st_size / 1e6:.1f} MB packed"
    )


#: Width of text that goes to a pipe or a file, and the largest width of text to be read.
_PIPED_COLUMNS = 100
_READABLE_COLUMNS = 120


@click.command("algorithms", short_help="List the algorithms, or explain one.")
@click.argument("name", required=False)
def algorithms_command(name: str | None) -> None:
    """List the algorithms (name, what they do, paper), or explain the one called NAME with all its parameters."""
    width = min(shutil.get_terminal_size((_PIPED_COLUMNS, 24)).columns, _READABLE_COLUMNS)
    click.echo(listing(width, load_all()) if name is None else described(find(name), width))


@click.command("verify")
@click.argument("folder", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def verify_command(folder: Path, as_json: bool) -> None:
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


@click.command("versions")
@output_option("versions.json")
def versions_command(output: Path) -> None:
    """Write the versions of the software that results depend on, as JSON."""
    versions.write(output)
