"""Options that several commands have, and checks of what is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import click
import msgspec
from click.core import ParameterSource
from msgspec import inspect as types

from hios.core.graph import Graph
from hios.errors import HiosError
from hios.files.artifacts import load, require_writable
from hios.files.base import Record, meanings
from hios.formats.partition import PartitionFile
from hios.formats.scenario import LauncherKind
from hios.formats.settings import Measuring, Profile, Settings
from hios.platforms import PLATFORMS, executable, with_option

PATH = click.Path(path_type=Path)

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _SettingOption(click.Option):
    """An option made from a field of settings, whose text is looked up when help is shown."""

    def __init__(self, *arguments: Any, settings: type[Record], **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._settings = settings

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Names and help of the option."""
        if self.help is None:
            self.help = meanings(self._settings)[self.name or ""]
        return super().get_help_record(ctx)


def settings_options(
    settings: type[Record],
    *names: str,
    texts: Mapping[str, str] | None = None,
    spelled: Mapping[str, str] | None = None,
    ranges: bool = False,
) -> _Decorator:
    """Options made from fields of settings: name, type, default, and the text under the field as help.

    All fields of the class count if none is named. ``texts`` replaces the text under a field, ``spelled`` the name of
    its option; with ``ranges`` click refuses what breaks the limits of a field, in its own words.
    """
    fields = {field.name: field for field in _fields(settings)}
    options = []
    for name in names or fields:
        kind, several = _kind(fields[name].type)
        default = fields[name].default
        more: dict[str, Any] = {"help": (texts or {}).get(name)}
        if isinstance(kind, types.BoolType):
            more["is_flag"] = True
        else:
            # of a choice the values as declared, which msgspec sorts
            choices = get_args(get_type_hints(settings)[name]) if isinstance(kind, types.LiteralType) else ()
            more |= {"type": click.Choice(choices) if choices else _click_type(kind, ranges=ranges)}
            more |= {"multiple": several}
            more |= {} if default in (None, msgspec.NODEFAULT) else {"default": default, "show_default": True}
            if isinstance(kind, types.IntType | types.FloatType) and not (several or ranges):
                more["callback"] = partial(_check, fields[name])
        option = (spelled or {}).get(name, option_of(name))
        options.append(click.option(option, name, cls=_SettingOption, settings=settings, **more))
    return lambda command: _with_options(command, options)


def option_of(name: str) -> str:
    """The option of a setting, such as ``--timeout`` of ``timeout_s``."""
    return f"--{name.removesuffix('_s').replace('_', '-')}"


def _check(field: types.Field, _context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """The number that was given for a field, if any; a `HiosError` refuses what is beyond the limits of the field."""
    if value is None:
        return value
    kind, _ = _kind(field.type)
    within = value <= kind.le if kind.le is not None else value < math.inf  # which NaN is not
    if within and (kind.gt is None or value > kind.gt) and (kind.ge is None or value >= kind.ge):
        return value
    allowed = f"at least {kind.ge}" if kind.gt is None else f"more than {kind.gt}"
    if kind.le is not None:
        allowed = f"{kind.ge} to {kind.le}"
    elif isinstance(kind, types.FloatType):
        allowed += " seconds, finite" if field.name.endswith("_s") else ", finite"
    found = f"{value:g}" if isinstance(field.type, types.UnionType) else value  # an amount may be a whole number
    raise HiosError(f"{option_of(field.name)}: found {found}; allowed: {allowed}")


def _fields(settings: type[Record]) -> tuple[types.Field, ...]:
    return cast("types.StructType", types.type_info(settings)).fields


def _kind(declared: types.Type) -> tuple[Any, bool]:
    """What a value of a field is, and whether the field has several."""
    if isinstance(declared, types.Metadata):
        return _kind(declared.type)
    if isinstance(declared, types.VarTupleType):
        return _kind(declared.item_type)[0], True
    if isinstance(declared, types.UnionType):  # with None where it may be left out; or a number, whole or not
        return [kind for kind in declared.types if not isinstance(kind, types.NoneType)][-1], False
    return declared, False


def _click_type(kind: Any, *, ranges: bool) -> click.ParamType[Any]:
    if isinstance(kind, types.IntType):
        return click.IntRange(kind.ge, kind.le) if ranges else click.INT
    if isinstance(kind, types.FloatType):
        least = kind.ge if kind.gt is None else kind.gt
        return click.FloatRange(least, kind.le, min_open=kind.gt is not None) if ranges else click.FLOAT
    return click.STRING


def _with_options(command: Callable[..., Any], options: Sequence[_Decorator]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


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
    """The options that only some platforms have; `take_own` takes them out of what a command is given."""
    every = dict.fromkeys(option for entry in reversed(PLATFORMS.values()) for option in reversed(entry.options))
    for option in every:
        own = with_option(option.name)
        where = f"Platform {' or '.join(own)}: " if len(own) < len(PLATFORMS) else ""
        text = f"{where}{option.help}"
        command = click.option(f"--{option.name}", help=text[:1].upper() + text[1:])(command)
    return command


def take_own(platform: str, given: dict[str, Any]) -> dict[str, str]:
    """Take `own_options` out of what a command is given; a `HiosError` if one with a value is of another platform."""
    names = sorted({option.name for entry in PLATFORMS.values() for option in entry.options})
    own = {name: value for name in names if (value := given.pop(name)) is not None}
    for name in own:
        if platform not in (allowed := with_option(name)):
            raise HiosError(f"--{name}: found with platform {platform}; allowed: with platform {' or '.join(allowed)}")
    return own


virtual_option = settings_options(Settings, "virtual")
cores_per_device_option = settings_options(Settings, "cores_per_device")
other_hardware_option = settings_options(Settings, "other_hardware")
engine_option = settings_options(Settings, "engine")
measuring_options = settings_options(Measuring)
trust_option = click.option(
    "--trust", is_flag=True, help="Load a .pt2 file even if loading it can run code; only if you trust who made it."
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
            raise HiosError(f"{option_of(name)}: found with --partition, which states it; allowed: one of them")
    division, network = load(partition, PartitionFile), Graph.read(graph)
    if division.graph_fingerprint != network.fingerprint:
        raise HiosError(
            f"{partition}: graph_fingerprint: found {division.graph_fingerprint}, of another graph than {graph}, "
            f"which has {network.fingerprint}; divide the cores again with hios partition"
        )
    return division.devices, division.cores_per_device


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


def costs_options(budget_help: str) -> _Decorator:
    """How costs are measured, with what the time limit is for; `check_cache` checks what is given."""
    options = (
        settings_options(Profile, "repeats", "budget", texts={"budget": budget_help}),
        click.option(
            "--cache",
            type=PATH,
            help="Folder of cached measurements, shared with other runs and networks; default: measurements in "
            "$HIOS_CACHE, else hios/measurements in the user's cache folder.",
        ),
        click.option("--no-cache", is_flag=True, help="Measure everything anew, and cache nothing."),
    )
    return lambda command: _with_options(command, options)


def check_cache(cache: Path | None, no_cache: bool) -> None:
    """Refuse a cache and none, by a `HiosError`."""
    if no_cache and cache is not None:
        raise HiosError(f"--no-cache: found with --cache {cache}; allowed: one of them")


def serving_options(*more_launchers: str) -> _Decorator:
    """How a scenario is served, simulated or for real; ``--launcher`` may take more values than the launchers."""
    launcher = click.option(
        "--launcher",
        type=click.Choice([*get_args(LauncherKind), *more_launchers]),
        help="When tasks leave the queues; auto: the best one in the simulator on other traces. Default: as the "
        "scenario states.",
    )
    return lambda command: _with_options(command, (launcher, *_SERVING))


def check_outputs(inputs: Iterable[Path | None], outputs: Iterable[Path | None]) -> None:
    """Refuse what `refuse_overwriting` does, and outputs that cannot be written."""
    outputs = list(outputs)
    refuse_overwriting(inputs, outputs)
    for path in outputs:
        if path is not None:
            require_writable(path)


def refuse_overwriting(inputs: Iterable[Path | None], outputs: Iterable[Path | None]) -> None:
    """Refuse an output in the place of an input, or of another output, which would be the end of it."""
    read, written = {path.resolve() for path in inputs if path is not None}, set()
    for path in outputs:
        if path is None:
            continue
        if path.resolve() in read:
            raise HiosError(f"{path}: found an input named as output; allowed: another file")
        if path.resolve() in written:
            raise HiosError(f"{path}: found as the file of two outputs; allowed: a file for each")
        written.add(path.resolve())
