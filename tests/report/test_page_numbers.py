"""Numbers on the page come from the data: in text, tables, charts and in what the pointer shows."""

from __future__ import annotations

import base64
import html
import random
import re
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hios import Edge, Graph, Operator
from hios.files import artifacts
from hios.report import write_report
from hios.study.gpu_predictions import predict_targets
from hios.study.page_part import papers_part
from tests.charts.latex_compiler import compile_latex, needs_pdflatex
from tests.cli.commands import refused, succeed
from tests.report.test_report import latency, make_results, page_of
from tests.study.drawn_figures import draw
from tests.verify.results import write_network

#: What was measured of this schedule is made shorter; it is not the fastest, and stays within 10 % of its prediction.
CHANGED = "greedy <1>"
FACTOR = 0.9


def _texts(page: str) -> list[str]:
    """Every text of a page, and what attributes say to readers, in order; scripts and styles left out."""
    shown = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    said = re.finditer(r' (?:aria-label|data-hover|data-value)="([^"]*)"|>([^<]+)', shown)
    return [html.unescape(match[1] or match[2] or "").strip() for match in said]


def _expected(run: dict[str, Any]) -> list[str]:
    """What the page says that rests on the measurements of the changed schedule, from run.json alone."""
    (result,) = [entry for entry in run["results"] if entry["label"] == CHANGED]
    time, predicted = result["latency_ms"], result["predicted_ms"]
    median, p20, p80 = (f"{time[key]:.3f}" for key in ("median", "p20", "p80"))
    errors = [abs(entry["prediction_error"]) for entry in run["results"]]
    beyond = [abs(entry["error_beyond_drift"]) for entry in run["results"]]
    worst = max(run["results"], key=lambda entry: abs(entry["prediction_error"]))["label"]
    return [
        # the headline of the prediction error, and the sentence of the model
        f"{100 * statistics.median(errors):.1f} %",
        f"in the median of 4 schedules, predicted against measured latency; at most {100 * max(errors):.1f} %, {worst} "
        "on net.",
        "The machine was 6.0% slower than when it was profiled. Predictions are off by "
        f"{statistics.median(errors):.1%} in the median and {max(errors):.1%} at most; beyond that drift by "
        f"{statistics.median(beyond):.1%} and {max(beyond):.1%}.",
        # the chart of latencies, the summary of the Gantt chart, its description, heading, region and buttons
        f"{CHANGED}\nmeasured median {median} ms\np20 {p20} ms, p80 {p80} ms",
        f"measured {median} ms, predicted {predicted:.3f} ms; drift +6.0 %, error beyond drift "
        f"{100 * result['error_beyond_drift']:+.1f} %",
        f"Gantt chart of {CHANGED} for net on 1 device(s): predicted, {predicted:.3f} ms, above measured, {median} ms",
        f"measured, the run of median latency ({median} ms)",
        # the tables: by what columns sort, and what they show
        str(time["median"]),
        median,
        str(time["p20"]),
        f"{p20}–{p80}",  # noqa: RUF001
        str(result["speedup"]),
        f"{result['speedup']:.2f}",
        str(result["prediction_error"]),
        f"{100 * result['prediction_error']:+.1f}",
        str(result["error_beyond_drift"]),
        f"{100 * result['error_beyond_drift']:+.1f}",
    ]


@pytest.mark.slow
def test_a_changed_measurement_changes_what_rests_on_it_and_nothing_else(tmp_path: Path) -> None:
    """With a schedule measured 10 % faster, every number that depends on it changes, and no other does."""
    model = make_results(tmp_path / "m", "net", 30, 3)
    before, run = page_of(model, model), artifacts.read(model / "run.json", "run")
    old = _expected(run)
    (result,) = [entry for entry in run["results"] if entry["label"] == CHANGED]
    time = result["latency_ms"]
    time.update(
        {key: FACTOR * time[key] for key in ("median", "p20", "p80")}, runs=[FACTOR * ms for ms in time["runs"]]
    )
    result["speedup"] = run["baseline"]["latency_ms"]["median"] / time["median"]
    result["share_of_ceiling"] = result["speedup"]
    result["prediction_error"] = result["predicted_ms"] / time["median"] - 1
    result["error_beyond_drift"] = 1.06 * result["predicted_ms"] / time["median"] - 1
    artifacts.write(model / "run.json", "run", run)
    after, new = page_of(model, model), _expected(run)
    pairs = zip(_texts(before), _texts(after), strict=True)
    changed = {(one, other) for one, other in pairs if one != other}
    assert changed == {(one, other) for one, other in zip(old, new, strict=True) if one != other}
    assert len(changed) >= len(old) - 1  # the largest error may be that of another schedule


def test_headlines_lead_to_their_evidence(tmp_path: Path) -> None:
    """Each of the three numbers links to a row that holds it or the numbers it is made of."""
    page = page_of(tmp_path, make_results(tmp_path / "m", "net"))
    run = artifacts.read(tmp_path / "m" / "run.json", "run")
    links = re.findall(r'<a href="#([\w-]+)"><span>([^<]+)</span> <b>([^<]+)</b>', page)
    assert [name for _, name, _ in links] == ["Best speedup", "Certified gap", "Prediction error"]
    rows = dict(re.findall(r'<tr id="([\w-]+)"(.*?)</tr>', page, re.DOTALL))
    (speedup, _, times), (gap, _, percent), (error, _, _) = links
    best = max(run["results"], key=lambda entry: entry["speedup"])
    assert times == f"{best['speedup']:.2f} times"
    assert html.escape(best["label"]) in rows[speedup]
    fastest = min(run["results"], key=lambda entry: entry["predicted_ms"])
    assert percent == f"{100 * (fastest['predicted_ms'] / fastest['lower_bound_ms'] - 1):.1f} %"
    assert f">{percent.removesuffix(' %')}</td>" in rows[gap]
    worst = max(run["results"], key=lambda entry: abs(entry["prediction_error"]))
    assert f">{100 * worst['prediction_error']:+.1f}</td>" in rows[error]


def test_busy_cores_take_the_shine_off_the_speedup(tmp_path: Path) -> None:
    """Where other work kept the cores busy the best speedup says that it is not to be relied on."""
    for share, said in ((0.25, True), (0.02, False)):
        model = make_results(tmp_path / str(share), "net", platform={"name": "cpu", "busy_share": share})
        assert (
            f"while other work took {share:.0%} of the cores' time, so not to be relied on"
            in html.unescape(page_of(model, model))
        ) == said


def test_a_baseline_that_no_schedule_beats_is_named(tmp_path: Path) -> None:
    """Without the algorithm sequential, a faster sequential schedule on one device is a reference that is faster."""
    quick = latency(0.5, random.Random(0))
    model = make_results(tmp_path / "m", "net", baseline={"latency_ms": quick})
    run = artifacts.read(model / "run.json", "run")
    run["results"] = [entry for entry in run["results"] if entry["algorithm"] != "sequential"]
    for entry in run["results"]:
        entry["speedup"] = quick["median"] / entry["latency_ms"]["median"]
    artifacts.write(model / "run.json", "run", run)
    text = html.unescape(page_of(model, model))
    named = f"sequential on one device (baseline) ({quick['median']:.3f} ms)"
    assert f"Faster than every schedule: {named}" in text
    assert "times as fast as the sequential schedule on one device, slower than it" in text
    assert "; below 1, so every schedule is slower." in text
    assert f"<td>{named}" in text  # of the references that are faster, in the table of models


def test_large_prediction_errors_are_to_be_read_with_care(tmp_path: Path) -> None:
    """Errors of more than 10 % are listed with their schedules, and no others."""
    model = make_results(tmp_path / "m", "net")
    run = artifacts.read(model / "run.json", "run")
    for entry, error in zip(run["results"], (-0.27, 0.21, 0.1, -0.04), strict=True):
        entry["prediction_error"] = error
    artifacts.write(model / "run.json", "run", run)
    text = html.unescape(page_of(model, model))
    assert "Read with care" in text
    assert (
        "2 of 4 predictions of net are more than 10% off what was measured (sequential <1> -27.0%, greedy <1> +21.0%):"
        in text
    )


def test_tables_can_be_saved_from_the_page(tmp_path: Path) -> None:
    """The files in the page are the files beside it."""
    model = make_results(tmp_path / "m", "net")
    page = page_of(model, model)
    files = re.findall(r'<a download="([\w.]+)" href="data:[\w/-]+;base64,([^"]+)"', page)
    assert [name for name, _ in files] == ["latency.csv", "operators.csv", "latency.tex", "operators.tex"]
    for name, content in files:
        assert base64.b64decode(content) == (model / name).read_bytes()


def test_latex_tables_are_documents(tmp_path: Path) -> None:
    """A document with the rules of booktabs, a row for every row of the CSV, and names escaped."""
    model = make_results(tmp_path / "m", "a_net & <more> µ")
    page_of(model, model)
    for name in ("latency", "operators"):
        text = (model / f"{name}.tex").read_text(encoding="ascii")
        lines = (model / f"{name}.csv").read_text(encoding="utf-8").splitlines()
        assert text.index("\\documentclass") < text.index("\\begin{document}") < text.index("\\end{document}")
        assert all(f"\\{rule}" in text for rule in ("toprule", "midrule", "bottomrule", "usepackage{booktabs}"))
        body = text.partition("\\endlastfoot")[2].partition("\\end{longtable}")[0].strip().splitlines()
        assert len(body) == len(lines) - 1
        columns = len(re.findall(r"(?<!\\)&", body[0]))
        assert all(len(re.findall(r"(?<!\\)&", row)) == columns and row.endswith("\\\\") for row in body)
        assert body[0].startswith(r"a\_net \& \textless{}more\textgreater{} $\mu$ & ")


@needs_pdflatex
@pytest.mark.parametrize("name", ["latency", "operators"])
def test_latex_tables_compile(tmp_path: Path, name: str) -> None:
    """As they are, with a network whose name LaTeX would take for commands."""
    model = make_results(tmp_path / "m", "a_b & <c> % # $ ~ ^ \\ { } µ × ≥ é")  # noqa: RUF001
    page_of(model, model)
    compile_latex(model / f"{name}.tex")


def test_page_says_how_it_came_about(tmp_path: Path) -> None:
    """Command, configuration and commit stand under environment; a configuration that cannot be read is refused."""
    model = make_results(tmp_path / "m", "net")
    (tmp_path / "my config.yaml").write_text("models: {net: {}}\n", encoding="utf-8")
    arguments = [str(model), "--output", str(tmp_path / "report.html"), "--tables", str(tmp_path / "tables")]
    command = ["report", *arguments, "--config", str(tmp_path / "my config.yaml")]
    succeed(*command)
    text = html.unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert f"<dt>Command</dt><dd>hios report {' '.join(arguments)} --config '{tmp_path}/my config.yaml'</dd>" in text
    assert ">models: {net: {}}\n</pre>" in text
    assert re.search(r"<dt>Code</dt><dd>(commit [0-9a-f]{12}, (no|with) uncommitted|an installed package)", text)
    message = refused(*command[:-1], tmp_path / "none.yaml")
    assert message == f"{tmp_path}/none.yaml: cannot be read: No such file or directory"


@pytest.mark.parametrize("kind", ["conv2d-relu", "add", "a type of my own"])
def test_one_color_in_report_show_and_draw(tmp_path: Path, kind: str) -> None:
    """A type has the same look in the report, in `hios draw`, in `hios show` as a page and on a terminal."""
    from hios import Graph, Operator, Problem, schedule
    from hios.charts.rendering import fill_of
    from hios.charts.theme import style_of
    from hios.core.costs import Costs
    from hios.report import write_picture, write_schedule
    from hios.report.terminal import Look, draw

    graph = Graph("g", (Operator("x", "relu"), Operator("y", "relu"), Operator("z", kind)), ())
    costs = Costs.from_json({"operators": {name: {"time_ms": 1.0} for name in "xyz"}, "transfers": []})
    made = schedule(Problem(graph, costs), "sequential", 1)
    types = {operator.id: operator.type for operator in graph.operators}
    style = style_of(kind)
    write_picture(graph, tmp_path / "graph.svg")
    write_schedule(made, tmp_path / "schedule.html", types)
    picture, page = ((tmp_path / name).read_text(encoding="utf-8") for name in ("graph.svg", "schedule.html"))
    assert re.search(rf"<title>z\n{kind}</title><rect[^>]* fill=\"{style.color}\"", picture)
    fill = fill_of(style).replace("#hatch", "#schedule-hatch")
    assert re.search(rf'data-hover="z\n{kind}\n[^>]* fill="{re.escape(fill)}"', page)
    red, green, blue = (round(int(style.color[place : place + 2], 16) / 255 * 5) for place in (1, 3, 5))
    assert f"48;5;{16 + 36 * red + 6 * green + blue}m {kind} " in draw(made, Look(80, color=True), types)


def _numbers(page: str) -> list[tuple[str, str]]:
    """Every number in what the page says, with the text that it is in, up to the number."""
    numbers = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")
    return [(text, match[0]) for text in _texts(page) for match in numbers.finditer(text)]


def _changes(before: str, after: str) -> Counter[tuple[str, str]]:
    """The numbers that differ between two pages with the same texts otherwise, each with what is in its place."""
    pairs = list(zip(_numbers(before), _numbers(after), strict=True))
    return Counter((old, new) for (_, old), (_, new) in pairs if old != new)


def _paper_page(folder: Path, model: Path, figure: str, *data: Path) -> str:
    """The page of a network with a figure that is drawn from some files."""
    assert draw(figure, data, folder / "figures").state == "drawn"
    papers = papers_part(folder / "figures", folder / "report.html")
    write_report([model], folder / "report.html", folder / "tables", papers=papers)
    page = (folder / "papers.html").read_text(encoding="utf-8")
    return re.sub(r"<dt>Time</dt>.*?</dd>|<dt>Code</dt>.*?</dd>", "", page)  # of this very drawing


@pytest.mark.slow
def test_a_changed_peak_memory_changes_its_figure_and_nothing_else(tmp_path: Path) -> None:
    """A peak memory that is 10 % less is another in table, chart and sentence; no other number changes."""
    folder = write_network(
        tmp_path / "study" / "transformers" / "t5",
        1,
        {f"{name}-1": (name, 1) for name in ("sequential", "nimble", "opara")},
    )
    model = make_results(tmp_path / "m", "net")

    def page(megabytes: float) -> str:
        run = artifacts.read(folder / "run.json", "run")
        for place, result in enumerate(run["results"]):
            result["peak_memory_bytes"] = round(1e6 * (megabytes if result["algorithm"] == "opara" else 600 + place))
        artifacts.write(folder / "run.json", "run", run)
        return _paper_page(tmp_path, model, "opara_fig5", folder / "run.json")

    # The sentence, what the pointer shows of the bar, the cell of the table and the number that it is sorted by.
    assert _changes(page(300), page(270)) == {("300", "270"): 3, ("300.0", "270.0"): 1}


@pytest.mark.slow
def test_predicted_panels_follow_predictions_and_nothing_else(tmp_path: Path) -> None:
    """Another measurement leaves predictions alone, and a prediction that is 10 % shorter changes no other number."""
    model = write_network(tmp_path / "net", 1, {f"{name}-1": (name, 1) for name in ("sequential", "greedy", "ios")})
    operators = tuple(Operator(name, "conv", flops=2 * 10**8, bytes=10**6) for name in "abcd")
    graph = Graph(
        "fork", operators, tuple(Edge(source, target, bytes=10**5) for source, target in ("ab", "ac", "bd", "cd"))
    )
    graph.write(tmp_path / "fork" / "graph.json")
    predicted = tmp_path / "fork" / "predicted.json"
    artifacts.write(predicted, "predicted", predict_targets(graph, ("ios",)))

    def page() -> str:
        return _paper_page(tmp_path, model, "ios_fig6", model / "run.json", predicted)

    def panel(text: str) -> list[str]:
        return [said for said in _texts(text) if "fork" in said and "predicted" in said]

    before = page()
    document = artifacts.read(predicted, "predicted")
    (entry,) = document["predictions"]
    made = {label.removesuffix("-1"): schedule for label, schedule in entry["schedules"].items()}
    old = {name: schedule["latency_ms"] for name, schedule in made.items()}
    made["greedy"]["latency_ms"] *= FACTOR
    new = {**old, "greedy": FACTOR * old["greedy"]}
    artifacts.write(predicted, "predicted", document)
    after = page()

    def said(times: dict[str, float]) -> list[str]:
        """Numbers of the figure that rest on the predicted latencies: sentence, pointer, cells and what sorts them."""
        best, baseline = min(times.values()), times["sequential"]
        values = [value for time in times.values() for value in (time, baseline / time, best / time)]
        texts = [text for value in values for text in (str(value), f"{value:.4g}")]
        pointer = [f"{best / time:.4g}" for time in times.values()]
        return [*texts, *pointer, f"{baseline / times['greedy']:.2f}", f"{baseline / times['ios']:.2f}"]

    expected = Counter((one, other) for one, other in zip(said(old), said(new), strict=True) if one != other)
    assert _changes(before, after) == expected
    run = artifacts.read(model / "run.json", "run")
    for result in run["results"]:
        if result["algorithm"] == "greedy":
            latency_ms = result["latency_ms"]
            latency_ms.update({key: FACTOR * latency_ms[key] for key in ("median", "p20", "p80")})
            latency_ms["runs"] = [FACTOR * time for time in latency_ms["runs"]]
            result["speedup"] /= FACTOR
    artifacts.write(model / "run.json", "run", run)
    measured = page()
    assert _changes(after, measured)
    assert panel(measured) == panel(after) != panel(before)
    assert len(panel(after)) >= len(made)
