"""How large pages are in bytes: of the default configuration, and of everything that there is to show."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from benchmarks.drawn_runs import drawn_run
from hios import Costs, Graph, Problem, Schedule, schedule
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
from tests.study.every_session import write_sessions

pytest.importorskip("altair", reason="needs the extra report")

from hios.study.figure_files import write_figure

_MB = 1_000_000
_DEFAULT, _EVERYTHING = 2.5 * _MB, 10 * _MB
#: Algorithms that search for long on these networks, with one in whose place their schedules are drawn.
_STAND_INS = {"ios": "greedy", "hios-opt": "heft"}
_ROOT = Path(__file__).resolve().parents[2]


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
    for name in figures:
        figure = registry.figure(name)
        data = FigureData.read(path for session in figure.sessions for path in files[session])
        write_figure(figure, data, folder / "figures")


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


@pytest.mark.slow
def test_default_page(files: dict[str, list[Path]], tmp_path: Path) -> None:
    """Networks, algorithms and figures of config.yaml make a page of at most 2.5 MB."""
    path = _ROOT / "config.yaml"
    settings = config.resolve(plain(read_yaml(path), str(path), ()), str(path))
    known = {"squeezenet": squeezenet, "inception_v3": inception_v3}
    algorithms = [str(entry.get("algorithm", label)) for label, entry in settings.algorithms.items()]
    models = [_write(tmp_path / label, known[label](), algorithms) for label in settings.models]
    networks = {"networks": [model / "run.json" for model in models]}
    _draw(tmp_path, page_figures(settings), {**files, **networks})
    papers = papers_part(tmp_path / "figures", tmp_path / "report.html")
    write_report(models, tmp_path / "report.html", tmp_path / "tables", papers=papers)
    for page in ("report.html", "papers.html"):
        assert 0.3 * _MB < (tmp_path / page).stat().st_size <= _DEFAULT


@pytest.mark.slow
def test_page_of_everything(files: dict[str, list[Path]], tmp_path: Path) -> None:
    """The four networks of the papers with all algorithms and all figures make a page of at most 10 MB, with charts."""
    networks = {
        "nasnet_large": nasnet_large(),
        "inception_v3": inception_v3(),
        "randwire": inception_v3(),  # as large as RandWire but for one operator
        "squeezenet": squeezenet(),
    }
    models = [_write(tmp_path / label, graph, ALGORITHMS) for label, graph in networks.items()]
    own = {"networks": [model / "run.json" for model in models]}
    _draw(tmp_path, registry.ids(), {**files, **own})
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
