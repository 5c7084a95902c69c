"""HIOS, figure 12: latency over the image size."""

from hios.formats.prediction_file import GpuPrediction
from hios.study import network_runs as runs
from hios.study import predicted_rows as predicted
from hios.study import run_findings
from hios.study.figure_data import FigureData, PredictedNetwork
from hios.study.registry import Figure, Rows, register
from hios.study.verdicts import Comparison

_ID = "hios_fig12"
_ALGORITHMS = ("sequential", "ios", "hios-lp", "hios-mr")
_NETWORKS = {"inception": "inception_v3", "nasnet": "nasnet_large"}


def rows(data: FigureData) -> Rows:
    """A row for every schedule of the paper's algorithms, and for all devices as one, with the size of the images."""
    networks = runs.with_images(data)
    own = FigureData(networks=networks)
    latencies = runs.schedule_rows(own, _ALGORITHMS) + runs.reference_rows(own, ("engine",))
    return [
        {"network": row["network"], "image size": runs.image_size(networks[row["network"]]), **row} for row in latencies
    ]


def compare(rows: Rows) -> list[Comparison]:
    """How far HIOS-LP is below the others, in per cent."""
    lp = runs.latencies(rows, "hios-lp")
    numbers: dict[str, dict[str, float]] = {}
    for name, algorithm in (("sequential", "sequential"), ("ios", "ios"), ("mr", "hios-mr")):
        other = runs.latencies(rows, algorithm)
        for short, network in _NETWORKS.items():
            labels = [label for label in lp if label in other and label.partition("-")[0] == network]
            numbers[f"{short}_below_{name}"] = {label: 100 * (1 - lp[label] / other[label]) for label in labels}
    return runs.comparisons(_ID, rows, numbers)


def why(rows: Rows) -> str:
    """The sizes of images that ran, where the paper has several."""
    sizes = dict.fromkeys(f"{row['network']} at {row['image size']} px" for row in rows)
    return f"Only the sizes of the configuration ran: {', '.join(sizes)}."


def predicted_rows(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """A row for every schedule that is predicted for the paper's GPUs, of the algorithms above."""
    return [
        {"network": label, "image size": runs.image_size(network), **row}
        for row in predicted.latency_rows(label, network, prediction)
        if row["algorithm"] in _ALGORITHMS
    ]


register(
    predicted.beside(
        Figure(
            id=_ID,
            title="Inference latency of the benchmarks by image size",
            varies="image size; latency by sequential scheduling, IOS, HIOS-LP and HIOS-MR, measured and predicted",
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
