"""From a model to a schedule: ``hios export``, ``extract``, ``profile`` and ``schedule``.

``hios retarget`` adapts a schedule to other shapes; ``hios partition`` divides the cores of this machine into devices.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hios.cli import files
from hios.cli.options import (
    PATH,
    check_cache,
    check_outputs,
    cores_per_device_option,
    costs_options,
    devices_option,
    measuring_options,
    option_of,
    output_option,
    own_options,
    partition_option,
    partitioned,
    platform_option,
    settings_options,
    take_own,
    trust_option,
    virtual_option,
)
from hios.core.costs import CostsFile
from hios.core.graph import UNITS, Graph
from hios.core.problem import Problem
from hios.core.schedule import Schedule
from hios.errors import HiosError, warn
from hios.files.artifacts import write
from hios.formats.settings import Measuring, PartitionSettings, Profile, Scalar
from hios.platforms import PLATFORMS, require_options
from hios.report.algorithm_listing import option, parameter_help, parameters
from hios.schedulers import Algorithm, Parameter
from hios.schedulers.plugins import entry_points, find, load, load_all


@click.command("export")
@click.argument("model")
@output_option("program.pt2, or program.onnx for a model in ONNX,")
@click.option("--image-size", type=int, help="Height and width of the image in pixels.")
@click.option("--batch-size", type=int, help="Images in a batch.")
@click.option("--classifier", is_flag=True, help="Include the classifier, which the papers leave out.")
@click.option(
    "--option",
    "more",
    multiple=True,
    metavar="NAME=VALUE",
    help="Any other keyword argument of the function that builds the model, its value as in YAML. May be given more "
    "than once.",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=SIZES",
    help="Shape of an input of an .onnx or .pt2 file that leaves dimensions open, such as x=1x3x224x224 (.pt2 files "
    "need --trust too), or the value of an .onnx input that is a single integer, such as sr=16000. May be given more "
    "than once.",
)
@settings_options(Measuring, "seed", texts={"seed": "Seed of random weights."})
@trust_option
def export_command(
    model: str,
    output: Path,
    image_size: int | None,
    batch_size: int | None,
    classifier: bool,
    more: tuple[str, ...],
    inputs: tuple[str, ...],
    seed: int,
    trust: bool,
) -> None:
    """Export MODEL with torch.export, or check and copy one that was exported already.

    MODEL is the name of a network in models/; or package.module:function, a function of yours that returns the module
    and a tuple of example inputs, and whose keyword parameters are options; or a .pt2 or .onnx file.
    """
    from hios.pipeline.config import parsed_options, parsed_shapes

    sizes = {"image_size": image_size, "batch_size": batch_size}
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise HiosError(f"{option_of(name)}: found {value}; allowed: at least 1")
    given: dict[str, Scalar] = {name: value for name, value in sizes.items() if value is not None}
    if classifier:
        given["classifier"] = True
    check_outputs([Path(model)], [output])
    options = parsed_options(more, given)
    click.echo(
        f"{output}: {files.export(model, output, options, inputs=parsed_shapes(inputs), seed=seed, trusted=trust)}"
    )


@click.command("extract")
@click.argument("program", type=PATH)
@output_option("graph.json")
@click.option("--weights", type=PATH, required=True, help="weights.safetensors to write.")
@click.option("--name", help="Name of the graph; default: that of the program's folder.")
@click.option(
    "--units",
    type=click.Choice(UNITS),
    help="What counts as one operator. conv-relu: a convolution with the ReLU after it; relu-sepconv: also a ReLU with "
    "the separable or plain convolution after it and the sum before it; operator: every Relax operator by itself. "
    "Default: what the model declares, else conv-relu.",
)
@click.option(
    "--below",
    multiple=True,
    metavar="NAME=NUMBER",
    help="The values of an integer input, such as tokens, are less than this; random inputs for comparison and timing "
    "are drawn accordingly. Default: what the model declares, else 2. May be given more than once.",
)
@trust_option
def extract_command(
    program: Path,
    output: Path,
    weights: Path,
    name: str | None,
    units: str | None,
    below: tuple[str, ...],
    trust: bool,
) -> None:
    """Extract the optimized graph of PROGRAM (.pt2 or .onnx) through TVM Relax."""
    from hios.pipeline.config import parsed_limits

    check_outputs([program], [output, weights])
    limits = parsed_limits(below)
    graph = files.extract(
        program, output, weights, name or program.resolve().parent.name, units=units, below=limits, trusted=trust
    )
    click.echo(
        f"{output}: {len(graph.operators)} operators, {len(graph.edges)} edges, {len(graph.blocks)} blocks, units "
        f"{graph.units}"
    )


#: Options of measuring, which predictions take none of.
_MEASURING = (
    *("virtual", "cores_per_device", "partition", "repeats", "budget"),
    *("cache", "no_cache", "stages_of", "widths"),
)


@click.command("profile")
@click.argument("graph", type=PATH)
@platform_option
@own_options
@virtual_option
@devices_option
@cores_per_device_option
@partition_option
@output_option("costs.json")
@costs_options(
    "Seconds for repeating measurements until medians are known to within 2 %, and for measuring stages; stages that "
    "no time is left for are estimated by the contention model."
)
@settings_options(
    Profile,
    "widths",
    "stages_of",
    texts={
        "widths": "Platform cpu: also measure operators, and convolutions of one value merged into one, on this many "
        "devices at once. Schedules may then run what gains from it on several devices. May be given more than once.",
        "stages_of": "Measure the stages that this algorithm asks for; may be given more than once.",
    },
)
@click.pass_context
def profile_command(
    context: click.Context,
    /,
    graph: Path,
    platform: str,
    partition: Path | None,
    output: Path,
    budget: float,
    cache: Path | None,
    no_cache: bool,
    **settings: Any,
) -> None:
    """Measure the costs of the operators, stages and transfers of GRAPH, or predict them (platform model)."""
    options = take_own(platform, settings)
    if not PLATFORMS[platform].executes:
        _refuse_measuring(context, platform)
        check_outputs([graph], [output])
        from hios.profiling.predict import predict

        predicted = predict(Graph.read(graph), platform, settings["devices"], options)
        write(output, "costs", predicted)
        _print(output, predicted)
        return
    require_options(platform, options, virtual=settings["virtual"], cores_per_device=settings["cores_per_device"])
    check_cache(cache, no_cache)
    check_outputs([graph, partition], [output])
    if (division := partitioned(context, partition, graph)) is not None:
        settings["devices"], settings["cores_per_device"] = division
    from hios.profiling.cache import chosen_folder

    settings |= {"platform": platform, "options": options, "budget_s": budget}
    costs = files.profile(graph, output, cache=chosen_folder(cache or not no_cache), **settings)
    _print(output, costs)


def _refuse_measuring(context: click.Context, platform: str) -> None:
    for name in _MEASURING:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise HiosError(
                f"{option_of(name)}: found with platform {platform}, which measures nothing; allowed: without it"
            )


def _print(output: Path, costs: CostsFile) -> None:
    from hios.report.statements import profile_details, profile_summary

    for line in profile_details(costs):
        click.echo(line)
    click.echo(f"{output}: {profile_summary(costs)}")


#: Where the context of a call keeps its options for parameters.
_PARAMETERS = "hios.parameters"


def _parameter(name: str, users: list[tuple[Algorithm, Parameter]]) -> click.Option:
    """The option of a parameter; those of one name have one type, and one that is true or false is a flag.

    One that is true for some algorithm has a flag to set it to false too.
    """
    default = users[0][1].default
    names, text = [name, option(users[0][1])], parameter_help(users)
    if any(parameter.default is True for _, parameter in users):
        names[1] += f"/--no-{names[1].removeprefix('--')}"
        return click.Option(names, type=bool, default=None, help=text)
    if isinstance(default, bool):
        # Without flag_value, click 8.2.0 takes a flag that is given for one that is not.
        return click.Option(names, type=bool, is_flag=True, flag_value=True, default=None, help=text)
    return click.Option(names, type=type(default), default=None, help=text)


class _Schedule(click.Command):
    """Every parameter of every algorithm is an option, by its paper's name; help lists these options apart."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Import the algorithm from outside hios that is named first: its parameters are options too."""
        if set(args) & set(self.get_help_option_names(ctx)):
            load_all()
        for name in entry_points():
            if name in args or f"--algorithm={name}" in args:
                load(name)
        for before, word in itertools.pairwise(["", *args]):
            name = word if before == "--algorithm" else word.removeprefix("--algorithm=")
            if ":" in name and (before == "--algorithm" or name != word):
                find(name)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The options of the command, and one for each parameter of the algorithms that are registered."""
        theirs = ctx.meta.get(_PARAMETERS)
        if theirs is None:
            theirs = ctx.meta[_PARAMETERS] = [_parameter(name, users) for name, users in sorted(parameters().items())]
        return [*self.params, *theirs, *([] if (last := self.get_help_option(ctx)) is None else [last])]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": [], "Parameters of algorithms": []}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                theirs = parameter.name in parameters()
                sections["Parameters of algorithms" if theirs else "Options"].append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


@click.command("schedule", cls=_Schedule)
@click.argument("graph", type=PATH)
@click.argument("costs", type=PATH)
@click.option(
    "--algorithm", required=True, help="Name of the algorithm (see hios algorithms), or package.module:function."
)
@devices_option
@partition_option
@output_option("schedule.json")
@click.pass_context
def schedule_command(
    context: click.Context,
    /,
    graph: Path,
    costs: Path,
    algorithm: str,
    devices: int,
    partition: Path | None,
    output: Path,
    **parameters: Any,
) -> None:
    """Compute where and when each operator of GRAPH runs, given COSTS."""
    from hios.report.terminal import cuts_in_words, gap_in_words, widths_in_words
    from hios.schedulers import schedule as run

    find(algorithm)
    check_outputs([graph, costs, partition], [output])
    devices = (partitioned(context, partition, graph) or (devices,))[0]
    given = {name: value for name, value in parameters.items() if value is not None}
    problem = Problem.read(graph, costs)
    made = run(problem, algorithm, devices, given)
    made.write(output)
    bound, kind = made.lower_bound_ms, ""
    if made.staged_lower_bound_ms:
        bound, kind = made.staged_lower_bound_ms, "staged "
    gap = gap_in_words(made.latency_ms, bound, kind)
    if problem.disturbed:
        warn(f"{costs}: {problem.disturbed}; profile again on an idle machine")
        gap = gap.partition(" (no ")[0] + " by these costs"  # what is said of all schedules would hold for them only
    click.echo(
        f"{output}: predicted latency {made.latency_ms:.4g} ms on {devices} device(s), lower bound {bound:.4g} ms"
        f"{' for staged schedules' if kind else ''}, {gap}"
        + (f"; cuts: {cuts_in_words(made.cuts)}" if made.cuts else "")
        + (f"; several devices: {widths}" if (widths := widths_in_words(made)) else "")
        + (f"; costs {problem.predicted_for}" if problem.predicted_for else "")
    )


@click.command("retarget", short_help="Adapt a schedule to the same network with other shapes.")
@click.argument("schedule", type=PATH)
@click.argument("own", metavar="OLD_GRAPH", type=PATH)
@click.argument("graph", type=PATH)
@click.argument("costs", type=PATH)
@output_option("schedule.json")
def retarget_command(schedule: Path, own: Path, graph: Path, costs: Path, output: Path) -> None:
    """Adapt SCHEDULE, made for OLD_GRAPH, to GRAPH and COSTS: the same network with another batch or image size.

    The two graphs must have the same operators and edges, and differ only in shapes. The operators keep their devices
    and their order; the times are those of COSTS. So a schedule for one batch size runs with another.
    """
    from hios.core.retarget import retarget

    check_outputs((schedule, own, graph, costs), (output,))
    moved = retarget(Schedule.read(schedule), Graph.read(own), Problem.read(graph, costs))
    moved.write(output)
    click.echo(f"{output}: {moved.algorithm}, {moved.latency_ms:.6g} ms predicted on {moved.graph}")


@click.command("partition")
@click.argument("graph", type=PATH)
@click.argument("weights", type=PATH)
@output_option("partition.json")
@settings_options(PartitionSettings, "algorithm", "cores", "virtual")
@costs_options("Seconds for measuring the costs of each partition.")
@measuring_options
def partition_command(
    graph: Path, weights: Path, output: Path, budget: float, cache: Path | None, no_cache: bool, **settings: Any
) -> None:
    """Find the fastest partition of this machine's cores into devices for GRAPH.

    Candidates are one device with all cores, two with half of them each, and so on down to one core each. Each is
    predicted from costs measured on such devices; the promising ones then run in turns. Put the result into
    config.yaml as devices and cores_per_device.
    """
    check_cache(cache, no_cache)
    check_outputs([graph, weights], [output])
    from hios.optimizing.partition import partition
    from hios.platforms.workloads import load_weights
    from hios.profiling.cache import chosen_folder

    network = Graph.read(graph)
    chosen = PartitionSettings(budget_s=budget, cache=chosen_folder(cache or not no_cache), **settings)
    result = partition(network, load_weights(weights, network), chosen)
    write(output, "partition", result)
    for entry in result.partitions:
        latency = "not measured" if entry.latency_ms is None else f"{entry.latency_ms.median:.4g} ms measured"
        mark = " <" if (entry.devices, entry.cores_per_device) == (result.devices, result.cores_per_device) else ""
        click.echo(
            f"{entry.devices:>4} x {entry.cores_per_device:<4} {entry.predicted_ms:.4g} ms predicted, {latency}{mark}"
        )
    virtual = "; virtual devices: times say little" if result.virtual else ""
    division = f"devices: {result.devices}, cores_per_device: {result.cores_per_device}"
    click.echo(f"{output}: {division}: {result.reason}{virtual}")
