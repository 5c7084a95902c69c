"""Results of serving as the pipeline writes them, for figures of TOP."""

from __future__ import annotations

from pathlib import Path

import yaml

from hios.files import artifacts
from hios.serving.scenario import Scenario
from hios.serving.simulate import simulate
from tests.serving.scenarios import written

POLICIES = ("sequential", "ios", "pos-strict", "pos-relaxed", "top")


def write_scenarios(folder: Path) -> list[Path]:
    """Simulate a scenario of two models at two loads, and one of a single model; the files of the results."""
    mix = written(folder / "given", duration_s=1)
    alone = folder / "given" / "alone.yaml"
    data = yaml.safe_load(mix.read_text(encoding="utf-8"))
    del data["models"]["right"]
    alone.write_text(yaml.safe_dump(data), encoding="utf-8")
    paths = []
    for label, path, loads in (("mix", mix, (1.0, 2.0)), ("alone", alone, (1.0,))):
        for load in loads:
            scenario = Scenario.read(path, load=load)
            for policy in POLICIES:
                paths.append(folder / "serving" / label / "simulated" / f"{policy}-{load:g}.json")
                artifacts.write(paths[-1], "result", simulate(scenario, policy))
    return paths
