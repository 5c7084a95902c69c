"""config.yaml: validated, with defaults filled in and all names resolved before anything runs.

Snakemake reads the file and merges ``--config`` into it; `resolve` turns that into the settings of a run.
Light: neither torch nor Snakemake is imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from hios import platforms
from hios.errors import HiosError
from hios.files import artifacts
from hios.files.base import Record
from hios.files.yaml_file import plain
from hios.formats.config import AUTO_DEVICES, Config, ModelEntry
from hios.formats.settings import Scalar
from hios.frontends.models import RUNTIMES, Model, files, model
from hios.schedulers import find
from hios.schedulers.registry import AUTO


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
    settings = without_files(data, source, cores=cores, models=directory)
    for label in settings.models:
        with _at(source, f"models.{label}"):
            files(model(settings.models[label].model or label, directory), directory)
    _check_results(settings, source)
    return settings


def without_files(data: Any, source: str, *, cores: int | None = None, models: Path | None = None) -> Config:
    """Like `resolve`, but without looking up files and modules of models, or the folder for the results.

    The result does not depend on the current folder.
    """
    given = artifacts.parsed(normalized(data, source), Config, source)
    settings = msgspec.structs.replace(
        given,
        models=_resolved_models(given, source, models or artifacts.resource_directory("models")),
        algorithms=_resolved_algorithms(given, source),
    )
    _check_platform(settings, source)
    _check_devices(settings, source, cores)
    _check_baselines(settings, source)
    return settings


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
    """The files that predicted costs depend on; none where costs are measured.

    Raises:
        HiosError: an option of the platform is not what it may be, or a file breaks its format.
    """
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
def _at(source: str, field: str) -> Iterator[None]:
    try:
        yield
    except HiosError as error:
        raise HiosError(f"{source}: {field}: {error}") from error


def _resolved_models(settings: Config, source: str, directory: Path) -> dict[str, ModelEntry]:
    resolved = {}
    for label, entry in settings.models.items():
        with _at(source, f"models.{label}"):
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


def _resolved_algorithms(settings: Config, source: str) -> dict[str, dict[str, Scalar]]:
    resolved: dict[str, dict[str, Scalar]] = {}
    for label, entry in settings.algorithms.items():
        with _at(source, f"algorithms.{label}"):
            name = str(entry.get("algorithm", label))
            if name == AUTO:
                _check_auto(settings, label, entry)
                resolved[label] = {"algorithm": AUTO}
                continue
            algorithm = find(name)
            given = {key: value for key, value in entry.items() if key != "algorithm"}
            if any(parameter.name == "seed" for parameter in algorithm.parameters):
                given.setdefault("seed", settings.seed)
            # An algorithm package.module:function cannot be looked up by its name alone.
            resolved[label] = {"algorithm": name, **algorithm.resolved(given)}
    for index, name in enumerate(settings.profile.stages_of):
        with _at(source, f"profile.stages_of[{index}]"):
            find(name)
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
    for name, entry in platforms.PLATFORMS.items():
        for option in entry.options:
            given = getattr(settings, option.name) is not None
            if given and name != settings.platform:
                raise HiosError(
                    f"{source}: {option.name}: found with platform {settings.platform}; allowed: with platform {name}"
                )
            if option.required and not given and name == settings.platform:
                raise HiosError(f"{source}: {option.name}: missing; required with platform {name}: {option.required}")
    if (of_cores := _of_cores(settings)) and not platforms.find(settings.platform).GROUPS_CORES:
        raise HiosError(f"{source}: {of_cores[0]}: found with platform {settings.platform}; allowed: with platform cpu")
    if settings.virtual and not platforms.find(settings.platform).VIRTUAL:
        raise HiosError(f"{source}: virtual: found true; allowed with platform {settings.platform}: false")
    if predicts(settings) and chooses(settings):
        raise HiosError(
            f"{source}: algorithms: found {AUTO}, which chooses by measurements; allowed with platform "
            f"{settings.platform}: without it"
        )


def _check_devices(settings: Config, source: str, cores: int | None) -> None:
    if divides(settings):
        _check_division(settings, source)
        return
    devices = numbers_of_devices(settings)
    unlimited = settings.virtual or cores is None
    limit = (
        None
        if unlimited
        else platforms.find(settings.platform).device_limit(cores or 0, settings.cores_per_device or 1)
    )
    if limit is not None and max(devices) > limit[0]:
        raise HiosError(f"{source}: devices: found {max(devices)}; allowed: at most {limit[0]}, {limit[1]}")
    if (widest := max(settings.profile.widths, default=0)) > max(devices):
        raise HiosError(
            f"{source}: profile.widths: found {widest}; allowed: at most {max(devices)}, the largest number of devices"
        )
    for label, algorithm in settings.algorithms.items():
        name = str(algorithm["algorithm"])
        if 1 not in devices and name != AUTO and not find(name).several_devices:
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


def _check_results(settings: Config, source: str) -> None:
    folder = Path(settings.results)
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise HiosError(
                f"{source}: results: found {place}, which is a file; allowed: a folder, or a name not taken"
            )
