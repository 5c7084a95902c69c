"""What config.yaml says about serving: scenarios, policies and loads, and the files of the jobs."""

from __future__ import annotations

import os
from pathlib import Path

import yaml

from hios.errors import HiosError, suggestion
from hios.files import artifacts
from hios.files.yaml_file import plain, read_yaml
from hios.formats.config import Config
from hios.formats.scenario import ScenarioFile
from hios.pipeline import config
from hios.serving.policies import AUTO, LANES_ONLY, LEARNED_POLICIES, POLICIES

#: The scenario of all networks of a configuration that names none.
NETWORKS = "networks"
#: Folders of the results of a scenario: simulated, and run for real.
SIMULATED, MEASURED = "simulated", "measured"
#: Algorithms whose schedules policies use; an edit of one of them simulates again.
ALGORITHMS = ("gpg", "hios-lp", "ios", "nimble", "opara")


def checked(settings: Config, source: str) -> Config:
    """The configuration; HiosError if a policy is unknown, the platform has no times for it, or a scenario is wrong."""
    serving, gpu = settings.serving, settings.platform != "cpu"
    allowed = [*(name for name in POLICIES if not (gpu and name in LANES_ONLY)), *LEARNED_POLICIES, AUTO]
    for place, name in enumerate(serving.policies):
        if name not in allowed:
            where = f" with platform {settings.platform}" if gpu else ""
            found = f"found {name}{suggestion(name, allowed)}"
            raise HiosError(f"{source}: serving.policies[{place}]: {found}; allowed{where}: {', '.join(allowed)}")
    if serving.policies and not serving.scenarios and config.divides(settings):
        raise HiosError(
            f"{source}: serving.scenarios: missing; required with devices: auto: files that state their lanes"
        )
    if serving.measure and (cores := settings.cores_per_device or 1) > 1:
        raise HiosError(f"{source}: serving.measure: found true with cores_per_device {cores}; allowed with 1: true")
    if serving.measure and gpu:
        raise HiosError(f"{source}: serving.measure: found true; allowed with platform {settings.platform}: false")
    for label in labels(settings):
        with config.at(source, f"serving.scenarios.{label}"):
            _scenario(settings, label)
    return settings


def labels(settings: Config) -> list[str]:
    """Labels of the scenarios; none where there is no policy."""
    return list(settings.serving.scenarios or [NETWORKS]) if settings.serving.policies else []


def result_files(settings: Config) -> list[str]:
    """The results of all scenarios under all policies and loads."""
    kinds = [SIMULATED, MEASURED] if settings.serving.measure else [SIMULATED]
    return [
        f"{_folder(settings, label)}/{kind}/{policy}-{load:g}.json"
        for label in labels(settings)
        for kind in kinds
        for policy in settings.serving.policies
        for load in settings.serving.loads
    ]


def scenario_file(settings: Config, label: str) -> str:
    """The file of a scenario: the user's, or the one of all networks, which the pipeline writes."""
    given = settings.serving.scenarios.get(label)
    return f"{_folder(settings, label)}/scenario.yaml" if given is None else given


def simulate_options(settings: Config, label: str, policy: str, load: str) -> dict[str, str]:
    """Files that `hios simulate` takes besides the scenario, by option: a calibration where the scenario also runs."""
    return {**train_options(settings, label), **_weights(settings, label, policy, load)}


def load_options(settings: Config, label: str, policy: str, load: str) -> dict[str, str]:
    """Files that `hios load` takes besides the scenario, by option; a calibration only if it chooses something."""
    chooses = AUTO in (policy, _scenario(settings, label).launcher)
    calibration = train_options(settings, label) if chooses else {}
    return {**calibration, **_weights(settings, label, policy, load)}


def train_options(settings: Config, label: str) -> dict[str, str]:
    """Files that `hios train` takes besides the scenario, by option: a calibration where the scenario also runs."""
    return {"calibration": f"{_folder(settings, label)}/calibration.json"} if settings.serving.measure else {}


def trusted(settings: Config, label: str) -> bool:
    """Whether `hios load` is to trust the programs of a scenario, as the pipeline made some from a trusted file."""
    return label not in settings.serving.scenarios and any(entry.trusted for entry in settings.models.values())


def _weights(settings: Config, label: str, policy: str, load: str) -> dict[str, str]:
    """The launcher that is trained for policies that need it, and for auto beside them; a scenario's own goes first."""
    trains = any(name in LEARNED_POLICIES for name in settings.serving.policies)
    needed = policy in LEARNED_POLICIES or (policy == AUTO and trains)
    if not needed or _scenario(settings, label).top.weights:
        return {}
    return {"weights": f"{_folder(settings, label)}/launcher-{load}.safetensors"}


def _folder(settings: Config, label: str) -> str:
    return f"{settings.results}/serving/{label}"


def files_of(settings: Config, label: str) -> list[str]:
    """The files that a scenario names, relative to the working folder or absolute as the rules name the results."""
    folder = Path(scenario_file(settings, label)).parent
    named = os.path.abspath if Path(settings.results).is_absolute() else os.path.relpath
    return [named(folder / name) for name in _scenario(settings, label).files]


def _scenario(settings: Config, label: str) -> ScenarioFile:
    """The contents of a scenario's file, also of the one that the pipeline has yet to write."""
    if label not in settings.serving.scenarios:
        return networks_scenario(settings)
    path = scenario_file(settings, label)
    return artifacts.parsed(plain(read_yaml(path), path, ()), ScenarioFile, path)


def networks_scenario(settings: Config) -> ScenarioFile:
    """All networks of a configuration, each with tasks for an even share of the lanes' time; together all of it."""
    share = 1 / len(settings.models)
    models = {}
    for label in settings.models:
        onnx = config.model_of(settings, label).kind == "onnx"
        models[label] = {
            "graph": f"../../{label}/graph.json",
            "costs": f"../../{label}/costs.json",
            "weights": f"../../{label}/weights.safetensors",
            "program": f"../../{label}/program.{'onnx' if onnx else 'pt2'}",
            "share": share,
            "slo_scale": settings.serving.slo_scale,
        }
    data = {
        "models": models,
        "lanes": max(config.numbers_of_devices(settings), default=1) if settings.platform == "cpu" else 1,
        "duration_s": settings.serving.duration_s,
        "seed": settings.seed,
    }
    return artifacts.parsed(data, ScenarioFile, NETWORKS)


def networks_yaml(settings: Config) -> str:
    """The scenario of all networks as the text of its file."""
    return yaml.safe_dump(config.contents(networks_scenario(settings)), sort_keys=False)
