"""Settings of config.yaml as options of the commands that the pipeline calls, and options as settings."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from hios.errors import HiosError, shown
from hios.files.yaml_file import plain
from hios.formats.config import Config, ModelEntry
from hios.formats.settings import Scalar
from hios.pipeline.config import platform_options, predicts

#: More seconds than any profile takes, as JSON has no infinity.
_NO_BUDGET_S = 1e6
#: Least measurements of each entry with scale quick: IOS asks for thousands of stages.
_QUICK_REPEATS = 1


def export_options(entry: ModelEntry) -> str:
    """Settings of a network as options of ``hios export``."""
    given = {key: getattr(entry, key) for key in ("image_size", "batch_size", "classifier")}
    # JSON, as YAML too reads it: text stays text, and true stays true
    more = [f"{name}={json.dumps(value)}" for name, value in (entry.options or {}).items()]
    shapes = [f"{name}={'x'.join(map(str, shape))}" for name, shape in (entry.inputs or {}).items()]
    return options({**given, "option": more, "input": shapes, "trust": entry.trusted})


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


#: Training as in the paper, with scale full.
_PAPER = {"steps": 6000, "launcher_size": "paper", "launcher_steps": 8000}


def top_options(settings: Config, labels: Sequence[str]) -> str:
    """Settings of ``hios study top`` for scenarios with these labels."""
    given = msgspec.structs.asdict(settings.study.top)
    batches, gpus, loads = (given.pop(name) for name in ("batches", "gpus", "loads"))
    if settings.study.scale == "full":
        given |= _PAPER
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
    given = {"cores_per_device": settings.cores_per_device, "other_hardware": settings.execute.other_hardware}
    return options({**given, **_runs(settings), "trust": settings.models[label].trusted})


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
    """The lists and mappings among ``NAME=VALUE`` of ``--config``: Snakemake reads the values in them as text.

    ``["devices=[1, 2]", "seed=1"]`` gives ``{"devices": [1, 2]}``; a value that is not YAML is a `HiosError`.
    """
    nested = {}
    for entry in entries:
        name, _, value = entry.partition("=")
        if not value.lstrip().startswith(("[", "{")):
            continue
        try:
            read = yaml.safe_load(value)
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
            read = plain(yaml.safe_load(value), "--option", (name,))
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
