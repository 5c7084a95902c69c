"""Figures of several machines: this one, and those whose archives the configuration names.

The last tests are of IOS, table 3: schedules of one machine under the costs of another.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from hios import Costs, Graph, Problem, schedule
from hios.core.costs import OperatorCost
from hios.core.evaluate import evaluate, latency_ms
from hios.core.schedule import Schedule
from hios.errors import ArtifactError, HiosError
from hios.files import artifacts
from hios.formats.config import Config
from hios.formats.run import Run, RunPlatform
from hios.report.archive import write_archive
from hios.study import registry
from hios.study.figure_data import ExecutedNetwork, FigureData, OtherMachine
from hios.study.machine_rows import device_rows
from hios.study.sessions import checked_archives, figure_files, page_figures
from tests.cli.commands import invoke, refused
from tests.study.drawn_figures import draw
from tests.study.every_session import pack
from tests.verify.results import write_network

pytest.importorskip("altair", reason="needs the extra report")
pytest.importorskip("numba", reason="needs the extra opt")

FIGURES = ("ios_fig14", "ios_fig15", "opara_fig9")
_SCHEDULES = {f"{name}-1": (name, 1) for name in ("sequential", "greedy", "ios", "nimble", "opara")}


def _on_gpu(run: Path) -> None:
    changed = RunPlatform("cuda", devices=1, gpus=("NVIDIA A100",), processor="none", load_average=0.0)
    artifacts.write(run, "run", msgspec.structs.replace(artifacts.load(run, Run), platform=changed))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of this machine, and in them the archive of one that is faster and has a GPU."""
    folder = tmp_path_factory.mktemp("machines")
    for seed, name in enumerate(("here", "there")):
        network = write_network(folder / name / "inception_v3", seed, _SCHEDULES)
        if name == "there":
            _on_gpu(network / "run.json")
    pack(folder / "there", folder / "here" / "study" / "archives" / "a100.zip")
    return folder / "here"


def _files(results: Path) -> list[Path]:
    return [results / "inception_v3" / "run.json", results / "study" / "archives" / "a100.zip"]


@pytest.mark.parametrize("name", FIGURES)
def test_a_panel_for_every_machine(results: Path, tmp_path: Path, name: str) -> None:
    """Rows name machine and hardware and are measured; numbers of the other machine are those of its run."""
    record = draw(name, _files(results), tmp_path)
    assert not record.missing
    assert {(row["machine"], row["hardware"]) for row in record.rows} == {
        ("this machine", "none"),
        ("a100", "NVIDIA A100"),
    }
    assert {row["mark"] for row in record.rows} == {"measured here"}
    there = artifacts.load(results.parent / "there" / "inception_v3" / "run.json", Run)
    medians = {result.label: result.latency_ms.median for result in there.results}
    rows = {row["schedule"]: row["ms"] for row in record.rows if row["machine"] == "a100"}
    assert rows.keys() & medians.keys()
    assert all(ms == medians[label] for label, ms in rows.items() if label in medians)
    assert "a100 (NVIDIA A100)" in record.reason
    svg = (tmp_path / f"{name}.svg").read_text()
    assert all(text in svg for text in ("this machine", "a100", "NVIDIA A100"))


def test_throughput_is_normalized_on_each_machine(results: Path, tmp_path: Path) -> None:
    """The best schedule of every machine has throughput 1."""
    record = draw("ios_fig14", _files(results), tmp_path)
    for machine in ("this machine", "a100"):
        shares = [row["normalized throughput"] for row in record.rows if row["machine"] == machine]
        assert max(map(float, map(str, shares))) == 1
        assert len(shares) == 3


@pytest.mark.parametrize(
    ("name", "algorithm", "column"), [("ios_fig14", "ios", "speedup"), ("opara_fig9", "opara", "over nimble")]
)
def test_only_gpus_are_compared(results: Path, tmp_path: Path, name: str, algorithm: str, column: str) -> None:
    """The published range is compared with what the archive of a machine with a GPU has, by its name."""
    record = draw(name, _files(results), tmp_path)
    (row,) = [row for row in record.rows if (row["machine"], row["algorithm"]) == ("a100", algorithm)]
    (compared,) = record.comparisons
    assert compared.by == "archive a100"
    assert compared.found == f"{row[column]:.4g}"
    assert compared.verdict != "not on this machine"


@pytest.mark.parametrize("name", FIGURES)
def test_without_an_archive_it_is_a_card(results: Path, tmp_path: Path, name: str) -> None:
    """With the runs of this machine alone there is nothing to compare."""
    record = draw(name, _files(results)[:1], tmp_path)
    assert record.missing.startswith("it compares machines, and `study: archives:` in config.yaml names no archive")
    assert all(entry.verdict == "not on this machine" for entry in record.comparisons)


def test_figures_are_verified_in_the_archive_of_this_run(results: Path, tmp_path: Path) -> None:
    """The copy is part of the results: the archive of this run holds it, and what is drawn from it is checked."""
    draw("ios_fig14", _files(results), results / "figures")
    archive = pack(results, tmp_path / "own.zip")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(tmp_path / "own")
    copy = tmp_path / "own" / "study" / "archives" / "a100.zip"
    assert copy.read_bytes() == _files(results)[1].read_bytes()
    drawn = tmp_path / "own" / "figures" / "ios_fig14.json"
    answer = invoke("verify", tmp_path / "own")
    assert "ios_fig14" not in "".join(line for line in answer.output.splitlines() if "not what" in line)
    record = json.loads(drawn.read_text())
    record["rows"][-1]["ms"] *= 2
    drawn.write_text(json.dumps(record))
    answer = invoke("verify", tmp_path / "own")
    assert "rows: not what the data give; draw the figure again" in answer.output


def test_wrong_archives_are_refused_in_one_line(results: Path, tmp_path: Path) -> None:
    """One that is not there, one with another file than it lists, with a path that leads out, and without a run."""
    good = _files(results)[1]
    with zipfile.ZipFile(good) as opened:
        files = {name: opened.read(name) for name in opened.namelist()}

    def rewritten(name: str, changed: dict[str, bytes]) -> Path:
        with zipfile.ZipFile(tmp_path / name, "w") as new:
            for entry, data in changed.items():
                new.writestr(entry, data)
        return tmp_path / name

    run = files["inception_v3/run.json"].replace(b'"seed": 0', b'"seed": 1')
    wrong = {
        tmp_path / "none.zip": "none.zip: cannot be read: No such file or directory; required: a zip file by",
        rewritten("changed.zip", {**files, "inception_v3/run.json": run}): "run.json: its SHA-256 is not that of",
        rewritten("hostile.zip", {**files, "../up": b""}): "found the path '../up'; allowed: names of files below",
    }
    for path, message in wrong.items():
        assert message in refused("figures", "ios_fig14", path, "--output", tmp_path / "out")
    assert not (tmp_path.parent / "up").exists()
    other = tmp_path / "other"
    write_network(other / "net", 2)
    archive = pack(other, tmp_path / "predicted.zip")
    (other / "net" / "run.json").unlink()
    page = other / "report.html"
    write_archive(page, archive)
    with pytest.raises(ArtifactError, match=r"predicted\.zip: found no run\.json of a network; required: an archive"):
        FigureData.read([archive])


def _settings(archives: Sequence[str] = ()) -> Config:
    given = {
        "models": {"inception_v3": {}},
        "platform": "cpu",
        "algorithms": {"sequential": {}},
        "study": {"archives": archives},
    }
    return msgspec.convert(given, Config)


def test_archives_of_the_configuration(results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn from copies in the results; the page shows them where an archive is named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a100.zip").write_bytes(_files(results)[1].read_bytes())

    named = _settings(["a100.zip"])
    figure = registry.figure("ios_fig14")
    assert figure_files(named, figure) == [
        "results/inception_v3/run.json",
        "results/study/archives/a100.zip",
        "results/inception_v3/predicted.json",
    ]
    assert figure_files(named, figure, measures=False) == ["results/study/archives/a100.zip"]
    assert set(FIGURES) <= set(page_figures(named))
    assert not set(FIGURES) & set(page_figures(_settings()))
    assert checked_archives(named, "config.yaml") == {"a100": "a100.zip"}
    message = r"config\.yaml: study\.archives\[1\]: found b\.zip, which is no file; allowed: archives, as"
    with pytest.raises(HiosError, match=message):
        checked_archives(_settings(["a100.zip", "b.zip"]), "config.yaml")
    (tmp_path / "results" / "study" / "archives").mkdir(parents=True)
    (tmp_path / "results" / "study" / "archives" / "b.zip").touch()
    with pytest.raises(HiosError, match=r"b\.zip; allowed: files outside of results/study/archives, where copies"):
        checked_archives(_settings(["results/study/archives/b.zip"]), "config.yaml")


@pytest.mark.parametrize(
    ("archives", "message"),
    [
        (["a.zip", "b/a.zip"], r"study\.archives: found several files a\.zip; allowed: each name once"),
        (["a.tar"], "Expected `str` matching regex"),
        (["this machine.zip"], "Expected `str` matching regex"),
    ],
)
def test_names_of_machines(archives: list[str], message: str) -> None:
    """The names of files are those of machines: each once, and without spaces."""
    with pytest.raises(msgspec.ValidationError, match=message):
        _settings(archives)


_LABELED = {"sequential-1": ("sequential", 1), "ios-1": ("ios", 1)}


def _with_costs(network: ExecutedNetwork, factor: float) -> tuple[ExecutedNetwork, Schedule]:
    """The same network on a machine whose even operators take longer, with the schedule that IOS finds there."""
    operators = {
        name: OperatorCost(time_ms=cost.time_ms * (factor if number % 2 else 1), utilization=0.2)
        for number, (name, cost) in enumerate(network.costs.operators.items())
    }
    costs = msgspec.structs.replace(network.costs, operators=operators, stages=())
    made = schedule(Problem(Graph.of(network.graph), Costs.of(costs)), "ios", 1)
    results = tuple(
        msgspec.structs.replace(result, predicted=made.placements, predicted_ms=made.latency_ms)
        if result.algorithm == "ios"
        else result
        for result in network.run.results
    )
    return ExecutedNetwork(network.graph, costs, msgspec.structs.replace(network.run, results=results)), made


@pytest.fixture
def two_machines(tmp_path: Path) -> FigureData:
    """A network here and on another machine with other costs."""
    here = FigureData.read([write_network(tmp_path / "squeezenet", 3, _LABELED) / "run.json"]).networks
    there, _ = _with_costs(here["squeezenet"], 3.0)
    return FigureData(networks=here, machines={"k80": OtherMachine("a processor", {"squeezenet": there})})


def test_every_schedule_on_every_machine(two_machines: FigureData) -> None:
    """Times are those of the evaluator under the costs of the machine; the own schedule is what others are over."""
    rows = {(row["machine"], row["made on"]): row for row in device_rows(two_machines)}
    assert set(rows) == {(one, two) for one in ("this machine", "k80") for two in ("this machine", "k80")}
    here, there = two_machines.networks["squeezenet"], two_machines.machines["k80"].networks["squeezenet"]
    graph = Graph.of(here.graph)
    result = next(result for result in there.run.results if result.algorithm == "ios")
    moved = Schedule("ios", {}, 1, 0.0, 0.0, 0.0, result.predicted).plan(graph)
    problem = Problem(graph, Costs.of(here.costs)).on(1)
    assert rows["this machine", "k80"]["ms"] == pytest.approx(latency_ms(evaluate(problem, moved)))
    for machine in ("this machine", "k80"):
        assert rows[machine, machine]["over own %"] == pytest.approx(0)
    assert {row["mark"] for row in rows.values()} == {"predicted"}


def test_in_the_table(two_machines: FigureData) -> None:
    """IOS table 3 has them, says so, and compares none of them with what was published."""
    figure = registry.figure("ios_tab3")
    rows = figure.rows(two_machines)
    other = next(row for row in rows if (row["machine"], row["made on"]) == ("this machine", "k80"))
    assert f"squeezenet on this machine by the schedule of k80 {other['over own %']:+.1f} %" in figure.finding(rows)
    assert not any(entry.found for entry in figure.compare(rows))
    assert "did not run here" in figure.why(rows)


def test_other_graphs_and_schedules_that_cannot_be_timed_are_left_out(two_machines: FigureData, tmp_path: Path) -> None:
    """A network of another form, and a schedule whose times its placements do not give, such as a merged one."""
    other = FigureData.read([write_network(tmp_path / "squeezenet", 5, _LABELED) / "run.json"]).networks
    alone = FigureData(networks=two_machines.networks, machines={"k80": OtherMachine("a processor", other)})
    assert {(row["machine"], row["made on"]) for row in device_rows(alone)} == {("this machine", "this machine")}
    network = two_machines.networks["squeezenet"]
    results = tuple(msgspec.structs.replace(row, predicted_ms=2 * row.predicted_ms) for row in network.run.results)
    merged = ExecutedNetwork(network.graph, network.costs, msgspec.structs.replace(network.run, results=results))
    left = device_rows(FigureData(networks={"squeezenet": merged}, machines=two_machines.machines))
    assert {(row["machine"], row["made on"]) for row in left} == {("k80", "k80")}
    assert device_rows(FigureData(networks=two_machines.networks)) == []
