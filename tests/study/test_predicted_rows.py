"""Predictions for the papers' GPUs beside what was measured: files, rows, panels, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hios import Edge, Graph, Operator
from hios.core.graph import TensorSpec
from hios.files import artifacts
from hios.formats.partition import PredictionFile
from hios.formats.study import FigureFile
from hios.pipeline.config import resolve
from hios.study import predicted_rows, registry
from hios.study.figure_data import FigureData
from hios.study.gpu_predictions import predict_targets
from hios.study.gpu_targets import TARGETS, targets_of
from hios.study.published import Verdict
from hios.study.sessions import figure_files
from hios.verify import verify
from tests.cli.commands import succeed
from tests.study.drawn_figures import draw, on_gpu
from tests.verify.results import write_network

pytest.importorskip("altair", reason="needs the extra report")

#: A fork and a join of operators that state their work.
_GRAPH = Graph(
    "fork",
    tuple(Operator(name, "conv", flops=2e8, bytes=10**6) for name in "abcd"),
    tuple(Edge(source, target, bytes=10**5) for source, target in ("ab", "ac", "bd", "cd")),
    blocks=(("a", "b", "c", "d"),),
)
_OPARA = {"sequential-1": ("sequential", 1), "opara-1": ("opara", 1)}
_BESIDE = ("hios_fig12", "hios_fig13", "ios_fig2", "ios_fig6", "ios_fig16", "lios_fig7", "lios_fig8")
_RTX2080S = "NVIDIA GeForce RTX 2080 Super"
_V100 = "NVIDIA Tesla V100 SXM2 16 GB"


def _predictions(record: FigureFile) -> dict[str, tuple[str, str, str]]:
    """What was predicted for published numbers, for which GPU, and the verdict; by key."""
    return {
        entry.key: (entry.found, entry.by.removeprefix("predicted "), entry.verdict)
        for entry in record.comparisons
        if entry.by.startswith("predicted")
    }


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
    done = succeed("study", "predict", path.with_name("graph.json"), *options)
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
    """They are marked as predicted, name their GPU and the error of predictions; nothing is published of it."""
    record = draw(name, data, tmp_path / "figures")
    predicted = [row for row in record.rows if row["platform"] == "model"]
    assert {row["mark"] for row in predicted} == {"predicted"}
    gpus = {str(row["hardware"]) for row in predicted}
    assert len(gpus) == 1
    assert gpus.pop().removeprefix("2 x ").startswith("NVIDIA")
    assert "differ from predicted ones by" in record.reason
    assert {entry.verdict for entry in record.comparisons} <= {"not on this machine", "not compared"}
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


def test_stages_of_a_block(data: FigureData, tmp_path: Path) -> None:
    """Operations and times of a block's stages add up to the block's, and the share of the peak is that of the GPU."""
    figure = registry.figure("ios_fig2")
    rows = [row for row in figure.rows(data) if row["mark"] == "predicted"]
    (entry,) = [entry for entry in data.predictions["networks"]["fork"].file.predictions if entry.target == "ios"]
    for algorithm in ("sequential", "greedy", "ios"):
        own = [row for row in rows if row["algorithm"] == algorithm]
        made = entry.schedules[f"{algorithm}-1"]
        assert sum(row["operators"] for row in own) == 4
        assert sum(row["GFLOP"] for row in own) == pytest.approx(0.8)
        assert own[-1]["finish ms"] == pytest.approx(made.latency_ms - min(row.start_ms for row in made.placements))
        rate = 1000 * 0.8 / own[-1]["finish ms"]
        peak_gflops = 2 * 80 * 64 * 1530 / 1000
        share = f"{algorithm} {own[-1]['finish ms']:.3g} ms in {len(own)} stages with {rate:.4g} GFLOP/s"
        assert f"{share}, {100 * rate / peak_gflops:.0f} % of the peak" in figure.finding(figure.rows(data))
    assert max(row["operators"] for row in rows if row["algorithm"] == "sequential") == 1
    # A network that states no operations has no rows.
    assert {row["network"] for row in figure.rows(data)} == {"fork"}


def test_stages_of_a_measured_block(tmp_path: Path) -> None:
    """Operations a second are those of measured times; operators of other blocks in the same stages are counted."""
    graph = Graph(
        "two",
        tuple(Operator(name, "conv", flops=int(1e6 * size)) for name, size in zip("abcd", (1, 2, 3, 10), strict=True)),
        tuple(Edge(source, target, bytes=1) for source, target in ("ab", "ac")),
        blocks=(("a", "b", "c"), ("d",)),
    )
    folder = write_network(tmp_path / "two", 1, {f"{name}-1": (name, 1) for name in ("sequential", "greedy")}, graph)
    data = FigureData.read([folder / "run.json"])
    rows = registry.figure("ios_fig2").rows(data)
    measured = {result.algorithm: result.measured for result in data.networks["two"].run.results}
    assert [(row["operators"], row["operators of other blocks"]) for row in rows] == [
        (1, 0),
        (1, 0),
        (1, 0),
        (1, 1),
        (2, 0),
    ]
    for row, names in zip(rows, ["a", "b", "c", "a", "bc"], strict=True):
        own = [place for place in measured[row["algorithm"]] if place.operator in names]
        time_ms = max(place.finish_ms for place in own) - min(place.start_ms for place in own)
        gflop = sum(float(operator.flops or 0) for operator in graph.operators if operator.id in names) / 1e9
        assert row["GFLOP/s"] == pytest.approx(1000 * gflop / time_ms)
        assert row["% of peak"] is None
    record = draw("ios_fig2", data, tmp_path / "figures")
    assert "1 operators of other blocks beside and between them" in record.finding


def test_launch_orders(tmp_path: Path) -> None:
    """The paper's two launch orders, predicted alone; the verdict on the published gain is that of the prediction."""
    path = _write(tmp_path / "study" / "transformers" / "googlenet", targets=("opara-rtx2080s",))
    record = draw("opara_fig2", [path], tmp_path)
    rows: list[dict[str, Any]] = [dict(row) for row in record.rows]
    assert [row["schedule"] for row in rows] == ["depth-first order", "opara's order"]
    assert rows[1]["gain %"] == pytest.approx(100 * (1 - rows[1]["ms"] / rows[0]["ms"]))
    gain = f"RTX 2080 Super: {rows[1]['gain %']:.4g}"
    assert _predictions(record) == {"opara_fig2.launch_order": (gain, f"for {_RTX2080S}", "differs")}
    assert len(record.comparisons) == 1
    assert [own.verdict for own in registry.figure("opara_fig2").compare([])] == [Verdict.ELSEWHERE]


def test_the_sample_network(tmp_path: Path) -> None:
    """Predictions of IOS's own network have verdicts: by schedule, and its share of the peak."""
    record = draw("ios_fig2", [_write(tmp_path / "ios_sample", targets=("ios",))], tmp_path)
    rows: list[dict[str, Any]] = [dict(row) for row in record.rows]
    times = {name: max(row["finish ms"] for row in rows if row["algorithm"] == name) for name in ("sequential", "ios")}
    found = {key: text for key, (text, _, _) in _predictions(record).items()}
    assert found["ios_fig2.sample_network"] == f"sequential: {times['sequential']:.4g}, ios: {times['ios']:.4g}"
    share = 100 * 0.8 / times["ios"] / (2 * 80 * 64 * 1530 / 1e6)
    assert found["ios_fig2.ios_utilisation"] == f"{share:.4g}"
    assert found.keys() == {entry.key for entry in record.comparisons}


def test_timelines(tmp_path: Path) -> None:
    """Operators that depend on the same ones, as each schedule runs them; the published count has a verdict on them."""
    path = _write(tmp_path / "study" / "transformers" / "googlenet", targets=("opara-rtx2080s",))
    record = draw("opara_fig6", [path], tmp_path)
    rows: list[dict[str, Any]] = [dict(row) for row in record.rows if row.get("platform") == "model"]
    assert {row["operator"] for row in rows} == {"b", "c"}
    by_schedule = {name: [row for row in rows if row["schedule"] == f"{name}-1"] for name in ("sequential", "opara")}
    first, second = by_schedule["sequential"]
    assert (first["start ms"], first["streams"]) == (0.0, 1)
    assert second["start ms"] >= first["finish ms"]
    first, second = by_schedule["opara"]
    assert first["stream"] != second["stream"]
    assert second["start ms"] < first["finish ms"]
    assert _predictions(record) == {
        "opara_fig6.googlenet_streams": ("opara: 2, nimble: 2", f"for {_RTX2080S}", "differs"),
        "opara_fig6.at_once": ("sequential: 1, nimble: 2, opara: 2", f"for {_RTX2080S}", "differs"),
    }
    assert f"first {first['operator']}" in record.finding
    assert [entry.verdict for entry in record.comparisons if not entry.by.startswith("predicted")] == ["agrees"]


def test_cost_of_profiling(tmp_path: Path) -> None:
    """One inference of each network on its GPU, GoogLeNet's on the RTX 2080 S; without host, so it has no verdict."""
    labels = ("bert", "t5", "googlenet", "inception_v3")
    names = [f"study/transformers/{label}" for label in labels]
    paths = [_write(tmp_path / name, targets=targets_of(name)) for name in names]
    record = draw("opara_tab1", paths, tmp_path)
    made = [artifacts.load(path, PredictionFile).predictions for path in paths]
    every = [entry.schedules["sequential-1"].latency_ms for own in made for entry in own]
    assert [dict(row)["inference ms"] for row in record.rows] == every
    times = [own[-1].schedules["sequential-1"].latency_ms for own in made]
    assert f"{sum(times) / 4:.3g} ms in the mean" in record.finding
    assert not _predictions(record)
    assert "in the mean" not in registry.figure("opara_tab1").finding([dict(row) for row in record.rows[:3]])


def test_throughput_over_batches(tmp_path: Path) -> None:
    """Opara over the sequential schedule, on both of its GPUs, by batch size; measured rows stay as they are."""
    paths = []
    for batch in (1, 4):
        name = f"study/batches/inception_v3-b{batch}"
        operators = tuple(msgspec.structs.replace(op, flops=batch * 2 * 10**8) for op in _GRAPH.operators)
        paths.append(write_network(tmp_path / "measured" / name, batch, _OPARA) / "run.json")
        paths.append(_write(tmp_path / "predicted" / name, replace(_GRAPH, operators=operators), targets_of(name)))
    record = draw("opara_fig8", paths, tmp_path / "figures")
    rows: list[dict[str, Any]] = [dict(row) for row in record.rows]
    there = [row for row in rows if row["platform"] == "model"]
    assert {(row["hardware"], row["batch"], row["algorithm"]) for row in there} == {
        (gpu, batch, algorithm)
        for gpu in ("NVIDIA A100 PCIe 40 GB", _RTX2080S)
        for batch in (1, 4)
        for algorithm in ("sequential", "opara")
    }
    for row in rows:
        assert row["images a s"] == pytest.approx(1000 * row["batch"] / row["ms"])
    gains = [
        f"{row['speedup']:.2f} for inception_v3 with batch {row['batch']}"
        for row in there
        if row["algorithm"] == "opara"
    ]
    assert all(gain in record.finding for gain in gains)
    # On the GPU of the paper the predicted sequential schedule is a CUDA graph, like the paper's baseline.
    (gain,) = (
        row["speedup"]
        for row in there
        if (row["hardware"], row["batch"]) == (_RTX2080S, 1) and row["algorithm"] == "opara"
    )
    assert _predictions(record)["opara_fig8.over_graph"][:2] == (f"1: {gain:.4g}", f"for {_RTX2080S}")
    assert len(record.comparisons) == 1


def test_speedups_over_a_cuda_graph(tmp_path: Path) -> None:
    """Predictions of Opara are set beside the paper's CUDA graph; GoogLeNet's on the RTX 2080 Super alone."""
    names = [f"study/transformers/{label}" for label in ("bert", "googlenet")]
    paths = [_write(tmp_path / name, targets=targets_of(name)) for name in names]
    record = draw("opara_fig5", paths, tmp_path)
    rows: list[dict[str, Any]] = [dict(row) for row in record.rows]
    assert {row["launches"] for row in rows} == {"graph"}
    gain = {row["network"]: row["speedup"] for row in rows if row["algorithm"] == "opara"}
    found = {(entry.key, entry.by): entry.found for entry in record.comparisons}
    graph, a100, rtx = "opara_fig5.over_graph", "predicted for NVIDIA A100 PCIe 40 GB", f"predicted for {_RTX2080S}"
    assert found[graph, a100] == f"{gain['bert']:.4g}"
    assert found["opara_fig5.bert", a100] == f"graph: {gain['bert']:.4g}"
    assert found[graph, rtx] == f"{gain['googlenet']:.4g}"
    times = {row["algorithm"]: row["ms"] for row in rows if row["hardware"] == _RTX2080S}
    assert found["opara_fig5.googlenet", rtx] == f"graph: {times['sequential']:.4g}, opara: {times['opara']:.4g}"


def test_variants_of_lios(tmp_path: Path) -> None:
    """The fastest variant over LIOS itself, on networks of the paper: predicted on its GPU.

    LIOS-Rand1 is compared with the other variants, but for SqueezeNet, the exception.
    """
    squeezenet, *more = [_write(tmp_path / name, targets=("lios",)) for name in ("squeezenet", "inception_v3", "fork")]
    record = draw("lios_fig8", [squeezenet, *more], tmp_path)
    times = {row["algorithm"]: float(str(row["ms"])) for row in record.rows if row["network"] == "inception_v3"}
    over = min(ms for name, ms in times.items() if name != "lios") / times["lios"]
    others = min(times[name] for name in ("lios-rand2", "lios-rand")) / times["lios-rand1"]
    variants, rand1 = record.comparisons
    assert variants.found == f"{over:.4g}"  # both have the same graph
    assert variants.verdict == ("agrees" if over >= 1 else "differs")
    assert rand1.found == f"{others:.4g}"
    assert rand1.verdict == ("agrees" if others >= 1 else "differs")
    *_, alone = draw("lios_fig8", [squeezenet], tmp_path / "alone").comparisons
    assert (alone.found, alone.verdict) == ("", "not on this machine")


def _batches(folder: Path, *sizes: int) -> list[Path]:
    """Inception-v3 with several batch sizes, predicted."""
    paths = []
    for batch in sizes:
        name = f"study/batches/inception_v3-b{batch}"
        operators = tuple(msgspec.structs.replace(op, flops=batch * 2 * 10**8) for op in _GRAPH.operators)
        paths.append(_write(folder / name, replace(_GRAPH, operators=operators), targets_of(name)))
    return paths


def test_latencies_of_ios_over_batches(tmp_path: Path) -> None:
    """IOS and the sequential schedule by batch size, on the paper's GPU alone."""
    record = draw("ios_fig11", _batches(tmp_path, 1, 32), tmp_path)
    rows: list[dict[str, Any]] = [dict(row) for row in record.rows]
    assert {row["hardware"] for row in rows} == {_V100}
    found = {key: text for key, (text, _, _) in _predictions(record).items()}
    for algorithm in ("sequential", "ios"):
        times = {row["batch"]: row["ms"] for row in rows if row["algorithm"] == algorithm}
        assert found[f"ios_fig11.{algorithm}"] == f"1: {times[1]:.4g}, 32: {times[32]:.4g}"
    assert "inception_v3 with batch 32 " in record.finding


def test_schedules_for_other_batches(tmp_path: Path) -> None:
    """Schedules by IOS under the costs of other batch sizes, beside the own one."""
    record = draw("ios_tab3", _batches(tmp_path, 1, 32), tmp_path)
    rows: list[dict[str, Any]] = [dict(row) for row in record.rows]
    times = {(row["batch"], row["made for batch"]): row["ms"] for row in rows}
    assert times.keys() == {(1, 1), (1, 32), (32, 1), (32, 32)}
    found = {key: text for key, (text, _, _) in _predictions(record).items()}
    assert found == {
        f"ios_tab3.batch_{batch}": f"for 1: {times[batch, 1]:.4g}, for 32: {times[batch, 32]:.4g}" for batch in (1, 32)
    }
    change = 100 * (times[32, 1] / times[32, 32] - 1)
    assert f"inception_v3 with batch 32 by the schedule for 1 {change:+.1f} %" in record.finding


def test_opara_over_nimble(tmp_path: Path) -> None:
    """With the paper's batch sizes alone, on the A100."""
    record = draw("opara_fig9", _batches(tmp_path, 1, 8, 16), tmp_path)
    rows: list[dict[str, Any]] = [dict(row) for row in record.rows]
    over = {
        row["network"]: row["over nimble"] for row in rows if row["algorithm"] == "opara" and "A100" in row["machine"]
    }
    least, most = sorted(over[f"inception_v3-b{batch}"] for batch in (1, 8))
    found, gpu, _ = _predictions(record)["opara_fig9.over_nimble"]
    assert found == " to ".join(dict.fromkeys((f"{least:.4g}", f"{most:.4g}")))
    assert gpu == "for NVIDIA A100 PCIe 40 GB"
    assert len(record.comparisons) == 1


def test_the_second_gpu_of_ios(tmp_path: Path) -> None:
    """The appendix has a GPU of its own; other figures of IOS do not show it."""
    path = _write(tmp_path / "squeezenet", targets=targets_of("squeezenet"))
    record = draw("ios_fig14", [path], tmp_path)
    rows: list[dict[str, Any]] = [dict(row) for row in record.rows]
    assert {row["machine"] for row in rows} == {"NVIDIA GeForce RTX 2080 Ti"}
    (speedup,) = (row["speedup"] for row in rows if row["algorithm"] == "ios")
    assert _predictions(record)["ios_fig14.speedup"][0] == f"{speedup:.4g}"
    assert {dict(row)["hardware"] for row in draw("ios_fig6", [path], tmp_path).rows} == {_V100}


def test_modes_and_pruning_of_ios(tmp_path: Path) -> None:
    """Each mode has its own statement, and is one of the schedules that IOS-Both is compared with; so has pruning."""
    path = _write(tmp_path / "inception_v3", targets=("ios", "ios-pruning"))
    modes, pruned = (draw(name, [path], tmp_path) for name in ("ios_fig6", "ios_fig9"))
    rows: list[dict[str, Any]] = [dict(row) for row in modes.rows]
    times = {row["mode"] or row["algorithm"]: row["ms"] for row in rows}
    assert times.keys() == {"sequential", "greedy", "both", "merge", "parallel"}
    found = {key: text for key, (text, _, _) in _predictions(modes).items()}
    for name, ms in times.items():
        assert found[f"ios_fig6.{name}"] == f"inception_v3: {ms:.4g}"
    both = times.pop("both")
    assert found["ios_fig6.best"] == f"{min(times.values()) / both:.4g}"
    searches = {row["pruning"]: row["ms"] for row in map(dict[str, Any], pruned.rows)}
    found = {key: text for key, (text, _, _) in _predictions(pruned).items()}
    assert searches.keys() == {f"r{r} s{s}" for r in (1, 2, 3) for s in (3, 8)}
    assert found["ios_fig9.inception_ms"] == ", ".join(f"{name}: {ms:.4g}" for name, ms in searches.items())
    assert found["ios_fig9.r1_s8_over_sequential"] == f"inception_v3: {times['sequential'] / searches['r1 s8']:.4g}"


def test_table_of_lios(tmp_path: Path) -> None:
    """LIOS's latency; other runtimes are not predicted."""
    record = draw("lios_tab7", [_write(tmp_path / "squeezenet", targets=("lios",))], tmp_path)
    (row,) = record.rows
    assert _predictions(record)["lios_tab7.lios"][0] == f"squeezenet: {float(str(row['ms'])):.4g}"
    assert len(_predictions(record)) == 1


def test_what_graphs_decide_is_not_predicted(tmp_path: Path) -> None:
    """Streams of Opara and the operations of convolutions follow from the graphs of networks that did not run."""
    name = "study/transformers/bert"
    record = draw("opara_fig7", [_write(tmp_path / name, targets=targets_of(name))], tmp_path)
    streams = {row["algorithm"]: row["streams"] for row in record.rows if row["algorithm"] in ("opara", "nimble")}
    (bert,) = [entry for entry in record.comparisons if entry.key == "opara_fig7.bert_streams"]
    assert (bert.found, bert.by) == (f"{float(str(streams['opara'])) / float(str(streams['nimble'])):.4g}", "hios")
    assert not _predictions(record)
    inputs = (TensorSpec("x", (1, 3, 331, 331), "float32"),)
    path = _write(tmp_path / "nasnet_large", replace(_GRAPH, inputs=inputs), ("ios",))
    (flops, *_) = draw("ios_fig1", [path], tmp_path).comparisons
    assert (flops.found, flops.by, flops.verdict) == ("NASNet: 200", "hios", "differs")


def test_throughput_over_batches_on_a_gpu(tmp_path: Path) -> None:
    """A CUDA graph that ran beside Opara is what the paper compares with."""
    name = "inception_v3-b32"
    folder = write_network(tmp_path / "study" / "batches" / name, 1, _OPARA)
    network = FigureData.read([folder / "run.json"]).variants["batches"][name]
    graph = msgspec.structs.replace(network.run.references[0], kind="cudagraph")
    variants = {"batches": {name: on_gpu(network, references=(graph,))}}
    record = draw("opara_fig8", FigureData(variants=variants), tmp_path)
    (opara,) = [result for result in network.run.results if result.algorithm == "opara"]
    assert record.comparisons[0].found == f"32: {graph.latency_ms.median / opara.latency_ms.median:.4g}"
    assert record.comparisons[0].verdict != "not on this machine"


def test_error_of_predictions() -> None:
    """Of the GPU where latencies were published for it; of all others where none were."""
    own = predicted_rows.error_in_words("v100-sxm2", "V100")
    errors = [abs(row.error) for row in predicted_rows.validation_rows() if row.gpu == "v100-sxm2"]
    assert f"{100 * max(errors):.0f} % at most ({len(errors)} latencies" in own
    assert "as none are for this one" in predicted_rows.error_in_words("a40", "A40")


def test_targets() -> None:
    """Networks of the configuration on the GPUs of HIOS, IOS and LIOS; Opara's each on its own, GoogLeNet on both."""
    assert targets_of("squeezenet") == ("hios", "ios", "ios-rtx2080ti", "lios")
    assert targets_of("inception_v3") == ("hios", "ios", "ios-pruning", "ios-rtx2080ti", "lios")
    assert targets_of("study/batches/inception_v3-b4") == ("ios-batches", "opara-a100", "opara-rtx2080s")
    assert targets_of("study/images/inception_v3-512") == ("hios",)
    assert [targets_of(f"study/transformers/{name}") for name in ("bert-2-layers", "t5", "googlenet")] == [
        ("opara-a100",),
        ("opara-a100",),
        ("opara-a100", "opara-rtx2080s"),
    ]
    assert targets_of("study/transformers/inception_v3") == ("opara-rtx2080s",)
    captured = {name for name, target in TARGETS.items() if target.options["launches"] == "graph"}
    assert captured == {"opara-a100", "opara-rtx2080s"}


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
