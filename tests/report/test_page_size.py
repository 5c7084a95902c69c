"""Pages of large studies: their size in bytes, what they leave out, and the processes that draw them."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from multiprocessing import resource_tracker
from pathlib import Path

import altair
import msgspec
import pytest

from benchmarks.drawn_runs import drawn_run
from hios import Costs, Graph, Problem, Schedule, schedule
from hios.charts.rendering import to_svg
from hios.core.costs import CostsFile, OperatorCost, TransferCost
from hios.files import artifacts
from hios.files.yaml_file import plain, read_yaml
from hios.formats.config import SERIES, Study
from hios.formats.study import SimulationFile
from hios.pipeline import config
from hios.report import page as large_pages
from hios.report import write_report
from hios.schedulers import ALGORITHMS, find
from hios.study import registry
from hios.study.figure_data import FigureData
from hios.study.page_part import papers_part
from hios.study.reference_networks import inception_v3, nasnet_large, squeezenet
from hios.study.sessions import page_figures, series
from tests.report.test_report import COMPETITORS, make_several, page_of, read_csv, tables_of
from tests.scripts import ROOT
from tests.study.drawn_figures import draw, of_sessions
from tests.study.every_session import write_sessions
from tests.workers.processes import children

pytest.importorskip("altair", reason="needs the extra report")

_MB = 1_000_000
_DEFAULT, _EVERYTHING = 2.5 * _MB, 10 * _MB
#: Algorithms that search for long on these networks, with one in whose place their schedules are drawn.
_STAND_INS = {"ios": "greedy", "hios-opt": "heft"}


def _named(graph: Graph) -> Graph:
    """The graph with names of operators that are as long as those that extraction gives."""
    blocks = {name: number for number, block in enumerate(graph.blocks or ()) for name in block}
    names = {operator.id: f"cell_{blocks.get(operator.id, 0)}.{operator.id}" for operator in graph.operators}
    return Graph(
        graph.name,
        tuple(msgspec.structs.replace(operator, id=names[operator.id]) for operator in graph.operators),
        tuple(
            msgspec.structs.replace(edge, source=names[edge.source], target=names[edge.target]) for edge in graph.edges
        ),
        blocks=tuple(tuple(names[name] for name in block) for block in graph.blocks or ()),
    )


def _write(folder: Path, graph: Graph, algorithms: Iterable[str]) -> Path:
    """Write a network with a schedule by every algorithm, executed by nobody."""
    graph, chance = _named(graph), random.Random(0)
    pairs = dict.fromkeys((edge.source, edge.target) for edge in graph.edges)
    costs = CostsFile(
        operators={operator.id: OperatorCost(time_ms=chance.uniform(0.1, 2)) for operator in graph.operators},
        transfers=tuple(TransferCost(source=source, target=target, time_ms=0.02) for source, target in pairs),
    )
    problem, made = Problem(graph, Costs.of(costs)), dict[str, Schedule]()
    for name in algorithms:
        devices = 2 if find(name).several_devices else 1
        drawn = schedule(problem, _STAND_INS.get(name, name), devices)
        made[f"{name}-{devices}"] = replace(drawn, algorithm=name)
    graph.write(folder / "graph.json")
    artifacts.write(folder / "costs.json", "costs", costs)
    references = {"eager PyTorch": 1.3, "torch.compile": 0.8, "ONNX Runtime": 0.9}
    run = drawn_run(graph, made, chance, runs=50, devices=(2,), references=references)
    artifacts.write(folder / "run.json", "run", run)
    return folder


def _draw(folder: Path, figures: Iterable[str], files: Mapping[str, list[Path]]) -> None:
    read: dict[tuple[str, ...], FigureData] = {}
    for name in figures:
        sessions = registry.figure(name).sessions
        if sessions not in read:
            read[sessions] = FigureData.read(of_sessions(name, files))
        draw(name, read[sessions], folder / "figures")


def _with_all_settings(files: dict[str, list[Path]], study: Study) -> dict[str, list[Path]]:
    """The sessions with every setting of the simulation, each with the latencies of one."""
    (one,) = files["simulation/edges"]
    simulated = artifacts.load(one, SimulationFile)
    for name in SERIES:
        settings = series(study.simulation, name)
        files[f"simulation/{name}"] = [one.with_name(f"{setting.name}.json") for setting in settings]
        for path, setting in zip(files[f"simulation/{name}"], settings, strict=True):
            artifacts.write(path, "simulation", msgspec.structs.replace(simulated, setting=setting))
    return files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Files of every session, by session."""
    sessions = write_sessions(tmp_path_factory.mktemp("sessions"), tmp_path_factory.mktemp("other"))
    return _with_all_settings(sessions, Study())


@pytest.fixture(scope="module")
def drawn(files: dict[str, list[Path]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the figures of all sessions but that of networks, of which each test has its own."""
    folder = tmp_path_factory.mktemp("drawn")
    _draw(folder, [name for name in registry.ids() if "networks" not in registry.figure(name).sessions], files)
    return folder


def _take_figures(folder: Path, drawn: Path, figures: Iterable[str], files: Mapping[str, list[Path]]) -> None:
    """Copy figures that are drawn, and draw those of networks."""
    (folder / "figures").mkdir()
    own = []
    for name in figures:
        paths = list((drawn / "figures").glob(f"{name}.*"))
        own += [] if paths else [name]
        for path in paths:
            shutil.copy(path, folder / "figures")
    _draw(folder, own, files)


@pytest.mark.slow
def test_default_page(files: dict[str, list[Path]], drawn: Path, tmp_path: Path) -> None:
    """Networks, algorithms and figures of config.yaml make a page of at most 2.5 MB."""
    path = ROOT / "config.yaml"
    settings = config.resolve(plain(read_yaml(path), str(path), ()), str(path))
    known = {"squeezenet": squeezenet, "inception_v3": inception_v3}
    algorithms = [str(entry.get("algorithm", label)) for label, entry in settings.algorithms.items()]
    models = [_write(tmp_path / label, known[label](), algorithms) for label in settings.models]
    networks = {"networks": [model / "run.json" for model in models]}
    _take_figures(tmp_path, drawn, page_figures(settings), {**files, **networks})
    papers = papers_part(tmp_path / "figures", tmp_path / "report.html")
    write_report(models, tmp_path / "report.html", tmp_path / "tables", papers=papers)
    for page in ("report.html", "papers.html"):
        assert 0.3 * _MB < (tmp_path / page).stat().st_size <= _DEFAULT


@pytest.mark.slow
def test_page_of_everything(files: dict[str, list[Path]], drawn: Path, tmp_path: Path) -> None:
    """The four networks of the papers with all algorithms and all figures make a page of at most 10 MB, with charts."""
    networks = {
        "nasnet_large": nasnet_large(),
        "inception_v3": inception_v3(),
        "randwire": inception_v3(),  # as large as RandWire but for one operator
        "squeezenet": squeezenet(),
    }
    models = [_write(tmp_path / label, graph, ALGORITHMS) for label, graph in networks.items()]
    own = {"networks": [model / "run.json" for model in models]}
    _take_figures(tmp_path, drawn, registry.ids(), {**files, **own})
    papers = papers_part(tmp_path / "figures", tmp_path / "report.html")
    write_report(models, tmp_path / "report.html", tmp_path / "tables", papers=papers)
    for name in ("report.html", "papers.html"):
        assert 1 * _MB < (tmp_path / name).stat().st_size <= _EVERYTHING
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count('<figure class="gantt"') == len(networks) * len(ALGORITHMS)


def test_bars_limit_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many operators in all, charts are of the fastest schedules alone, however few schedules there are."""
    model = _write(tmp_path / "net", squeezenet(), ("sequential", "greedy", "heft"))
    for most, charts in ((6 * 50, 3), (6 * 50 - 1, 1)):
        monkeypatch.setattr(large_pages, "_BARS", most)
        write_report([model], tmp_path / "report.html", tmp_path / "tables")
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert page.count('<figure class="gantt"') == charts
        assert ("too large for one page" in page) == (charts == 1)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The report of two networks where a page holds next to nothing; links to rows and files are left."""
    for name in ("_CHARTS", "_ROWS", "_PICTURES"):
        monkeypatch.setattr(large_pages, name, 1)
    return page_of(tmp_path, *make_several(tmp_path, "first", "second"))


def test_charts_of_the_fastest_are_left(page: str) -> None:
    """A Gantt chart of each network, no picture of a graph, no files inside; the page says so."""
    assert len(re.findall(r'<figure class="gantt"', page)) == 2
    assert "operators by block" not in page
    assert "download=" not in page
    for text in ("too large for one page", "hios show --html", "hios draw", "latency.csv"):
        assert text in page


def test_rows_that_say_most_are_left(page: str, tmp_path: Path) -> None:
    """The tables have the fastest and the sequential schedules and every row that is linked to; the file has all."""
    tables = tables_of(page)
    labels = [row[1] for row in tables["schedules"][1:]]
    assert sum("lowest median" in label for label in labels) == 2
    assert sum(label.startswith("sequential") for label in labels) == 2
    assert len(labels) < 2 * len(COMPETITORS)
    links = set(re.findall(r'href="#((?:measured|predicted)-\d+-\d+)"', page))
    assert links
    assert links <= set(re.findall(r'<tr id="([^"]+)"', page))
    rows = [row for row in read_csv(tmp_path / "latency.csv") if row["kind"] == "schedule"]
    assert len(rows) == 2 * len(COMPETITORS)


def _numbered(number: int, part: str) -> tuple[int, str, int]:
    return number, part, os.getpid()


def _inverse(_: int, part: int) -> float:
    return 1 / part


@pytest.fixture
def before() -> set[int]:
    """Processes of this one, that which multiprocessing leaves behind among them."""
    resource_tracker.ensure_running()
    return set(children())


def test_results_are_in_order_and_nobody_is_left(before: set[int]) -> None:
    """Every part is made once, in other processes than this, which are gone afterwards."""
    made = large_pages.made("abcdefgh", _numbered, 2)
    assert [(number, part) for number, part, _ in made] == list(enumerate("abcdefgh", start=1))
    assert os.getpid() not in {process for _, _, process in made}
    assert set(children()) <= before


@pytest.mark.parametrize(("parts", "processes"), [(1, 2), (8, 1)])
def test_few_parts_are_made_here(parts: int, processes: int) -> None:
    """Starting processes would take longer."""
    assert large_pages.made(range(parts), lambda *_: os.getpid(), processes) == [os.getpid()] * parts


def test_threads_of_this_process_are_no_harm() -> None:
    """Drawing leaves threads with locks behind, which processes must not begin with."""
    chart = altair.Chart(altair.InlineData([{"x": 1}]), description="A point").mark_point().encode(x="x:Q")
    assert to_svg(chart, "here")
    assert large_pages.made(range(8), partial(_drawn, chart), 2) == ["<svg"] * 8


def _drawn(chart: altair.Chart, number: int, _: int) -> str:
    return to_svg(chart, f"chart-{number}")[:4]


def test_what_is_raised_arrives(before: set[int]) -> None:
    """An error is that of the part, and ends the others."""
    with pytest.raises(ZeroDivisionError):
        large_pages.made(range(8), _inverse, 2)
    assert set(children()) <= before


@pytest.mark.slow
def test_the_page_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many processes draw it, three networks as if they were many."""
    monkeypatch.setattr(large_pages, "_MANY", 3)
    models = make_several(tmp_path, "first", "second", "third")
    assert page_of(tmp_path, *models, processes=1) == page_of(tmp_path, *models, processes=2)
