"""Opara, figure 8: throughput over batch sizes."""

from __future__ import annotations

from collections.abc import Mapping

from hios.formats.prediction_file import GpuPrediction
from hios.study import network_runs as runs
from hios.study import predicted_rows as predicted
from hios.study import run_findings
from hios.study.figure_data import FigureData, PredictedNetwork
from hios.study.published import published
from hios.study.registry import Figure, Rows, reason, register
from hios.study.verdicts import Comparison

_ID = "opara_fig8"
_ALGORITHMS = ("sequential", "opara")
#: What the paper compares with; it runs on GPUs alone.
_GRAPH = "cudagraph"


def rows(data: FigureData) -> Rows:
    """A row for every batch size and mark of the sequential schedule and Opara, and for CUDA graphs on GPUs."""
    every = runs.batch_rows(data, _ALGORITHMS, (_GRAPH,))
    return [row for row in every if row["made for batch"] == row["batch"]]


def predicted_rows(label: str, network: PredictedNetwork, prediction: GpuPrediction) -> Rows:
    """The same for the GPU of a prediction."""
    return [
        runs.with_batch(row)
        for row in predicted.latency_rows(label, network, prediction)
        if row["algorithm"] in _ALGORITHMS
    ]


def compare(rows: Rows) -> list[Comparison]:
    """Throughput of Opara over that of the CUDA graph, by batch size; of GPUs alone."""
    if not runs.on_gpu(rows):
        return []
    graph, opara = (_times(rows, name) for name in (_GRAPH, "opara"))
    gains = {batch: graph[batch] / opara[batch] for batch in opara if batch in graph}
    return [Comparison(published(_ID)["over_graph"], gains)] if gains else []


def _times(rows: Rows, algorithm: str) -> Mapping[str, float]:
    """Measured milliseconds of Inception-v3 by batch size."""
    return {
        str(row["batch"]): row["ms"]
        for row in run_findings.measured(rows)
        if (row["network"], row["algorithm"]) == ("inception_v3", algorithm)
    }


def finding(rows: Rows) -> str:
    """What Opara gains over the sequential schedule with every batch size, as measured."""
    gains = _gains(run_findings.measured(rows))
    return f"Throughput of Opara over that of the sequential schedule, measured: {gains}." if gains else ""


def predicted_words(rows: Rows) -> str:
    """The same for every GPU that rows are of."""
    gpus = {
        name: [row for row in rows if row["hardware"] == name] for name in dict.fromkeys(r["hardware"] for r in rows)
    }
    return " ".join(f"Predicted for {name}: {gains}." for name, own in gpus.items() if (gains := _gains(own)))


def _gains(rows: Rows) -> str:
    return ", ".join(
        f"{row['speedup']:.2f} for {row['network']} with batch {row['batch']}"
        for row in rows
        if row["algorithm"] == "opara" and row["speedup"]
    )


register(
    predicted.beside(
        Figure(
            id=_ID,
            title="Throughput of Inception-v3 for different batch sizes, sequential and by Opara",
            varies="batch size; throughput of the sequential schedule and of Opara (the paper: of a CUDA graph too)",
            sessions=("batches",),
            rows=rows,
            chart=runs.throughput_chart,
            compare=compare,
            finding=finding,
            reason=run_findings.on_cores(
                reason(
                    "On a core the sequential schedule stands for the paper's CUDA graph: both replay a list of "
                    "operators that was prepared in advance."
                )
            ),
            command="python benchmarks/gpu.py run FOLDER",
        ),
        ("opara-a100", "opara-rtx2080s"),
        ("batches",),
        rows=predicted_rows,
        chart=runs.throughput_chart,
        words=predicted_words,
    )
)
