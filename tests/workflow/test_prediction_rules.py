"""The whole pipeline on the platform model: predicted tables and their report, and nothing that runs."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from hios.schedulers import ALGORITHMS, find
from hios.verify import verify
from tests.scripts import printed
from tests.workflow.conftest import Checkout
from tests.workflow.networks import OWN_NETWORK

pytestmark = pytest.mark.slow  # a whole pipeline

#: One algorithm that searches at random, one that moves operators, and those of which tables say most.
CONFIG: dict[str, Any] = {
    "models": OWN_NETWORK,
    "platform": "model",
    "gpu": "a40",
    "link": "nvlink",
    "devices": [1, 2],
    "algorithms": {
        **{name: {} for name in ("sequential", "hios-lp", "lios-rand")},
        "hios-opt": {"moves": 500, "time_limit": 600},
    },
    "study": {
        "sessions": [],
        "simulation": {
            "instances": 2,
            "base": {"devices": 2, "operators": 30, "edges": 50, "layers": 6, "p": 0.8},
            "devices": [2],
            **{"operators": [30, 40], "edges": [50], "layers": [6], "p": [0.8]},
            "moves": 500,
        },
    },
}
SCHEDULES = sorted(
    f"{name}-{devices}"
    for name in CONFIG["algorithms"]
    for devices in (1, 2)
    if devices == 1 or find(name).several_devices
)
#: What the session of the simulation leads to, whose graphs are drawn at random.
FIGURE = "results/figures/hios_fig8.csv"


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _run(checkout: Checkout, hash_seed: str) -> Checkout:
    """The pipeline and a figure."""
    environment = {"PYTHONHASHSEED": hash_seed, "HIOS_CACHE": str(checkout.path / "cache")}
    checkout.succeed("--", "all", FIGURE, **environment)
    return checkout


def _prepared(checkout: Checkout) -> Checkout:
    checkout.add_own_network()
    (checkout.path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    return checkout


@pytest.fixture(scope="module")
def predicted(new_checkout: Callable[..., Checkout], tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A checkout with predictions of everything."""
    checkout = _prepared(new_checkout(tmp_path_factory.mktemp("predicted") / "checkout", stand_in=False))
    planned = checkout.planned()
    assert "execute" not in planned
    assert planned["schedule"] == len(SCHEDULES)
    return _run(checkout, "1")


def test_pipeline_of_predictions(predicted: Checkout) -> None:
    """From the model to the report: every row says predicted, and neither plan nor folder has a run."""
    assert predicted.planned() == {}
    results = predicted.path / "results"
    assert sorted(path.stem for path in (results / "net" / "schedules").iterdir()) == SCHEDULES
    assert {path.name for path in results.rglob("*")} & {"run.json", "auto.json", "traces"} == set()

    latencies = _rows(results / "tables" / "latency.csv")
    assert sorted(row["label"] for row in latencies if row["kind"] == "schedule") == SCHEDULES
    assert [row["kind"] for row in latencies if row["kind"] != "schedule"] == ["baseline"]
    operators = _rows(results / "tables" / "operators.csv")
    assert len(operators) == 5
    assert {row["predicted_only"] for row in [*latencies, *operators]} == {"True"}
    measured = [column for column in latencies[0] if column.startswith(("measured", "speedup", "drift", "runs"))]
    assert {row[column] for row in latencies for column in measured} == {""}
    assert all(float(row["predicted_ms"]) > 0 for row in latencies)

    page = (results / "report.html").read_text(encoding="utf-8").partition("<body>")[2]
    assert "All times on this page are predicted." in page
    (table,) = re.findall(r'<table class="schedules sortable">.*?</table>', page, re.DOTALL)
    headings = re.findall(r"<th scope=\"col\"[^>]*>([^<]*)</th>", table)
    assert [heading for heading in headings if "ms" in heading] == ["predicted, ms", "lower bound, ms"]
    assert len(re.findall(r'<th scope="row">', table)) == len(latencies)
    assert len(re.findall(r"<summary><b>[^<]+</b> predicted [0-9.]+ ms</summary>", page)) == len(SCHEDULES)
    assert [entry for entry in verify(results) if entry.problems] == []


#: How long it took, which no seed decides.
_SECONDS = {"scheduling_time_s", "allocation_time_s"}


def _without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_seconds(item) for key, item in value.items() if key not in _SECONDS}
    return [_without_seconds(item) for item in value] if isinstance(value, list) else value


def _reproduced(checkout: Checkout) -> dict[str, object]:
    """What a run writes that configuration and seed decide, by its place: texts, and artifacts without durations."""
    folder = checkout.path / "results" / "net"
    artifacts = [folder / "graph.json", folder / "costs.json", *folder.glob("schedules/*.json")]
    tables = [checkout.path / FIGURE, checkout.path / "results" / "tables" / "operators.csv"]
    return {
        **{str(path.relative_to(checkout.path)): _without_seconds(json.loads(path.read_text())) for path in artifacts},
        **{str(path.relative_to(checkout.path)): path.read_text() for path in tables},
        "weights": (folder / "weights.safetensors").read_bytes(),
    }


def test_the_same_again(predicted: Checkout, real_checkout: Checkout) -> None:
    """Configuration and seed decide graph, weights, costs, schedules and tables, in whatever folder and process."""
    first, second = _reproduced(predicted), _reproduced(_run(_prepared(real_checkout), "2"))
    assert [place for place in first if first[place] != second.get(place)] == []
    assert first.keys() == second.keys()


#: Schedules a random graph by every algorithm, and prints what each decides.
_EVERY = """
import sys
from hios.schedulers import ALGORITHMS, schedule
from hios.study.random_graphs import random_layers
problem = random_layers(operators=30, edges=50, layers=6, seed=0).problem()
parameters = {"hios-opt": {"moves": 500, "time_limit": 600}}
for name, algorithm in ALGORITHMS.items():
    made = schedule(problem, name, 2 if algorithm.several_devices else 1, parameters.get(name, {}))
    print(name, made.placements)
"""


def test_every_algorithm_decides_the_same_again() -> None:
    """Also in a process whose sets have another order."""
    first, second = (printed("-c", _EVERY, PYTHONHASHSEED=seed).splitlines() for seed in ("1", "2"))
    assert len(first) == len(ALGORITHMS)
    assert first == second
