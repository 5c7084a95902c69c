"""config.yaml: validated, defaults filled in and every name looked up before anything runs.

Snakemake reads the file and merges ``--config`` into it; `resolve` turns that into the settings of a run.
Light: neither torch nor Snakemake is imported.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
import shlex
from collections.abc import Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from hios import artifacts, platforms
from hios.artifacts import Json
from hios.errors import ArtifactError, HiosError
from hios.models import RUNTIMES, Model, files, model
from hios.schedulers import find
from hios.schedulers.registry import AUTO

# YAML 1.1, which PyYAML reads, takes 1e-4 for text; people and YAML 1.2 take it for a number.
_EXPONENT = re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+")


def resolve(data: Any, source: str, *, cores: int | None = None, models: Path | None = None) -> Json:
    """The settings of a run: checked, and with nothing left open.

    The result is itself a valid configuration that resolves to itself.

    Args:
        data: what was read.
        source: the file's name, for the messages.
        cores: how many cores can be used, which limits the devices of platforms that have a core each; unchecked if
            None.
        models: where the model files lie; the project's if None.

    Raises:
        HiosError: one line with file, field, what was found and what is allowed.
    """
    given = normalised(data, source)
    artifacts.validate(given, "config", source)
    settings: Json = _filled(given, artifacts.schema("config"))
    _resolve_models(settings, source, models or artifacts.resource_directory("models"))
    _resolve_algorithms(settings, source)
    _check_devices(settings, source, cores)
    _check_baselines(settings, source)
    _check_results(settings, source)
    return settings


def normalised(data: Any, source: str) -> Any:
    """What was read as JSON knows it; a label with nothing behind it means defaults.

    Raises:
        HiosError: a key that is not text, or a value that JSON does not know.
    """
    given = _plain(data, source, ())
    if isinstance(given, dict):
        for section in ("models", "algorithms"):
            if isinstance(given.get(section), dict):
                given[section] = {label: {} if e is None else e for label, e in given[section].items()}
    return given


def read_yaml(path: str | Path) -> Any:
    """What a YAML file holds.

    Raises:
        ArtifactError: unreadable, not YAML, or a key given twice; one line with file and line.
    """
    refuse_repeated_keys(path)
    return yaml.safe_load(Path(path).read_text(encoding="utf-8"))


def competitors(settings: Json) -> list[tuple[str, int]]:
    """What is scheduled and executed: labels of algorithms with a number of devices each."""
    return [
        (label, devices)
        for label, entry in settings["algorithms"].items()
        for devices in settings["devices"]
        if entry["algorithm"] != AUTO
        if devices == 1 or find(entry["algorithm"]).several_devices
    ]


def chooses(settings: Json) -> bool:
    """Whether the fastest of what is executed is chosen."""
    return any(entry["algorithm"] == AUTO for entry in settings["algorithms"].values())


def model_of(settings: Json, label: str) -> Model:
    """What the network of a label is."""
    return model(settings["models"][label]["model"])


def export_options(entry: Json) -> str:
    """Settings of a network as options of ``hios export``."""
    given: Json = {key: entry[key] for key in ("image_size", "batch_size", "classifier") if key in entry}
    # JSON, as YAML too reads it: text stays text, and true stays true
    more = [f"{name}={json.dumps(value)}" for name, value in entry.get("options", {}).items()]
    return options({**given, "option": more, "trust": entry.get("trusted", False)})


def extract_options(entry: Json) -> str:
    """Settings of a network as options of ``hios extract``."""
    units = {"units": entry["units"]} if "units" in entry else {}
    return options({**units, "trust": entry.get("trusted", False)})


def profile_options(settings: Json) -> str:
    """Settings of ``hios profile``."""
    given = {key: value for key, value in settings["profile"].items() if key != "cache"}
    cache: bool | str = settings["profile"]["cache"]
    kept = {"cache": cache} if isinstance(cache, str) else {"no_cache": not cache}
    own = {option.name: settings.get(option.name) for option in platforms.entry(settings["platform"]).options}
    return options({**given, **kept, **own, "virtual": settings["virtual"]})


def execute_options(settings: Json, label: str) -> str:
    """Settings of ``hios execute`` for a network."""
    trusted = settings["models"][label].get("trusted", False)
    return options({**settings["execute"], "virtual": settings["virtual"], "trust": trusted})


def parsed_options(texts: Iterable[str], given: Json) -> Json:
    """Options of a model, of which some are given as ``name=value`` with values as in YAML.

    Raises:
        HiosError: one without a name, with a value that is no text, number, true or false, or one given twice.
    """
    found = dict(given)
    for text in texts:
        name, sign, value = text.partition("=")
        if not name.isidentifier() or not sign:
            raise HiosError(f"--option: found {text}; allowed: name=value")
        if name in found:
            raise HiosError(f"--option: {name} is given twice; allowed: once")
        try:
            found[name] = _plain(yaml.safe_load(value), "--option", (name,))
        except yaml.YAMLError as error:
            raise HiosError(f"--option: {name}: found {value}, which is not YAML; put it in quotes") from error
        if not isinstance(found[name], str | int | float):
            raise HiosError(f"--option: {name}: found {value or 'nothing'}; allowed: text, a number, true or false")
    return found


def options(values: Mapping[str, Any], *, without: str = "") -> str:
    """Settings as options of the command line.

    ``{"window": 2, "stages_of": ["greedy"], "classifier": False}`` gives ``--window 2 --stages-of greedy``.

    Args:
        values: the settings; lists repeat the option, True is a flag, False leaves it out.
        without: a key to leave out.
    """
    words: list[str] = []
    for key, value in values.items():
        option = f"--{key.replace('_', '-')}"
        if key == without or value is False:
            continue
        if value is True:
            words.append(option)
            continue
        for item in value if isinstance(value, list) else [value]:
            words += [option, str(item)]
    return shlex.join(words)


def as_yaml(settings: Json) -> str:
    """Settings as the text of a configuration file."""
    return yaml.safe_dump(settings, sort_keys=False)


def refuse_repeated_keys(path: str | Path) -> None:
    """Refuse a YAML file that gives a key twice: YAML readers silently take the last one.

    Raises:
        ArtifactError: unreadable, not YAML, or a key given twice; one line with file and line.
    """
    path = Path(path)
    try:
        tree = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise ArtifactError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ArtifactError(f"{path}: not a text file: byte {error.start} is not UTF-8; expected YAML") from error
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ArtifactError(f"{path}: {line}not valid YAML ({error.problem or error.context})") from error
    except yaml.YAMLError as error:
        raise ArtifactError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    for first, second in _repeated(tree, set()):
        raise ArtifactError(
            f"{path}: line {second.start_mark.line + 1}: key {second.value} is given again; "
            f"allowed: once (it is on line {first.start_mark.line + 1})"
        )


def _repeated(node: Any, visited: set[int]) -> Iterator[tuple[Any, Any]]:
    if id(node) in visited:  # an anchor may be used many times, also within itself
        return
    visited.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _repeated(item, visited)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[Hashable, Any] = {}
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    yield seen[key.value], key
                seen[key.value] = key
            yield from _repeated(value, visited)


def _plain(value: Any, source: str, place: tuple[str | int, ...]) -> Any:
    """The value as JSON knows it: plain dictionaries, text as keys, 2.0 as 2, and no dates."""
    field = ".".join(map(str, place)) or "(whole file)"
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise HiosError(
                    f"{source}: {field}: found the key {key}, which YAML reads as {type(key).__name__}; "
                    "allowed: text, put it in quotes"
                )
        return {key: _plain(item, source, (*place, key)) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, source, (*place, index)) for index, item in enumerate(value)]
    if isinstance(value, str) and _EXPONENT.fullmatch(value):
        value = float(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)  # JSON Schema takes 2.0 for an integer; file names and commands need 2
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise HiosError(
        f"{source}: {field}: found {value}, which YAML reads as {type(value).__name__}; "
        "allowed: text or a number; put text in quotes"
    )


def _filled(value: Any, rule: Any) -> Any:
    """The value with the schema's defaults, in the schema's order."""
    if not isinstance(value, dict):
        return value
    known: Json = rule.get("properties", {})
    default = {key: copy.deepcopy(part["default"]) for key, part in known.items() if "default" in part}
    present = {**default, **value}
    ordered = [*(key for key in known if key in present), *(key for key in present if key not in known)]
    return {key: _filled(present[key], known.get(key, rule.get("additionalProperties"))) for key in ordered}


@contextlib.contextmanager
def _at(source: str, field: str) -> Iterator[None]:
    try:
        yield
    except HiosError as error:
        raise HiosError(f"{source}: {field}: {error}") from error


def _resolve_models(settings: Json, source: str, directory: Path) -> None:
    for label, entry in settings["models"].items():
        with _at(source, f"models.{label}"):
            found = model(entry.get("model", label), directory)
            files(found, directory)
            _check_model(found, entry)
        settings["models"][label] = {"model": found.text, **entry}


def _check_model(found: Model, entry: Json) -> None:
    """Refuse settings that make no sense for a kind of model."""
    if entry.get("trusted") and found.kind != "pt2":
        raise HiosError("trusted: found true; allowed: for .pt2 files, as loading others runs no code of theirs")
    named = set(entry.get("options", {}))
    if twice := sorted(named & {"image_size", "batch_size", "classifier"}):
        raise HiosError(f"options: found {twice[0]}; allowed: beside options, not among them")
    given = {key for key in ("image_size", "batch_size", "classifier") if entry.get(key)} | named
    if found.is_file and (extra := sorted(given - ({"batch_size"} if found.kind == "onnx" else set()))):
        raise HiosError(f"found {extra[0]}, but {found.text} holds a finished model; allowed: without it")


def _resolve_algorithms(settings: Json, source: str) -> None:
    for label, entry in settings["algorithms"].items():
        with _at(source, f"algorithms.{label}"):
            if entry.get("algorithm", label) == AUTO:
                _check_auto(settings, label, entry)
                settings["algorithms"][label] = {"algorithm": AUTO}
                continue
            algorithm = find(entry.get("algorithm", label))
            given = {key: value for key, value in entry.items() if key != "algorithm"}
            if any(parameter.name == "seed" for parameter in algorithm.parameters):
                given.setdefault("seed", settings["seed"])
            settings["algorithms"][label] = {"algorithm": algorithm.name, **algorithm.resolved(given)}
    for index, name in enumerate(settings["profile"]["stages_of"]):
        with _at(source, f"profile.stages_of[{index}]"):
            find(name)


def _check_auto(settings: Json, label: str, entry: Json) -> None:
    """Refuse a choice without alternatives, or by too few runs."""
    if label != AUTO or set(entry) - {"algorithm"}:
        raise HiosError(f"found the algorithm {AUTO} with another label or with parameters; allowed: {AUTO}: {{}}")
    if len(settings["algorithms"]) == 1:
        raise HiosError(f"found {AUTO} alone; allowed: beside other algorithms, as it is the fastest of them")
    if (runs := settings["execute"]["runs"]) < 12:
        raise HiosError(f"execute.runs: found {runs}; allowed with {AUTO}: at least 12, as every other one chooses")


def _check_devices(settings: Json, source: str, cores: int | None) -> None:
    devices: list[int] = settings["devices"]
    platform = platforms.find(settings["platform"])
    if settings["virtual"] and not platform.VIRTUAL:
        raise HiosError(
            f"{source}: virtual: found true; allowed on platform {settings['platform']}: false, as its devices share "
            "nothing"
        )
    limit = None if settings["virtual"] or cores is None else platform.device_limit(cores)
    if limit is not None and max(devices) > limit[0]:
        raise HiosError(f"{source}: devices: found {max(devices)}; allowed: at most {limit[0]}, {limit[1]}")
    for label, entry in settings["algorithms"].items():
        if 1 not in devices and entry["algorithm"] != AUTO and not find(entry["algorithm"]).several_devices:
            raise HiosError(
                f"{source}: devices: found {devices}; allowed: numbers with 1 among them, because "
                f"algorithms.{label} schedules a single device"
            )


def _check_baselines(settings: Json, source: str) -> None:
    """Refuse what runs a model on another platform only."""
    name = settings["platform"]
    if not platforms.entry(name).executes:
        return
    runtimes = platforms.find(name).RUNTIMES
    for baseline in settings["execute"]["baselines"]:
        if baseline not in runtimes:
            allowed = ", ".join(known for known in RUNTIMES if known in runtimes)
            raise HiosError(f"{source}: execute.baselines: found {baseline}; allowed on platform {name}: {allowed}")


def _check_results(settings: Json, source: str) -> None:
    folder = Path(settings["results"])
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise HiosError(
                f"{source}: results: found {place}, which is a file; allowed: a folder, or a name not taken"
            )
