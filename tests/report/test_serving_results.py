"""The serving part of a report."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from hios.errors import ArtifactError
from hios.files import artifacts
from hios.formats.serving_result import ComparedPolicy, ResultFile
from hios.report.serving_results import (
    ServedPolicy,
    ServedScenario,
    _best,
    calibration_sentence,
    findings,
    gap_rows,
    read_serving,
    serving_rows,
    setting_sentence,
)
from hios.serving.scenario import Scenario
from hios.serving.simulate import simulate
from tests.serving.scenarios import written
from tests.verify.results import write_network


def write_serving(folder: Path) -> Path:
    """Results of two policies and auto at two loads, as the pipeline writes them; one of them was run."""
    given = written(folder / "given", duration_s=2)
    own = folder / "serving" / "mix"
    for load in (0.5, 1.0):
        scenario = Scenario.read(given, load=load)
        for policy in ("sequential", "top", "auto"):
            result = simulate(scenario, policy)
            artifacts.write(own / "simulated" / f"{policy}-{load:g}.json", "result", result)
            if policy == "sequential":
                artifacts.write(own / "measured" / f"{policy}-{load:g}.json", "result", run_of(result))
    return own.parent


def run_of(result: ResultFile) -> ResultFile:
    """As if measured: a fifth slower at the median."""
    total = result.total
    assert total.p50_ms is not None
    slower = msgspec.structs.replace(total, p50_ms=total.p50_ms * 1.25)
    return msgspec.structs.replace(result, simulated=False, total=slower)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results."""
    return write_serving(tmp_path_factory.mktemp("serving"))


@pytest.fixture
def scenario(folder: Path) -> ServedScenario:
    """The scenario in it."""
    (scenario,) = read_serving(folder)
    return scenario


def test_rows(scenario: ServedScenario) -> None:
    """A row for every policy, load and kind, by load; measured before predicted."""
    rows = serving_rows(scenario)
    assert [(row["policy"], row["load"], row["mark"]) for row in rows] == [
        (policy, load, mark)
        for load in (0.5, 1.0)
        for policy, mark in (
            ("auto", "predicted"),
            ("sequential", "measured here"),
            ("sequential", "predicted"),
            ("top", "predicted"),
        )
    ]
    for row in rows:
        assert row["goodput"] <= row["done"] <= row["offered"]
        assert row["done"] == pytest.approx(row["bound"] * (1 - row["gap"]))


def test_runtimes_stand_beside_each_other(tmp_path: Path) -> None:
    """A policy in another runtime is a row of its own, not instead of that of hios."""
    own = write_serving(tmp_path)
    result = artifacts.load(next(own.glob("*/measured/sequential-*.json")), ResultFile)
    name = f"sequential-{result.load:g}-eager.json"
    (folder,) = own.glob("*/measured")
    artifacts.write(folder / name, "result", msgspec.structs.replace(result, runtime="eager"))
    (scenario,) = read_serving(own)
    named = [
        row["policy"] for row in serving_rows(scenario) if row["load"] == result.load and row["mark"] != "predicted"
    ]
    assert named == ["sequential", "sequential in eager"]


def test_chosen_results_alone_are_shown(folder: Path) -> None:
    """Of a folder, in which results of earlier configurations stay, those that are named; none may be missing."""
    (scenario,) = read_serving(folder, ["mix/simulated/top-1.json", "mix/simulated/sequential-1.json"])
    rows = serving_rows(scenario)
    assert [(row["policy"], row["load"], row["mark"]) for row in rows] == [
        ("sequential", 1.0, "predicted"),
        ("top", 1.0, "predicted"),
    ]
    assert next(findings(scenario)).startswith("At load 1, ")
    for name in ("mix/top-1.json", "../mix/simulated/top-1.json", "/mix/simulated/top-1.json"):
        with pytest.raises(ArtifactError, match=f"--served: found {re.escape(name)}; allowed: SCENARIO/simulated/"):
            read_serving(folder, [name])
    with pytest.raises(ArtifactError, match=r"none-1\.json: cannot be read"):
        read_serving(folder, ["mix/simulated/none-1.json"])


def test_gaps(scenario: ServedScenario) -> None:
    """Predicted over measured, where there are both."""
    rows = gap_rows(scenario)
    assert [(row["policy"], row["load"]) for row in rows] == [("sequential", 0.5), ("sequential", 1.0)]
    for row in rows:
        assert (row["done"], row["p99"]) == (0.0, 0.0)
        assert row["p50"] == pytest.approx(-0.2)


def test_sentences(scenario: ServedScenario) -> None:
    """The setting, the best policy of each load, and what auto chose."""
    assert "at load 0.5; arrivals poisson; 2 lanes; 1 x 2 s; seed 0; launcher open." in setting_sentence(scenario)
    said = list(findings(scenario))
    assert said[0].startswith("At load 0.5, sequential serves best, measured, by the worst-served model first, ")
    assert sum(", auto is " in sentence for sentence in said) == 2


def test_policies_that_answer_equally_many(scenario: ServedScenario) -> None:
    """The one with the lowest 99th percentile serves best."""
    (one, *_) = (served.predicted for served in scenario.policies if served.predicted is not None)
    slower = msgspec.structs.replace(one, total=msgspec.structs.replace(one.total, p99_ms=1e6))
    said = _best({"slow": slower, "quick": one}, 0.5)
    assert said.startswith("At load 0.5, quick serves best, predicted, ")
    assert "worst-served model 100.0%, Jain's index 1.000" in said


def test_what_predictions_rest_on(tmp_path: Path, scenario: ServedScenario) -> None:
    """On costs alone, or on a calibration; measurements alone need none."""
    assert calibration_sentence(scenario).startswith("Predictions are not calibrated: ")
    served = scenario.policies[0].predicted
    assert served is not None
    calibrated = ServedPolicy("auto", 0.5, msgspec.structs.replace(served, calibrated=True), None)
    assert calibration_sentence(ServedScenario("mix", (calibrated,))).startswith("Predictions are calibrated: ")
    assert calibration_sentence(ServedScenario("mix", (ServedPolicy("auto", 0.5, None, run_of(served)),))) == ""


def test_what_limits_strict_rounds_is_said(tmp_path: Path) -> None:
    """At each load where strict rounds were served: twice the smaller rate of the two models."""
    given = Scenario.read(written(tmp_path / "given", duration_s=2, arrivals="periodic"))
    strict, sequential = (simulate(given, policy) for policy in ("pos-strict", "sequential"))
    both = (ServedPolicy("pos-strict", 1.0, strict, None), ServedPolicy("sequential", 1.0, sequential, None))
    (said,) = (sentence for sentence in findings(ServedScenario("mix", both)) if "strict rounds" in sentence)
    assert said.startswith("At load 1, strict rounds cannot pass 80 of 120 tasks/s: 2 models x the smallest rate; seq")
    assert " %; sequential: " in said
    assert "; pos-strict: " in said
    assert said.count(" tasks/s, Jain's index ") == 2
    assert not any("strict rounds" in sentence for sentence in findings(ServedScenario("mix", both[1:])))


def _chosen_among(result: ResultFile, *candidates: ComparedPolicy) -> str:
    chosen = msgspec.structs.replace(result, chosen=candidates[0].policy, candidates=candidates, objective=None)
    (said,) = (
        sentence
        for sentence in findings(ServedScenario("mix", (ServedPolicy("auto", 0.5, chosen, None),)))
        if ", auto is " in sentence
    )
    return said


def test_why_auto_chose(scenario: ServedScenario) -> None:
    """Learned, static and the best other policy side by side where there is a launcher; else the two best policies."""
    result = scenario.policies[0].predicted
    assert result is not None
    top, ios = (
        ComparedPolicy(policy=name, launcher="open", goodput_per_s=goodput, p99_ms=12.0)
        for name, goodput in (("top", 9.5), ("ios", 9.0))
    )
    learned, static = (
        ComparedPolicy(policy=name, launcher="learned", goodput_per_s=goodput, p99_ms=20.0)
        for name, goodput in (("learned", 8.0), ("learned-static", 10.0))
    )
    left_out = ComparedPolicy(policy="threads", goodput_per_s=0.0, left_out="no times")
    said = _chosen_among(result, static, top, ios, learned, left_out)
    assert said == (
        "At load 0.5, auto is learned-static: the best of 4 policies in simulations of other traces, by tasks within "
        "their SLO: learned-static 10 tasks/s, p99 20 ms; top 9.5 tasks/s, p99 12 ms; learned 8 tasks/s, p99 20 ms."
    )
    said = _chosen_among(result, top, ios, left_out)
    assert said.endswith("by tasks within their SLO: top 9.5 tasks/s, p99 12 ms; ios 9 tasks/s, p99 12 ms.")
    assert _chosen_among(result, top, left_out).endswith("the best of 1 policies in simulations of other traces.")


def test_the_launcher_that_auto_chose_is_named(tmp_path: Path) -> None:
    """Beside the policy where both were chosen, and of a policy that is named."""
    given = Scenario.read(written(tmp_path / "given", duration_s=2, launcher="auto"))
    for policy in ("top", "auto"):
        result = simulate(given, policy)
        artifacts.write(tmp_path / "serving" / "mix" / "simulated" / f"{policy}-1.json", "result", result)
    (scenario,) = read_serving(tmp_path / "serving")
    chosen = {row["policy"]: row["chosen"] for row in serving_rows(scenario)}
    assert re.fullmatch(r"launcher (open|deadline|fixed|water-filling)", chosen["top"])
    assert re.fullmatch(r"[\w-]+, launcher (open|deadline|fixed|water-filling)", chosen["auto"])
    assert setting_sentence(scenario).endswith("; launcher auto.")
    (said,) = (sentence for sentence in findings(scenario) if ", auto is " in sentence)
    assert f"auto is {chosen['auto']}: the best of " in said
    assert " policies, each under 4 launchers, in simulations of other traces, by " in said


def test_charts(scenario: ServedScenario) -> None:
    """Goodput beside the bound, and percentiles over load; predictions are dashed and outlined."""
    pytest.importorskip("altair", reason="needs the extra report")
    from hios.report.serving_results import serving_charts

    goodput, percentiles = serving_charts(scenario, "serving")
    for chart in (goodput, percentiles):
        assert "sequential, load 0.5" in chart
        assert "measured here" in chart
        assert "stroke-dasharray" in chart
    assert "no policy can pass" in goodput


def test_the_part_on_the_page(folder: Path, tmp_path: Path) -> None:
    """The page has it, with a link from its contents, only where there are results."""
    pytest.importorskip("altair", reason="needs the extra report")
    from hios.report import write_report

    write_network(tmp_path / "net", 0)
    page = tmp_path / "report.html"
    write_report([tmp_path / "net"], page, tmp_path / "tables", serving=folder)
    text = page.read_text(encoding="utf-8")
    for expected in (
        'href="#serving"',
        'id="serving-chart-1-goodput"',
        "Predicted over measured",
        "not calibrated",
        "auto (",
        "-20.0",
    ):
        assert expected in text
    write_report([tmp_path / "net"], page, tmp_path / "tables")
    assert 'id="serving"' not in page.read_text(encoding="utf-8")


def test_folders_without_results(tmp_path: Path) -> None:
    """The message says what is missing."""
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(ArtifactError, match=r"found no result; required: SCENARIO/simulated/POLICY-LOAD.json"):
            read_serving(folder)
