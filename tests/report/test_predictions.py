"""The report where costs are predicted and nothing ran: page, tables, data frames and text."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import msgspec
import pytest

import hios
from hios import Costs, CostsFile, Edge, Graph, HiosError, Operator, Problem, Schedule, schedule
from hios.core.costs import CostOverheads, OperatorCost
from hios.files.artifacts import load, write
from hios.platforms.model.descriptions import gpu, link
from hios.platforms.model.devices import predicted_costs
from tests.cli.commands import invoke, refused, succeed
from tests.report.test_report import read_csv
from tests.verify.results import write_network

WORDS = "predicted for 2 x NVIDIA A40, link nvlink; nothing was measured"
GRAPH = Graph(
    "fork",
    tuple(Operator(name, "task", flops=1e9, bytes=10**7) for name in "abcd"),
    tuple(Edge(source, target, 10**5) for source, target in ("ab", "ac", "bd", "cd")),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The results folder of one network: graph.json, costs.json and two schedules."""
    a40 = gpu("a40")
    costs = predicted_costs(GRAPH, a40, link("nvlink", a40), 2)
    results = tmp_path / "results" / "fork"
    (results / "schedules").mkdir(parents=True)
    GRAPH.write(results / "graph.json")
    write(results / "costs.json", "costs", costs)
    problem = Problem(GRAPH, Costs.of(costs))
    for algorithm, devices in (("sequential", 1), ("hios-lp", 2)):
        schedule(problem, algorithm, devices).write(results / "schedules" / f"{algorithm}-{devices}.json")
    return results


def command(folder: Path, *more: object) -> list[object]:
    """``hios report`` of the folder, which writes the page and the tables beside it."""
    out = folder.parent
    return ["report", folder, "--output", out / "report.html", "--tables", out / "tables", *more]


def written(folder: Path, *more: str) -> tuple[str, list[dict[str, str]]]:
    """The page that the command writes, and the rows of latency.csv."""
    succeed(*command(folder, *more))
    page = (folder.parent / "report.html").read_text(encoding="utf-8")
    return page, read_csv(folder.parent / "tables" / "latency.csv")


def test_page_says_predicted(folder: Path) -> None:
    """In title, headings, the table's head, the GPU's name and the title of every Gantt chart."""
    text, _ = written(folder)
    body = text.partition("<body>")[2]
    assert "<title>Inter-operator scheduling, predicted: fork</title>" in text
    assert "All times on this page are predicted." in body
    assert WORDS in body
    fastest = r"<dd>hios-lp-2, [0-9.]+ ms, [0-9.]+ times as fast as the sequential schedule on one device <small>"
    assert re.search(fastest, body.partition('id="model-1"')[0])
    assert "no schedule gains" not in body
    assert "model: predicted, nothing was measured or run" in body
    assert body.count('<th scope="col" class="number">predicted, ms</th>') == 1
    assert len(re.findall(r"<summary><b>[^<]+</b> predicted [0-9.]+ ms</summary>", body)) == 2
    assert len(re.findall(r">predicted, [0-9.]+ ms</text>", body)) == 2


def test_tables_say_predicted(folder: Path) -> None:
    """Every row has predicted_only, and no measured time."""
    _, rows = written(folder)
    assert [(row["kind"], row["label"]) for row in rows] == [
        ("schedule", "hios-lp-2"),
        ("schedule", "sequential-1"),
        ("baseline", "sequential on one device (baseline)"),
    ]
    assert {row["predicted_only"] for row in rows} == {"True"}
    assert {row["measured_median_ms"] for row in rows} == {""}
    assert float(rows[1]["predicted_ms"]) == pytest.approx(float(rows[2]["predicted_ms"]))
    operators = read_csv(folder.parent / "tables" / "operators.csv")
    assert [row["operator"] for row in operators] == list("abcd")
    assert {row["predicted_only"] for row in operators} == {"True"}


def test_the_baseline_launches_what_schedules_launch(folder: Path) -> None:
    """Where a launch takes time, the sequential schedule is no slower than what it is compared with."""
    costs = load(folder / "costs.json", CostsFile)
    costs = msgspec.structs.replace(costs, overheads=CostOverheads(launch_ms=0.5))
    write(folder / "costs.json", "costs", costs)
    problem = Problem(GRAPH, Costs.of(costs))
    for algorithm, devices in (("sequential", 1), ("hios-lp", 2)):
        schedule(problem, algorithm, devices).write(folder / "schedules" / f"{algorithm}-{devices}.json")
    _, rows = written(folder)
    by_label = {(row["kind"], row["algorithm"]): float(row["predicted_ms"]) for row in rows}
    assert by_label["baseline", "sequential"] == pytest.approx(by_label["schedule", "sequential"])


def test_costs_of_other_operators_do_not_count(folder: Path) -> None:
    """The sequential schedule, and the sum of the operators' times, are of the graph's operators."""
    page, rows = written(folder)
    costs = load(folder / "costs.json", CostsFile)
    more = costs.operators | {"other": OperatorCost(time_ms=100.0)}
    write(folder / "costs.json", "costs", msgspec.structs.replace(costs, operators=more))
    assert written(folder) == (page, rows)


def test_data_frames_say_predicted(folder: Path) -> None:
    """`hios.load_results` reads the folder, has the rows of latency.csv, and says that they are predicted, too."""
    results = hios.load_results(folder)
    _, rows = written(folder)
    assert results.latencies["label"].tolist() == [row["label"] for row in rows]
    assert results.latencies["predicted_ms"].tolist() == [float(row["predicted_ms"]) for row in rows]
    assert results.latencies["predicted_only"].all()
    assert results.operators["predicted_only"].all()
    assert results.latencies["measured_median_ms"].isna().all()


def test_report_from_python(folder: Path) -> None:
    """`hios.report` makes of objects what the command makes of their files."""
    schedules = [Schedule.read(path) for path in sorted((folder / "schedules").glob("*.json"))]
    costs = load(folder / "costs.json", CostsFile)
    made = hios.report((GRAPH, costs, schedules))
    page, _ = written(folder)
    called = re.search(r"  <div><dt>Command</dt><dd>(.*?)</dd></div>\n", page)
    assert called is not None
    assert called[1].startswith(f"hios report {folder} --output ")
    origin = re.search(r'<meta name="hios-origin" content=".*?">\n', page)
    assert origin is not None  # what an archive needs; objects have no files
    assert page.replace(called[0], "").replace(origin[0], "") == made.html
    assert (folder.parent / "tables" / "latency.csv").read_text() == made.latencies.to_csv(index=False)
    named = hios.report((GRAPH, costs, {"mine": schedules[0]}), (GRAPH, costs, schedules[1]))
    shown = named.latencies[named.latencies["kind"] == "schedule"]
    assert shown["label"].tolist() == ["mine", "sequential-1"]
    assert shown["model"].tolist() == ["fork (1)", "fork (2)"]


def test_report_from_python_refuses_what_does_not_fit(folder: Path) -> None:
    """No schedule, and schedules that were made with other costs."""
    costs = load(folder / "costs.json", CostsFile)
    with pytest.raises(HiosError, match=r"^report: schedules: found none; required: at least one$"):
        hios.report((GRAPH, costs, []))
    v100 = gpu("v100-sxm2")
    other = predicted_costs(GRAPH, v100, link(None, v100), 2)
    made = schedule(Problem(GRAPH, Costs.of(costs)), "hios-lp", 2)
    with pytest.raises(HiosError, match=r"^schedule: latency_ms: found .* the schedule was made with other costs"):
        hios.report((GRAPH, other, made))


def test_text_says_predicted(folder: Path) -> None:
    """`hios show` and `hios evaluate` pass on what times are predicted for."""
    path = str(folder / "schedules" / "hios-lp-2.json")
    shown = invoke("show", path).output
    assert f"note on costs    {WORDS}" in shown
    evaluated = invoke("evaluate", folder / "graph.json", folder / "costs.json", path)
    assert re.fullmatch(rf"[0-9.]+ ms; {re.escape(WORDS)}\n", evaluated.output)


def test_schedules_are_chosen(folder: Path) -> None:
    """Of schedules that an earlier configuration left, those that are named."""
    _, rows = written(folder, "--schedule", "hios-lp-2")
    assert [row["label"] for row in rows if row["kind"] == "schedule"] == ["hios-lp-2"]


def test_schedules_of_other_costs_are_refused(folder: Path) -> None:
    """A schedule whose latency does not follow from costs.json is refused, with the advice to make it again."""
    v100 = gpu("v100-sxm2")
    write(folder / "costs.json", "costs", predicted_costs(GRAPH, v100, link(None, v100), 2))
    message = refused(*command(folder))
    assert "hios-lp-2.json: latency_ms: found " in message
    assert message.endswith("the schedule was made with other costs, make it again")
    assert not (folder.parent / "report.html").exists()


def test_folder_without_schedules_is_refused(folder: Path) -> None:
    """There is nothing to report."""
    shutil.rmtree(folder / "schedules")
    assert "found no schedule; required: at least one" in refused(*command(folder))


def test_an_earlier_run_is_none_of_predictions(folder: Path, tmp_path: Path) -> None:
    """A run.json that is left of measured costs is not taken for one of the predicted costs beside it."""
    shutil.copy(write_network(tmp_path / "run", 0) / "run.json", folder)
    latencies = hios.load_results(folder).latencies
    assert set(latencies["kind"]) == {"schedule", "baseline"}
    assert latencies["predicted_only"].all()


def test_predictions_and_runs_do_not_mix(folder: Path) -> None:
    """A page is about predictions, or about runs."""
    assert "allowed: only predictions, or only runs" in refused(*command(folder, folder.parent / "other"))


def test_chains_are_told_that_no_schedule_gains(tmp_path: Path) -> None:
    """In the summary, as for networks that ran."""
    chain = Graph("chain", GRAPH.operators, tuple(Edge(a, b, 10**5) for a, b in ("ab", "bc", "cd")))
    a40 = gpu("a40")
    costs = predicted_costs(chain, a40, link("nvlink", a40), 2)
    made = hios.report((chain, costs, schedule(Problem(chain, Costs.of(costs)), "sequential", 1)))
    assert "the sequential schedule on one device; a chain: no schedule gains" in made.html
