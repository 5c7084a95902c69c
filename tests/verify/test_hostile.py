"""The fast path and the reference validator agree on hostile documents, and refuse them in one short line."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hios import Graph
from hios.errors import ArtifactError, HiosError
from hios.files import artifacts
from hios.files.base import Record
from hios.files.validation import schema_errors
from tests.verify.results import write_network

#: Text put in place of a value: as Python writes it, or as it stands.
VALUES: list[Any] = [
    *(None, True, False, "", "text", "inf", "nan", "1", "\ud800", "x" * 100_000),
    *(-1, 0, 1, 2, 2**31, 2**64, 10**30, -(10**30), 0.0, -0.0, 1.0, 2.0, 1.5, 1e300, 5e-324),
    *(float("nan"), float("inf"), float("-inf"), 10**400),
    *([], {}, [[]], [None], [1, 1], ["a", "a"], {"": 1}, {"a": {}}, {"time_ms": 1}, {"operator": "a"}),
    json.loads("[" * 200 + "]" * 200),
]
#: Documents of each kind.
_COUNT = 150


def places(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where a document has a value."""
    yield place
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*place, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:3]):
            yield from places(item, (*place, index))


def mutated(document: Any, chance: random.Random) -> str:
    """A document with one to three changes, as text."""
    data = json.loads(json.dumps(document))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        place = chance.choice(list(places(data))[1:] or [()])
        if not place:
            return json.dumps(chance.choice(VALUES))
        holder = data
        for part in place[:-1]:
            holder = holder[part]
        last: Any = place[-1]
        change = chance.randrange(6)
        if change == 0:
            del holder[last]
        elif change == 1 and isinstance(holder, dict):
            holder[chance.choice(("", "unknown", "format_version", "graph"))] = copy.deepcopy(chance.choice(VALUES))
        elif change == 2 and isinstance(holder, list):
            holder.append(holder[last])
        else:
            holder[last] = copy.deepcopy(chance.choice(VALUES))
    text = json.dumps(data)
    if chance.random() < 0.1:
        text = text.replace("{", '{"twice": 1, "twice": 2, ', 1)
    if chance.random() < 0.1:
        text = text.replace(": 1", ": 1e999", 1)
    return text


DOCUMENTS = {
    "graph": {
        "format_version": 1,
        "name": "net",
        "units": "operator",
        "operators": [
            {
                "id": "a",
                "type": "conv",
                "calls": [
                    {
                        "function": "relax.nn.conv2d",
                        "arguments": [{"input": "x"}, {"weight": "w"}, {"call": 0}, {"constant": "inf"}],
                        "attributes": {"strides": [1, 1], "axis": None},
                    }
                ],
                "shapes": {"inputs": [[1, 3]], "outputs": [[1, 3]]},
                "dtype": "float32",
                "dtypes": ["float32"],
                "flops": 10,
                "bytes": 20,
            },
            {"id": "b", "type": "add"},
        ],
        "edges": [{"source": "a", "target": "b", "bytes": 12}],
        "inputs": [{"name": "x", "shape": [1, 3], "dtype": "int64", "below": 5}],
        "outputs": [{"operator": "b", "item": 0}, {"constant": 1.5}],
        "weights": [{"name": "w", "shape": [3, 3], "dtype": "float32"}],
        "blocks": [["a"], ["b"]],
    },
    "costs": {
        "operators": {
            "a": {
                "time_ms": 1,
                "utilization": 0.5,
                "p20_ms": 1,
                "p80_ms": 2,
                "interval_ms": [1, 2],
                "repeats": 3,
                "resources": {"shared_memory_bytes": 1, "registers": 2, "threads": 3, "blocks": 4, "occupancy": 0.5},
            }
        },
        "transfers": [{"source": "a", "target": "b", "time_ms": 0.5}],
        "stages": [{"groups": [["a"], ["b"]], "time_ms": 1.5}],
        "merges": [{"operators": ["a", "b"], "time_ms": 1.5}],
        "contention": {"kind": "blend", "alpha": 0.5, "error": {"median": 0.1, "p90": 0.2, "stages": 3}},
        "corun": [{"devices": 2, "factor": 1.5, "interval": [1, 2], "repeats": 5}],
        "link": {"latency_ms": 1, "bandwidth_gbps": 2, "error": {"median": 0.1, "largest": 0.2, "sizes": 3}},
        "graph": "net",
        "graph_fingerprint": "0123456789abcdef",
        "platform": {"name": "cuda", "devices": 1, "cores": [[0]], "compute_capability": ["9.0"], "memory_gb": [80]},
        "versions": {"hios": "1"},
        "profile": {
            "seconds": 1,
            "budget_s": 1,
            "repeats": 1,
            "precision": 0.1,
            "measured": 1,
            "imprecise": 0,
            "modelled": 0,
            "cached": 0,
            "cached_from": "2026-11-21T08:00:00Z",
            "kept": True,
            "drift": 1.0,
        },
    },
    "link": {
        "operators": {"a": {"time_ms": 1}},
        "transfers": {"latency_ms": 0.1, "bandwidth_gbps": 10},
    },
    "config": {
        "models": {"net": {"model": "squeezenet", "batch_size": 2, "options": {"depth": 3}, "units": "operator"}},
        "algorithms": {"mine": {"algorithm": "lios", "streams": 4}, "greedy": {}},
        "platform": "cpu",
        "virtual": False,
        "devices": [1, 2],
        "profile": {"stages_of": ["greedy"], "repeats": 5, "budget": 1.5, "cache": "folder"},
        "execute": {"runs": 3, "warmup": 0, "tolerance": 0.1, "baselines": ["eager"]},
        "seed": 3,
        "results": "results",
    },
}


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A valid document of every kind, most optional keys among them."""
    network = write_network(tmp_path_factory.mktemp("hostile") / "net", 3)
    run = json.loads((network / "run.json").read_text(encoding="utf-8"))
    run["results"] = run["results"][-1:]
    run["results"][0] |= {"speedup_interval": [1.5, 2.5], "launch": "graph", "no_graph": "why"}
    run["chosen"] = {
        **{key: run["results"][0][key] for key in ("label", "algorithm", "devices", "latency_ms", "speedup")},
        **{"cores": 2, "candidates": 3},
    }
    run |= {"measured_at": "2026-11-21T08:00:00Z", "checked_against": "eager"}
    run["platform"] |= {"transport": "gloo", "hosts": ["a"], "clocks": "shared", "virtual": False}
    schedule = json.loads((network / "schedules" / "hios-lp-2.json").read_text(encoding="utf-8"))
    schedule |= {"merges": [["op1", "op2"]], "notes": {"a": "b"}, "staged_lower_bound_ms": 3.5}
    return {**DOCUMENTS, "run": run, "schedule": schedule}


def _by_class(path: Path, cls: type[Record]) -> str:
    """What the fast path says of a file; empty if it accepts it."""
    try:
        artifacts.load(path, cls)
    except ArtifactError as error:
        return str(error)
    return ""


def _by_schema(path: Path, kind: str) -> list[str]:
    """What the reference validator says of it."""
    problems: list[str] = []
    try:
        data = artifacts.read_json(path, problems.append)
        return problems + schema_errors(data, artifacts.schema(kind))
    except HiosError as error:
        return [str(error)]


@pytest.mark.parametrize("name", ["graph", "costs", "link", "schedule", "run", "config"])
def test_both_ways_agree(documents: dict[str, Any], tmp_path: Path, name: str) -> None:
    """A class accepts what its schema accepts; what it refuses is said in one line that repeats no long value."""
    kind = "costs" if name == "link" else name
    path, cls = tmp_path / "document.json", artifacts.record_class(kind)
    path.write_text(json.dumps(documents[name]), encoding="utf-8")
    assert (_by_class(path, cls), _by_schema(path, kind)) == ("", [])
    chance = random.Random(name)
    accepted = 0
    for _ in range(_COUNT):
        text = mutated(documents[name], chance)
        path.write_text(text, encoding="utf-8")
        refusal, violations = _by_class(path, cls), _by_schema(path, kind)
        assert bool(refusal) == bool(violations), (text[:2000], refusal, violations)
        for message in (refusal, *violations):
            assert "\n" not in message
            assert len(message) < 1200
        accepted += not refusal
    assert 0 < accepted < _COUNT  # the measure measures: some changes do no harm


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"name": "\\ud800", "operators": [{"id": "a", "type": "t"}], "edges": []}', "surrogates not allowed"),
        ('{"name": "x", "name": "y"}', "duplicate key name"),
        ('{"name": 1e999, "operators": []}', "name: found inf; allowed: a finite number"),
        ('{"name": NaN, "operators": []}', "name: found nan; allowed: a finite number"),
        ('{"name": ' + "9" * 5000 + "}", "integer"),
        ('{"name": ' + "9" * 400 + "}", "name: found inf; allowed: a finite number"),
        (
            '{"name": "' + "x" * 100_000 + '", "operators": [], "edges": []}',
            r"operators: found \[\]; allowed: at least 1",
        ),
        ('{"name": "n", "operators": [], "edges": [], "' + "x" * 100_000 + '": 1}', r"unknown key x+\.\.\.; allowed: "),
        ('{"name": "n", "operators": [{"id": "' + "x" * 99_999 + '", "type": 3}], "edges": []}', "type: found 3"),
        ('{"name": "n", "operators": [{"id": "a", "type": "t", "bytes": 1.0}], "edges": []}', "bytes: found 1.0; allo"),
        ('{"name": "n", "operators": [{"id": "a", "type": "t", "bytes": true}], "edges": []}', "bytes: found true; al"),
        ('{"name": "n", "operators": [{"id": "a", "type": "t", "dtype": null}], "edges": []}', "dtype: found null; al"),
        ("null", r"\(whole file\): found null; allowed: object"),
    ],
)
def test_refusals_name_the_place(tmp_path: Path, text: str, message: str) -> None:
    """Every hostile document is refused in one short line with file, field, value and what is allowed."""
    path = tmp_path / "graph.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ArtifactError, match=message) as caught:
        artifacts.load(path, artifacts.record_class("graph"))
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_long_names_are_shortened(tmp_path: Path) -> None:
    """Contradictions between parts of a graph do not repeat an id of 100,000 characters."""
    long = "x" * 100_000
    for graph in (
        {"name": "n", "operators": [{"id": long, "type": "t"}] * 2, "edges": []},
        {"name": "n", "operators": [{"id": "a", "type": "t"}], "edges": [{"source": "a", "target": long}]},
        {"name": "n", "operators": [{"id": long, "type": "t"}], "edges": [{"source": long, "target": long}]},
        {"name": "n", "operators": [{"id": "a", "type": "t"}], "edges": [], "blocks": [[long]]},
    ):
        path = tmp_path / "graph.json"
        path.write_text(json.dumps(graph), encoding="utf-8")
        with pytest.raises(ArtifactError, match=r"x\.\.\.") as caught:
            Graph.read(path)
        assert len(str(caught.value)) < 500
