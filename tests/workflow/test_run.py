"""Real runs of the pipeline with a stand-in for `hios`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hios.pipeline import config
from tests.workers.processes import eventually
from tests.workflow.conftest import Checkout

pytestmark = pytest.mark.slow  # whole pipelines, with a stand-in for hios


def test_default_profile(finished: Checkout) -> None:
    """A plain `snakemake` takes workflow/profiles/default."""
    assert "workflow specific profile profiles/default" in finished.succeed("-n")


def test_everything_is_written(finished: Checkout) -> None:
    """Every rule leaves its output, a log and a benchmark at the documented place."""
    results = finished.path / "results"
    schedules = ("sequential-1", "hios-lp-1", "hios-lp-2")
    for model in ("alpha", "beta"):
        for name in ("program.pt2", "graph.json", "weights.safetensors", "costs.json", "run.json"):
            assert (results / model / name).is_file()
        for schedule in schedules:
            assert (results / model / "schedules" / f"{schedule}.json").is_file()
            assert (results / model / "traces" / f"{schedule}.json").is_file()
    for name in ("report.html", "tables/latency.csv", "tables/operators.csv", "tables/latency.tex", "versions.json"):
        assert (results / name).is_file()
    steps = [f"{stage}/{model}" for stage in ("export", "extract", "profile", "execute") for model in ("alpha", "beta")]
    steps += [f"schedule/{model}/{schedule}" for model in ("alpha", "beta") for schedule in schedules]
    for step in [*steps, "report", "provenance"]:
        assert (results / "logs" / f"{step}.log").is_file()
        assert (results / "benchmarks" / f"{step}.tsv").is_file()


def test_auto_is_chosen_by_the_execution(checkout: Checkout) -> None:
    """Auto is not scheduled: execute writes it, once, and is told to only where the configuration asks for it."""
    configuration = checkout.config(models={"beta": None}, algorithms={"auto": {}})
    checkout.succeed("--configfile", configuration)
    assert (checkout.path / "results" / "alpha" / "auto.json").is_file()
    assert not list((checkout.path / "results" / "alpha" / "schedules").glob("auto*"))
    (words,) = checkout.called("execute")
    assert words[words.index("--auto") + 1] == "results/alpha/auto.json"
    assert checkout.planned("--configfile", configuration) == {}


def test_resolved_configuration(finished: Checkout) -> None:
    """The saved configuration is the resolved one, and can be run as it is."""
    saved = finished.path / "results" / "config.yaml"
    settings = yaml.safe_load(saved.read_text())
    assert settings["execute"]["runs"] == 36
    resolved = config.resolve(settings, "config.yaml", models=finished.path / "models")
    assert config.contents(resolved) == settings
    assert finished.planned("--configfile", saved) == {}


def test_commands_are_short(checkout: Checkout) -> None:
    """The commands that Snakemake prints hold options, not the text of the configuration."""
    printed = checkout.succeed("-n")
    assert "hios versions --output results/versions.json" in printed
    assert "> results/config.yaml" in printed
    assert "stages_of:" not in printed  # a line of the configuration


def test_measurements_run_alone(finished: Checkout) -> None:
    """Nothing runs while profile or execute measures."""
    calls = finished.calls()
    measuring = [call for call in calls if call["words"][0] in {"profile", "execute"}]
    assert len(measuring) == 4
    for call in measuring:
        others = [other for other in calls if other is not call]
        assert all(other["ended"] <= call["began"] or other["began"] >= call["ended"] for other in others)


def test_commands(finished: Checkout) -> None:
    """The rules hand the settings to the commands."""
    commands = {call["words"][0]: " ".join(call["words"]) for call in finished.calls()}
    assert "--image-size 64 --seed 0" in commands["export"]
    assert "--platform cpu --devices 2 --stages-of greedy --stages-of hios-lp --repeats 20" in commands["profile"]
    assert (
        "--runs 36 --warmup 3 --tolerance 0.0001 --baselines eager --engine operators --seed 0" in commands["execute"]
    )
    assert "report results/alpha results/beta" in commands["report"]


@pytest.mark.parametrize("stage", ["extract", "profile"])
def test_failure(checkout: Checkout, stage: str) -> None:
    """A failing command fails the run, through `tee` too, and its message is shown."""
    answer = checkout.snakemake("--cores", "2", "--configfile", checkout.config(), STAND_IN_FAILS=stage)
    assert answer.returncode != 0
    assert f"Error: {stage} was told to fail" in answer.stdout
    assert "Traceback" not in answer.stdout
    assert not (checkout.path / "results" / "alpha" / "costs.json").exists()


def test_two_runs_in_one_folder(checkout: Checkout, tmp_path: Path) -> None:
    """The second is refused by Snakemake's lock and touches nothing; the first goes on to its end."""
    configuration, go = checkout.config(models={"beta": None}), tmp_path / "go"
    first = subprocess.Popen(
        [sys.executable, "-m", "snakemake", "--cores", "2", "--configfile", str(configuration)],
        cwd=checkout.path,
        env=checkout.environment(STAND_IN_WAITS=f"extract {go}"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        program = checkout.path / "results" / "alpha" / "program.pt2"
        assert eventually(lambda: program.exists() or first.poll() is not None)
        assert first.poll() is None
        second = checkout.snakemake("--cores", "2", "--configfile", configuration)
        assert second.returncode == 1
        assert "Directory cannot be locked" in second.stdout
        assert "--unlock" in second.stdout
        assert "Traceback" not in second.stdout
    finally:
        go.touch()
        status = first.wait()
    assert status == 0
    assert [call["words"][0] for call in checkout.calls()].count("extract") == 1
    assert checkout.planned("--configfile", configuration) == {}


def test_cache(checkout: Checkout, tmp_path: Path) -> None:
    """Another run takes program and graph from the cache; other settings and other code of hios do not."""
    cache = tmp_path / "cache"
    cache.mkdir()

    def graph(results: str, **changes: Any) -> tuple[Path, list[str]]:
        checkout.journal.write_text("")
        target = f"{results}/alpha/graph.json"
        arguments = ("--cache", "--configfile", checkout.config(results=results, **changes), "--", target)
        checkout.succeed(*arguments, SNAKEMAKE_OUTPUT_CACHE=str(cache))
        return checkout.path / target, [call["words"][0] for call in checkout.calls()]

    first, commands = graph("first")
    assert commands == ["export", "extract"]
    second, commands = graph("second")
    assert commands == []
    assert second.read_text() == first.read_text()
    assert graph("third", models={"alpha": {"image_size": 32}})[1] == ["export", "extract"]
    with (checkout.path / "hios" / "frontends" / "torch_lowering.py").open("a") as file:
        file.write("\nEDITED = True\n")
    assert graph("fourth")[1] == ["extract"]


def test_snakemake_report(finished: Checkout) -> None:
    """`snakemake --report` shows page and tables with their captions."""
    finished.succeed("--report", "overview.html")
    page = (finished.path / "overview.html").read_text()
    for expected in ("all networks and algorithms", "latency of every schedule", "Provenance"):
        assert json.dumps(expected)[1:-1] in page
