"""``hios verify``: everything that is wrong with a results folder is said, and nothing of one that is right."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from hios import ALGORITHMS, Graph, HiosError, Problem, Solution, schedule
from hios.core.schedule import StagedPlan
from hios.files import artifacts
from hios.formats.partition import Partition, PartitionFile
from hios.formats.run import Latency
from hios.report import write_report
from hios.schedulers import plugins
from hios.schedulers.registry import Algorithm
from hios.verify import verify
from hios.verify.consistency import bound_problems
from tests.cli.commands import invoke
from tests.problems import problem
from tests.verify.results import write_network


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `folder` is a copy of, since writing takes longer than copying."""
    root = tmp_path_factory.mktemp("written")
    for seed, name in enumerate(("first", "second")):
        write_network(root / name, seed)
    settings = "models:\n  first: {model: squeezenet}\nalgorithms:\n  sequential:\n"
    (root / "config.yaml").write_text(settings, encoding="utf-8")
    return root


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """Results of two networks, and the configuration that asked for them."""
    return shutil.copytree(written, tmp_path / "results")


@pytest.fixture
def network(written: Path, tmp_path: Path) -> Path:
    """Results of one network."""
    return shutil.copytree(written / "first", tmp_path / "first")


@pytest.fixture(scope="module")
def tables(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tables of a report of these results, which are right."""
    root = shutil.copytree(written, tmp_path_factory.mktemp("reported") / "results")
    write_report([root / "first", root / "second"], root / "report.html", root / "tables")
    entries = {entry.path: (entry.kind, entry.problems) for entry in verify(root)}
    assert entries["tables/latency.csv"] == ("table", ())
    return root / "tables"


_run = partial(invoke, "verify")


def _problems(folder: Path) -> dict[str, tuple[str, ...]]:
    """What `verify` says of every file of a folder."""
    return {entry.path: entry.problems for entry in verify(folder)}


def _edit(path: Path, change: Callable[[Any], None]) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def _at(path: str, value: Any) -> Callable[[Any], None]:
    """A change of one entry, such as ``results.0.speedup``."""

    def change(data: Any) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part in way:
            data = data[part]
        data[last] = value

    return change


def test_runs_over_ranks(folder: Path) -> None:
    """A run in the folder distributed is checked against the graph and the schedules of its network, as run.json is."""
    path = folder / "first" / "distributed" / "run.json"
    path.parent.mkdir()
    path.write_bytes((folder / "first" / "run.json").read_bytes())
    assert _problems(folder)["first/distributed/run.json"] == ()
    _edit(path, _at("graph", "third"))
    _edit(path, _at("results.0.predicted_ms", 1e9))
    wrong = {entry.path: entry.problems for entry in verify(folder) if entry.problems}
    assert list(wrong) == ["first/distributed/run.json"]
    for part in (
        "graph: found third; allowed: first, the name in graph.json",
        "results[0].predicted_ms: found 1e+09; the",
    ):
        assert [line for line in wrong["first/distributed/run.json"] if part in line], part


@pytest.mark.parametrize("name", ["distributed", "schedules"])
def test_networks_and_results_may_be_called_like_their_parts(folder: Path, tmp_path: Path, name: str) -> None:
    """A network's own graph and schedules count then, and files beside networks are no schedules."""
    write_network(folder / name, seed=2)
    folder = folder.rename(tmp_path / name)
    (folder / "mine.json").write_text("{}", encoding="utf-8")
    checked = verify(folder)
    assert (len(checked), [entry for entry in checked if entry.problems]) == (25, [])


def test_linked_folders_are_checked_once(folder: Path, tmp_path: Path) -> None:
    """A network may lie on another disk; links that lead back do not make verify go in circles, or check twice."""
    (folder / "second").rename(tmp_path / "disk")
    (folder / "second").symlink_to(tmp_path / "disk")
    for number, target in enumerate((folder, tmp_path, folder / "first", tmp_path / "disk", tmp_path / "nowhere")):
        (tmp_path / "disk" / f"link{number}").symlink_to(target)
    before = verify(folder)
    assert (len(before), [entry for entry in before if entry.problems]) == (17, [])
    _edit(tmp_path / "disk" / "schedules" / "greedy-1.json", _at("latency_ms", 1e-9))
    wrong = [path for path, problems in _problems(folder).items() if problems]
    assert wrong == ["second/run.json", "second/schedules/greedy-1.json"]


def test_schedules_of_earlier_configurations_are_to_be_deleted(folder: Path) -> None:
    """One that config.yaml asks for is to be right; of others that do not fit, one line says what to do."""
    for name in ("greedy-1", "sequential-1"):
        _edit(folder / "first" / "schedules" / f"{name}.json", _at("latency_ms", 1e9))
    (folder / "first" / "run.json").unlink()
    problems = _problems(folder)
    (left,) = problems["first/schedules/greedy-1.json"]
    assert left.endswith("config.yaml does not ask for it any more: delete the file")
    assert problems["first/schedules/sequential-1.json"][0].startswith("latency_ms is 1000000000.0 but")
    assert problems["first/schedules/lios-1.json"] == ()


def test_what_is_right_passes(folder: Path) -> None:
    """All artifacts of both networks are checked and none has a problem; the exit status is 0."""
    checked = verify(folder)
    assert [entry for entry in checked if entry.problems] == []
    kinds = [entry.kind for entry in checked]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {
        "graph": 2,
        "costs": 2,
        "run": 2,
        "schedule": 10,
        "config": 1,
    }
    done = _run(folder)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[-1] == "17 files, no problems"


#: Changes by file, and what is said of each.
PLANTED: dict[str, list[tuple[Callable[[Any], None], str]]] = {
    "first/graph.json": [
        (_at("operators.3.bytes", -1), r"^operators\[3\]\.bytes: found -1; allowed: at least 0"),
        (_at("color", "red"), r"^\(whole file\): unknown key color; allowed: blocks, "),
    ],
    "first/costs.json": [
        (_at("operators.op2.utilization", 2), r"^operators\.op2\.utilization: found 2; allowed: at most"),
        (_at("stages.0.time_ms", "fast"), r'^stages\[0\]\.time_ms: found "fast"; allowed: number'),
    ],
    "first/run.json": [(_at("references.0.threads", 0), r"^references\[0\]\.threads: found 0; allowed: at least 1")],
    "second/schedules/greedy-1.json": [
        (_at("latency_ms", 0.5), r"^latency_ms is 0\.5 but the last operator finishes at"),
    ],
    "second/schedules/lios-1.json": [
        (_at("lower_bound_ms", 0.1), r"^lower_bound_ms: found 0\.1; recomputed from graph"),
    ],
    "second/schedules/hios-lp-2.json": [
        (_at("placements.1.start_ms", 0), r"^operator op\d+ starts at .* before its input"),
    ],
    "second/run.json": [
        (_at("results.3.speedup", 9.0), r"^results\[3\]\.speedup: found 9; recomputed: "),
        (_at("ceilings.0.latency_ms.median", 1.0), r"^ceilings\[0\]\.latency_ms\.median: found 1; recomp"),
    ],
}


def test_ten_planted_errors_are_all_found(folder: Path) -> None:
    """Ten errors of different kinds in five files are all reported, each with its file, and the exit status is 1."""
    for name, errors in PLANTED.items():
        for change, _ in errors:
            _edit(folder / name, change)
    problems = _problems(folder)
    for name, errors in PLANTED.items():
        for _, message in errors:
            assert any(re.search(message, problem) for problem in problems[name]), (name, message, problems[name])
    done = _run(folder)
    assert done.exit_code == 1
    assert all(problem in done.output for own in problems.values() for problem in own)
    for name in ("second/graph.json", "config.yaml"):
        assert problems[name] == ()


def test_json_for_machines(folder: Path) -> None:
    """``--json`` has the same files and problems as the library, and the same exit status as the table."""
    _edit(folder / "first" / "run.json", _at("results.0.speedup", 9.0))
    done = _run(folder, "--json")
    assert done.exit_code == 1
    report = json.loads(done.output)
    assert report["problems"] == sum(len(entry["problems"]) for entry in report["files"]) > 0
    assert {entry["path"]: tuple(entry["problems"]) for entry in report["files"]} == {
        entry.path: entry.problems for entry in verify(folder)
    }


#: Changes to files of a network, by file, and what is said of each.
CONTRADICTIONS: dict[str, list[tuple[Callable[[Any], None], str]]] = {
    "graph.json": [
        (_at("edges.0.source", "nobody"), r"^edges\[0\]\.source: found nobody; allowed: the id of an oper"),
        (_at("edges.0", {"source": "op1", "target": "op1"}), r"^edges: found the cycle op1 -> op1"),
        (_at("format_version", 2), r"^format_version: found 2; allowed: 1"),
        (_at("format_version", 1.0), r"^format_version: found 1\.0; allowed: integer"),
    ],
    "costs.json": [
        (lambda data: data["operators"].pop("op4"), r"^operators: no entry for operator op4 of the graph"),
        (lambda data: data["transfers"].pop(), r"^transfers: no entry for edge op\d -> op\d"),
        (_at("corun", [{"devices": 2, "factor": 1}] * 2), r"^corun: duplicate number of devices"),
        (_at("stages.0.groups.0.0", "nobody"), r"^stages\[0\]: found operator nobody"),
        (_at("operators.op0.time_ms", float("nan")), r"^operators\.op0\.time_ms: found nan; allowed: a fin"),
        (_at("graph_fingerprint", "0" * 16), r"^graph_fingerprint: found 0000000000000000; allowed: "),
        (
            _at(
                "profile",
                {
                    **dict.fromkeys(("seconds", "budget_s", "precision", "repeats"), 1),
                    **dict.fromkeys(("measured", "imprecise", "modelled", "cached"), 0),
                },
            ),
            r"^platform: missing; a measurement has to state it \(where the costs were measured\)",
        ),
    ],
    "schedules/lios-1.json": [
        (lambda data: data["placements"].pop(), r"^placements: operator op\d is missing"),
        (_at("lower_bound_ms", 99.0), r"^latency_ms .* is below lower_bound_ms 99"),
        (_at("staged_lower_bound_ms", 99.0), r"^staged_lower_bound_ms: found 99 ms; allowed: at"),
        (_at("graph_fingerprint", "0" * 16), r"^graph_fingerprint: found 0000000000000000"),
    ],
    "run.json": [
        (_at("graph", "other"), r"^graph: found other; allowed: first, the name in graph\.json"),
        (_at("runs", 13), r"^baseline\.latency_ms\.runs: found 12 runs; allowed: 13"),
        (_at("results.0.prediction_error", 0.5), r"^results\[0\]\.prediction_error: found 0\.5; recomputed"),
        (_at("results.3.share_of_ceiling", 2.0), r"^results\[3\]\.share_of_ceiling: found 2; recomputed"),
        (_at("results.3.devices", 3), r"^results\[3\]\.devices: found 3, for which ceilings has no entry"),
        (_at("results.3.predicted_ms", 0.5), r"^results\[3\]\.predicted_ms: found 0\.5; the schedule hios-lp-2"),
        (_at("results.0.measured.2.operator", "op0"), r"\.operator: op0 is placed twice"),
        (_at("results.1.measured", []), r"^results\[1\]\.measured: found no row for op0; required: one for every"),
        (_at("results.0.measured.2.device", 3), r"^results\[0\]\.measured\[2\]: op\d ran elsewhere"),
        (_at("results.0.measured.2.operator", "nobody"), r"found nobody, which is not an operator of the gr"),
        (_at("results.0.speedup_interval", [2.0, 1.0]), r"^results\[0\]\.speedup_interval: found 2 to 1"),
        (_at("results.2.speedup_interval.0", 0.5), r"^results\[2\]\.speedup_interval\[0\]: found 0\.5; recomp"),
        (_at("references.0.speedup_interval.1", 9.0), r"^references\[0\]\.speedup_interval\[1\]: found 9; recomp"),
        (_at("chosen.speedup_interval", [0.1, 0.2]), r"^chosen\.speedup_interval\[1\]: found 0\.2; recomp"),
        (_at("chosen.speedup", 7.0), r"^chosen\.speedup: found 7; recomputed: "),
        (
            lambda data: data["results"][1]["latency_ms"].update(runs=[1.0] * 4),
            r"^results\[1\]\.speedup_interval: found .* allowed: none, as 4 runs with 12 of the baseline give no",
        ),
        (_at("results.3.error_beyond_drift", 0.0), r"^results\[3\]\.error_beyond_drift: found 0; recomputed: "),
        (
            lambda data: data["results"][3].pop("drift"),
            r"^results\[3\]\.error_beyond_drift: found .* required: drift, which it is beyond",
        ),
        (_at("results.4.drift.value", 2.0), r"^results\[4\]\.drift\.value: found 2; recomputed: "),
        (_at("probe.version", "2"), r"^results\[0\]\.drift: found .* required: the same probe in run\.json"),
        (_at("probe.speed.copy_ms.low", 0.5), r"^probe\.speed\.copy_ms\.low: found 0\.5; recomputed: "),
        (
            lambda data: data["platform"].pop("processor"),
            r"^platform\.processor: missing; a measurement has to state it \(model name of the processor\)",
        ),
        (lambda data: data["platform"].pop("cores"), r"^platform\.cores: missing; a measurement has to"),
        (lambda data: data["versions"].pop("torch"), r"^versions\.torch: missing; .* \(its version\)"),
        (lambda data: data.pop("measured_at"), r"^measured_at: missing; a measurement has to state it"),
        (_at("references.0.speedup", 3.0), r"^references\[0\]\.speedup: found 3; recomputed"),
        (_at("ceilings.0.throughput_ratio", 3.0), r"^ceilings\[0\]\.throughput_ratio: found 3; recomputed"),
    ],
}


@pytest.mark.parametrize(
    ("name", "change", "message"), [(name, *wrong) for name, own in CONTRADICTIONS.items() for wrong in own]
)
def test_each_kind_of_contradiction_is_found(
    network: Path, name: str, change: Callable[[Any], None], message: str
) -> None:
    """A single change makes its file fail, with a line that says what is wrong and where."""
    _edit(network / name, change)
    problems = _problems(network)[name]
    assert any(re.search(message, problem) for problem in problems), problems
    assert all("\n" not in problem and len(problem) < 1000 for problem in problems)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, None),
        ({"cores_per_device": 2}, "devices: found 2 of 2 core(s), which is not among partitions"),
        ({"devices": 1, "cores_per_device": 2}, "devices: found 1 of 2 core(s), which was not measured"),
        ({"graph_fingerprint": "0" * 16}, "graph_fingerprint: found 0000000000000000; graph.json has "),
        ({"cores": 1}, "partitions[0]: found 2 cores; there are 1"),
        ({"median": 7.0}, "partitions[1].latency_ms.median: found 7; recomputed from runs: 2"),
    ],
)
def test_divisions_of_cores_are_checked(folder: Path, changes: dict[str, Any], message: str | None) -> None:
    """A partition.json names a measured one of its divisions, of the graph beside it."""
    graph = Graph.read(folder / "first" / "graph.json")
    latency = Latency(changes.pop("median", 2.0), 1.0, 3.0, (1.0, 2.0, 3.0))
    ways = (
        Partition(devices=1, cores_per_device=2, algorithm="sequential", predicted_ms=4.0),
        Partition(devices=2, cores_per_device=1, algorithm="hios-lp", predicted_ms=2.0, latency_ms=latency),
    )
    right: dict[str, Any] = {"graph_fingerprint": graph.fingerprint, "cores": 2, "devices": 2, "cores_per_device": 1}
    division = PartitionFile(graph=graph.name, partitions=ways, reason="it is the fastest", **(right | changes))
    artifacts.write(folder / "first" / "partition.json", "partition", division)
    (problems,) = [entry.problems for entry in verify(folder) if entry.kind == "partition"]
    assert [problem[: len(message or "")] for problem in problems][:1] == ([] if message is None else [message])


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("speedup_low", "0.5", r'^row 1, "sequential-1": speedup_low: found "0\.5"; recomputed from the files: '),
        ("speedup_high", "", r'^row 1, "sequential-1": speedup_high: found ""; recomputed from the files: '),
        ("error_beyond_drift", "0.25", r'^row 1, "sequential-1": error_beyond_drift: found "0\.25"; recomputed'),
        ("predicted_only", "True", r'^row 1, "sequential-1": predicted_only: found "True"; recomputed .*: empty'),
        ("measured_p80_ms", "fast", r'^row 1, "sequential-1": measured_p80_ms: found "fast"; recomputed'),
        ("label", "other", r'^row 1, "other": found kind "schedule"; the files have no row of this kind'),
        ("label", "other", r'^no row for schedule "sequential-1" of "first"; required: one for every latency in run'),
        ("color", "red", r"^header: found column color; allowed: model, kind, "),
    ],
)
def test_table_of_latencies_is_recomputed(folder: Path, tables: Path, column: str, value: str, message: str) -> None:
    """A cell of tables/latency.csv that the files of its network contradict is a problem; a right table has none."""
    table = shutil.copytree(tables, folder / "tables") / "latency.csv"
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    rows[0][column] = value
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), restval="")
        writer.writeheader()
        writer.writerows(rows)
    problems = _problems(folder)["tables/latency.csv"]
    assert any(re.search(message, problem) for problem in problems), problems
    assert all("\n" not in problem for problem in problems)


def test_table_of_predictions_is_recomputed(folder: Path) -> None:
    """Predicted latencies in tables/latency.csv are those of the schedules, and its rows say predicted."""
    for name in ("first", "second"):
        (folder / name / "run.json").unlink()
        _edit(folder / name / "costs.json", _at("platform", {"name": "model", "devices": 2, "predicted": True}))
    table = folder / "tables" / "latency.csv"
    write_report([folder / "first", folder / "second"], folder / "report.html", table.parent, ["lios-1", "hios-lp-2"])
    assert [entry.problems for entry in verify(folder) if entry.problems] == []
    text = table.read_text(encoding="utf-8")
    table.write_text(text.replace("True", "", 1), encoding="utf-8")
    (problem,) = [problem for entry in verify(folder) for problem in entry.problems]
    assert problem == 'row 1, "lios-1": predicted_only: found ""; recomputed from the files: true'


def test_damaged_files_are_problems(network: Path) -> None:
    """A file that is cut off, and a key given twice, are problems of that file; the others are checked all the same."""
    run, costs = network / "run.json", network / "costs.json"
    run.write_text(run.read_text(encoding="utf-8")[:500], encoding="utf-8")
    text = costs.read_text(encoding="utf-8")
    costs.write_text(text.replace('"graph":', '"graph": "other", "graph":', 1), encoding="utf-8")
    problems = _problems(network)
    assert re.match(r"line \d+ column \d+: not valid JSON", problems["run.json"][0])
    assert problems["costs.json"] == ("duplicate key graph in an object; allowed: every key once",)
    assert problems["graph.json"] == ()
    unpriced = "cannot be checked against costs: its folder has no costs.json that fits the graph"
    assert problems["schedules/greedy-1.json"] == (unpriced,)


def test_versions_of_the_software(folder: Path) -> None:
    """versions.json names Python, the kernel and hios, each with a version."""
    path = folder / "versions.json"
    path.write_text('{"python": "3", "kernel": "6", "hios": "1"}')
    assert _problems(folder)[path.name] == ()
    path.write_text('{"python": 3, "kernel": "6"}')
    assert _problems(folder)[path.name] == (
        "hios: missing; a measurement has to state it (its version)",
        "python: found 3; allowed: a version in quotes",
    )
    path.write_text("[]")
    assert _problems(folder)[path.name] == ("found list; allowed: an object with a version for each package",)


def test_bad_configuration_is_a_problem(folder: Path) -> None:
    """config.yaml is checked with all violations of its schema, else by the rules that names and files obey."""
    (folder / "config.yaml").write_text("models: {}\nalgorithms: {a: {}}\nseed: -1\n", encoding="utf-8")
    problems = _problems(folder)["config.yaml"]
    assert [problem.partition(":")[0] for problem in problems] == ["models", "seed"]
    (folder / "config.yaml").write_text("models: {squeezenet: }\nalgorithms: {magic: }\n", encoding="utf-8")
    (problem,) = _problems(folder)["config.yaml"]
    assert problem.startswith("algorithms.magic: unknown algorithm magic; allowed: ")


def test_configuration_is_checked_without_its_models(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results can be checked in any folder: models, algorithms and the place of the results are not looked up there."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "results").touch()
    monkeypatch.chdir(elsewhere)
    models = "{first: {model: 'my_package.nets:build'}, second: {model: nets/second.pt2}, third: {model: third.onnx}}"
    (elsewhere / "of_others.py").write_text("raise AssertionError", encoding="utf-8")
    algorithms = "{sequential: , own: {algorithm: 'of_others:own', depth: 3}}"
    stages = "devices: [2, 1]\nprofile: {stages_of: ['of_others:own']}\n"
    text = f"models: {models}\nalgorithms: {algorithms}\n{stages}results: results\n"
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    assert _problems(folder)["config.yaml"] == ()
    (folder / "config.yaml").write_text(text.replace("second.pt2", "second.pt2, batch_size: 2"), encoding="utf-8")
    (problem,) = _problems(folder)["config.yaml"]
    assert problem.startswith("models.second: found batch_size, but nets/second.pt2 holds a finished model")


@pytest.mark.parametrize("algorithm", ["my_alg:order", "theirs"])
def test_no_code_that_a_configuration_names_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    """Algorithms of other packages are neither imported nor missed, though the working folder has such a module."""
    (folder / "my_alg.py").write_text("raise AssertionError('imported')", encoding="utf-8")
    monkeypatch.chdir(folder)
    theirs = EntryPoint("theirs", "my_alg:order", plugins.GROUP)
    monkeypatch.setattr(plugins, "entry_points", lambda: {"theirs": (theirs,)})
    text = f"models: {{squeezenet: }}\nalgorithms: {{mine: {{algorithm: '{algorithm}', width: 3}}}}\ndevices: [2]\n"
    text += f"profile: {{stages_of: ['{algorithm}']}}\n"
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    assert _problems(folder)["config.yaml"] == ()
    (folder / "config.yaml").write_text(text.replace("my_alg:order", "my alg:order"), encoding="utf-8")
    found = "algorithm my alg:order: found this name; allowed: package.module:function"
    assert _problems(folder)["config.yaml"] == ((f"algorithms.mine: {found}",) if ":" in algorithm else ())


@pytest.mark.parametrize(
    "text", ["&a [*a]\n", "models: &a {b: *a}\n", "? [a]\n: 1\n", "a: !!python/object:os.system x\n"]
)
def test_configuration_that_cannot_be_read_is_a_problem(folder: Path, text: str) -> None:
    """YAML that cannot be read as a value is one problem and no traceback."""
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    (problem,) = _problems(folder)["config.yaml"]
    assert problem.startswith("line 1: not valid YAML (")


def test_schedules_beside_a_graph_are_checked(network: Path) -> None:
    """A schedule of any name beside a graph is one, also if it is cut off; other JSON, broken too, is not looked at."""
    (network / "schedules" / "greedy-1.json").rename(network / "mine.json")
    (network / "other.json").write_text("{}", encoding="utf-8")
    (network / "settings.json").write_text("{ // mine\n}", encoding="utf-8")
    paths = [entry.path for entry in verify(network)]
    assert "mine.json" in paths
    assert not {"other.json", "settings.json"} & {*paths}
    (network / "mine.json").write_text((network / "mine.json").read_text(encoding="utf-8")[:200], encoding="utf-8")
    assert "not valid JSON" in _problems(network)["mine.json"][0]


def test_measured_schedules_need_no_costs(network: Path) -> None:
    """A schedule with measured times, as ``--auto`` writes, is held to its graph and not to the cost model."""

    def measured(data: Any) -> None:
        data["notes"] = {"times": "measured; no cost model predicted them"}
        data["latency_ms"] *= 2

    path = network / "schedules" / "sequential-1.json"
    _edit(path, measured)
    path.rename(network / "auto.json")
    (network / "run.json").unlink()
    assert _problems(network)["auto.json"] == ()
    _edit(network / "auto.json", lambda data: data["placements"].pop())
    (problem,) = _problems(network)["auto.json"]
    assert "is missing" in problem


def test_one_file_is_not_counted_as_several(tmp_path: Path) -> None:
    """The last line says 1 file, and 1 problem."""
    (tmp_path / "config.yaml").write_text("models: {squeezenet: }\nalgorithms: {sequential: }\n", encoding="utf-8")
    assert _run(tmp_path).output.splitlines()[-1] == "1 file, no problems"
    (tmp_path / "config.yaml").write_text("models: {squeezenet: }\nalgorithms: {magic: }\n", encoding="utf-8")
    assert _run(tmp_path).output.splitlines()[-1] == "1 file, 1 problem"


def test_linked_folders_are_checked(folder: Path, network: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A network may lie on another disk; a link back into the results leads nowhere new."""
    before = _problems(folder)
    elsewhere = tmp_path_factory.mktemp("disk") / network.name
    network.rename(elsewhere)
    network.symlink_to(elsewhere, target_is_directory=True)
    (elsewhere / "back").symlink_to(folder, target_is_directory=True)
    assert _problems(folder) == before
    assert sum(path.startswith(f"{network.name}/") for path in before) > 1


def test_a_folder_without_artifacts_is_refused(tmp_path: Path) -> None:
    """No folder, or one without artifacts, is an error in one line."""
    with pytest.raises(HiosError, match="nowhere: found no folder of this name"):
        verify(tmp_path / "nowhere")
    with pytest.raises(HiosError, match="found no artifact; allowed: a folder with some of graph"):
        verify(tmp_path)
    assert _run(tmp_path).exit_code == 1


def test_bounds_of_other_algorithms_count_the_same_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A better bound that an algorithm of others proves is none the less right where this process knows it."""
    times = {f"v{number}": 2.0 for number in range(5)}
    instance = problem(times, {})

    def prover(instance: Problem, devices: int) -> Solution:
        rows = tuple(tuple(((operator,),) for operator in range(first, len(instance), devices)) for first in (0, 1))
        return Solution(StagedPlan(rows), lower_bound_ms=6.0)

    entry = Algorithm("prover", "", "", several_devices=True, parameters=(), run=prover)
    monkeypatch.setitem(ALGORITHMS, "prover", entry)
    scheduled = schedule(instance, "prover", 2)
    assert bound_problems(scheduled, instance, [scheduled]) == []
    monkeypatch.delitem(ALGORITHMS, "prover")
    assert bound_problems(scheduled, instance, [scheduled]) == []
