"""The registry of the papers' figures: complete, and every entry can be written."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from hios.core.graph import TensorSpec
from hios.errors import HiosError
from hios.files import artifacts
from hios.formats.serving_result import ResultFile
from hios.formats.study import FigureFile
from hios.study import registry
from hios.study.figure_data import FigureData
from hios.study.figure_listing import contents, explained, listing
from hios.study.registry import Figure, checked, register
from hios.verify import verify
from tests.charts.latex_compiler import compile_latex, needs_pdflatex
from tests.scripts import ROOT
from tests.study.drawn_figures import draw, found, of_sessions, on_gpu
from tests.study.every_session import write_sessions
from tests.verify.results import write_network

pytest.importorskip("altair", reason="needs the extra report")

from hios.charts.marks import PREDICTED
from hios.study.figure_files import ENDINGS, latex, table_text
from hios.study.figures.hios import fig8_numbers
from hios.study.figures.top import largest_variance
from hios.study.simulated_rows import HIOS

#: Every figure and table with an evaluation result.
EXPECTED = {
    *(f"hios_fig{n}" for n in (1, 2, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14)),
    "hios_ablation",
    *(f"ios_fig{n}" for n in (1, 2, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)),
    *(f"ios_tab{n}" for n in (1, 2, 3)),
    *(f"lios_fig{n}" for n in (4, 7, 8, 9)),
    *(f"lios_tab{n}" for n in (2, 3, 4, 5, 6, 7)),
    *(f"opara_fig{n}" for n in (1, 2, 3, 5, 6, 7, 8, 9)),
    "opara_tab1",
    *(f"top_fig{n}" for n in range(13, 28)),
    "top_tab2",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Files of every session, by session."""
    return write_sessions(tmp_path_factory.mktemp("sessions"), tmp_path_factory.mktemp("other"))


def test_all_figures_are_registered() -> None:
    """Every figure and table with a result has its entry, and a drawing or a reason why there is none."""
    assert set(registry.ids()) == EXPECTED
    assert [figure.id for figure in registry.figures()] == registry.ids()


def test_order_and_numbers() -> None:
    """By paper, figures before tables, by number."""
    assert registry.ids()[:3] == ["hios_fig1", "hios_fig2", "hios_fig4"]
    assert registry.ids().index("ios_fig16") + 1 == registry.ids().index("ios_tab1")
    assert (registry.figure("hios_fig9").number, registry.figure("lios_tab5").number) == ("Fig. 9", "Table 5")


@pytest.mark.parametrize("name", registry.ids())
def test_every_figure_is_written(name: str, files: dict[str, list[Path]], tmp_path: Path) -> None:
    """As CSV, LaTeX, SVG, PDF of one page with its fonts, and JSON in which every published number has a verdict."""
    figure = registry.figure(name)
    record = draw(name, of_sessions(name, files), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{name}.{ending}" for ending in ENDINGS)
    assert artifacts.load(tmp_path / f"{name}.json", FigureFile) == record
    with (tmp_path / f"{name}.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(record.rows) > 0
    latex = (tmp_path / f"{name}.tex").read_text()
    assert latex.count(r"\toprule") == latex.count(r"\bottomrule") == 1
    assert not re.search(r"(?<!\\)[%_](?!.*usepackage|.*Table|.*Fig|.*ablation)", latex.split(r"\toprule")[1])
    pdf = (tmp_path / f"{name}.pdf").read_bytes()
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
    assert b"/FontFile" in pdf
    assert {entry.key for entry in record.comparisons} == set(figure.published)
    if record.state != "drawn":
        assert {entry.verdict for entry in record.comparisons} <= {"not on this machine", "not compared"}
        assert {row.get("mark", "published") for row in record.rows} == {"published"}
    assert figure.title.split(",")[0] in record.caption


@needs_pdflatex
def test_tables_compile(files: dict[str, list[Path]], tmp_path: Path) -> None:
    """The table of every figure, with booktabs and nothing else, and with hostile text in its cells."""
    name_as_cell = "[a_b&c%d#e$f~g^h\\i{j} 5 µs × ≥ é"  # noqa: RUF001
    tables = {}
    for name in registry.ids():
        record = found(name, of_sessions(name, files))
        row = dict.fromkeys(record.columns, name_as_cell)
        tables[name] = latex(record)
        tables[f"{name}-hostile"] = latex(msgspec.structs.replace(record, rows=(row, *record.rows)))
    for name, text in tables.items():
        (tmp_path / f"{name}.tex").write_text(text, encoding="utf-8")
    pages = "\n".join(rf"\noindent\input{{{name}}}\clearpage" for name in tables)
    document = tmp_path / "document.tex"
    document.write_text(
        f"\\documentclass{{article}}\n\\usepackage{{booktabs}}\n\\begin{{document}}\n{pages}\n\\end{{document}}\n"
    )
    said = compile_latex(document).replace("\n", "")
    assert all(f"(./{name}.tex" in said for name in tables)


def test_what_experiments_of_top_say(files: dict[str, list[Path]]) -> None:
    """Saturation, gains and convergence are read off the points, and compared with the paper."""

    def record(name: str) -> FigureFile:
        return found(name, of_sessions(name, files))

    for name, saturation in (("top_fig18", "4"), ("top_fig26", "64"), ("top_fig27", "64")):
        values = {entry.key: entry.found for entry in record(name).comparisons}
        assert values[f"{name}.saturation"].removeprefix("A100: ") == saturation
    assert record("top_fig13").comparisons[0].found == "50"
    assert record("top_fig21").comparisons[0].found == "6000"
    assert record("top_fig22").comparisons[0].found == "6000"
    # Times of this machine are not those of the paper's.
    assert {(entry.found, entry.verdict) for entry in record("top_fig19").comparisons} == {("", "not compared")}
    assert "endings 6 ms (75 %), update 2 ms (25 %)" in record("top_fig19").finding
    assert [entry.key for entry in record("top_fig18").comparisons] == ["top_fig18.saturation"]
    assert "Training, processor time of this machine:" in record("top_fig18").finding
    assert "up to 300 copies of alone fit into the memory" in record("top_fig24").finding
    assert "up to 500 inputs of a batch of mix fit into the memory" in record("top_fig26").finding
    assert "up to 500 inputs of a batch of alone fit into the memory" in record("top_fig27").finding
    assert "mix: batch 1 3.00 stages with 2.00 groups" in record("top_fig25").finding
    assert "top 15 a second, +25.0 % over pos-strict (POS-like)" in record("top_fig23").finding
    assert "best on other traces is top with 4" in record("top_fig22").finding
    assert "+300.0 % with 8 copies" in record("top_fig24").finding


@pytest.mark.parametrize(
    ("name", "behind"),
    [
        ("top_fig18", {"alone, sub-blocks 1, top": 10, "mix, sub-blocks 4, top": 40}),
        ("top_fig23", {"mix, models at once 2, top": 15, "mix, models at once 2, ios": 11}),
        ("top_fig24", {"alone, copies 1, sequential": 10, "alone, copies 8, top": 81}),
        ("top_fig26", {"mix, batch 1, top": 12, "mix, batch 256, top": 2562}),
        ("top_fig27", {"alone, batch 256, ios": 2561, "alone, batch 256, top": 2562}),
    ],
)
def test_what_models_get_stands_beside_every_gain(
    files: dict[str, list[Path]], name: str, behind: dict[str, int]
) -> None:
    """Throughput of each model, Jain's index and the variance of the queues, in the sentence and in the table."""
    record = found(name, of_sessions(name, files))
    for place, rate in behind.items():
        said = f"{place}: a {rate:.4g}, b {2 * rate:.4g} tasks/s, Jain's index 0.900, variance {rate:.3g}"
        assert said in record.finding
    assert {"tasks per s by model", "Jain's index", "queue variance"} <= set(record.columns)


def test_serving_on_a_gpu_is_compared_with_the_paper(files: dict[str, list[Path]], tmp_path: Path) -> None:
    """Simulations with costs of a GPU have verdicts, those on lanes have none; the finding has the numbers of both."""
    data = FigureData.read(files["serving"])
    on_lanes = found("top_fig15", data)
    assert {entry.verdict for entry in on_lanes.comparisons} == {"not on this machine"}
    assert "on lanes, so not compared" in on_lanes.finding
    (label, results), *_ = data.serving.items()
    gpu = {label: tuple(msgspec.structs.replace(result, device="gpu") for result in results)}
    record = draw("top_fig15", dataclasses.replace(data, serving=gpu), tmp_path)
    rows: dict[Any, Any] = {(row["load"], row["policy"]): row["tasks per s"] for row in record.rows}
    gains = sorted(
        100 * (rows[load, "top"] / rows[load, name] - 1) for load in (1, 2) for name in ("pos-strict", "pos-relaxed")
    )
    (entry,) = record.comparisons
    assert entry.found == f"{gains[0]:.4g} to {gains[-1]:.4g}"
    assert "predicted for a GPU" in record.finding
    assert "Strict rounds (POS-like) wait for all models" in record.reason


def _with_queues(results: Sequence[ResultFile], queue: int | None, variance: float) -> tuple[ResultFile, ...]:
    """The results as of a GPU, with queues of that limit and that mean variance."""
    made = []
    for result in results:
        models = {label: msgspec.structs.replace(own, queue=queue) for label, own in result.models.items()}
        made.append(msgspec.structs.replace(result, device="gpu", models=models, queue_variance=variance))
    return tuple(made)


@pytest.mark.parametrize(
    ("queue", "variance", "verdict"),
    [
        (None, 1e3, "not on this machine"),
        (256, 1e3, "not on this machine"),
        (1000, 1e3, "agrees"),
        (1000, 2.4e5, "differs"),
    ],
)
def test_the_variance_is_compared_where_queues_let_it_differ(
    files: dict[str, list[Path]], queue: int | None, variance: float, verdict: str
) -> None:
    """Two queues of 256 tasks have a variance of at most 16384, whatever the policy: no verdict on at most 2e5."""
    data = FigureData.read(files["serving"])
    serving = {"mix": _with_queues(data.serving["mix"], queue, variance)}
    record = found("top_fig17", dataclasses.replace(data, serving=serving))
    assert [entry.verdict for entry in record.comparisons] == [verdict]
    assert ("In mix the variance is at most 1.638e+04, so it is not" in record.reason) is (queue == 256)


def test_the_example_of_the_papers_rates_can_exceed_the_published_variance() -> None:
    """The queues of examples/top/mix.yaml hold more than the backlog of 949 tasks that a variance of 2e5 is."""
    mix = yaml.safe_load((ROOT / "examples" / "top" / "mix.yaml").read_text(encoding="utf-8"))
    limits = {model["queue"] for model in mix["models"].values()}
    assert largest_variance(len(mix["models"]), min(limits)) > 1.1 * 2e5
    assert largest_variance(3, 949) == pytest.approx(2e5, rel=1e-3)


def test_nothing_measured_on_cores_is_compared_with_gpus(files: dict[str, list[Path]]) -> None:
    """Numbers of the papers' GPUs have no verdict by a run on cores."""
    for name in ("hios_fig12", "ios_fig6", "lios_fig7", "lios_tab7"):
        record = found(name, files["networks"])
        assert {entry.verdict for entry in record.comparisons} <= {"not on this machine", "not compared"}
        assert "measured here" in {row["mark"] for row in record.rows}


def test_exact_tables() -> None:
    """What depends on the graphs alone agrees with the papers, but for the number of blocks."""
    agreeing = ("ios_tab1", "ios_fig13", "lios_tab3", "lios_tab4", "top_tab2")
    comparisons = {name: found(name, []).comparisons for name in (*agreeing, "ios_tab2", "opara_fig6")}
    verdicts = {
        name: {entry.key.partition(".")[2]: entry.verdict for entry in entries} for name, entries in comparisons.items()
    }
    for name in agreeing:
        assert set(verdicts[name].values()) == {"agrees"}
    assert verdicts["ios_tab2"] == {"operators": "agrees", "blocks": "differs"}
    assert verdicts["opara_fig6"] == {"googlenet_streams": "agrees", "at_once": "not compared"}
    for name, own, wired in (("ios_tab1", "operators", "schedules"), ("lios_tab4", "operators", "edges")):
        absent = {entry.key: entry.absent for entry in comparisons[name]}
        assert absent[f"{name}.{wired}"] == ("randwire (its wiring here is our own)",)
        assert absent[f"{name}.{own}"] == ()


def test_verdicts_follow_the_data(files: dict[str, list[Path]], tmp_path: Path) -> None:
    """Sequential latencies that are ten times as long change what depends on them: table, text and verdict."""
    path = files["simulation/edges"][0]
    document = json.loads(path.read_text())
    before = found("hios_fig10", [path])
    for instance in document["instances"]:
        instance["latency_ms"]["sequential"] *= 10
    changed = tmp_path / "simulation" / "changed.json"
    changed.parent.mkdir()
    changed.write_text(json.dumps(document))
    after = found("hios_fig10", [changed])

    def values(record: FigureFile, by: str) -> dict[str, Any]:
        return {entry.key: entry.found for entry in record.comparisons if entry.by == by}

    one, other = values(before, "hios"), values(after, "hios")
    assert {key for key in one if one[key] != other[key]} == {"hios_fig10.sequential"}
    assert values(before, "released program") == values(after, "released program")


@pytest.mark.parametrize(
    ("changes", "has_verdicts"),
    [
        ({}, True),
        ({"setting": {"layers": 14}}, True),
        ({"setting": {"p": 0.9}}, False),
        ({"window": 3}, False),
        ({"alpha": 0.4}, False),
    ],
)
def test_other_settings_have_no_verdict(
    files: dict[str, list[Path]], tmp_path: Path, changes: dict[str, Any], has_verdicts: bool
) -> None:
    """Figure 10 varies the layers alone; simulations that differ in anything else are shown, but not compared."""
    document = json.loads(files["simulation/layers"][0].read_text())
    document["setting"] |= changes.pop("setting", {})
    path = tmp_path / "simulation" / "changed.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**document, **changes}))
    record = found("hios_fig10", [path])
    assert record.rows
    assert ({entry.verdict for entry in record.comparisons} != {"not on this machine"}) is has_verdicts


@pytest.mark.parametrize(
    ("label", "shape", "has_verdicts"),
    [
        ("squeezenet", (1, 3, 224, 224), True),
        ("squeezenet", (1, 3, 64, 64), False),
        ("squeezenet", (4, 3, 224, 224), False),
        ("squeezenet-b4", (4, 3, 224, 224), False),
    ],
)
def test_other_inputs_have_no_verdict(tmp_path: Path, label: str, shape: tuple[int, ...], has_verdicts: bool) -> None:
    """A network on a GPU is compared with the paper's numbers where it takes what the paper gives it."""
    made = write_network(tmp_path / label, 1, {f"{name}-1": (name, 1) for name in ("sequential", "greedy", "ios")})
    data = FigureData.read([made / "run.json"])
    graph = msgspec.structs.replace(data.networks[label].graph, inputs=(TensorSpec("x", shape, "float32"),))
    network = dataclasses.replace(on_gpu(data.networks[label]), graph=graph)
    record = found("ios_fig6", FigureData(networks={label: network}))
    assert record.rows
    compared = {entry.verdict for entry in record.comparisons} != {"not on this machine"}
    assert compared is has_verdicts


def test_numbers_of_figure_8() -> None:
    """Latencies of others over that of HIOS-LP, and what grouping cuts, in percent."""
    latency_ms = {"hios-lp": 20.0, "hios-lp-inter": 25.0, "hios-mr": 30.0, "hios-mr-inter": 40.0}
    known = {"operators": 100, "program": HIOS, "mark": PREDICTED.name, "speedup over sequential": 3.0}
    rows = [{**known, "speedup over ios": 2.5, "algorithm": name, "mean ms": ms} for name, ms in latency_ms.items()]
    numbers = {name: values["100"] for name, values in fig8_numbers(rows, "operators", HIOS).items()}
    speedups = {"lp_over_sequential": 3.0, "lp_over_ios": 2.5, "lp_over_mr": 1.5, "lp_over_inter": 1.25}
    assert numbers == pytest.approx({**speedups, "groups_cut_lp": 20.0, "groups_cut_mr": 25.0})


def test_verify(files: dict[str, list[Path]], tmp_path: Path) -> None:
    """A figure as drawn passes the check; a changed number in its data, table, CSV or verdict is reported."""
    folder = tmp_path / "results"
    path = folder / "study" / "simulation" / "one.json"
    path.parent.mkdir(parents=True)
    path.write_text(files["simulation/edges"][0].read_text())
    for name, data in (("hios_fig10", [path]), ("ios_tab2", []), ("ios_fig8", [])):
        draw(name, data, folder / "figures")
    moved = tmp_path / "moved"
    folder.rename(moved)
    assert {(entry.kind, entry.problems) for entry in verify(moved)} == {("figure", ()), ("simulation", ())}
    csv_file, json_file = (moved / "figures" / f"hios_fig10.{ending}" for ending in ("csv", "json"))
    for file, old, new, problem in (
        (csv_file, "hios-lp", "hios-xx", "hios_fig10.csv: not the rows of hios_fig10.json"),
        (json_file, '"verdict": "differs"', '"verdict": "agrees"', "comparisons: hios_fig10."),
        (json_file, '"instances": 2', '"instances": 3', "rows: not what the data give"),
        (json_file, "HIOS-LP is 1", "HIOS-LP is 3", "reason: not what the data give"),
        (json_file, '"state": "drawn"', '"state": "needs a GPU"', "state: not what the data give"),
        (moved / "study" / "simulation" / "one.json", '"bound_ms": ', '"bound_ms": 9', ", the bound"),
        (json_file, '"unit": "ms"', '"unit": 5', "found 5; allowed: string"),
    ):
        before = file.read_text()
        assert old in before
        file.write_text(before.replace(old, new))
        assert problem in " ".join(text for entry in verify(moved) for text in entry.problems), problem
        file.write_text(before)
    assert not any(entry.problems for entry in verify(moved))


def test_networks_of_other_algorithms(files: dict[str, list[Path]]) -> None:
    """Where nothing ran that a figure shows, it says so and has the published numbers alone."""
    record = found("lios_fig4", files["networks"])
    assert record.state == "not drawn"
    assert "no network of the configuration was executed" in record.missing


def test_listing(tmp_path: Path) -> None:
    """A line for every figure; what is drawn is found, what is not says how or why."""
    text = listing(registry.figures(), tmp_path)
    lines = {line.split()[0]: line for line in text.splitlines() if "_" in line}
    assert set(lines) >= EXPECTED
    assert lines["hios_fig9"].endswith("snakemake hios_fig9")
    assert lines["ios_fig8"].endswith("needs a GPU")
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "hios_fig9.svg").write_text("")
    assert contents(registry.figure("hios_fig9"), tmp_path)["state"] == str(tmp_path / "figures" / "hios_fig9.svg")
    assert "400: 2.06, 600: 1.64 [ratio]" in explained(registry.figure("hios_fig9"), tmp_path)


def test_unknown_figure() -> None:
    """In one line with all ids."""
    with pytest.raises(
        HiosError, match=r"figure: found hios_fig99 \(did you mean hios_fig9\?\); allowed: hios_fig1, hios_fig2, "
    ):
        registry.figure("hios_fig99")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "nimble_fig1"}, "found this id; allowed: PAPER_figN or PAPER_tabN"),
        ({"needs": ("luck",)}, "needs: found luck; allowed: cpu, "),
        ({"sessions": ("simulation/color",)}, "sessions: found simulation/color; allowed: "),
        ({"missing": ""}, "it is drawn or says what is missing"),
        ({"rows": lambda data: []}, "it is drawn or says what is missing"),
    ],
)
def test_wrong_figures_are_refused(changes: dict[str, Any], message: str) -> None:
    """An id of no paper, unknown needs and sessions, and one that is neither drawn nor says why, or both."""
    fields: dict[str, Any] = {"id": "hios_fig99", "title": "t", "varies": "v", "missing": "nothing", **changes}
    with pytest.raises(ValueError, match=re.escape(message)):
        checked(Figure(**fields))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hios_fig9", "a figure hios_fig9 is registered already"),
        ("hios_fig99", "figure hios_fig99: found no entry in figures.yaml"),
    ],
)
def test_wrong_drawings_are_refused(name: str, message: str) -> None:
    """A second one of a figure, and one of a figure that figures.yaml does not know."""
    registry.figure("hios_fig9")
    with pytest.raises(ValueError, match=message):
        register(name, rows=lambda data: [])


def test_tables_hold_no_formulas() -> None:
    """Text that a spreadsheet would run gets an apostrophe, as in the tables of the report; numbers stay."""
    rows = [{"network": "=1+1", "share": -0.5, "description": "of a chart"}]
    assert table_text(rows) == "network,share\n'=1+1,-0.5\n"
