"""What config.yaml says about serving."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hios.errors import HiosError
from hios.files import artifacts
from hios.formats.config import Config
from hios.formats.scenario import ScenarioFile
from hios.pipeline import config
from hios.serving import jobs
from hios.serving.scenario import Scenario
from tests.serving.scenarios import written

ROOT = Path(__file__).resolve().parents[2]


def configured(tmp_path: Path, serving: dict[str, Any], **more: Any) -> Config:
    """A configuration of two networks."""
    models = {"left": {"model": "left.pt2"}, "right": {"model": "right.onnx"}}
    data = {"models": models, "algorithms": {"sequential": {}}, "serving": serving, **more}
    return config.without_files(data, "config.yaml", models=tmp_path)


def test_nothing_without_policies(tmp_path: Path) -> None:
    """Serving is left out by default."""
    settings = configured(tmp_path, {})
    assert jobs.labels(settings) == jobs.result_files(settings) == []


def test_files_of_results(tmp_path: Path) -> None:
    """One for every scenario, policy and load, and one more where it also runs."""
    settings = configured(tmp_path, {"policies": ["top", "auto"], "loads": [0.5, 1], "measure": True})
    paths = jobs.result_files(settings)
    assert len(paths) == len(set(paths)) == 8
    assert paths[0] == "results/serving/networks/simulated/top-0.5.json"
    assert paths[-1] == "results/serving/networks/measured/auto-1.json"


def test_files_that_commands_take_besides_the_scenario(tmp_path: Path) -> None:
    """A calibration where the scenario also runs, and a launcher of the load for learned policies and auto."""
    calibration = {"calibration": "results/serving/networks/calibration.json"}
    weights = {"weights": "results/serving/networks/launcher-0.5.safetensors"}
    plain = configured(tmp_path, {"policies": ["top", "auto"]})
    for options in (jobs.simulate_options, jobs.load_options):
        assert options(plain, "networks", "top", "0.5") == options(plain, "networks", "auto", "0.5") == {}
    settings = configured(tmp_path, {"policies": ["top", "learned", "auto"], "measure": True})
    assert jobs.checked(settings, "config.yaml") is settings
    assert jobs.train_options(settings, "networks") == calibration
    expected = {"top": calibration, "learned": {**calibration, **weights}, "auto": {**calibration, **weights}}
    assert {name: jobs.simulate_options(settings, "networks", name, "0.5") for name in expected} == expected
    expected = {"top": {}, "learned": weights, "auto": {**calibration, **weights}}
    assert {name: jobs.load_options(settings, "networks", name, "0.5") for name in expected} == expected


def test_programs_are_trusted_in_the_pipelines_own_scenario(tmp_path: Path) -> None:
    """That of all networks has programs made from a trusted file; what a scenario of the user's names is not meant."""
    models = {"left": {"model": "left.pt2", "trusted": True}, "right": {"model": "right.pt2"}}
    settings = configured(tmp_path, {"policies": ["top"], "scenarios": {"mine": "mine.yaml"}}, models=models)
    assert jobs.trusted(settings, jobs.NETWORKS)
    assert not jobs.trusted(settings, "mine")
    assert not jobs.trusted(configured(tmp_path, {"policies": ["top"]}), jobs.NETWORKS)


def test_scenarios_that_say_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with a launcher of its own keeps it; with launcher auto, a run of any policy takes the calibration."""
    monkeypatch.chdir(tmp_path)
    models = {"left": {"graph": "graph.json", "costs": "costs.json", "rate": 1}}
    data = {"models": models, "launcher": "auto", "top": {"weights": "own.safetensors"}}
    Path("mine.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    serving = {"policies": ["top", "learned"], "measure": True, "scenarios": {"mine": "mine.yaml"}}
    settings = configured(tmp_path, serving)
    calibration = {"calibration": "results/serving/mine/calibration.json"}
    for options in (jobs.simulate_options, jobs.load_options):
        assert options(settings, "mine", "top", "1") == options(settings, "mine", "learned", "1") == calibration
    assert "own.safetensors" in jobs.files_of(settings, "mine")


def test_the_scenario_of_all_networks(tmp_path: Path) -> None:
    """It asks for all of the lanes' time at load 1, an even share of it for each network, with SLOs by their time."""
    settings = configured(tmp_path, {"policies": ["top"], "duration_s": 3, "slo_scale": 4}, seed=7)
    results = tmp_path / "results"
    written(results)
    path = results / "serving" / "networks" / "scenario.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(jobs.networks_yaml(settings), encoding="utf-8")
    scenario = Scenario.read(path)
    assert (scenario.lanes, scenario.duration_s, scenario.file.seed) == (2, 3.0, 7)
    alone_ms = {model.label: sum(model.problem.time) for model in scenario.models}
    for model in scenario.models:
        assert model.rate * alone_ms[model.label] / 1e3 == pytest.approx(scenario.lanes / 2)
        assert model.settings.slo_ms == pytest.approx(4 * alone_ms[model.label])
        assert model.settings.share is None
    assert Scenario.read(path, load=0.5).models[0].rate == pytest.approx(scenario.models[0].rate / 2)


def test_files_that_scenarios_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the working folder, as the rules name them."""
    monkeypatch.chdir(tmp_path)
    settings = configured(tmp_path, {"policies": ["top"]})
    named = jobs.files_of(settings, "networks")
    kept = ("graph.json", "costs.json", "weights.safetensors")
    assert named == [
        *(f"results/left/{name}" for name in (*kept, "program.pt2")),
        *(f"results/right/{name}" for name in (*kept, "program.onnx")),
    ]
    Path("mine").mkdir()
    models = {"left": {"graph": "../a/graph.json", "costs": "/b/costs.json"}}
    data = {"models": models, "arrivals": "tasks.csv", "top": {"stages": "gpg", "stage_policy": "gpg.safetensors"}}
    Path("mine/scenario.yaml").write_text(yaml.safe_dump(data), encoding="utf-8")
    settings = configured(tmp_path, {"policies": ["top"], "scenarios": {"mine": "mine/scenario.yaml"}})
    assert jobs.files_of(settings, "mine")[:3] == ["mine/tasks.csv", "mine/gpg.safetensors", "a/graph.json"]
    absolute = msgspec.structs.replace(configured(tmp_path, {"policies": ["top"]}), results=f"{tmp_path}/results")
    assert jobs.files_of(absolute, "networks")[0] == f"{tmp_path}/results/left/graph.json"
    with pytest.raises(HiosError, match=r"none\.yaml: cannot be read"):
        jobs.files_of(configured(tmp_path, {"policies": ["top"], "scenarios": {"x": "none.yaml"}}), "x")


@pytest.mark.parametrize(
    ("name", "loads", "sessions"),
    [
        ("config", (1, 4, 8), ("serving", "top")),
        ("shares_a100", (0.5, 0.8, 1.2), ()),
        ("shares_cpu", (0.5, 0.8, 1.2), ()),
    ],
)
def test_the_examples_of_the_papers_rates(
    name: str, loads: tuple[float, ...], sessions: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of examples/top are valid, and their scenarios read what their networks are profiled to."""
    monkeypatch.chdir(ROOT)
    source = ROOT / "examples" / "top" / f"{name}.yaml"
    settings = config.without_files(yaml.safe_load(source.read_text(encoding="utf-8")), source.name)
    assert jobs.checked(settings, source.name).study.sessions == sessions
    assert settings.serving.loads == loads
    known = {f"{settings.results}/{label}/{name}" for label in settings.models for name in ("graph.json", "costs.json")}
    for path in settings.serving.scenarios.values():
        data = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
        file = artifacts.parsed(data, ScenarioFile, path)
        assert file.rates == ("per-second" if name == "config" else "of-capacity")
        named = {Path(path).parent / name for model in file.models.values() for name in (model.graph, model.costs)}
        assert {os.path.normpath(name) for name in named} <= known


@pytest.mark.parametrize(
    ("serving", "more", "message"),
    [
        ({"policies": ["top"]}, {"devices": "auto"}, "serving.scenarios: missing; required with devices: auto"),
        ({"measure": True}, {"cores_per_device": 2}, "found true with cores_per_device 2; allowed with 1: true"),
        ({"policies": ["top-opn"]}, {}, r"found top-opn \(did you mean top-open\?\); allowed: sequential, "),
        ({"policies": ["fast"]}, {}, r"serving.policies\[0\]: found fast; allowed: sequential, "),
        (
            {"policies": ["top", "top-open"]},
            {"platform": "cuda"},
            r"serving.policies\[1\]: found top-open; allowed with platform",
        ),
        ({"measure": True}, {"platform": "cuda"}, "serving.measure: found true; allowed with platform cuda: false"),
        (
            {"policies": ["top"], "scenarios": {"x": "none.yaml"}},
            {},
            r"^config.yaml: serving.scenarios.x: none.yaml: cannot be read: No such file",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(
    tmp_path: Path, serving: dict[str, Any], more: dict[str, Any], message: str
) -> None:
    """Unknown policies, and what a platform has no times for."""
    with pytest.raises(HiosError, match=message):
        jobs.checked(configured(tmp_path, serving, **more), "config.yaml")
