"""The report: the page, its tables, and what it does with bad input."""

from __future__ import annotations

import csv
import html
import json
import math
import random
import re
import statistics
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hios import Costs, Edge, Graph, Problem, schedule
from hios.charts.theme import GROUND, INK, style_of
from hios.errors import ArtifactError
from hios.files import artifacts
from hios.machine.statistics import speedup_interval
from hios.report import write_report
from hios.report.results import read_results
from tests.operators import operator_from
from tests.report.browser import loads_nothing
from tests.verify.results import write_network

COMPETITORS = (("sequential", 1), ("greedy", 1), ("hios-lp-inter", 2), ("hios-lp", 2))


def make_graph(name: str, operators: int, chance: random.Random) -> Graph:
    """A random graph with a few operator types; every third operator states no flops and bytes."""
    units = tuple(
        operator_from(
            f"op{number}",
            chance.choice(["conv2d-relu", "conv2d-relu", "concat", "max_pool2d", "add"]),
            {} if number % 3 == 0 else {"flops": 1e6 * number, "bytes": 1000 * number},
        )
        for number in range(operators)
    )
    edges = {(chance.randrange(max(0, number - 6), number), number) for number in range(1, operators) for _ in range(2)}
    return Graph(name, units, tuple(Edge(f"op{a}", f"op{b}") for a, b in sorted(edges)))


def latency(median_ms: float, chance: random.Random) -> dict[str, Any]:
    """Latencies of 21 runs around a median."""
    runs = [median_ms * chance.lognormvariate(0, 0.03) for _ in range(21)]
    quantiles = statistics.quantiles(runs, n=5)
    return {"median": statistics.median(runs), "p20": quantiles[0], "p80": quantiles[3], "runs": runs}


def make_results(directory: Path, name: str, operators: int = 12, seed: int = 1, **run: Any) -> Path:
    """Write a results folder: a random problem, its schedules, and jittered measurements of them."""
    chance = random.Random(seed)
    graph = make_graph(name, operators, chance)
    costs: dict[str, Any] = {
        "operators": {unit.id: {"time_ms": chance.uniform(0.1, 2)} for unit in graph.operators},
        "transfers": [{"source": e.source, "target": e.target, "time_ms": 0.02} for e in graph.edges],
    }
    costs["operators"]["op1"] |= {"p20_ms": 0.1, "p80_ms": 2.5}
    costs["probe"] = {**make_probe(1.0), "copy_share": 0.25}
    problem = Problem(graph, Costs.from_json(costs))
    results = [make_result(problem, algorithm, devices, chance) for algorithm, devices in COMPETITORS]
    baseline = results[0]["latency_ms"]
    for result in results:
        median = result["latency_ms"]["median"]
        result["prediction_error"] = (result["predicted_ms"] - median) / median
        result["drift"] = {"value": 1.06, "low": 1.05, "high": 1.08}
        result["error_beyond_drift"] = (1.06 * result["predicted_ms"] - median) / median
        result["speedup"] = baseline["median"] / median
        result["share_of_ceiling"] = result["speedup"] / (1.9 if result["devices"] == 2 else 1.0)
    document = {
        "graph": name,
        "platform": {
            "name": "cpu",
            "devices": 2,
            "cores": [[0], [1]],
            "processor": "Test processor",
            "load_average": 0.1,
            "busy_share": 0.02,
        },
        "versions": {"hios": "0.1.0", "torch": "2.13.0"},
        "seed": 7,
        "runs": 21,
        "warmup": 3,
        "tolerance": 1e-4,
        "ceilings": [{"devices": 2, "latency_ms": latency(10, chance), "throughput_ratio": 1.9}],
        "references": [
            {"name": "eager PyTorch", "threads": threads, "latency_ms": latency(12 / threads, chance)}
            for threads in (1, 2)
        ],
        "baseline": {"latency_ms": baseline},
        "results": results,
        "probe": make_probe(1.06),
    }
    graph.write(directory / "graph.json")
    artifacts.write(directory / "costs.json", "costs", costs)
    artifacts.write(directory / "run.json", "run", document | run)
    return directory


def make_probe(factor: float, later: float = 1.0) -> dict[str, Any]:
    """A probe on two devices that takes so many times as long as usual, and as many again in the second half."""
    speed = {
        part: {"value": factor * usual, "low": 0.99 * factor * usual, "high": 1.01 * factor * usual}
        for part, usual in (("compute_ms", 1.5), ("copy_ms", 1.0))
    }
    samples = [
        {"at_s": float(number), "device": device, "compute_ms": 1.5 * slow, "copy_ms": 1.0 * slow}
        for number in range(20)
        for device in range(2)
        if (slow := factor * (later if number >= 10 else 1.0))
    ]
    return {"version": "cpu-1", "speed": speed, "samples": samples}


def make_result(problem: Problem, algorithm: str, devices: int, chance: random.Random) -> dict[str, Any]:
    """An entry of run.json without the ratios."""
    scheduled = schedule(problem, algorithm, devices)
    placements = scheduled.to_json()["placements"]
    late = chance.uniform(1.02, 1.06)
    return {
        "label": f"{algorithm} <{devices}>",
        "algorithm": algorithm,
        "parameters": dict(scheduled.parameters),
        "devices": devices,
        "predicted_ms": scheduled.latency_ms,
        "lower_bound_ms": scheduled.lower_bound_ms,
        "scheduling_time_s": scheduled.scheduling_time_s,
        "latency_ms": latency(late * scheduled.latency_ms, chance),
        "largest_difference": 2e-6,
        "predicted": placements,
        "measured": [
            row | {"start_ms": late * row["start_ms"], "finish_ms": late * row["finish_ms"]} for row in placements
        ],
    }


def tables_of(page: str) -> dict[str, list[list[str]]]:
    """The texts of the cells of all tables of a page, row by row, by the first class of the table."""
    tables: dict[str, list[list[str]]] = {}
    for name, table in re.findall(r'<table class="([\w-]+)[^>]*>(.*?)</table>', page, re.DOTALL):
        for row in re.findall(r"<tr\b[^>]*>(.*?)</tr>", table, re.DOTALL):
            cells = re.findall(r"<t[dh]\b[^>]*>(.*?)</t[dh]>", row, re.DOTALL)
            tables.setdefault(name, []).append([html.unescape(re.sub(r"<[^>]*>", "", cell)) for cell in cells])
    return tables


def read_csv(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def page_of(folder: Path, *models: Path, **options: Any) -> str:
    """The page of results folders, written with its tables into a folder."""
    write_report(models, folder / "report.html", folder, **options)
    return (folder / "report.html").read_text(encoding="utf-8")


def edited(model: Path, kind: str, edit: Callable[[Any], object]) -> Any:
    """The contents of a file of a results folder, changed in place by a function and written."""
    data = artifacts.read(model / f"{kind}.json", kind)
    edit(data)
    artifacts.write(model / f"{kind}.json", kind, data)
    return data


def make_several(folder: Path, *names: str, operators: int = 12) -> list[Path]:
    """Write the results folders of several models, each with another problem."""
    return [make_results(folder / name, name, operators, seed) for seed, name in enumerate(names)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with results of two models and their report."""
    folder = tmp_path_factory.mktemp("report")
    models = make_several(folder, "first", "second")
    write_report(models, folder / "out" / "report.html", folder / "out" / "tables")
    return folder


@pytest.fixture(scope="module")
def page(report: Path) -> str:
    """The page's text."""
    return (report / "out" / "report.html").read_text(encoding="utf-8")


def test_page_names_every_schedule_and_reference(page: str) -> None:
    """Every label is in the page, escaped, and so are the facts of the run."""
    for algorithm, devices in COMPETITORS:
        assert f"{algorithm} &lt;{devices}&gt;" in page
    for text in ("eager PyTorch, 1 thread", "eager PyTorch, 2 threads", "Test processor", "torch 2.13.0"):
        assert text in page
    assert "<2>" not in page


def test_page_loads_nothing(page: str) -> None:
    """Nothing is loaded by src, href, url() or import, and no library is inlined."""
    assert "plotly" not in page
    assert "vega" not in page.lower()
    assert loads_nothing(page)


def test_schedule_table_equals_csv(report: Path, page: str) -> None:
    """The numbers of the schedule tables are those of latency.csv, rounded."""
    rows = [row for row in read_csv(report / "out/tables/latency.csv") if row["kind"] == "schedule"]
    tables = tables_of(page)
    assert len(rows) == len(tables["schedules"][1:]) == len(tables["predictions"][1:]) == 2 * len(COMPETITORS)
    for row, measured, predicted in zip(rows, tables["schedules"][1:], tables["predictions"][1:], strict=True):
        places = len(measured[3].partition(".")[2])

        def ms(column: str, row: dict[str, str] = row, places: int = places) -> str:
            return f"{float(row[column]):.{places}f}"

        assert measured[0] == predicted[0] == row["model"]
        assert measured[1].removesuffix(" lowest median") == predicted[1] == row["label"]
        assert measured[2] == predicted[2] == row["devices"]
        assert measured[3] == ms("measured_median_ms")
        assert measured[4] == f"{ms('measured_p20_ms')}–{ms('measured_p80_ms')}"  # noqa: RUF001
        assert measured[5] == f"{float(row['speedup']):.2f}"
        several = row["devices"] != "1"  # on one device the share of the ceiling would repeat the speedup
        assert measured[6] == (f"{100 * float(row['share_of_ceiling']):.1f}" if several else "–")  # noqa: RUF001
        assert measured[7] == "2.0e-06"
        assert predicted[3] == ms("predicted_ms")
        assert predicted[4] == f"{100 * float(row['prediction_error']):+.1f}"
        assert predicted[5] == f"{100 * (float(row['drift']) - 1):+.1f}" == "+6.0"
        assert predicted[6] == f"{100 * float(row['error_beyond_drift']):+.1f}"
        assert predicted[7] == ms("predicted_lower_bound_ms")
        gap = 100 * (float(row["predicted_ms"]) / float(row["predicted_lower_bound_ms"]) - 1)
        assert float(predicted[8]) == pytest.approx(gap, abs=0.05)


def test_fastest_schedule_is_marked(report: Path, page: str) -> None:
    """In every model the row with the least measured median is marked, and no other."""
    rows = [row for row in read_csv(report / "out/tables/latency.csv") if row["kind"] == "schedule"]
    expected = [
        min((row for row in rows if row["model"] == model), key=lambda row: float(row["measured_median_ms"]))
        for model in ("first", "second")
    ]
    marked = [cells[1] for cells in tables_of(page)["schedules"] if cells[1].endswith(" lowest median")]
    assert marked == [f"{row['label']} lowest median" for row in expected]


def test_latency_csv(report: Path) -> None:
    """latency.csv holds run.json unrounded, with baseline, references and ceiling."""
    rows = read_csv(report / "out/tables/latency.csv")
    header = (report / "out/tables/latency.csv").read_text(encoding="utf-8").splitlines()[0]
    assert header == (
        "model,kind,label,algorithm,parameters,devices,threads,runs,measured_median_ms,measured_p20_ms,"
        "measured_p80_ms,speedup,speedup_low,speedup_high,share_of_ceiling,throughput_ratio,predicted_ms,prediction_error,"
        "predicted_lower_bound_ms,scheduling_time_s,largest_difference,virtual,drift,drift_low,drift_high,"
        "error_beyond_drift,predicted_only"
    )
    run = artifacts.read(report / "first" / "run.json", "run")
    first = [row for row in rows if row["model"] == "first"]
    kinds = ["schedule"] * len(COMPETITORS) + ["baseline", "reference", "reference", "ceiling"]
    assert [row["kind"] for row in first] == kinds
    for row, result in zip(first, run["results"], strict=False):
        assert float(row["measured_median_ms"]) == result["latency_ms"]["median"]
        assert float(row["predicted_ms"]) == result["predicted_ms"]
        assert json.loads(row["parameters"]) == result["parameters"]
        assert row["runs"] == "21"
        assert [float(row[f"drift{end}"]) for end in ("", "_low", "_high")] == [1.06, 1.05, 1.08]
        assert float(row["error_beyond_drift"]) == result["error_beyond_drift"]
    eager = first[len(COMPETITORS) + 1]
    assert eager["threads"] == "1"
    assert float(eager["speedup"]) == pytest.approx(
        run["baseline"]["latency_ms"]["median"] / run["references"][0]["latency_ms"]["median"]
    )
    assert eager["predicted_ms"] == ""
    assert float(first[-1]["throughput_ratio"]) == 1.9
    assert {row["virtual"] for row in rows} == {row["predicted_only"] for row in rows} == {""}


def test_operators_csv(report: Path) -> None:
    """operators.csv has a row per operator; what was not measured or stated is empty."""
    rows = read_csv(report / "out/tables/operators.csv")
    assert ",".join(rows[0]) == "model,operator,type,time_ms,p20_ms,p80_ms,flops,bytes,predicted_only"
    assert {row["predicted_only"] for row in rows} == {""}
    assert len(rows) == 24
    costs = artifacts.read(report / "first" / "costs.json", "costs")["operators"]
    assert float(rows[1]["time_ms"]) == costs["op1"]["time_ms"]
    assert (rows[1]["p20_ms"], rows[1]["p80_ms"]) == ("0.1", "2.5")
    assert (float(rows[1]["flops"]), rows[1]["bytes"]) == (1e6, "1000")
    assert (rows[0]["p20_ms"], rows[0]["flops"], rows[0]["bytes"]) == ("", "", "")


def test_predicted_figures_say_so(page: str) -> None:
    """Columns, markers, chart halves and summaries with predicted figures bear the word."""
    heads = [cell for cells in tables_of(page)["predictions"] for cell in cells]
    assert "<h3>Schedules, predicted</h3>" in page
    assert "predicted, ms" in heads
    assert len(re.findall(r">predicted</text>", page)) == 2  # in the legend of each chart of latencies
    assert len(re.findall(r">predicted, [\d.]+ ms</text>", page)) == 2 * len(COMPETITORS)
    groups = re.findall(r'<g class="mark-rect role-mark [^"]*"([^>]*)>(<path data-hover.*?)</g>', page, re.DOTALL)
    bars = [
        (kind, "stroke-dasharray" in head + look)
        for head, items in groups
        for kind, look in re.findall(r'data-hover="[^"]*\n(predicted|measured): [^"]*"([^>]*)/>', items)
    ]
    assert len(bars) == 2 * 2 * 12 * len(COMPETITORS)
    assert set(bars) == {("predicted", True), ("measured", False)}
    stated = r"measured [\d.]+ ms, predicted [\d.]+ ms; drift \+6\.0 %, error beyond drift [+-][\d.]+ %"
    assert len(re.findall(stated, page)) == 2 * len(COMPETITORS)


def test_quiet_machine_gets_no_warning(page: str) -> None:
    """On an idle machine with independent cores nothing is to be read with care."""
    assert "Read with care" not in page


def test_busy_machine_and_shared_cores_are_named(tmp_path: Path) -> None:
    """Cores that were busy before, and a ceiling below 0.9 of the devices, are said in the header."""
    ceiling = {"devices": 2, "latency_ms": latency(10, random.Random(0)), "throughput_ratio": 1.4}
    model = make_results(tmp_path / "m", "net", platform={"name": "cpu", "busy_share": 0.25}, ceilings=[ceiling])
    page = page_of(tmp_path, model)
    assert "25% of their time" in page
    assert "1.40 times the throughput" in page
    assert "not recorded" in page  # processor and cores


def test_drift_and_error_are_told_apart(report: Path, page: str) -> None:
    """A sentence says how much slower the machine was than when it was profiled, and what is left of the errors."""
    run = artifacts.read(report / "first" / "run.json", "run")
    whole, beyond = (
        [abs(result[key]) for result in run["results"]] for key in ("prediction_error", "error_beyond_drift")
    )
    assert (
        "The machine was 6.0% slower than when it was profiled. Predictions are off by "
        f"{statistics.median(whole):.1%} in the median and {max(whole):.1%} at most; beyond that drift by "
        f"{statistics.median(beyond):.1%} and {max(beyond):.1%}."
    ) in page


def test_without_a_probe_drift_is_not_known(tmp_path: Path) -> None:
    """Results of costs without a probe have no drift, and no sentence on it."""
    model = make_results(tmp_path / "m", "net")
    for kind in ("costs", "run"):
        data = artifacts.read(model / f"{kind}.json", kind)
        del data["probe"]
        for result in data.get("results", ()):
            del result["drift"], result["error_beyond_drift"]
        artifacts.write(model / f"{kind}.json", kind, data)
    page = page_of(tmp_path, model)
    assert "than when it was profiled" not in page
    assert "; drift " not in page
    rows = tables_of(page)["predictions"][1:]
    assert {cells[5] for cells in rows} == {"–"}  # noqa: RUF001
    assert {row["drift"] for row in read_csv(tmp_path / "latency.csv")} == {""}


def test_machine_that_changed_during_a_session_is_named(tmp_path: Path) -> None:
    """Where the probe became slower or faster within the profile or the runs, that is to be read with care."""
    model = make_results(tmp_path / "m", "net", probe=make_probe(1.0, later=1.2))
    edited(model, "costs", lambda costs: costs.update(probe={**make_probe(1.0, later=0.9), "copy_share": 0.0}))
    page = page_of(tmp_path, model)
    assert "During the runs of net, device 0 became 20% slower" in page
    assert "During the profile of net, device 0 became 11% faster" in page


def test_faster_reference_is_named(tmp_path: Path) -> None:
    """A reference that beats every schedule is said beside the fastest schedule."""
    quick = {"name": "eager", "threads": 2, "latency_ms": latency(0.5, random.Random(0))}
    page = page_of(tmp_path, make_results(tmp_path / "m", "net", references=[quick]))
    assert "Faster than every schedule: eager, 2 threads" in page


def with_runs(model: Path, runs_of: dict[str, list[float]]) -> None:
    """Give competitors of a run.json these runs, and the speedups and intervals that follow."""
    run = artifacts.read(model / "run.json", "run")
    baseline = runs_of["sequential <1>"]
    for entry in [*run["results"], *run["references"], {"label": "sequential <1>", **run["baseline"]}]:
        runs = runs_of.get(entry.get("label") or entry["name"], [9.0 + number % 2 for number in range(len(baseline))])
        entry["latency_ms"].update(median=statistics.median(runs), p20=min(runs), p80=max(runs), runs=runs)
        if "predicted" in entry or "threads" in entry:
            entry["speedup"] = statistics.median(baseline) / statistics.median(runs)
            entry["speedup_interval"] = list(speedup_interval(baseline, runs) or ())
    artifacts.write(model / "run.json", "run", run)


def test_sentences_rest_on_intervals(tmp_path: Path) -> None:
    """A pair whose ratio's interval holds 1 is no difference, however medians stand; others are faster or slower."""
    drift = [1 + 0.01 * math.sin(number) for number in range(20)]  # hits all that take turns in a round alike
    noise = [(-1) ** number for number in range(20)]
    model = make_results(tmp_path / "m", "net")
    with_runs(
        model,
        {
            "sequential <1>": [4 * factor for factor in drift],
            "greedy <1>": [4.2 * factor for factor in drift],
            "hios-lp-inter <2>": [(2.1 + 0.3 * wrong) * f for f, wrong in zip(drift, noise, strict=True)],
            "hios-lp <2>": [2 * factor for factor in drift],
            "eager PyTorch": [(2.05 - 0.3 * wrong) * f for f, wrong in zip(drift, noise, strict=True)],
        },
    )
    page = page_of(tmp_path, model)
    text = html.unescape(page)
    assert re.search(
        r"Fastest schedule as measured: hios-lp <2>, [\d.]+ ms, 2\.00 times as fast as the .* \(95 % interval", text
    )
    fastest = re.search(r"Fastest of all \d+ ways: (.*?), [\d.]+ ms; statistically tied: (.*?)\.", text)
    assert fastest is not None
    assert fastest[1] == "hios-lp <2>"
    assert fastest[2] == "eager PyTorch, 1 thread, eager PyTorch, 2 threads, hios-lp-inter <2>"
    assert "Statistically tied with it: hios-lp-inter <2>." in text
    assert "References statistically tied with it: eager PyTorch, 1 thread, eager PyTorch, 2 threads." in text
    assert "Slower than the sequential schedule on one device: greedy <1> (0.95)." in text
    assert "Faster than every schedule" not in text
    cells = {row[1].removesuffix(" lowest median"): row[5] for row in tables_of(page)["schedules"]}
    assert cells["hios-lp <2>"] == "2.00 (2.00–2.00)"  # noqa: RUF001
    assert cells["sequential <1>"] == "1.00"
    rows = {row["label"]: row for row in read_csv(tmp_path / "latency.csv")}
    low, high = (float(rows["hios-lp-inter <2>"][column]) for column in ("speedup_low", "speedup_high"))
    assert low < float(rows["hios-lp-inter <2>"]["speedup"]) < high
    assert rows["2 independent copies"]["speedup_low"] == ""


def test_segments_are_told_and_explain_errors(tmp_path: Path) -> None:
    """What ran segments stands on the page, and neither predictions nor ratios are put down to operators."""
    model = make_results(tmp_path / "m", "net")
    run = json.loads((model / "run.json").read_text())
    cells = [
        {"device": 0, "operators": ["op0"], "runtime": runtime, "latency_ms": {runtime: 1.0}}
        for runtime in ("onnxruntime", "packed", "onnxruntime")
    ]
    run |= {"engine": "segments", "baseline": run["baseline"] | {"segments": cells[:1]}}
    for result in run["results"]:
        result |= {"segments": cells, "prediction_error": -0.5}
    artifacts.write(model / "run.json", "run", run)
    text = html.unescape(page_of(tmp_path, model))
    assert "Devices ran segments (8 in ONNX Runtime, 4 by operators); predictions are of single operators." in text
    assert "): they are of single operators, where devices ran segments, so the cost model may rank these" in text
    assert "what segments (1 in ONNX Runtime) cost (above 1) or save (below 1)" in text
    assert "the engine itself" not in text


def test_auto_has_a_row(tmp_path: Path) -> None:
    """The choice has a row of its own runs in page, chart and table, and an explanation; without one, nothing."""
    chosen = {
        "label": "sequential, 2 cores",
        "algorithm": "sequential",
        "devices": 1,
        "cores": 2,
        "candidates": 5,
        "latency_ms": {"median": 1.25, "p20": 1.0, "p80": 1.5, "runs": [1.0, 1.25, 1.5]},
        "speedup": 3.5,
        "speedup_interval": [3.4, 3.6],
    }
    variants: list[tuple[str, dict[str, Any]]] = [("chosen", {"chosen": chosen}), ("plain", {})]
    page, plain = (page_of(tmp_path / name, make_results(tmp_path / name, "net", **more)) for name, more in variants)
    row = tables_of(page)["schedules"][-1]
    assert row[1:6] == ["auto: sequential, 2 cores", "1", "1.250", "1.000–1.500", "3.50 (3.40–3.60)"]  # noqa: RUF001
    assert "chosen by other runs" in page
    assert "<dt>auto</dt>" in page
    (auto_row,) = [row for row in read_csv(tmp_path / "chosen" / "latency.csv") if row["kind"] == "auto"]
    assert (auto_row["threads"], auto_row["speedup_low"], auto_row["runs"]) == ("2", "3.4", "3")
    assert "auto: " not in plain
    assert "<dt>auto</dt>" not in plain


def test_summary_names_faster_references(tmp_path: Path) -> None:
    """The table of all models says which references beat the fastest schedule, with their latency."""
    quick = [
        {"name": name, "threads": 1, "latency_ms": {"median": ms, "p20": ms, "p80": ms, "runs": [ms]}}
        for name, ms in (("quick, 1 thread", 0.5), ("slow, 1 thread", 5000.0))
    ]
    models = [
        make_results(tmp_path / "beaten", "beaten", references=quick),
        make_results(tmp_path / "not", "not", references=[quick[1]]),
    ]
    page = page_of(tmp_path, *models)
    (head, *rows) = tables_of(page)["models"]
    assert head[-1] == "faster references"
    assert [(row[0], row[-1]) for row in rows] == [("beaten", "quick, 1 thread (0.500 ms)"), ("not", "none")]


def with_inputs(model: Path, *inputs: tuple[list[int], str]) -> Path:
    """State the inputs of the network in graph.json."""
    stated = [{"name": f"x{number}", "shape": shape, "dtype": dtype} for number, (shape, dtype) in enumerate(inputs)]
    edited(model, "graph", lambda graph: graph.update(inputs=stated))
    return model


def facts_of(page: str) -> dict[str, str]:
    """The facts of the header by name."""
    return dict(re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd></div>", page))


def test_page_says_when_and_on_what(tmp_path: Path) -> None:
    """Date, batch and image size of every model stand in the header, and those of a model beside its name."""
    image = with_inputs(
        make_results(tmp_path / "image", "image", measured_at="2026-02-03T04:05:06Z"), ([2, 3, 64, 48], "float32")
    )
    text = with_inputs(make_results(tmp_path / "text", "text"), ([1, 128], "int64"), ([1, 128], "bool"))
    page = page_of(tmp_path, image, text)
    facts = facts_of(page)
    assert facts["Measured"] == "2026-02-03 04:05 UTC (image); not recorded (text)"
    pixels = "batch 2, 64 x 48 pixels, 3 channels, float32"
    assert facts["Input"] == f"{pixels} (image); int64 [1, 128], bool [1, 128] (text)"
    assert f"edges; {pixels}</small></h3>" in page


def test_page_says_how_far_outputs_were_off(tmp_path: Path) -> None:
    """The largest difference of all schedules stands next to what is allowed."""
    model = make_results(tmp_path / "m", "net", checked_against="eager")
    edited(model, "run", lambda run: run["results"][2].update(largest_difference=3.25e-5))
    facts = facts_of(page_of(tmp_path, model))
    expected = "eager PyTorch; largest difference 3.2e-05, allowed 0.0001 absolute plus relative"
    assert facts["Outputs compared with"] == expected


def test_schedules_searched_in_pieces_are_named(tmp_path: Path, page: str) -> None:
    """A schedule whose search was cut says so with the number of cuts; without cuts nothing is said."""
    assert "Searched in pieces" not in page
    model = make_results(tmp_path / "m", "net")
    run = edited(model, "run", lambda run: run["results"][1].update(cuts=3))
    text = html.unescape(page_of(tmp_path, model))
    assert f"Searched in pieces, number of cuts in brackets: {run['results'][1]['label']} (3)." in text


def test_columns_are_explained_before_the_first_table_of_schedules(page: str) -> None:
    """A reader meets what speedup and share of ceiling mean before the numbers."""
    assert page.index("<dt>Share of ceiling</dt>") < page.index('<table class="schedules sortable">')


def latency_figure(page: str) -> str:
    """The chart of the latencies of the first model."""
    matched = re.search(r'<svg class="chart" id="latency-1".*?</svg>', page, re.DOTALL)
    assert matched is not None
    return matched[0]


def bar_widths(figure: str) -> dict[str, tuple[float, float]]:
    """Median in ms and width in pixels of every bar of a chart of latencies, by label."""
    bars = re.findall(r'data-hover="([^"]+?)\nmeasured median ([\d.]+) ms[^"]*"[^>]* d="M0,[\d.]+h([\d.]+)v', figure)
    return {html.unescape(label): (float(median), float(width)) for label, median, width in bars}


def test_an_outlier_does_not_flatten_the_chart(tmp_path: Path) -> None:
    """A reference a hundred times as slow as the others is cut off and written down; the others keep their length."""
    slow = {"median": 900.0, "p20": 890.0, "p80": 1000.0, "runs": [900.0]}
    references = [{"name": "slow, 1 thread", "threads": 1, "latency_ms": slow}]
    model = make_results(tmp_path / "m", "net", references=references)
    figure = latency_figure(page_of(tmp_path, model))
    run = artifacts.read(model / "run.json", "run")
    others = [entry["latency_ms"][key] for entry in run["results"] for key in ("median", "p80")]
    others += [entry["predicted_ms"] for entry in run["results"]]
    median, width = bar_widths(figure)["sequential <1>"]
    end = 800 * median / width
    assert max(others) < end < 1.2 * max(others)
    (below, outline), (color, text) = re.findall(r'<text[^>]*fill="(#\w+)"[^>]*>([^<]*▸)</text>', figure)
    assert (below, color) == (GROUND, INK)  # readable on a bar, and where the bar ends before it
    assert text == outline
    assert text.startswith("median 900.")
    assert " p80 1000." in text


def test_without_an_outlier_nothing_is_cut_off(page: str) -> None:
    """Latencies of the same order of magnitude are all shown in full."""
    figure = latency_figure(page)
    assert "▸" not in figure
    widths = bar_widths(figure)
    assert len(widths) == len(COMPETITORS) + 2
    assert max(width for _, width in widths.values()) < 800
    lengths = {round(width / median, 1) for median, width in widths.values()}
    assert max(lengths) - min(lengths) <= 0.2  # rounding of the medians that are stated


def test_run_without_optional_data(tmp_path: Path) -> None:
    """No results, references, versions or platform details still give a page and tables."""
    zero = {"median": 0, "p20": 0, "p80": 0, "runs": []}
    model = make_results(
        tmp_path / "m",
        "net",
        results=[],
        references=[{"name": "eager", "threads": 1, "latency_ms": zero}],
        versions={},
        platform={"name": "cpu"},
    )
    assert "No schedule was run." in page_of(tmp_path, model)
    kinds = [row["kind"] for row in read_csv(tmp_path / "latency.csv")]
    assert kinds == ["baseline", "reference", "ceiling"]


def test_folders_of_one_graph_are_told_apart(tmp_path: Path) -> None:
    """Two folders with the same graph appear under the names of their folders."""
    models = [make_results(tmp_path / folder, "net") for folder in ("small", "large")]
    write_report(models, tmp_path / "report.html", tmp_path)
    assert {row["model"] for row in read_csv(tmp_path / "operators.csv")} == {"net (small)", "net (large)"}
    models = [make_results(tmp_path / machine / "x", "net") for machine in ("one", "two")]
    write_report(models, tmp_path / "report.html", tmp_path)
    assert {row["model"] for row in read_csv(tmp_path / "operators.csv")} == {"net (one/x)", "net (two/x)"}


@pytest.mark.parametrize("damage", ["missing", "cut", "schema", "operator", "cost"])
def test_bad_input_writes_nothing(tmp_path: Path, damage: str) -> None:
    """A missing, damaged or unfitting file is named in one line, and no output appears."""
    model = make_results(tmp_path / "m", "net")
    run = model / "run.json"
    culprit = run
    if damage == "missing":
        run.unlink()
    elif damage == "cut":
        run.write_text(run.read_text(encoding="utf-8")[:200], encoding="utf-8")
    elif damage == "schema":
        run.write_text("{}", encoding="utf-8")
    elif damage == "operator":
        run.write_text(run.read_text(encoding="utf-8").replace('"op3"', '"stray"'), encoding="utf-8")
    else:
        culprit = model / "costs.json"
        costs = json.loads(culprit.read_text(encoding="utf-8"))
        del costs["operators"]["op3"]
        culprit.write_text(json.dumps(costs), encoding="utf-8")
    good = make_results(tmp_path / "good", "good")
    with pytest.raises(ArtifactError, match=re.escape(str(culprit))) as caught:
        write_report([good, model], tmp_path / "out" / "report.html", tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("fastest", "kind", "line"),
    [
        ("hios-lp <2>", "eager", 'hios.optimize(model, inputs, algorithm="hios-lp", devices=2)'),
        ("sequential <1>", "eager", 'hios.optimize(model, inputs, way="schedule")'),
        ("eager PyTorch", "openvino", 'hios.optimize(model, inputs, way="openvino")'),
        ("eager PyTorch", "onnxruntime", 'hios.optimize(model, inputs, way="onnxruntime")'),
        ("eager PyTorch", "compile", 'hios.optimize(model, inputs, way="compile")'),
        ("eager PyTorch", "engine", 'hios.optimize(model, inputs, way="schedule")'),
        ("eager PyTorch", "eager", ""),
    ],
)
def test_summary_begins_with_what_to_do(tmp_path: Path, fastest: str, kind: str, line: str) -> None:
    """Of every model the fastest way, by how much it is faster than PyTorch, and the line that gives it."""
    model = make_results(tmp_path / "m", "net")
    labels = [f"{algorithm} <{devices}>" for algorithm, devices in COMPETITORS]
    edited(model, "run", lambda run: [reference.update(kind=kind) for reference in run["references"]])
    with_runs(model, {name: [1.0 if name == fastest else 2.0] * 21 for name in (*labels, "eager PyTorch")})
    summary = html.unescape(page_of(tmp_path, model).split('<dl class="advice">')[1].split("</dl>")[0])
    assert f"<dd>{fastest}, 1.000 ms" in summary.replace("sequential on one device", fastest)
    is_compared = kind == "eager" and fastest != "eager PyTorch"
    assert ("2.00 times as fast as eager PyTorch" in summary) is is_compared
    assert (f"<code>fast = {line}</code>" if line else "Nothing to do.") in summary
    assert "a chain" not in summary


@pytest.mark.parametrize(
    ("reference", "run"),
    [
        ({"kind": "onnxruntime", "name": "ONNX Runtime, parallel, 2 threads", "threads": 2}, {}),
        ({"kind": "onnxruntime", "name": "ONNX Runtime, 1 thread"}, {"checked_against": "onnxruntime"}),
        ({"kind": "engine", "name": "2 cores"}, {"checked_against": "onnxruntime"}),
        ({"name": "PyTorch"}, {}),
    ],
    ids=["parallel", "onnx-runtime", "onnx-schedule", "old"],
)
def test_without_a_line_the_summary_says_only_what_is_fastest(
    tmp_path: Path, reference: dict[str, Any], run: dict[str, Any]
) -> None:
    """ONNX files, parallel sessions of ONNX Runtime, and references of old files that do not say what they are."""
    model = make_results(tmp_path / "m", "net")
    labels = [f"{algorithm} <{devices}>" for algorithm, devices in COMPETITORS]
    with_runs(model, {**{name: [2.0] * 21 for name in labels}, "eager PyTorch": [1.0] * 21})
    edited(model, "run", lambda document: (document.update(run), document["references"][0].update(reference)))
    summary = html.unescape(page_of(tmp_path, model).split('<dl class="advice">')[1].split("</dl>")[0])
    assert f"<dd>{reference['name']}" in summary
    assert "hios.optimize" not in summary
    assert "Nothing to do." not in summary


@pytest.mark.parametrize("skipped", [(), ((0, 2), (0, 3))], ids=["plain", "residual"])
def test_chains_and_virtual_devices_are_told(tmp_path: Path, skipped: tuple[tuple[int, int], ...]) -> None:
    """No schedule of a chain gains, unless operators run on several devices; virtual devices allow no advice."""
    units = tuple(operator_from(f"op{number}", "conv2d", {}) for number in range(4))
    edges = tuple(Edge(units[one].id, units[other].id) for one, other in (*pairwise(range(4)), *skipped))
    model = write_network(tmp_path / "net", 1, graph=Graph("net", units, edges))
    assert "; a chain: no schedule gains." in page_of(tmp_path, model)
    edited(model, "costs", lambda costs: costs["operators"]["op0"].update(wide_ms={"2": 0.5}))
    assert "a chain" not in page_of(tmp_path, model)
    edited(model, "run", lambda run: run["platform"].update(virtual=True))
    assert '<dl class="advice">' not in page_of(tmp_path, model)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("file", "file/latency.csv: cannot be written: .*/file is not a folder that may be written"),
        ("blocked", "blocked/operators.csv: cannot be written: it exists and is not a regular file"),
    ],
)
def test_tables_that_cannot_be_written_write_nothing(tmp_path: Path, tables: str, message: str) -> None:
    """A file in the place of the folder of tables, or a folder in the place of a table, is found before the page."""
    model = make_results(tmp_path / "m", "net")
    (tmp_path / "file").touch()
    (tmp_path / "blocked" / "operators.csv").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArtifactError, match=message):
        write_report([model], tmp_path / "report.html", tmp_path / tables)
    assert sorted(tmp_path.rglob("*")) == before


def test_page_in_the_place_of_a_table_is_an_error(tmp_path: Path) -> None:
    """A page named like one of the tables would be overwritten by it."""
    model = make_results(tmp_path / "m", "net")
    with pytest.raises(ArtifactError, match="named for the page, and it is the place of a table"):
        write_report([model], tmp_path / "latency.csv", tmp_path)
    assert not (tmp_path / "latency.csv").exists()


def test_two_reports_in_a_folder_have_papers_of_their_own(tmp_path: Path) -> None:
    """report.html has papers.html, another one NAME-papers.html; each of the two pages leads to the other."""
    model = make_results(tmp_path / "m", "net")
    pairs = {"report": "papers.html", "again": "again-papers.html"}
    for name in pairs:
        papers = {"papers": [], "verdicts": [f"Verdict of {name}."]}
        write_report([model], tmp_path / f"{name}.html", tmp_path, papers=papers)
    assert {path.name for path in tmp_path.glob("*papers.html")} == {*pairs.values()}
    for name, other in pairs.items():
        page, beside = ((tmp_path / file).read_text() for file in (f"{name}.html", other))
        assert set(re.findall(r'href="([\w-]*papers\.html)"', page)) == {other}
        assert set(re.findall(r'href="(\w+\.html)"', beside)) == {f"{name}.html"}
        assert f"Verdict of {name}." in beside


def test_no_folder_is_an_error(tmp_path: Path) -> None:
    """A report of nothing is refused."""
    with pytest.raises(ArtifactError, match="at least one"):
        write_report([], tmp_path / "report.html", tmp_path)


def test_picture_has_the_colors_of_the_charts(report: Path) -> None:
    """The page shows every operator of every model's graph, in the color that its type has in the charts."""
    models = read_results(sorted(path.parent for path in report.glob("*/run.json")))
    pictures = (report / "out" / "report.html").read_text(encoding="utf-8").split('<svg class="graph"')[1:]
    boxes = re.compile(r'data-operator="(\d+)".*?<rect[^>]*fill="(#\w+)"', re.DOTALL)
    assert [{int(number): color for number, color in boxes.findall(text)} for text in pictures] == [
        {number: style_of(operator.type).color for number, operator in enumerate(model.graph.operators)}
        for model in models
    ]
