"""The command line: one subcommand a stage. Heavy imports happen inside the command that needs them."""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click

from hios import __version__
from hios.errors import HiosError, ScheduleError
from hios.graph import UNITS
from hios.models import RUNTIMES
from hios.report.algorithms import described, listing, option, parameter_help, parameters

_PATH = click.Path(path_type=Path)

#: Width of text that goes to a pipe or a file, and the largest width of text to be read.
_PIPED_COLUMNS = 100
_READABLE_COLUMNS = 120

#: Extras of the package that hold what a command may lack.
_EXTRAS = {
    "torch": "torch",
    "safetensors": "torch",
    "tqdm": "torch",
    "tvm": "torch,tvm",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "onnxscript": "onnx",
    "numba": "opt",
    "numpy": "opt",
    "ortools": "opt",
    "mpi4py": "mpi",
    "plotly": "report",
    "jinja2": "report",
}


class _Main(click.Group):
    """Turns the errors that hios raises on purpose into one line and exit status 1, wrong usage into 2."""

    def main(self, *arguments: Any, **keywords: Any) -> Any:
        try:
            return super().main(*arguments, **{**keywords, "standalone_mode": False})
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            sys.exit(2)
        except click.UsageError as error:
            command = error.ctx.command_path if error.ctx is not None else "hios"
            click.echo(f"Error: {error.format_message()} (see {command} --help)", err=True)
            sys.exit(2)
        except click.ClickException as error:
            error.show()
            sys.exit(error.exit_code)
        except click.Abort:
            click.echo("Aborted", err=True)
            sys.exit(130)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HiosError as error:
            raise click.ClickException(str(error)) from error
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            extra = _EXTRAS.get(package)
            if extra is None:
                raise
            raise click.ClickException(
                f"this command needs {package}, which is not installed: pip install 'hios[{extra}]'"
            ) from error
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{where}{error.strerror or error}") from error


@click.group(cls=_Main, context_settings={"max_content_width": 100})
@click.version_option(__version__, prog_name="hios")
def main() -> None:
    """Find out where and when each operator of a neural network should run.

    The stages in order: export, extract, profile, schedule, execute, report.
    """


_devices = click.option("--devices", type=int, default=1, show_default=True, help="Number of devices.")
_platform = click.option(
    "--platform",
    type=click.Choice(["cpu"]),
    default="cpu",
    show_default=True,
    help="Where to measure and run.",
)


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        raise HiosError(f"--seed: found {seed}; allowed: 0 to {2**63 - 1}")


def _check_measuring(settings: dict[str, Any]) -> None:
    for name, least in (("runs", 1), ("warmup", 0)):
        if settings[name] < least:
            raise HiosError(f"--{name}: found {settings[name]}; allowed: at least {least}")
    if not 0 < settings["tolerance"] < math.inf:
        raise HiosError(f"--tolerance: found {settings['tolerance']}; allowed: more than 0, finite")
    _check_seed(settings["seed"])


def _refuse_overwriting(inputs: Iterable[Path | None], outputs: Iterable[Path | None]) -> None:
    """An output in the place of an input would be the end of it."""
    read = {path.resolve() for path in inputs if path is not None}
    for path in outputs:
        if path is not None and path.resolve() in read:
            raise HiosError(f"{path}: found an input named as output; allowed: another file")


def _output(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--output", type=_PATH, required=True, help=f"{what} to write.")


_trust = click.option(
    "--trust", is_flag=True, help="Load a .pt2 file even if that can run code: you trust who made it."
)


@main.command()
@click.argument("model")
@_output("program.pt2, or program.onnx for a model in ONNX,")
@click.option("--image-size", type=int, help="Height and width of the image in pixels.")
@click.option("--batch-size", type=int, help="Images a batch.")
@click.option("--classifier", is_flag=True, help="With the classifier that the papers leave out.")
@click.option(
    "--option",
    "more",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other option of the function that builds the model; the value as in YAML. May be given several times.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random weights.")
@_trust
def export(
    model: str,
    output: Path,
    image_size: int | None,
    batch_size: int | None,
    classifier: bool,
    more: tuple[str, ...],
    seed: int,
    trust: bool,
) -> None:
    """Export MODEL with torch.export, or check a finished one and copy it.

    MODEL is a network of the models folder by name; package.module:function, a function of yours whose keyword
    parameters are options, and which returns the module and a tuple of example inputs; or a file, .pt2 or .onnx.
    """
    from hios.config import parsed_options

    sizes = {"image_size": image_size, "batch_size": batch_size}
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise HiosError(f"--{name.replace('_', '-')}: found {value}; allowed: at least 1")
    given: dict[str, Any] = {name: value for name, value in sizes.items() if value is not None}
    if classifier:
        given["classifier"] = True
    _check_seed(seed)
    _refuse_overwriting([Path(model)], [output])
    options = parsed_options(more, given)
    from hios.frontends.export import export as run

    click.echo(f"{output}: {run(model, output, options, seed=seed, trusted=trust)}")


@main.command()
@click.argument("program", type=_PATH)
@_output("graph.json")
@click.option("--weights", type=_PATH, required=True, help="weights.safetensors to write.")
@click.option("--name", help="Name of the graph; default: the folder of the program.")
@click.option(
    "--units",
    type=click.Choice(UNITS),
    help="What is one operator: a convolution with the ReLU behind it, also a ReLU with the separable or plain "
    "convolution behind it and the sum before it, or every Relax operator by itself; default: as the model declares, "
    "else conv-relu.",
)
@_trust
def extract(program: Path, output: Path, weights: Path, name: str | None, units: str | None, trust: bool) -> None:
    """Extract the optimised graph of PROGRAM (.pt2 or .onnx) through TVM Relax."""
    _refuse_overwriting([program], [output, weights])
    from hios.frontends.extract import extract as run

    graph = run(program, output, weights, name or program.resolve().parent.name, units=units, trusted=trust)
    click.echo(
        f"{output}: {len(graph.operators)} operators, {len(graph.edges)} edges, {len(graph.blocks)} blocks, units "
        f"{graph.units}"
    )


@main.command()
@click.argument("graph", type=_PATH)
@_platform
@_devices
@_output("costs.json")
@click.option(
    "--repeats",
    type=int,
    default=20,
    show_default=True,
    help="Least number of measurements of every operator and stage.",
)
@click.option(
    "--budget",
    type=float,
    default=120.0,
    show_default=True,
    help="Seconds for repeating until medians are certain within 2 %, and for stages; those left out are modelled.",
)
@click.option(
    "--cache",
    type=_PATH,
    help="Folder of measurements of other runs and networks, used and added to; default: measurements in $HIOS_CACHE, "
    "else hios/measurements in the user's cache folder.",
)
@click.option("--no-cache", is_flag=True, help="Measure everything, and keep nothing for later.")
@click.option(
    "--stages-of",
    multiple=True,
    default=("greedy", "hios-lp"),
    show_default=True,
    help="Measure the stages that this algorithm asks for; may be given several times.",
)
def profile(
    graph: Path,
    platform: str,
    devices: int,
    output: Path,
    repeats: int,
    budget: float,
    cache: Path | None,
    no_cache: bool,
    stages_of: tuple[str, ...],
) -> None:
    """Measure what the operators, stages and transfers of GRAPH cost."""
    if repeats < 1:
        raise HiosError(f"--repeats: found {repeats}; allowed: at least 1")
    if not 0 <= budget < math.inf:
        raise HiosError(f"--budget: found {budget:g}; allowed: at least 0, finite")
    if no_cache and cache is not None:
        raise HiosError(f"--no-cache: found beside --cache {cache}; allowed: one of them")
    _refuse_overwriting([graph], [output])
    from hios.profiling.cache import default_folder
    from hios.profiling.profile import profile as run
    from hios.report.profiled import profile_in_words

    folder = None if no_cache else cache or default_folder()
    found = run(graph, output, devices=devices, repeats=repeats, stages_of=stages_of, budget_s=budget, cache=folder)
    click.echo(f"{output}: {profile_in_words(found)}")


def _algorithm_parameters(command: Callable[..., Any]) -> Callable[..., Any]:
    """An option for every parameter of every algorithm, by its paper's name."""
    for _, users in sorted(parameters().items(), reverse=True):
        parameter = users[0][1]  # parameters of one name have one type
        command = click.option(option(parameter), type=type(parameter.default), help=parameter_help(users))(command)
    return command


class _Schedule(click.Command):
    """Its help lists parameters of algorithms apart from the options that every algorithm takes."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Parameters of algorithms": []}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                theirs = parameter.name in parameters()
                sections["Parameters of algorithms" if theirs else "Options"].append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


@main.command(cls=_Schedule)
@click.argument("graph", type=_PATH)
@click.argument("costs", type=_PATH)
@click.option("--algorithm", required=True, help="Name of the algorithm; see hios algorithms.")
@_devices
@_output("schedule.json")
@_algorithm_parameters
def schedule(graph: Path, costs: Path, algorithm: str, devices: int, output: Path, **parameters: Any) -> None:
    """Compute where and when each operator of GRAPH runs, given COSTS."""
    from hios.artifacts import require_writable
    from hios.problem import Problem
    from hios.report.summary import gap_in_words
    from hios.schedulers import find
    from hios.schedulers import schedule as run

    find(algorithm)
    _refuse_overwriting([graph, costs], [output])
    require_writable(output)
    given = {name: value for name, value in parameters.items() if value is not None}
    found = run(Problem.read(graph, costs), algorithm, devices, given)
    found.write(output)
    bound, kind = found.lower_bound_ms, ""
    if found.staged_lower_bound_ms:
        bound, kind = found.staged_lower_bound_ms, "staged "
    click.echo(
        f"{output}: predicted latency {found.latency_ms:.4g} ms on {devices} device(s), lower bound {bound:.4g} ms"
        f"{' for staged schedules' if kind else ''}, {gap_in_words(found.latency_ms, bound, kind)}"
    )


@main.command()
@click.argument("graph", type=_PATH)
@click.argument("costs", type=_PATH)
@click.argument("schedule", type=_PATH)
def evaluate(graph: Path, costs: Path, schedule: Path) -> None:
    """Print the latency of SCHEDULE under the cost model, or why it is invalid."""
    from hios.check import violations
    from hios.evaluate import evaluate as run
    from hios.evaluate import latency_ms
    from hios.problem import Problem
    from hios.schedule import Schedule

    problem, found = Problem.read(graph, costs), Schedule.read(schedule)
    try:
        latency = latency_ms(run(problem, found.plan(problem.graph)))
    except ScheduleError as error:
        where = "" if str(error).startswith(str(schedule)) else f"{schedule}: invalid: "
        raise HiosError(f"{where}{error}") from None
    if wrong := violations(problem, found):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise HiosError(f"{schedule}: invalid: {wrong[0]}{more}")
    stated = (
        ""
        if math.isclose(latency, found.latency_ms, rel_tol=1e-6)
        else f" ({schedule} states {found.latency_ms:.6g} ms)"
    )
    click.echo(f"{latency:.6g} ms{stated}")


@main.command()
@click.argument("schedule", type=_PATH)
@click.option("--graph", type=_PATH, help="graph.json: types of operators, which bars are then coloured by.")
@click.option("--html", type=_PATH, help="Page to write instead; one file that opens offline, to zoom and hover.")
@click.option("--width", type=int, help="Columns to draw in; default: those of the terminal.")
@click.option("--parts", type=int, help="Pieces of the time axis, one below the other; default: as labels need.")
@click.option("--ascii", "plain", is_flag=True, help="Draw with ASCII characters only.")
def show(
    schedule: Path, graph: Path | None, html: Path | None, width: int | None, parts: int | None, plain: bool
) -> None:
    """Draw SCHEDULE: a row a stream of a device, a bar an operator."""
    from hios.graph import Graph
    from hios.report import write_schedule
    from hios.report.summary import operator_types
    from hios.report.terminal import draw, look
    from hios.schedule import Schedule

    _refuse_overwriting([schedule, graph], [html])
    found = Schedule.read(schedule)
    found.check_table()
    end = max(row.finish_ms for row in found.placements)
    if not math.isclose(end, found.latency_ms, rel_tol=1e-6, abs_tol=1e-9):
        raise HiosError(f"{schedule}: latency_ms: found {found.latency_ms:g}; allowed: {end:g}, the last finish_ms")
    types = {} if graph is None else operator_types(found, Graph.read(graph))
    if html is None:
        click.echo(draw(found, look(sys.stdout, width=width, parts=parts, plain=plain), types))
    else:
        write_schedule(found, html, types)
        click.echo(f"{html}: {len(found.placements)} operators on {found.devices} device(s)")


@main.command()
@click.argument("graph", type=_PATH)
@click.option("--output", type=_PATH, help="Picture to write, .svg or .html; default: GRAPH with the suffix .svg.")
def draw(graph: Path, output: Path | None) -> None:
    """Draw GRAPH by blocks, coloured by operator type: .svg, or .html to zoom and to follow its lines."""
    from hios.graph import Graph
    from hios.report import write_picture

    found = Graph.read(graph)
    place = graph.with_suffix(".svg") if output is None else output
    _refuse_overwriting([graph], [place])
    click.echo(f"{place}: {write_picture(found, place)}")


@main.command()
@click.argument("graph", type=_PATH)
@click.argument("weights", type=_PATH)
@click.argument("schedules", type=_PATH, nargs=-1, required=True)
@_platform
@click.option("--devices", type=int, help="Devices of the session; default: the most that a schedule uses.")
@_output("run.json")
@click.option(
    "--program",
    type=_PATH,
    help="program.pt2 or program.onnx: eager PyTorch, or ONNX Runtime, as reference for outputs and time.",
)
@click.option(
    "--baselines",
    multiple=True,
    type=click.Choice(list(RUNTIMES)),
    default=("eager",),
    show_default=True,
    help="Run the program in this too, with 1 thread and with as many as there are devices; may be given several "
    "times. Eager PyTorch always takes part, as outputs are compared with it.",
)
@click.option("--traces", type=_PATH, help="Folder for a Chrome/Perfetto trace of every schedule.")
@click.option(
    "--auto",
    type=_PATH,
    help="schedule.json to write of what is fastest: a schedule, the sequential one, or that one with all cores. Every "
    "other run chooses, and run.json states its latency in the others.",
)
@click.option("--runs", type=int, default=36, show_default=True, help="Measured runs of every competitor.")
@click.option("--warmup", type=int, default=3, show_default=True, help="Runs before the measured ones.")
@click.option("--tolerance", type=float, default=1e-4, show_default=True, help="Allowed difference of outputs.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the input and of the order.")
@_trust
def execute(
    graph: Path,
    weights: Path,
    schedules: tuple[Path, ...],
    platform: str,
    devices: int | None,
    output: Path,
    program: Path | None,
    traces: Path | None,
    auto: Path | None,
    trust: bool,
    **settings: Any,
) -> None:
    """Run SCHEDULES of GRAPH on real devices, interleaved in one session, and time them."""
    from hios.schedule import Schedule

    _check_measuring(settings)
    _refuse_overwriting([graph, weights, program, *schedules], [output, auto])
    if auto is not None and auto.resolve() == output.resolve():
        raise HiosError(f"{auto}: named for run.json and for the chosen schedule; allowed: two files")
    if devices is None:
        devices = max(Schedule.read(path).devices for path in schedules)
    from hios.runtime.session import Settings
    from hios.runtime.session import execute as run
    from hios.runtime.table import latency_table

    began = time.monotonic()
    found = run(
        graph,
        weights,
        schedules,
        output,
        Settings(devices=devices, **settings),
        program=program,
        trusted=trust,
        traces=traces,
        chosen=auto,
    )
    off = max(result["largest_difference"] for result in found["results"])
    reference = RUNTIMES.get(found["checked_against"], "the sequential schedule")
    click.echo(latency_table(found))
    click.echo(
        f"{output}: medians of {found['runs']} runs on {devices} device(s) in {time.monotonic() - began:.0f} s; "
        f"outputs differ from {reference} by {off:.2g} at most, allowed {found['tolerance']:g}"
    )


@main.command()
@click.argument("graph", type=_PATH)
@click.argument("weights", type=_PATH)
@click.argument("schedules", type=_PATH, nargs=-1, required=True)
@click.option(
    "--transport",
    type=click.Choice(["gloo", "mpi"]),
    required=True,
    help="gloo: this is run by torchrun; mpi: by mpirun, or by srun.",
)
@_output("run.json")
@click.option(
    "--program",
    type=_PATH,
    help="program.pt2 or program.onnx: eager PyTorch, or ONNX Runtime, on rank 0 as reference for outputs and time.",
)
@click.option("--runs", type=int, default=36, show_default=True, help="Measured runs of every competitor.")
@click.option("--warmup", type=int, default=3, show_default=True, help="Runs before the measured ones.")
@click.option("--tolerance", type=float, default=1e-4, show_default=True, help="Allowed difference of outputs.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the input and of the order.")
@click.option(
    "--timeout", "timeout_s", type=float, default=120.0, show_default=True, help="Longest time of one run, in seconds."
)
@_trust
def distribute(schedules: tuple[Path, ...], trust: bool, **given: Any) -> None:
    """Run SCHEDULES of GRAPH with every device a process of a launcher, on one node or several.

    The launcher starts this command on every rank with the same arguments, such as: torchrun --nproc-per-node 2 -m hios
    distribute graph.json weights.safetensors schedule.json --transport gloo --output run.json
    """
    _check_measuring(given)
    if not 0 < given["timeout_s"] < math.inf:
        raise HiosError(f"--timeout: found {given['timeout_s']}; allowed: more than 0 seconds, finite")
    _refuse_overwriting([given["graph"], given["weights"], given["program"], *schedules], [given["output"]])
    if given["transport"] == "mpi":
        from hios.runtime.distributed.guard import guard

        guard()
    from hios.runtime.distributed.session import Job
    from hios.runtime.distributed.session import distribute as run
    from hios.runtime.table import latency_table

    began = time.monotonic()
    found = run(Job(schedules=schedules, trusted=trust, **given))
    if found is None:
        return  # rank 0 speaks for all
    off = max(result["largest_difference"] for result in found["results"])
    platform = found["platform"]
    virtual = ", which share cores: times say little" if platform["virtual"] else ""
    click.echo(latency_table(found))
    click.echo(
        f"{given['output']}: medians of {found['runs']} runs on {platform['devices']} rank(s){virtual} over "
        f"{platform['transport']} in {time.monotonic() - began:.0f} s; outputs differ from "
        f"{RUNTIMES.get(found['checked_against'], 'the sequential schedule')} by {off:.2g} at most, allowed "
        f"{found['tolerance']:g}"
    )


@main.command()
@click.argument("directories", type=_PATH, nargs=-1, required=True)
@_output("report.html")
@click.option("--tables", type=_PATH, required=True, help="Folder for the tables as CSV.")
def report(directories: tuple[Path, ...], output: Path, tables: Path) -> None:
    """Write one page and CSV tables about the runs in DIRECTORIES (graph.json, costs.json, run.json each)."""
    from hios.report import write_report

    write_report(directories, output, tables)
    click.echo(f"{output}: report of {len(directories)} model(s)")


@main.command(short_help="List the algorithms, or explain one.")
@click.argument("name", required=False)
def algorithms(name: str | None) -> None:
    """List the algorithms (name, what they do, paper), or explain the one called NAME with all its parameters."""
    from hios.schedulers import find

    width = min(shutil.get_terminal_size((_PIPED_COLUMNS, 24)).columns, _READABLE_COLUMNS)
    click.echo(listing(width) if name is None else described(find(name), width))


@main.command()
@_output("versions.json")
def versions(output: Path) -> None:
    """Write the versions of the software that results depend on, as JSON."""
    from hios.artifacts import replacing
    from hios.platforms.cpu import versions as found

    with replacing(output) as temporary:
        temporary.write_text(json.dumps(found(), indent=1) + "\n", encoding="utf-8")
