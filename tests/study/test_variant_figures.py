"""Figures of networks of other image and batch sizes, and of transformers."""

from __future__ import annotations

import dataclasses
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hios.core.graph import TensorSpec
from hios.formats.run import Latency
from hios.study.figure_data import ExecutedNetwork, FigureData
from tests.study.drawn_figures import draw, found, on_gpu
from tests.study.variant_networks import write_profiles, write_variants
from tests.verify.results import write_network

pytest.importorskip("altair", reason="needs the extra report")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Runs of every session."""
    folder = tmp_path_factory.mktemp("variants")
    return {**write_variants(folder), "profiles": write_profiles(folder)}


def test_networks_of_other_sizes(files: dict[str, list[Path]], tmp_path: Path) -> None:
    """Rows have the image size, or the batch that ran and the one that the schedule is for."""
    network = write_network(tmp_path / "results" / "squeezenet", seed=2)
    sizes = found("hios_fig12", [network / "run.json", *files["images"]])
    assert {row["network"] for row in sizes.rows} == {"squeezenet", "inception_v3-512"}
    table = found("ios_tab3", files["batches"])
    pairs = {(row["batch"], row["made for batch"]) for row in table.rows}
    assert pairs == {(1, 1), (1, 4), (4, 1), (4, 4)}
    assert table.finding.count("inception_v3 with batch 1 by the schedule for 4 ") == 1
    over_batches = found("ios_fig11", files["batches"])
    measured = [row for row in over_batches.rows if row["mark"] == "measured here"]
    assert {(row["algorithm"], row["batch"]) for row in measured} == {*product(("sequential", "ios"), (1, 4))}
    by_batch = [(float(str(row[name])) for name in ("images a s", "batch", "ms")) for row in measured]
    assert all(throughput == pytest.approx(1000 * batch / ms) for throughput, batch, ms in by_batch)
    streams = found("opara_fig7", files["transformers"])
    assert {row["algorithm"] for row in streams.rows} == {"opara", "nimble"}
    assert streams.comparisons[0].verdict != "not on this machine"


def test_schedules_of_the_last_block(files: dict[str, list[Path]]) -> None:
    """Stages are those of the schedule, and a schedule for another batch size is compared with the own one."""
    record = found("ios_fig10", files["batches"])
    rows: dict[Any, Any] = {(row["batch"], row["made for batch"]): row for row in record.rows}
    assert rows.keys() == {(1, 1), (1, 4), (4, 1), (4, 4)}
    for batch, other in ((1, 4), (4, 1)):
        change = 100 * (rows[batch, other]["block ms"] / rows[batch, batch]["block ms"] - 1)
        assert f"{change:+.1f} % for inception_v3 with batch {batch} by the schedule for {other}" in record.finding
        assert f"{rows[batch, batch]['stages']} of inception_v3 with batch {batch}" in record.finding
        assert 1 <= rows[batch, other]["stages"] <= rows[batch, other]["operators"] <= 9
    assert {entry.verdict for entry in record.comparisons} == {"not on this machine"}


def test_schedules_of_the_last_block_on_a_gpu(files: dict[str, list[Path]], tmp_path: Path) -> None:
    """Batches 1 and 32 on a GPU have verdicts: stages by batch, and how much slower the other's schedule is."""
    session = FigureData.read(files["batches"]).variants["batches"]
    networks = {}
    for old, batch in (("inception_v3-b1", 1), ("inception_v3-b4", 32)):
        labels = {"ios-for-b4": "ios-for-b32"}
        results = (msgspec.structs.replace(r, label=labels.get(r.label, r.label)) for r in session[old].run.results)
        networks[f"inception_v3-b{batch}"] = on_gpu(session[old], results=tuple(results))
    record = draw("ios_fig10", FigureData(variants={"batches": networks}), tmp_path)
    rows: dict[Any, Any] = {(row["batch"], row["made for batch"]): row for row in record.rows}
    by_key = {entry.key: entry for entry in record.comparisons}
    stages = {batch: rows[batch, batch]["stages"] for batch in (1, 32)}
    assert by_key["ios_fig10.stages"].found == f"batch 1: {stages[1]:g}, batch 32: {stages[32]:g}"
    slower = [100 * (rows[b, o]["block ms"] / rows[b, b]["block ms"] - 1) for b, o in ((1, 32), (32, 1))]
    assert by_key["ios_fig10.faster"].found == f"batch 1: {slower[0]:.4g}, batch 32: {slower[1]:.4g}"


def test_time_of_stream_allocation(files: dict[str, list[Path]]) -> None:
    """It is a part of the time of scheduling; runs of before it was noted have no row."""
    data = FigureData.read(files["transformers"])
    record = found("opara_tab1", data)
    rows: dict[Any, Any] = {row["algorithm"]: row for row in record.rows}
    assert rows.keys() == {"opara", "nimble"}
    assert all(0 < row["allocation ms"] <= row["scheduling ms"] for row in rows.values())
    times = rows["nimble"]["allocation ms"] / rows["opara"]["allocation ms"]
    assert f"{rows['nimble']['allocation ms']:.2f} ms by nimble ({times:.1f} times as long)" in record.finding
    network = data.variants["transformers"]["t5"]
    old = [msgspec.structs.replace(result, allocation_time_s=None) for result in network.run.results]
    before = dataclasses.replace(network, run=msgspec.structs.replace(network.run, results=tuple(old)))
    variants = {"transformers": {"t5": before}}
    assert found("opara_tab1", FigureData(variants=variants)).state == "not drawn"


def test_time_of_scheduling_with_profiling(files: dict[str, list[Path]]) -> None:
    """Minutes are those of profile and algorithm; stages are those that the costs hold."""
    data = FigureData.read(files["profiles"])
    record = found("hios_fig14", data)
    rows: dict[Any, Any] = {row["algorithm"]: row for row in record.rows}
    assert rows.keys() == {"ios", "hios-lp"}
    for name, row in rows.items():
        assert (row["network"], row["image size"]) == ("inception_v3", 299)
        assert 60 * row["minutes"] == pytest.approx(row["profiling s"] + row["scheduling s"])
        assert row["stages"] == len(data.profiles["inception_v3-299"][name].costs.stages) == 1
        assert f"{name} {60 * row['minutes']:.3g} s for 1 stages" in record.finding
    assert "12 for hios-lp on inception_v3 with 299 px" in record.reason
    assert data.seconds == pytest.approx(60 * sum(row["minutes"] for row in rows.values()))
    assert {entry.verdict for entry in record.comparisons} == {"not on this machine"}


def test_time_of_scheduling_on_gpus(files: dict[str, list[Path]], tmp_path: Path) -> None:
    """Costs of GPUs are compared with the paper: 30 s are below its 20 minutes, and a third of those of IOS."""
    session = FigureData.read(files["profiles"]).profiles["inception_v3-299"]
    entries = {}
    for name, entry in session.items():
        assert entry.costs.platform is not None
        on_gpus = msgspec.structs.replace(entry.costs.platform, name="cuda")
        entries[name] = dataclasses.replace(entry, costs=msgspec.structs.replace(entry.costs, platform=on_gpus))
    profiles = {"inception_v3-299": entries, "nasnet_large-512": entries}
    record = draw("hios_fig14", FigureData(profiles=profiles), tmp_path)
    by_key = {entry.key: entry for entry in record.comparisons}
    assert by_key["hios_fig14.inception_minutes"].verdict == "agrees"
    below = 100 * (1 - entries["hios-lp"].seconds / entries["ios"].seconds)
    assert by_key["hios_fig14.nasnet_below_ios"].found == f"{below:.4g}"
    exchanged = {**entries, "hios-lp": entries["ios"], "ios": entries["hios-lp"]}
    record = found("hios_fig14", FigureData(profiles={"nasnet_large-512": exchanged}))
    verdicts = {entry.key: entry.verdict for entry in record.comparisons}
    assert verdicts["hios_fig14.nasnet_below_ios"] == ("differs" if below > 0 else "agrees")


def _with_size(network: ExecutedNetwork, size: int, times: dict[str, float]) -> ExecutedNetwork:
    """The network on images of a size, with these latencies by algorithm, on a GPU."""
    inputs = (TensorSpec("image", (1, 3, size, size), "float32"),)
    graph = msgspec.structs.replace(network.graph, inputs=inputs)
    results = [
        msgspec.structs.replace(result, latency_ms=Latency(time, time, time, (time,)))
        for result in network.run.results
        if (time := times.get(result.algorithm)) is not None
    ]
    return dataclasses.replace(on_gpu(network, results=tuple(results)), graph=graph)


def test_parts_of_the_gain_over_image_sizes(files: dict[str, list[Path]], tmp_path: Path) -> None:
    """The smallest and the largest images of a network are the paper's cases; NASNet at 331 px is one of its own."""
    data = FigureData.read(files["images"])
    measured = data.variants["images"]["inception_v3-512"]
    small = {"sequential": 10.0, "ios": 9.0, "hios-lp-inter": 6.0, "hios-lp": 5.0}
    large = {"sequential": 20.0, "ios": 18.0, "hios-lp-inter": 10.0, "hios-lp": 10.0}
    networks = {
        "inception_v3": _with_size(measured, 299, small),
        "nasnet_large": _with_size(measured, 331, {**small, "hios-lp": 9.5}),
    }
    images = {"inception_v3-512": _with_size(measured, 512, large)}
    together = FigureData(networks=networks, variants={"images": images})
    record = draw("hios_fig13", together, tmp_path)
    assert {(row["network"], row["image size"]) for row in record.rows} == {
        ("inception_v3", 299),
        ("inception_v3-512", 512),
        ("nasnet_large", 331),
    }
    assert {entry.key.partition(".")[2]: entry.found for entry in record.comparisons} == {
        "cut_over_ios": "Inception-v3, large images: 5, Inception-v3, small images: 5",
        "inter_part": "large images: 100, small images: 80",
        "nasnet_inter_part": "800",
        "nasnet_331_over_ios": "5.556",
    }
    on_cores = found("hios_fig13", data)
    assert {entry.verdict for entry in on_cores.comparisons} == {"not on this machine"}
    assert [row["network"] for row in on_cores.rows] == ["inception_v3-512"] * 8


def test_speedup_and_peak_memory(files: dict[str, list[Path]], tmp_path: Path) -> None:
    """Memory has a panel of its own where it is known; speedups on GPUs are compared with the paper."""
    data = FigureData.read(files["transformers"])
    (network,) = data.variants["transformers"].values()
    before = found("opara_fig5", data)
    assert {row["peak memory, MB"] for row in before.rows} == {None}
    assert "Peak memory" not in before.finding
    results = tuple(
        msgspec.structs.replace(result, peak_memory_bytes=(number + 1) * 10**8)
        for number, result in enumerate(network.run.results)
    )
    changed = {"transformers": {"t5": on_gpu(network, results=results)}}
    record = draw("opara_fig5", FigureData(variants=changed), tmp_path)
    assert [row["peak memory, MB"] for row in record.rows if row["devices"] == 1][: len(results)] == [
        100.0 * (number + 1) for number in range(len(results))
    ]
    assert f"{results[1].label} 200 MB on t5" in record.finding
    assert "peak memory, MB" in (tmp_path / "opara_fig5.svg").read_text()
    medians = {result.algorithm: result.latency_ms.median for result in results}
    values = {entry.key.partition(".")[2]: entry.found for entry in record.comparisons}
    gain = medians["nimble"] / medians["opara"]
    assert values["over_nimble"] == f"{gain:.4g}"
    assert values["t5_over_nimble"] == f"{100 * (gain - 1):.4g}"
    assert values["sm_efficiency_over_graph"] == ""
    assert "what torch allocates" in record.reason
    assert "performance counters" in record.reason
