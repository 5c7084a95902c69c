"""config.yaml: validated, with defaults filled in and all names resolved before anything runs.

Snakemake reads the file and merges ``--config`` into it; `resolve` turns that into the settings of a run.
Settings become options of the commands that the pipeline calls, and options settings.
Light: neither torch nor Snakemake is imported.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hios import platforms
from hios.errors import HiosError, shown
from hios.files import artifacts
from hios.files.base import Record
from hios.files.yaml_file import plain, read_yaml, yaml_value
from hios.formats.config import AUTO_DEVICES, Config, ModelEntry, TopStudy
from hios.formats.settings import Scalar
from hios.frontends.models import RUNTIMES, Model, files, model
from hios.platforms.model import descriptions
from hios.schedulers import find
from hios.schedulers.plugins import find_unless_foreign
from hios.schedulers.registry import AUTO, Algorithm


def resolve(data: Any, source: str, *, cores: int | None = None, models: Path | None = None) -> Config:
    """The settings of a run: checked, and with nothing left open.

    The result is itself a valid configuration that resolves to itself (`contents`, `as_yaml`). A `HiosError` is a
    line with file, field, what was found and what is allowed.

    Args:
        data: what was read.
        source: the file's name, for the messages.
        cores: number of usable cores, which limits the devices on platforms whose devices are cores; unchecked if None.
        models: folder of the model files; the project's if None.
    """
    directory = models or artifacts.resource_directory("models")
    settings = _with_defaults(data, source, cores, directory, find)
    for label in settings.models:
        with at(source, f"models.{label}"):
            files(model(settings.models[label].model or label, directory), directory)
    _check_results(settings, source)
    return settings


def without_files(data: Any, source: str, *, cores: int | None = None, models: Path | None = None) -> Config:
    """Like `resolve`, but without looking up files, modules of models and algorithms, or the folder for the results.

    No code that the configuration names is run, and the result does not depend on the current folder. Algorithms of
    other packages keep the parameters that are given, unchecked.
    """
    return _with_defaults(data, source, cores, models or artifacts.resource_directory("models"), find_unless_foreign)


def _with_defaults(
    data: Any, source: str, cores: int | None, models: Path, known: Callable[[str], Algorithm | None]
) -> Config:
    """The settings with nothing left open; ``known`` finds an algorithm, or has None for one that is not looked up."""
    given = artifacts.parsed(normalized(data, source), Config, source)
    settings = msgspec.structs.replace(
        given,
        results=_normalized_results(given.results, source),
        models=_resolved_models(given, source, models),
        algorithms=_resolved_algorithms(given, source, known),
    )
    _check_platform(settings, source)
    _check_devices(settings, source, cores, known)
    _check_baselines(settings, source)
    return settings


def check_file(path: str) -> None:
    """Refuse a file that is not YAML, has a duplicate key or is no mapping, of which Snakemake does not say enough."""
    if not isinstance(data := read_yaml(path), dict):
        artifacts.parsed(normalized(data, path), Config, path)


def normalized(data: Any, source: str) -> Any:
    """The data with JSON types; a label without a value stands for all defaults.

    A `HiosError` refuses a key that is not text, and a value that JSON cannot represent.
    """
    given = plain(data, source, ())
    if isinstance(given, dict):
        for section in ("models", "algorithms"):
            if isinstance(given.get(section), dict):
                given[section] = {label: {} if e is None else e for label, e in given[section].items()}
    return given


def competitors(settings: Config) -> list[tuple[str, int | str]]:
    """What is scheduled and executed: labels of algorithms with a number of devices each, or ``auto``."""
    numbers: tuple[int | str, ...] = (1, AUTO_DEVICES) if divides(settings) else numbers_of_devices(settings)
    return [
        (label, devices)
        for label, entry in settings.algorithms.items()
        for devices in numbers
        if entry["algorithm"] != AUTO
        if (find(str(entry["algorithm"])).several_devices if devices != 1 else _on_one_device(settings, entry))
    ]


def _on_one_device(settings: Config, entry: Mapping[str, Scalar]) -> bool:
    """Whether an algorithm is also run for a single device."""
    return not divides(settings) or not find(str(entry["algorithm"])).several_devices


def divides(settings: Config) -> bool:
    """Whether the cores of the machine are divided into devices for each network (``devices: auto``)."""
    return settings.devices == AUTO_DEVICES


def numbers_of_devices(settings: Config) -> tuple[int, ...]:
    """The numbers of devices that the configuration states; none with ``devices: auto``."""
    return () if isinstance(settings.devices, str) else settings.devices


def chooses(settings: Config) -> bool:
    """Whether the fastest competitor is chosen by measurement (label ``auto``)."""
    return any(entry["algorithm"] == AUTO for entry in settings.algorithms.values())


def model_of(settings: Config, label: str) -> Model:
    """What the network of a label is."""
    return model(settings.models[label].model or label)


def platform_options(settings: Config) -> dict[str, str]:
    """The given options of those that only this platform has, by name."""
    names = [option.name for option in platforms.entry(settings.platform).options]
    return {name: value for name in names if (value := getattr(settings, name)) is not None}


def description_files(settings: Config, source: str) -> list[Path]:
    """The files that predicted costs depend on, none where measured; a `HiosError` for wrong options or files."""
    if not predicts(settings):
        return []
    try:
        return platforms.predicting(settings.platform).files(**platform_options(settings))
    except HiosError as error:
        raise HiosError(f"{source}: {error}") from error


def contents(value: Any) -> Any:
    """A record as dicts and lists, as a file has it: without its absent keys, with nothing left to defaults."""
    if isinstance(value, Record):
        fields = msgspec.structs.asdict(value)
        return {key: contents(item) for key, item in fields.items() if item is not None}
    if isinstance(value, dict):
        return {key: contents(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value


def as_yaml(settings: Config) -> str:
    """Settings as the text of a configuration file."""
    return yaml.safe_dump(contents(settings), sort_keys=False)


@contextlib.contextmanager
def at(source: str, field: str) -> Iterator[None]:
    """A context whose errors name a file and one of its fields."""
    try:
        yield
    except HiosError as error:
        raise HiosError(f"{source}: {field}: {error}") from error


def _resolved_models(settings: Config, source: str, directory: Path) -> dict[str, ModelEntry]:
    resolved = {}
    for label, entry in settings.models.items():
        with at(source, f"models.{label}"):
            known = model(label if entry.model is None else entry.model, directory)
            _check_model(known, entry)
        resolved[label] = entry if entry.model is not None else msgspec.structs.replace(entry, model=known.text)
    return resolved


def _check_model(known: Model, entry: ModelEntry) -> None:
    """Refuse settings that make no sense for a kind of model."""
    if entry.trusted and known.kind != "pt2":
        raise HiosError("trusted: found true; allowed: for .pt2 files, as loading other files runs no code")
    if entry.inputs and known.kind not in {"onnx", "pt2"}:
        raise HiosError(
            "inputs: found with another kind of model; allowed: for .onnx and .pt2 files with open dimensions"
        )
    named = set(entry.options or {})
    if twice := sorted(named & {"image_size", "batch_size", "classifier"}):
        raise HiosError(f"options: found {twice[0]}; allowed: as a key of its own, next to options")
    given = {key for key in ("image_size", "batch_size", "classifier") if getattr(entry, key)} | named
    if known.is_file and (extra := sorted(given - ({"batch_size"} if known.kind == "onnx" else set()))):
        raise HiosError(f"found {extra[0]}, but {known.text} holds a finished model; allowed: without it")


def _resolved_algorithms(
    settings: Config, source: str, known: Callable[[str], Algorithm | None]
) -> dict[str, dict[str, Scalar]]:
    resolved: dict[str, dict[str, Scalar]] = {}
    for label, entry in settings.algorithms.items():
        with at(source, f"algorithms.{label}"):
            name = str(entry.get("algorithm", label))
            if name == AUTO:
                _check_auto(settings, label, entry)
                resolved[label] = {"algorithm": AUTO}
                continue
            algorithm = known(name)
            given = {key: value for key, value in entry.items() if key != "algorithm"}
            if algorithm is None:
                resolved[label] = {"algorithm": name, **given}
                continue
            if any(parameter.name == "seed" for parameter in algorithm.parameters):
                given.setdefault("seed", settings.seed)
            # An algorithm package.module:function cannot be looked up by its name alone.
            resolved[label] = {"algorithm": name, **algorithm.resolved(given)}
    for index, name in enumerate(settings.profile.stages_of):
        with at(source, f"profile.stages_of[{index}]"):
            known(name)
    return resolved


def _check_auto(settings: Config, label: str, entry: Mapping[str, Scalar]) -> None:
    """Refuse a choice without alternatives, or by too few runs."""
    if label != AUTO or set(entry) - {"algorithm"}:
        raise HiosError(f"found the algorithm {AUTO} with another label or with parameters; allowed: {AUTO}: {{}}")
    if len(settings.algorithms) == 1:
        raise HiosError(f"found {AUTO} alone; allowed: together with other algorithms, as it is the fastest of them")
    if (runs := settings.execute.runs) < 12:
        raise HiosError(f"execute.runs: found {runs}; allowed with {AUTO}: at least 12, as every other one chooses")


def predicts(settings: Config) -> bool:
    """Whether costs are predicted and nothing is executed."""
    return not platforms.entry(settings.platform).executes


def _check_platform(settings: Config, source: str) -> None:
    """Refuse options that the platform does not support; their values are checked later."""
    platform = settings.platform
    for option in dict.fromkeys(option for entry in platforms.PLATFORMS.values() for option in entry.options):
        given, allowed = getattr(settings, option.name) is not None, platforms.with_option(option.name)
        if given and platform not in allowed:
            raise HiosError(
                f"{source}: {option.name}: found with platform {platform}; allowed: with platform "
                f"{' or '.join(allowed)}"
            )
        if option.required and not given and platform in allowed:
            raise HiosError(f"{source}: {option.name}: missing; required with platform {platform}: {option.required}")
    if (of_cores := _of_cores(settings)) and not platforms.find(settings.platform).GROUPS_CORES:
        raise HiosError(f"{source}: {of_cores[0]}: found with platform {settings.platform}; allowed: with platform cpu")
    if settings.virtual and not platforms.find(settings.platform).VIRTUAL:
        raise HiosError(f"{source}: virtual: found true; allowed with platform {settings.platform}: false")
    if predicts(settings) and chooses(settings):
        raise HiosError(
            f"{source}: algorithms: found {AUTO}, which chooses by measurements; allowed with platform "
            f"{settings.platform}: without it"
        )


def _check_devices(settings: Config, source: str, cores: int | None, known: Callable[[str], Algorithm | None]) -> None:
    if divides(settings):
        _check_division(settings, source)
        return
    devices = numbers_of_devices(settings)
    if not settings.virtual and cores is not None:
        limit = platforms.find(settings.platform).device_limit(cores, settings.cores_per_device or 1)
        if limit is not None and max(devices) > limit[0]:
            raise HiosError(f"{source}: devices: found {max(devices)}; allowed: at most {limit[0]}, {limit[1]}")
    if (widest := max(settings.profile.widths, default=0)) > max(devices):
        raise HiosError(
            f"{source}: profile.widths: found {widest}; allowed: at most {max(devices)}, the largest number of devices"
        )
    for label, algorithm in settings.algorithms.items():
        name = str(algorithm["algorithm"])
        if 1 in devices or name == AUTO:
            continue
        if (entry := known(name)) is not None and not entry.several_devices:
            raise HiosError(
                f"{source}: devices: found {list(devices)}; allowed: numbers with 1 among them, because "
                f"algorithms.{label} schedules a single device"
            )


def _check_division(settings: Config, source: str) -> None:
    """Refuse settings that need a known number of devices."""
    if not platforms.find(settings.platform).GROUPS_CORES:
        raise HiosError(f"{source}: devices: found auto with platform {settings.platform}; allowed: with platform cpu")
    for key in _of_cores(settings):
        raise HiosError(f"{source}: {key}: found with devices: auto; allowed: with numbers of devices")


def _of_cores(settings: Config) -> list[str]:
    """Keys that are given, of those for a stated number of devices that are cores or groups of them."""
    given = {"cores_per_device": settings.cores_per_device, "profile.widths": settings.profile.widths or None}
    return [key for key, value in given.items() if value is not None]


def _check_baselines(settings: Config, source: str) -> None:
    """Refuse baselines of other platforms."""
    if predicts(settings):
        return
    runtimes = platforms.find(settings.platform).RUNTIMES
    for name in settings.execute.baselines:
        if name not in runtimes:
            allowed = ", ".join(known for known in RUNTIMES if known in runtimes)
            raise HiosError(
                f"{source}: execute.baselines: found {name}; allowed on platform {settings.platform}: {allowed}"
            )


def _normalized_results(results: str, source: str) -> str:
    """The folder as paths in it begin, however they are made: Snakemake compares them as text."""
    folder = os.path.normpath(results)
    if Path(folder).name in ("", ".."):
        raise HiosError(f"{source}: results: found {results}; allowed: a folder of its own")
    return folder


def _check_results(settings: Config, source: str) -> None:
    folder = Path(settings.results)
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise HiosError(
                f"{source}: results: found {place}, which is a file; allowed: a folder, or a name not taken"
            )


#: More seconds than any profile takes, as JSON has no infinity.
_NO_BUDGET_S = 1e6
#: Least measurements of each entry with scale quick: IOS asks for thousands of stages.
_QUICK_REPEATS = 1


def export_options(entry: ModelEntry) -> str:
    """Settings of a network as options of ``hios export``."""
    given = {key: getattr(entry, key) for key in ("image_size", "batch_size", "classifier")}
    more = [f"{name}={_quoted(value)}" for name, value in (entry.options or {}).items()]
    shapes = [f"{name}={'x'.join(map(str, shape))}" for name, shape in (entry.inputs or {}).items()]
    return options({**given, "option": more, "input": shapes, "trust": entry.trusted})


def _quoted(value: Scalar) -> str:
    """The value in YAML on one line: text stays text, and true stays true."""
    if not isinstance(value, str):
        return json.dumps(value)
    return yaml.safe_dump(value, default_style='"', width=math.inf).removesuffix("\n")


def extract_options(entry: ModelEntry) -> str:
    """Settings of a network as options of ``hios extract``."""
    limits = [f"{name}={limit}" for name, limit in (entry.below or {}).items()]
    return options({"units": entry.units, "below": limits, "trust": entry.trusted})


def profile_options(settings: Config) -> str:
    """Settings of ``hios profile``."""
    if predicts(settings):
        return options(platform_options(settings))
    given = {**msgspec.structs.asdict(settings.profile), **_cache(settings)}
    return options({**given, **platform_options(settings), **_sharing(settings)})


def alone_options(settings: Config, algorithm: str) -> str:
    """Settings of ``hios profile`` that measure everything one algorithm asks for, with no cache and no time limit.

    With scale quick, each entry is measured once.
    """
    repeats = settings.profile.repeats
    alone = msgspec.structs.replace(
        settings.profile,
        stages_of=(algorithm,),
        repeats=min(repeats, _QUICK_REPEATS) if settings.study.scale == "quick" else repeats,
        budget=_NO_BUDGET_S,
        widths=(),
        cache=False,
    )
    return profile_options(msgspec.structs.replace(settings, profile=alone))


#: Training as in the paper, with scale full, unless the configuration has another amount than the default.
_PAPER = {"steps": 6000, "launcher_size": "paper", "launcher_steps": 8000}


def top_options(settings: Config, labels: Sequence[str]) -> str:
    """Settings of ``hios study top`` for scenarios with these labels."""
    given = msgspec.structs.asdict(settings.study.top)
    usual = msgspec.structs.asdict(TopStudy())
    batches, gpus, loads = (given.pop(name) for name in ("batches", "gpus", "loads"))
    if settings.study.scale == "full":
        given |= {name: value for name, value in _PAPER.items() if given[name] == usual[name]}
    varied = {"batch": batches, "stages_gpu": gpus, "top_load": loads}
    return options({"label": labels, "gpu": settings.gpu, **given, **varied})


def partition_options(settings: Config) -> str:
    """Settings of ``hios partition``."""
    measuring = {"repeats": settings.profile.repeats, "budget": settings.profile.budget, **_cache(settings)}
    return options({**measuring, **_runs(settings), "seed": settings.seed, "virtual": settings.virtual})


def _cache(settings: Config) -> dict[str, Any]:
    """Where measurements are kept: ``--cache`` and ``--no-cache``."""
    cache = settings.profile.cache
    return {"cache": cache if isinstance(cache, str) else None, "no_cache": cache is False}


def _runs(settings: Config) -> dict[str, Any]:
    """How often competitors run: ``--runs``, ``--warmup`` and ``--tolerance``."""
    executing = settings.execute
    return {"runs": executing.runs, "warmup": executing.warmup, "tolerance": executing.tolerance}


def _sharing(settings: Config) -> dict[str, Any]:
    """How devices share the machine: ``--virtual`` and ``--cores-per-device``."""
    return {"virtual": settings.virtual, "cores_per_device": settings.cores_per_device}


def execute_options(settings: Config, label: str) -> str:
    """Settings of ``hios execute`` for a network."""
    given = msgspec.structs.asdict(settings.execute)
    return options({**given, **_sharing(settings), "trust": settings.models[label].trusted})


def distribute_options(settings: Config, label: str) -> str:
    """Settings of ``hios distribute`` for a network."""
    executing = settings.execute
    given = {"cores_per_device": settings.cores_per_device, "other_hardware": executing.other_hardware}
    more = {"engine": executing.engine, "trust": settings.models[label].trusted}
    return options({**given, **_runs(settings), **more})


def schedule_options(entry: Mapping[str, Scalar]) -> str:
    """The parameters of an algorithm as options of ``hios schedule``; false is stated where it is not the default."""
    known = {parameter.name: parameter.default for parameter in find(str(entry["algorithm"])).parameters}
    off = {f"no_{name}": True for name, value in entry.items() if value is False and known.get(name) is True}
    return options({**entry, **off}, without="algorithm")


def top_files(settings: Config) -> list[str]:
    """The descriptions of GPUs that experiments of TOP read from files of the user's."""
    return [name for name in settings.study.top.gpus if name.endswith(descriptions.ENDINGS)]


def options(values: Mapping[str, Any], *, without: str = "") -> str:
    """Settings as options of the command line.

    ``{"window": 2, "stages_of": ["greedy"], "classifier": False}`` gives ``--window 2 --stages-of greedy``.

    Lists repeat the option, True is a flag, False and None leave it out. The key ``without`` is left out too.
    """
    words: list[str] = []
    for key, value in values.items():
        option = f"--{key.replace('_', '-')}"
        if key == without or value is False or value is None:
            continue
        if value is True:
            words.append(option)
            continue
        for item in value if isinstance(value, list | tuple) else [value]:
            words += [option, str(item)]
    return shlex.join(words)


def nested_values(entries: Iterable[str]) -> dict[str, Any]:
    """The lists, mappings, true and false among ``NAME=VALUE`` of ``--config``, which Snakemake takes for text.

    Of lists and mappings it does so with what is in them. ``["devices=[1, 2]", "seed=1"]`` gives
    ``{"devices": [1, 2]}``; a value that is not YAML is a `HiosError`.
    """
    nested = {}
    for entry in entries:
        name, _, value = entry.partition("=")
        if not (value.lstrip().startswith(("[", "{")) or value in ("true", "false")):
            continue
        try:
            read = yaml_value(value)
        except yaml.YAMLError as error:
            raise HiosError(f"--config: {name}: found {shown(value, quoted=False)}, which is not YAML") from error
        nested[name] = read
    return nested


def parsed_options(texts: Iterable[str], given: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Options of a model, some given as ``name=value`` with values as in YAML; a `HiosError` if a text is not that."""
    parsed: dict[str, Scalar] = dict(given)
    for text in texts:
        name, sign, value = text.partition("=")
        if not name.isidentifier() or not sign:
            raise HiosError(f"--option: found {text}; allowed: name=value")
        if name in parsed:
            raise HiosError(f"--option: {name} is given twice; allowed: once")
        try:
            read = yaml_value(value)
            read = read if isinstance(read, str) else plain(read, "--option", (name,))
        except yaml.YAMLError as error:
            raise HiosError(f"--option: {name}: found {value}, which is not YAML; put it in quotes") from error
        if not isinstance(read, str | int | float):
            raise HiosError(f"--option: {name}: found {value or 'nothing'}; allowed: text, a number, true or false")
        parsed[name] = read
    return parsed


def parsed_shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by input name, given as ``NAME=SIZES`` such as ``x=1x3x224x224``; a `HiosError` if a text is not that."""
    sizes = r"[1-9][0-9]{0,8}(x[1-9][0-9]{0,8})*"
    given = _by_name("--input", texts, sizes, "NAME=SIZES, such as x=1x3x224x224")
    return {name: tuple(map(int, value.split("x"))) for name, value in given.items()}


def parsed_limits(texts: Iterable[str]) -> dict[str, int]:
    """Limits by input name, given as ``NAME=NUMBER`` such as ``tokens=30522``; a `HiosError` if a text is not that."""
    given = _by_name("--below", texts, r"[1-9][0-9]{0,17}", "NAME=NUMBER, such as tokens=30522")
    return {name: int(value) for name, value in given.items()}


def _by_name(option: str, texts: Iterable[str], form: str, allowed: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in texts:
        name, _, value = text.rpartition("=")  # ONNX names may contain any character
        if not name or not re.fullmatch(form, value):
            raise HiosError(f"{option}: found {shown(text, quoted=False)}; allowed: {allowed}")
        if name in values:
            raise HiosError(f"{option}: {shown(name, quoted=False)} is given twice; allowed: once")
        values[name] = value
    return values
