"""The readers that are fuzzed, a valid document for each, and changes to it in its values, as text and as bytes."""

from __future__ import annotations

import json
import math
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hios import Costs, Graph, Problem, Schedule, schedule
from hios.errors import HiosError
from hios.files import artifacts
from hios.files.yaml_file import read_yaml
from hios.formats.partition import PartitionFile
from hios.formats.run import Run
from hios.pipeline import config
from hios.platforms.model import descriptions
from hios.profiling.cache import Cache, Measured
from hios.report.graph_layout import lay_out
from hios.report.graph_svg import svg
from hios.report.results import model_results
from hios.report.tables import latency_rows
from hios.report.terminal import ASCII, Look, draw
from hios.runtime.run_table import latency_table
from hios.serving.scenario import Scenario, settings_of
from hios.serving.simulate import simulate
from hios.verify import verify
from tests.serving.scenarios import written
from tests.verify.results import write_network
from tests.verify.test_hostile import DOCUMENTS, mutated

NAMES = (
    *("graph", "costs", "schedule", "run", "partition", "cache", "verify", "result"),  # JSON
    *("config", "gpu", "link", "scenario"),  # YAML
)
#: Characters of a message at most; one may name a file twice.
_LONGEST = 4200
#: Pieces of text that mean something to a reader.
_PIECES = (
    *("\0", "\t", "\r", "\n", " ", '"', "'", "\\", "\\u0000", "\\ud800", "{", "}", "[", "]", ",", ":", "- ", "#"),
    *("null", "NaN", "-Infinity", "1e999", "9" * 5000, "0x10", "1_000", "true", "~", "2020-02-30", "12:30:45"),
    *("&a [*a]", "&a {b: *a}", "*a", "<<: {a: 1}", "? [a]", "!!python/object/apply:os.system [id]", "!!binary x"),
    *("[" * 3000, "{a: " * 300, "| \n x", "---\n", "...\n", "\ufeff", "\u2028", "é", "\U0001f600", "=1+1", "<script>"),
    *("../../x", "$(id)", "; id", "-rf", "%s", "{0}", "{{ x }}"),
)


@dataclass(frozen=True)
class Reader:
    """What reads a kind of file.

    Attributes:
        read: the reader, and what is done with what it read.
        document: a valid document.
        yaml: whether files are YAML.
    """

    read: Callable[[Path], object]
    document: Any
    yaml: bool = False

    def check(self, path: Path, data: bytes) -> bool:
        """Whether the reader takes a file; one that it does not take is refused by a `HiosError` of one short line.

        Args:
            path: where the file is written.
            data: what is in it.

        Raises:
            Exception: whatever else comes out of the reader.
        """
        path.write_bytes(data)
        try:
            self.read(path)
        except HiosError as error:
            message = str(error)
        else:
            return True
        assert "\n" not in message, (data[:2000], message)
        assert len(message) < _LONGEST, data[:2000]
        return False


def _graph(path: Path) -> None:
    graph = Graph.read(path)
    svg(lay_out(graph))


def _costs(path: Path, graph: Graph) -> None:
    problem = Problem(graph, Costs.read(path))
    for algorithm, devices in (("greedy", 1), ("opara", 1), ("hios-lp", 2)):
        schedule(problem, algorithm, devices).write(path.with_name("made.json"))


def _schedule(path: Path, graph: Graph) -> None:
    made = Schedule.read(path)
    made.check_table()
    draw(made, Look(60, None, ASCII), {})
    made.plan(graph)


def _run(path: Path, network: Path) -> None:
    run = artifacts.load(path, Run)
    latency_table(run)
    costs = artifacts.load(network / "costs.json", artifacts.record_class("costs"))
    latency_rows(model_results(Graph.read(network / "graph.json"), costs, run))  # type: ignore[arg-type]


def _config(path: Path) -> None:
    settings = config.without_files(read_yaml(path), path.name, cores=4)
    config.competitors(settings)
    again = config.without_files(yaml.safe_load(config.as_yaml(settings)), path.name, cores=4)
    assert config.contents(again) == config.contents(settings)


def _cache(path: Path) -> None:
    cache = Cache(path.parent / "cache", {})
    cache.put("operator", "a", Measured([1.0, 1.5], "2025-01-02T03:04:05Z"))
    (file,) = (path.parent / "cache").rglob("*.json")
    file.write_bytes(path.read_bytes())
    measured = cache.get("operator", "a")
    assert measured is None or all(0 <= sample < math.inf for sample in measured.samples)


def _verify(path: Path, network: Path, name: str) -> None:
    folder = path.parent / "results" / "net"
    folder.mkdir(parents=True, exist_ok=True)
    for other in ("graph.json", "costs.json", "run.json"):
        (folder / other).write_bytes((path if other == name else network / other).read_bytes())
    for checked in verify(folder):
        assert all(len(problem) < _LONGEST for problem in checked.problems)


def _result(path: Path) -> None:
    folder = path.parent / "served"
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_bytes(path.read_bytes())
    for checked in verify(folder):
        assert all(len(problem) < _LONGEST for problem in checked.problems)


def readers(place: Path) -> dict[str, Reader]:
    """The readers of `NAMES`, with a document each.

    Args:
        place: a folder for the files that some of them read besides.
    """
    network = write_network(place / "net", 3)
    graph = Graph.read(network / "graph.json")
    costs = artifacts.read(network / "costs.json", "costs")
    run = artifacts.read(network / "run.json", "run")
    run["results"] = run["results"][-1:]
    made = artifacts.read(network / "schedules" / "hios-lp-2.json", "schedule")
    folder = artifacts.resource_directory("schemas").parent / "hios" / "platforms" / "model"
    gpu, link = (yaml.safe_load(next(folder.rglob(f"{name}.yaml")).read_text()) for name in ("a40", "nvlink3"))
    Cache(network.parent / "kept", {}).put("operator", "a", Measured([1.0, 1.5], "2025-01-02T03:04:05Z"))
    entry = json.loads(next((network.parent / "kept").rglob("*.json")).read_text())
    ways = [{"devices": 1, "cores_per_device": 2, "algorithm": "sequential", "predicted_ms": 1.5}]
    partition = {"graph": "net", "graph_fingerprint": "0" * 16, "cores": 2, "partitions": ways}
    partition |= {"devices": 1, "cores_per_device": 2, "reason": "it is the fastest"}
    given = written(place / "scenario")
    artifacts.write(place / "result.json", "result", simulate(Scenario.read(given), "top"))
    result = json.loads((place / "result.json").read_text())
    scenario = yaml.safe_load(given.read_text())
    for model in scenario["models"].values():  # a fuzzed scenario lies elsewhere
        model |= {name: str(given.parent / model[name]) for name in ("graph", "costs")}
    return {
        "graph": Reader(_graph, DOCUMENTS["graph"]),
        "costs": Reader(lambda path: _costs(path, graph), costs),
        "schedule": Reader(lambda path: _schedule(path, graph), made),
        "run": Reader(lambda path: _run(path, network), run),
        "partition": Reader(lambda path: artifacts.load(path, PartitionFile), partition),
        "config": Reader(_config, DOCUMENTS["config"], yaml=True),
        "gpu": Reader(lambda path: descriptions.gpu(str(path)), gpu, yaml=True),
        "link": Reader(lambda path: descriptions.link(str(path), descriptions.gpu("a40")), link, yaml=True),
        "cache": Reader(_cache, entry),
        "verify": Reader(lambda path: _verify(path, network, "costs.json"), costs),
        "scenario": Reader(lambda path: settings_of(Scenario.read(path)), scenario, yaml=True),
        "result": Reader(_result, result),
    }


def changed(document: Any, chance: random.Random, *, as_yaml: bool = False) -> bytes:
    """A file of a document with changes to its values, its text and its bytes."""
    text = mutated(document, chance)
    if as_yaml and chance.random() < 0.7:
        text = yaml.safe_dump(document, sort_keys=False, default_flow_style=chance.choice((None, True, False)))
    if chance.random() < 0.5:
        for _ in range(chance.choice((1, 1, 2, 5))):
            place = chance.randrange(len(text) + 1)
            kept = place + chance.choice((0, 0, 1, 5, len(text)))
            text = text[:place] + chance.choice((*_PIECES, *string.printable)) + text[kept:]
    data = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.2:
        how = chance.randrange(4)
        if how == 0:
            data = text.encode("utf-16", "surrogatepass")
        elif how == 1:
            data = data[: chance.randrange(len(data) + 1)]
        elif how == 2:
            data = chance.randbytes(chance.randrange(200))
        elif data:
            place = chance.randrange(len(data))
            data = data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
    return data
