"""HIOS, figure 13: six schedules."""

from __future__ import annotations

from collections.abc import Mapping

from hios.formats.prediction_file import GpuPrediction
from hios.study import network_runs as runs
from hios.study import predicted_rows as predicted
from hios.study import run_findings
from hios.study.figure_data import FigureData, PredictedNetwork
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "hios_fig13"
_ALGORITHMS = ("sequential", "ios", "hios-mr-inter", "hios-mr", "hios-lp-inter", "hios-lp")
#: Networks in words, as the published cases name them.
_NETWORKS = {"inception_v3": "Inception-v3", "nasnet_large": "NASNet"}
#: Height of the images, in pixels, that NASNet has by itself.
_OWN_SIZE = 331


def rows(data: FigureData) -> Rows:
    """A row for every schedule of the six algorithms, with the size of the images."""
    networks = runs.with_images(data)
    latencies = runs.schedule_rows(FigureData(networks=networks), _ALGORITHMS)
    return [
        {"network": row["network"], "image size": runs.image_size(networks[row["network"]]), **row} for row in latencies
    ]


def compare(rows: Rows) -> list[Comparison]:
    """What HIOS-LP cuts, over what IOS cuts, and the share of its inter-GPU part; of GPUs alone."""
    times = {name: runs.latencies(rows, name) for name in ("sequential", "ios", "hios-lp-inter", "hios-lp")}
    numbers: dict[str, dict[str, float]] = {
        name: {} for name in ("cut_over_ios", "nasnet_331_over_ios", "inter_part", "nasnet_inter_part")
    }
    for network, in_words in _NETWORKS.items():
        for label, size, case in _by_size(rows, network):
            own = {name: latencies[label] for name, latencies in times.items() if label in latencies}
            cut = {name: own["sequential"] - time for name, time in own.items()} if "sequential" in own else {}
            if case and cut.get("ios", 0) > 0 and "hios-lp" in cut:
                numbers["cut_over_ios"][f"{in_words}, {case}"] = cut["hios-lp"] / cut["ios"]
            if cut.get("hios-lp", 0) > 0 and "hios-lp-inter" in cut:
                share = 100 * cut["hios-lp-inter"] / cut["hios-lp"]
                if network == "nasnet_large":
                    numbers["nasnet_inter_part"][label] = share
                elif case:
                    numbers["inter_part"][case] = share
            if (network, size) == ("nasnet_large", _OWN_SIZE) and "hios-lp" in own and own.get("ios"):
                numbers["nasnet_331_over_ios"][label] = 100 * (own["hios-lp"] / own["ios"] - 1)
    return runs.comparisons(_ID, rows, numbers)


def _by_size(rows: Rows, network: str) -> list[tuple[str, int, str]]:
    """Labels of a network by the size of the images; the smallest and the largest of several are the paper's cases."""
    sizes: Mapping[str, int] = {
        row["network"]: row["image size"]
        for row in rows
        if row["network"].partition("-")[0] == network and row["image size"]
    }
    ends = {min(sizes.values()): "small images", max(sizes.values()): "large images"} if sizes else {}
    several = len(ends) > 1
    return [(label, size, ends.get(size, "") if several else "") for label, size in sizes.items()]


def why(rows: Rows) -> str:
    """What grouping changes."""
    return run_findings.gain_of_groups(rows, "hios-lp")


def predicted_rows(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for every schedule that is predicted for the paper's GPUs."""
    return [
        {"network": label, "image size": runs.image_size(network), **row}
        for row in predicted.latency_rows(label, network, prediction)
    ]


register(
    predicted.beside(
        Figure(
            id=_ID,
            title="Inter-GPU and intra-GPU parts of the gain",
            varies="algorithm and image size; latency of both benchmarks, with and without grouping on a device",
            needs=("2 devices",),
            sessions=("networks",),
            optional=("images",),
            rows=rows,
            finding=run_findings.speedups,
            chart=runs.bar_chart("schedule"),
            compare=compare,
            reason=why,
        ),
        ("hios",),
        ("networks", "images"),
        rows=predicted_rows,
    )
)
