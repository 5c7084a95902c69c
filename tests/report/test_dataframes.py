"""Results as pandas data frames, and the CSV files that pandas writes."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import hios
from hios import Graph, HiosError, Problem
from hios.files import artifacts
from hios.report import write_report
from hios.report.results import read_model
from hios.report.tables import LATENCY_COLUMNS, OPERATOR_COLUMNS, latency_rows, operator_rows, table, table_files
from tests.report.test_report import COMPETITORS, edited, make_results, make_several
from tests.scripts import python


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of two networks that were executed, and of one that was only scheduled."""
    folder = tmp_path_factory.mktemp("results")
    make_several(folder, "first", "second", "third")
    (folder / "third" / "run.json").unlink()
    problem = Problem.read(folder / "third" / "graph.json", folder / "third" / "costs.json")
    for algorithm, devices in COMPETITORS:
        hios.schedule(problem, algorithm, devices).write(folder / "third" / "schedules" / f"{algorithm}-{devices}.json")
    (folder / "tables").mkdir()  # a folder without a network
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> hios.Results:
    """The data frames."""
    return hios.load_results(folder)


def test_latencies(results: hios.Results, folder: Path) -> None:
    """Rows and columns are those of latency.csv; numbers that are missing there are missing here."""
    write_report([folder / "first", folder / "second"], folder / "out" / "report.html", folder / "out")
    table = pd.read_csv(folder / "out" / "latency.csv")
    latencies = results.latencies
    assert list(latencies.columns) == list(table.columns) == list(LATENCY_COLUMNS)
    executed = latencies[latencies["model"] != "third"].reset_index(drop=True)
    assert len(executed) == len(table) == 2 * (len(COMPETITORS) + 4)
    for column in set(LATENCY_COLUMNS) - {"virtual", "predicted_only"}:
        expected = table[column].astype(executed[column].dtype)
        pd.testing.assert_series_equal(executed[column], expected)
    assert latencies["virtual"].tolist() == latencies["predicted_only"].tolist() == [False] * len(latencies)


def test_predictions_alone(results: hios.Results, folder: Path) -> None:
    """A network without run.json has its schedules, with nothing measured."""
    third = results.latencies[results.latencies["model"] == "third"]
    assert sorted(third["label"]) == sorted(f"{name}-{devices}" for name, devices in COMPETITORS)
    assert set(third["kind"]) == {"schedule"}
    for row in third.itertuples():
        schedule = hios.Schedule.read(folder / "third" / "schedules" / f"{row.label}.json")
        assert (row.predicted_ms, row.devices) == (schedule.latency_ms, schedule.devices)
        assert (row.algorithm, json.loads(row.parameters)) == (schedule.algorithm, schedule.parameters)
    assert third[["measured_median_ms", "speedup", "runs", "threads"]].isna().all(axis=None)
    placements = results.placements[results.placements["model"] == "third"]
    assert set(placements["times"]) == {"predicted"}
    assert len(placements) == 12 * len(COMPETITORS)


def test_placements(results: hios.Results, folder: Path) -> None:
    """Every operator is placed once in every schedule, predicted and measured, at the times of run.json."""
    placements = results.placements
    assert len(placements) == 12 * len(COMPETITORS) * (2 + 2 + 1)
    assert not placements.duplicated(["model", "label", "times", "operator"]).any()
    run = artifacts.read(folder / "first" / "run.json", "run")
    result = run["results"][-1]
    shown = placements.query("model == 'first' and times == 'measured' and label == @result['label']")
    assert shown["operator"].tolist() == [row["operator"] for row in result["measured"]]
    assert shown["finish_ms"].tolist() == [row["finish_ms"] for row in result["measured"]]


def test_frames_merge(results: hios.Results) -> None:
    """The keys are unique where they name a row, and join all four tables."""
    latencies, operators, costs = results.latencies, results.operators, results.costs
    assert not latencies.duplicated(["model", "label"]).any()
    assert not operators.duplicated(["model", "operator"]).any()
    joined = results.placements.merge(operators, on=["model", "operator"], validate="many_to_one")
    assert len(joined) == len(results.placements)
    joined = results.placements.merge(latencies, on=["model", "label"], validate="many_to_one")
    assert len(joined) == len(results.placements)
    assert joined.groupby(["model", "label", "times"])["finish_ms"].max().xs("predicted", level="times").tolist() == (
        pytest.approx(
            latencies.dropna(subset="predicted_ms").set_index(["model", "label"])["predicted_ms"].sort_index()
        )
    )
    times = operators.merge(costs[costs["kind"] == "operator"], on=["model", "operator"], validate="one_to_one")
    assert times["time_ms_x"].tolist() == times["time_ms_y"].tolist()


def test_costs(tmp_path: Path) -> None:
    """Every entry of costs.json is a row that names its kind and operators."""
    directory = make_results(tmp_path / "net", "net")
    costs = artifacts.read(directory / "costs.json", "costs")
    costs["operators"]["op1"] |= {"interval_ms": [0.2, 0.3], "repeats": 30, "utilization": 0.5}
    costs["stages"] = [{"groups": [["op1", "op2"], ["op3"]], "time_ms": 4.5}]
    del costs["format_version"]
    artifacts.write(directory / "costs.json", "costs", costs)
    tables = hios.load_results(directory)
    assert tables.costs["kind"].value_counts().to_dict() == {
        "operator": len(costs["operators"]),
        "transfer": len(costs["transfers"]),
        "stage": 1,
    }
    row = tables.costs.query("operator == 'op1'").iloc[0]
    assert (row["low_ms"], row["high_ms"], row["repeats"]) == (0.2, 0.3, 30)
    stage = tables.costs.query("kind == 'stage'").iloc[0]
    assert (stage["groups"], stage["time_ms"]) == ((("op1", "op2"), ("op3",)), 4.5)
    assert tables.operators.set_index("operator")["utilization"].loc[["op0", "op1"]].tolist() == [1.0, 0.5]


def test_transfers_of_a_link_model(tmp_path: Path) -> None:
    """Where costs.json has a link instead of transfers, every edge has its time, without synchronization."""
    directory = make_results(tmp_path / "net", "net")
    data = artifacts.read(directory / "graph.json", "graph")
    for number, edge in enumerate(data["edges"]):
        edge["bytes"] = 1000 * number
    Graph.from_json(data).write(directory / "graph.json")
    link = {"transfers": {"latency_ms": 0.1, "bandwidth_gbps": 8}}
    edited(directory, "costs", lambda costs: costs.update(link | {"overheads": {"sync_ms": 0.5}}))
    transfers = hios.load_results(directory).costs.query("kind == 'transfer'").set_index(["source", "target"])
    expected = {(e["source"], e["target"]): 0.1 + 1e-6 * e["bytes"] for e in data["edges"]}
    assert transfers["time_ms"].to_dict() == pytest.approx(expected)


def test_networks_of_one_name(folder: Path, tmp_path: Path) -> None:
    """Networks of the same name are told apart by their folders, as in the report."""
    for name in ("one", "other"):
        shutil.copytree(folder / "first", tmp_path / name)
    tables = hios.load_results(tmp_path)
    assert set(tables.latencies["model"]) == set(tables.operators["model"]) == {"first (one)", "first (other)"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: shutil.rmtree(folder / "net"), "found no graph.json in it or in its folders"),
        (lambda folder: (folder / "net" / "costs.json").unlink(), "costs.json: cannot be read: No such file"),
        (lambda folder: (folder / "net" / "run.json").write_text("{"), "run.json: line 1 column 2: not valid JSON"),
    ],
)
def test_bad_folders_are_one_line(tmp_path: Path, change: Any, message: str) -> None:
    """What is missing or damaged is named."""
    make_results(tmp_path / "net", "net")
    change(tmp_path)
    with pytest.raises(HiosError, match=message):
        hios.load_results(tmp_path)


def test_schedules_of_other_graphs_and_costs_are_refused(folder: Path, tmp_path: Path) -> None:
    """A network that was not executed has schedules of its own graph and costs only."""
    shutil.copytree(folder / "third", tmp_path / "third")
    edited(tmp_path / "third", "costs", lambda costs: costs["operators"]["op0"].update(time_ms=100))
    with pytest.raises(HiosError, match=r"third/costs\.json it is .*: the schedule was made with other costs"):
        hios.load_results(tmp_path)
    for name in ("graph.json", "costs.json"):
        shutil.copy(folder / "first" / name, tmp_path / "third" / name)
    with pytest.raises(HiosError, match="schedule of another graph"):
        hios.load_results(tmp_path)


def _written_by_csv(columns: Iterable[str], rows: list[dict[str, Any]]) -> str:
    """What the csv module writes: the format of the tables."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(columns), restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def test_csv_files_keep_their_format(folder: Path) -> None:
    """The tables are written as the csv module writes rows: order, numbers in full, whole numbers with gaps, quotes."""
    model = read_model(folder / "first")
    latencies, operators = latency_rows(model), operator_rows(model.name, model.graph, model.costs)
    files = table_files(table(LATENCY_COLUMNS, latencies), table(OPERATOR_COLUMNS, operators))
    assert files["latency.csv"] == _written_by_csv(LATENCY_COLUMNS, latencies)
    assert files["operators.csv"] == _written_by_csv(OPERATOR_COLUMNS, operators)


def test_a_missing_pandas_is_one_line(folder: Path) -> None:
    """Where pandas is not installed, hios report says which extra has it; `import hios` works."""
    code = "import sys; sys.modules['pandas'] = None; import hios; from hios.cli import main; main()"
    arguments = ["report", str(folder / "first"), "--output", str(folder / "no.html"), "--tables", str(folder / "no")]
    done = python("-c", code, *arguments)
    assert done.returncode == 1
    assert done.stderr == "Error: this command needs pandas, which is not installed: pip install 'hios[report]'\n"
