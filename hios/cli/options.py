"""Options that several commands have, and checks of what is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hios.defaults import PROFILE_BUDGET_S, REPEATS, RUNS, SEED, TIMEOUT_S, TOLERANCE, WARMUP
from hios.errors import HiosError
from hios.platforms import PLATFORMS, executable

PATH = click.Path(path_type=Path)

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

devices_option = click.option("--devices", type=int, default=1, show_default=True, help="Number of devices.")


def _refuse_predicting(context: click.Context, parameter: click.Parameter, platform: str) -> str:
    if not PLATFORMS[platform].executes:
        raise HiosError(
            f"--platform: found {platform}, which predicts costs and runs nothing; allowed: {', '.join(executable())}"
        )
    return platform


def _platform_option(names: Iterable[str], what: str, **more: Any) -> _Decorator:
    summaries = "; ".join(f"{name}: {PLATFORMS[name].summary}" for name in names)
    return click.option(
        "--platform",
        type=click.Choice(list(PLATFORMS)),
        default="cpu",
        show_default=True,
        help=f"{what}. {summaries}.",
        **more,
    )


#: Any platform, for costs; and one that schedules run on.
platform_option = _platform_option(PLATFORMS, "Where costs come from")
executing_option = _platform_option(
    executable(), "Where to run", callback=_refuse_predicting, metavar=f"[{'|'.join(executable())}]"
)


def own_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that only some platforms have; `given_own` takes them out of what a command is given."""
    for name, entry in reversed(PLATFORMS.items()):
        for option in reversed(entry.options):
            command = click.option(f"--{option.name}", help=f"Platform {name}: {option.help}")(command)
    return command


def given_own(platform: str, options: Mapping[str, str | None]) -> dict[str, str]:
    """Those of `own_options` that were given.

    Raises:
        HiosError: one is of another platform.
    """
    given = {name: value for name, value in options.items() if value is not None}
    for name, entry in PLATFORMS.items():
        for option in entry.options:
            if option.name in given and name != platform:
                raise HiosError(f"--{option.name}: found with platform {platform}; allowed: with platform {name}")
    return given


virtual_option = click.option(
    "--virtual",
    is_flag=True,
    help="Let several devices share a core or GPU if there are too few. Only for trying things out, as times then mean "
    "little.",
)
cores_per_device_option = click.option(
    "--cores-per-device",
    type=int,
    help="Platform cpu: number of cores of each device, used by threads inside each operator; default: 1, or the "
    "number that the costs of the schedules were measured with.",
)
other_hardware_option = click.option(
    "--other-hardware",
    is_flag=True,
    help="Run schedules whose costs were measured on another processor or other GPUs, which is refused otherwise; "
    "run.json states it.",
)
trust_option = click.option(
    "--trust", is_flag=True, help="Load a .pt2 file even if loading it can run code; only if you trust who made it."
)

_MEASURING = (
    click.option("--runs", type=int, default=RUNS, show_default=True, help="Timed runs of each competitor."),
    click.option("--warmup", type=int, default=WARMUP, show_default=True, help="Untimed runs before the timed ones."),
    click.option(
        "--tolerance",
        type=float,
        default=TOLERANCE,
        show_default=True,
        help="Allowed difference of outputs, absolute plus relative.",
    ),
    click.option(
        "--seed", type=int, default=SEED, show_default=True, help="Seed of the inputs and of the order of runs."
    ),
    click.option(
        "--timeout",
        "timeout_s",
        type=float,
        default=TIMEOUT_S,
        show_default=True,
        help="Longest time of one run, in seconds.",
    ),
)


partition_option = click.option(
    "--partition",
    type=PATH,
    help="partition.json that states the number of devices and their cores, as hios partition chose them.",
)


def partitioned(context: click.Context, partition: Path | None, graph: Path) -> tuple[int, int] | None:
    """Devices and cores of each as partition.json states them; None where none is given.

    Raises:
        HiosError: options that it replaces are given too, or the file breaks its format or is of another graph.
    """
    if partition is None:
        return None
    for name in ("devices", "cores_per_device"):
        if name in context.params and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise HiosError(
                f"--{name.replace('_', '-')}: found with --partition, which states it; allowed: one of them"
            )
    from hios import artifacts
    from hios.formats.partition_file import PartitionFile
    from hios.graph import Graph

    division, network = artifacts.load(partition, PartitionFile), Graph.read(graph)
    if division.graph_fingerprint != network.fingerprint:
        raise HiosError(
            f"{partition}: graph_fingerprint: found {division.graph_fingerprint}, of another graph than {graph}, "
            f"which has {network.fingerprint}; divide the cores again with hios partition"
        )
    return division.devices, division.cores_per_device


_LAUNCHERS = ("open", "deadline", "fixed", "water-filling", "auto")
_SERVING = (
    click.option(
        "--load",
        type=float,
        default=1.0,
        show_default=True,
        help="Factor for the rates of the scenario.",
    ),
    click.option(
        "--weights",
        type=PATH,
        help="Launcher that hios train --learn launcher wrote, for the policies learned and learned-static, and for "
        "auto; default: as the scenario states.",
    ),
    click.option(
        "--calibration",
        type=PATH,
        help="calibration.json of these models on this machine, as `hios load --calibrate` writes it; times of the "
        "simulator are then those of this machine.",
    ),
)


def output_option(what: str) -> _Decorator:
    """The option that names the file to write."""
    return click.option("--output", type=PATH, required=True, help=f"{what} to write.")


def measuring_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How competitors are measured; `check_measuring` checks what is given."""
    return _with_options(command, _MEASURING)


def costs_options(budget_help: str) -> _Decorator:
    """How costs are measured; `check_costs_options` checks what is given.

    Args:
        budget_help: what the time limit of the command is for.
    """
    options = (
        click.option(
            "--repeats",
            type=int,
            default=REPEATS,
            show_default=True,
            help="Minimum number of measurements of each operator and stage.",
        ),
        click.option("--budget", type=float, default=PROFILE_BUDGET_S, show_default=True, help=budget_help),
        click.option(
            "--cache",
            type=PATH,
            help="Folder of cached measurements, shared with other runs and networks; default: measurements in "
            "$HIOS_CACHE, else hios/measurements in the user's cache folder.",
        ),
        click.option("--no-cache", is_flag=True, help="Measure everything anew, and cache nothing."),
    )
    return lambda command: _with_options(command, options)


def check_costs_options(repeats: int, budget: float, cache: Path | None, no_cache: bool) -> None:
    """Refuse what `costs_options` cannot be.

    Raises:
        HiosError: one line with option, what was found and what is allowed.
    """
    if repeats < 1:
        raise HiosError(f"--repeats: found {repeats}; allowed: at least 1")
    if not 0 <= budget < math.inf:
        raise HiosError(f"--budget: found {budget:g}; allowed: at least 0, finite")
    if no_cache and cache is not None:
        raise HiosError(f"--no-cache: found with --cache {cache}; allowed: one of them")


def serving_options(*more_launchers: str) -> _Decorator:
    """How a scenario is served, simulated or for real.

    Args:
        *more_launchers: values that ``--launcher`` takes besides the launchers.
    """
    launcher = click.option(
        "--launcher",
        type=click.Choice([*_LAUNCHERS, *more_launchers]),
        help="When tasks leave the queues; auto: the best one in the simulator on other traces. Default: as the "
        "scenario states.",
    )
    return lambda command: _with_options(command, (launcher, *_SERVING))


def _with_options(command: Callable[..., Any], options: Sequence[_Decorator]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def check_measuring(settings: Mapping[str, Any]) -> None:
    """Refuse what `measuring_options` cannot be.

    Raises:
        HiosError: one line with option, what was found and what is allowed.
    """
    for name, least in (("runs", 1), ("warmup", 0)):
        if settings[name] < least:
            raise HiosError(f"--{name}: found {settings[name]}; allowed: at least {least}")
    check_comparing(settings["tolerance"], settings["timeout_s"])
    check_seed(settings["seed"])


def check_comparing(tolerance: float, timeout_s: float) -> None:
    """Refuse what the tolerance of outputs and the time limit of a run cannot be.

    Raises:
        HiosError: one line with option, what was found and what is allowed.
    """
    if not 0 < tolerance < math.inf:
        raise HiosError(f"--tolerance: found {tolerance}; allowed: more than 0, finite")
    if not 0 < timeout_s < math.inf:
        raise HiosError(f"--timeout: found {timeout_s}; allowed: more than 0 seconds, finite")


def check_seed(seed: int) -> None:
    """Refuse a seed that random generators do not take.

    Raises:
        HiosError: one line with option, what was found and what is allowed.
    """
    if not 0 <= seed < 2**63:
        raise HiosError(f"--seed: found {seed}; allowed: 0 to {2**63 - 1}")


def refuse_overwriting(inputs: Iterable[Path | None], outputs: Iterable[Path | None]) -> None:
    """Refuse an output in the place of an input, or of another output, which would be the end of it.

    Raises:
        HiosError: one line with the file.
    """
    read, written = {path.resolve() for path in inputs if path is not None}, set()
    for path in outputs:
        if path is None:
            continue
        if path.resolve() in read:
            raise HiosError(f"{path}: found an input named as output; allowed: another file")
        if path.resolve() in written:
            raise HiosError(f"{path}: found as the file of two outputs; allowed: a file for each")
        written.add(path.resolve())
