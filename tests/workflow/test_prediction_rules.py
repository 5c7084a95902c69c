"""The whole pipeline on the platform model: predicted tables and their report, and nothing that runs."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from hios.verify import verify
from tests.workflow.networks import OWN_NETWORK

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Checkout

pytestmark = pytest.mark.slow  # a whole pipeline

SCHEDULES = ["greedy-1", "hios-lp-1", "hios-lp-2", "sequential-1"]
CONFIG = {
    "models": OWN_NETWORK,
    "platform": "model",
    "gpu": "a40",
    "link": "nvlink",
    "devices": [1, 2],
    "algorithms": {"sequential": {}, "greedy": {}, "hios-lp": {}},
}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_pipeline_of_predictions(real_checkout: Checkout) -> None:
    """From the model to the report: every row says predicted, and neither plan nor folder has a run."""
    checkout = real_checkout
    checkout.add_own_network()
    (checkout.path / "config.yaml").write_text(yaml.safe_dump(CONFIG))
    planned = checkout.planned()
    assert "execute" not in planned
    assert planned["schedule"] == len(SCHEDULES)
    printed = checkout.succeed()
    assert "run.json" not in printed
    assert checkout.planned() == {}
    results = checkout.path / "results"
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


#: Of each way to decide: searches, random choices, matchings, moves.
_ALGORITHMS: dict[str, Any] = {
    **{name: {} for name in ("greedy", "nimble", "ios", "lios-rand", "opara", "hios-lp", "hios-mr")},
    "hios-opt": {"moves": 500, "time_limit": 600},
}
_SIMULATION = {
    "instances": 2,
    "base": {"devices": 2, "operators": 30, "edges": 50, "layers": 6, "p": 0.8},
    "devices": [2],
    **{"operators": [30, 40], "edges": [50], "layers": [6], "p": [0.8]},
    "moves": 500,
}
#: How long it took, which no seed decides.
_SECONDS = {"scheduling_time_s", "allocation_time_s"}


def _without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_seconds(item) for key, item in value.items() if key not in _SECONDS}
    return [_without_seconds(item) for item in value] if isinstance(value, list) else value


def _reproduced(checkout: Checkout, hash_seed: str) -> dict[str, object]:
    """What a run writes that configuration and seed decide, by its place: texts, and artifacts without durations."""
    checkout.add_own_network()
    changes = {"algorithms": _ALGORITHMS, "study": {"sessions": ["simulation"], "simulation": _SIMULATION}}
    (checkout.path / "config.yaml").write_text(yaml.safe_dump({**CONFIG, **changes}))
    figure = "results/figures/hios_fig8.csv"
    environment = {"PYTHONHASHSEED": hash_seed, "HIOS_CACHE": str(checkout.path / "cache")}
    checkout.succeed("--", "results/report.html", figure, **environment)
    folder = checkout.path / "results" / "net"
    artifacts = [folder / "graph.json", folder / "costs.json", *folder.glob("schedules/*.json")]
    tables = [checkout.path / figure, checkout.path / "results" / "tables" / "operators.csv"]
    return {
        **{str(path.relative_to(checkout.path)): _without_seconds(json.loads(path.read_text())) for path in artifacts},
        **{str(path.relative_to(checkout.path)): path.read_text() for path in tables},
        "weights": (folder / "weights.safetensors").read_bytes(),
    }


def test_the_same_again(new_checkout: Callable[..., Checkout], tmp_path: Path) -> None:
    """Configuration and seed decide graph, weights, costs, schedules and tables, in whatever folder and process."""
    first, second = (
        _reproduced(new_checkout(tmp_path / name, stand_in=False), seed) for name, seed in (("one", "1"), ("two", "2"))
    )
    assert len([place for place in first if "/schedules/" in place]) >= len(_ALGORITHMS)
    assert [place for place in first if first[place] != second.get(place)] == []
    assert first.keys() == second.keys()
