"""Predictions for the papers' GPUs beside what was measured: files, rows, panels, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from hios import Edge, Graph, Operator, artifacts
from hios.cli import main
from hios.config import resolve
from hios.formats.prediction_file import PredictionFile
from hios.study import model_validation, registry
from hios.study.figure_data import FigureData
from hios.study.gpu_predictions import predict_targets
from hios.study.gpu_targets import TARGETS, targets_of
from hios.study.settings import figure_files
from hios.verify import verify
from tests.verify.results import write_network

pytest.importorskip("altair", reason="needs the extra report")

from hios.study.figure_files import write_figure

#: A fork and a join of operators that state their work.
_GRAPH = Graph(
    "fork",
    tuple(Operator(name, "conv", flops=2e8, bytes=10**6) for name in "abcd"),
    tuple(Edge(source, target, bytes=10**5) for source, target in ("ab", "ac", "bd", "cd")),
    blocks=(("a", "b", "c", "d"),),
)
_BESIDE = ("hios_fig12", "hios_fig13", "ios_fig6", "ios_fig16", "lios_fig7")


def _write(folder: Path, graph: Graph = _GRAPH, targets: tuple[str, ...] = ("hios", "ios", "lios")) -> Path:
    graph.write(folder / "graph.json")
    artifacts.write(folder / "predicted.json", "predicted", predict_targets(graph, targets))
    return folder / "predicted.json"


@pytest.fixture
def data(tmp_path: Path) -> FigureData:
    """A network that was measured, and one that is predicted."""
    labeled = {f"{name}-1": (name, 1) for name in ("sequential", "greedy", "nimble", "ios", "lios")}
    write_network(tmp_path / "squeezenet", 1, {**labeled, "hios-lp-2": ("hios-lp", 2)})
    return FigureData.read([tmp_path / "squeezenet" / "run.json", _write(tmp_path / "fork")])


def test_the_command(tmp_path: Path) -> None:
    """It predicts the algorithms of every target, for as many GPUs as the paper has; equal input, equal latencies."""
    path = _write(tmp_path / "fork")
    options = ["--for", "hios", "--for", "ios", "--for", "lios", "--output", str(tmp_path / "again.json")]
    done = CliRunner().invoke(main, ["study", "predict", str(path.with_name("graph.json")), *options])
    assert done.exit_code == 0, done.output
    assert "predicted for a40, v100-sxm2, rtx3080" in done.output
    first, again = (artifacts.load(file, PredictionFile) for file in (path, tmp_path / "again.json"))
    for entry, other in zip(first.predictions, again.predictions, strict=True):
        target = TARGETS[entry.target]
        assert {made.algorithm for made in entry.schedules.values()} == set(target.algorithms)
        assert entry.platform.predicted
        assert len(entry.platform.gpus or ()) == target.devices
        assert {name: made.latency_ms for name, made in entry.schedules.items()} == {
            name: made.latency_ms for name, made in other.schedules.items()
        }


def test_a_network_without_work_is_no_failure(tmp_path: Path) -> None:
    """The file says why nothing can be predicted, and figures show what was measured."""
    graph = Graph("unknown", (Operator("a", "task"),), ())
    file = artifacts.load(_write(tmp_path / "unknown", graph), PredictionFile)
    assert file.predictions == ()
    assert "a" in file.missing
    measured = write_network(tmp_path / "own", 1) / "run.json"
    figure = registry.figure("hios_fig12")
    rows = figure.rows(FigureData.read([measured, tmp_path / "unknown" / "predicted.json"]))
    assert "model" not in {row["platform"] for row in rows}


@pytest.mark.parametrize("name", _BESIDE)
def test_predictions_are_beside(name: str, data: FigureData, tmp_path: Path) -> None:
    """They are marked as predicted, name their GPU and the error of predictions, and have no verdict."""
    record = write_figure(registry.figure(name), data, tmp_path / "figures")
    predicted = [row for row in record.rows if row["platform"] == "model"]
    assert {row["mark"] for row in predicted} == {"predicted"}
    gpus = {str(row["hardware"]) for row in predicted}
    assert len(gpus) == 1
    assert gpus.pop().removeprefix("2 x ").startswith("NVIDIA")
    assert "differ from predicted ones by" in record.reason
    assert {entry.verdict for entry in record.comparisons} <= {"not on this machine"}
    svg = (tmp_path / "figures" / f"{name}.svg").read_text()
    assert "nothing ran on it" in svg
    own = FigureData(networks=data.networks)
    assert [row for row in record.rows if row["platform"] != "model"] == registry.figure(name).rows(own)
    assert "Predicted for" not in registry.figure(name).finding(registry.figure(name).rows(own))


def test_predicted_speedups_are_said(data: FigureData) -> None:
    """With the numbers of the file."""
    figure = registry.figure("ios_fig6")
    (entry,) = [entry for entry in data.predictions["networks"]["fork"].file.predictions if entry.target == "ios"]
    speedup = entry.schedules["sequential-1"].latency_ms / entry.schedules["ios-1"].latency_ms
    assert f"ios-1 {speedup:.2f} on fork" in figure.finding(figure.rows(data))
    assert figure.finding(figure.rows(data)).startswith("Speedup over the sequential schedule on one device, measured")


def test_error_of_predictions() -> None:
    """Of the GPU where latencies were published for it; of all others where none were."""
    own = model_validation.error_in_words("v100-sxm2", "V100")
    errors = [abs(row.error) for row in model_validation.rows() if row.gpu == "v100-sxm2"]
    assert f"{100 * max(errors):.0f} % at most ({len(errors)} latencies" in own
    assert "as none are for this one" in model_validation.error_in_words("a40", "A40")


def test_targets() -> None:
    """Networks of the configuration on the GPUs of HIOS, IOS and LIOS; Opara's each on its own."""
    assert targets_of("inception_v3") == ("hios", "ios", "lios")
    assert targets_of("study/images/inception_v3-512") == ("hios",)
    assert [targets_of(f"study/transformers/{name}") for name in ("bert-2-layers", "t5", "googlenet")] == [
        ("opara-a100",),
        ("opara-a100",),
        ("opara-rtx2080s",),
    ]


def test_files() -> None:
    """Predictions are made where the configuration asks for them, of images where it asks for these too."""

    def predicted(*sessions: str) -> list[str]:
        images = {"sizes": {"inception_v3": [64]}}
        given = {
            "models": {"squeezenet": None},
            "algorithms": {"ios": None},
            "study": {"sessions": list(sessions), "images": images},
        }
        files = figure_files(resolve(given, "a configuration"), registry.figure("hios_fig12"))
        return [file for file in files if file.endswith("predicted.json")]

    assert predicted("networks") == []
    assert predicted("networks", "predictions") == ["results/squeezenet/predicted.json"]
    assert predicted("networks", "images", "predictions")[1:] == ["results/study/images/inception_v3-64/predicted.json"]


def test_verified(tmp_path: Path) -> None:
    """Predicted schedules are checked against costs that are predicted again."""
    path = _write(tmp_path / "fork")
    assert [entry.problems for entry in verify(tmp_path) if entry.kind == "predicted"] == [()]
    contents = json.loads(path.read_text())
    contents["predictions"][0]["schedules"]["ios-1"]["latency_ms"] *= 0.9
    path.write_text(json.dumps(contents))
    ((problem, *_),) = [entry.problems for entry in verify(tmp_path) if entry.kind == "predicted"]
    assert problem.startswith("hios: ios-1: latency_ms")
