"""The configuration of examples/top through Snakemake: scenarios of several models, and the figures of TOP."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from hios.files import artifacts
from tests.workflow.conftest import Checkout

pytestmark = pytest.mark.slow  # whole pipelines

REPOSITORY = Path(__file__).resolve().parents[2]
_CONFIG = "examples/top/config.yaml"


def _with_examples(checkout: Checkout) -> Checkout:
    shutil.copytree(REPOSITORY / "examples" / "top", checkout.path / "examples" / "top")
    checkout.take_models("inception_v3", "resnet50", "squeezenet")
    return checkout


def test_the_whole_example_is_planned(checkout: Checkout) -> None:
    """Every scenario under every policy and load, and the figures that are drawn of them."""
    planned = _with_examples(checkout).planned("--configfile", _CONFIG)
    assert (planned["export"], planned["profile"], planned["serve"]) == (3, 3, 4 * 7 * 3)
    assert planned["top_study"] == 7
    assert "execute" not in planned


def test_the_example_runs(real_checkout: Checkout) -> None:
    """One network of the example, small, from the export to figure 14 with its verdict, and a report.

    Every session runs; a figure of most of them is drawn.
    """
    checkout = _with_examples(real_checkout)
    config = yaml.safe_load((checkout.path / _CONFIG).read_text())
    config["models"] = {"squeezenet": {"image_size": 64}}
    serving = config["serving"]
    serving["scenarios"] = {"squeezenet": serving["scenarios"]["squeezenet"]}
    serving["policies"], serving["loads"] = ["sequential", "ios", "top"], [40]
    config["study"]["sessions"] = []
    config["study"]["top"] = {
        "most": 2,
        "copies": 2,
        "batches": [1, 2],
        "gpus": ["a100-pcie-40gb", "h100-sxm"],
        "steps": 2,
        "samples": 1,
        "transitions": 1000,
        "launcher_steps": 5,
        "loads": [1],
    }
    (checkout.path / _CONFIG).write_text(yaml.safe_dump(config))
    scenario = checkout.path / "examples" / "top" / "squeezenet.yaml"
    scenario.write_text(scenario.read_text().replace("duration_s: 10", "duration_s: 0.5"))
    figures = ("top_fig14", "top_fig18", "top_fig20", "top_fig24", "top_fig27")
    sessions = [f"results-top/study/top/{name}.json" for name in ("gpg", "launcher", "together")]
    arguments = ("--configfile", _CONFIG, "--", "all", *figures, *sessions)
    checkout.succeed(*arguments)
    results = checkout.path / "results-top"
    served = {
        policy: artifacts.read(results / "serving" / "squeezenet" / "simulated" / f"{policy}-40.json", "result")
        for policy in ("sequential", "ios", "top")
    }
    completed = {policy: contents["total"]["completed"] for policy, contents in served.items()}
    assert completed["top"] > completed["ios"] >= completed["sequential"] > 0
    assert all(contents["simulated"] for contents in served.values())
    figure = json.loads((results / "figures" / "top_fig14.json").read_text())
    assert figure["state"] == "drawn"
    assert "predicted for a GPU" in figure["finding"]
    (compared,) = figure["comparisons"]
    assert compared["published"] == "14 to 180"
    assert compared["verdict"] in ("agrees", "same direction", "differs")
    for name in figures:
        drawn = json.loads((results / "figures" / f"{name}.json").read_text())
        assert (drawn["state"], drawn["rows"] != []) == ("drawn", True), name
    assert (results / "report.html").stat().st_size > 0
    assert checkout.planned(*arguments) == {}
